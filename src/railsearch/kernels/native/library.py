"""The compiled kernels, if they are there, and the instruction set that they use."""

import functools
import os
import sys

from railsearch.foundation.errors import InvalidInputError

try:
    import _railsearch_native as library
except ImportError:
    library = None  # type: ignore[assignment]  # never used: see is_available
    _is_available = False
else:
    _is_available = library.INTERFACE == 4  # an extension of another railsearch is as good as none

__all__ = ["ISA_VARIABLE", "KNOWN_ISAS", "chosen_isa", "is_available", "library", "usable_isas", "why_missing"]

ISA_VARIABLE = "RAILSEARCH_ISA"
KNOWN_ISAS = ("portable", "avx2", "avx512", "avx512_vnni")


def is_available() -> bool:
    """Return whether the native kernels were compiled for this Python and this version of railsearch."""
    return _is_available


def why_missing() -> str | None:
    """Return what to do to get the native kernels, or None if they are there."""
    if _is_available:
        return None
    return (
        "the native kernels are not compiled, so scores are computed with torch; install a C++17 compiler and "
        f"the headers of Python {sys.version_info.major}.{sys.version_info.minor} (on Debian: apt install g++ "
        "python3-dev), then install railsearch again"
    )


def usable_isas() -> list[str]:
    """Return the instruction sets that were compiled and that this CPU can run, best first."""
    return library.usable_isas() if is_available() else []


def chosen_isa() -> str:
    """Return the instruction set to compute with: the one that RAILSEARCH_ISA names, or the best one.

    Without RAILSEARCH_ISA, an instruction set is used only if it returns the bits of the portable one in small examples
    of every search operation. They take a few milliseconds, once for each process.
    """
    return _choose(os.environ.get(ISA_VARIABLE))


@functools.cache
def _choose(forced: str | None) -> str:
    if forced is None:
        return next(isa for isa in usable_isas() if isa == "portable" or library.agrees_with_portable(isa))
    if forced not in usable_isas():
        known = "known to" if forced in KNOWN_ISAS else "unknown to"
        raise InvalidInputError(
            f"{ISA_VARIABLE} is {forced!r}, which is {known} railsearch, but this CPU can run {usable_isas()}; "
            f"set it to one of those, or unset it."
        )
    return forced
