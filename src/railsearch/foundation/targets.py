"""Checks of a place to write to, before any work is done for it: a folder that can be written, on a disk with space."""

import os
import shutil
from pathlib import Path

from railsearch.foundation.errors import StorageError


def check_writable(target: Path) -> None:
    """Refuse a folder, which need not exist, that cannot be written: a file is in the way, or permission is missing."""
    place = _nearest(target)
    if not place.is_dir():
        raise StorageError(f"{target} cannot be written ({place} is a file); nothing was changed, choose another path.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(
            f"{target} cannot be written (no permission in {place}); nothing was changed, choose another path."
        )


def check_space(target: Path, needed: int, *, work: str) -> None:
    """Refuse a folder, which need not exist, whose disk has less space than `needed` bytes.

    Args:
        target: the folder.
        needed: bytes that will be written.
        work: what needs them, for the message.
    """
    place = _nearest(target)
    free = shutil.disk_usage(place).free
    if needed > free:
        raise StorageError(
            f"{work} need {as_size(needed)} but the disk of {place} has {as_size(free)} free; free some space, or "
            "choose another path."
        )


def as_size(size: int) -> str:
    """Return a number of bytes for a reader.

    >>> as_size(1536), as_size(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.1f} {units[0]}"


def as_duration(seconds: float) -> str:
    """Return a time for a reader.

    >>> as_duration(4.25), as_duration(90), as_duration(7500)
    ('4.2 s', '1.5 min', '2.1 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _nearest(target: Path) -> Path:
    """Return the path itself, or the nearest one above it that exists."""
    place = target.absolute()
    while not os.path.lexists(place):
        place = place.parent
    return place.resolve()
