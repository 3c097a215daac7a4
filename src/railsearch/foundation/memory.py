"""The memory guard: work that needs more memory than there is says so before it starts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from railsearch.foundation.errors import InvalidInputError, NotEnoughMemoryError

VARIABLE = "RAILSEARCH_MEMORY"
"""The environment variable that states how much memory railsearch may use, such as 8GiB, instead of what is free."""
SMALL = 2**26
"""Bytes of work that is never checked: to ask the system takes longer than some searches."""
UNITS = {
    "": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def check_memory(needed: int, *, work: str, remedy: str) -> None:
    """Raise NotEnoughMemoryError if work needs more bytes than are available.

    Args:
        needed: the least number of bytes that the work allocates, so that nothing is refused that could be done.
        work: what needs them, for the message.
        remedy: what to do instead.
    """
    if needed <= SMALL:
        return
    available = available_memory()
    if available is not None and needed > available:
        raise NotEnoughMemoryError(
            f"{work} needs at least {_shown(needed)} of memory but {_shown(available)} are available; {remedy}. "
            f"The variable {VARIABLE}, such as {VARIABLE}=64GiB, sets another limit."
        )


def available_memory() -> int | None:
    """Return the bytes that this process can still take without swapping; None if the system does not say.

    That is the least of what Linux calls MemAvailable and of what the limits of this process's control groups leave.
    Both count the page cache as free. The variable RAILSEARCH_MEMORY replaces all of them.
    """
    stated = os.environ.get(VARIABLE)
    if stated:
        return parse_size(stated)
    found = [each for each in (_free_of_machine(), *_free_of_groups()) if each is not None]
    return min(found, default=None)


def parse_size(text: str) -> int:
    """Return the bytes that a text states.

    >>> parse_size("1.5 GiB"), parse_size("200MB"), parse_size("4096")
    (1610612736, 200000000, 4096)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS:
        raise InvalidInputError(f"{VARIABLE} is {text!r:.80}; give a size such as 8GiB.")
    return int(float(found[1]) * UNITS[found[2].lower()])


def _free_of_machine() -> int | None:
    found = _numbers(MEMINFO).get("MemAvailable:")
    return None if found is None else 1024 * found


def _free_of_groups() -> Iterator[int]:
    """Yield what each control group above this process leaves, of version 1 or 2."""
    try:
        lines = CGROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            root, limit, usage, cached = MOUNT, "memory.max", "memory.current", ("active_file", "inactive_file")
        elif "memory" in controllers.split(","):
            root, limit, usage = MOUNT / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = ("total_active_file", "total_inactive_file")
        else:
            continue
        inner = root / place.lstrip("/")
        for group in (inner, *inner.parents):
            most, used = _number(group / limit), _number(group / usage)
            if most is not None and used is not None:
                stated = _numbers(group / "memory.stat")
                yield max(0, most - used + sum(stated.get(name, 0) for name in cached))
            if group == root:
                break


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file, or it states no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _numbers(path: Path) -> dict[str, int]:
    """Return the first number of each line of a file by the word before it."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _shown(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"
