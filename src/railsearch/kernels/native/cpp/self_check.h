// A check of an instruction set on the CPU that runs it.
#pragma once

#include "operations.h"

namespace railsearch {

// Whether it returns the bits of the portable one in small examples of every search operation and number format. An
// instruction set is used only if it does, so that no CPU, compiler or emulator can change a score unseen.
bool agrees_with_portable(const Operations& operations);

}  // namespace railsearch
