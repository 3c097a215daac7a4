// Which instruction set is used.
#pragma once

#include <string>
#include <vector>

#include "operations.h"

namespace railsearch {

// The instruction sets that were compiled and that this CPU can run, best first; "portable" is always among them.
std::vector<const Operations*> usable_operations();

// The one with this name, or null.
const Operations* find_operations(const std::string& name);

}  // namespace railsearch
