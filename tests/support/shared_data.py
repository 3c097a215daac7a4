"""Public data sets that lie beside the repository, in ../shared/data."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data"


def shared_file(name: str) -> Path:
    """Return the path of a data set's file, or skip the test if it is missing."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{path} is missing; the test reads it")
    return path
