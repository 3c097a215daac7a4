"""The tree of errors: every class stands in the drawing, and a full disk is no ValueError."""

import errno
import inspect
from pathlib import Path

import pytest

from railsearch import DotProduct, load_similarity, save_similarity
from railsearch.foundation import errors
from railsearch.foundation.errors import InvalidInputError, RailsearchError, StorageError


def test_the_drawing_is_complete() -> None:
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        assert issubclass(kind, RailsearchError)
        assert f"{name} " in f"{errors.__doc__} ".replace("\n", " ")


def test_a_full_disk_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match=r"cannot be written \(No space left on device\); nothing was changed") as caught:
        save_similarity(DotProduct(dim=2), tmp_path / "model")
    assert isinstance(caught.value, StorageError)
    assert not isinstance(caught.value, ValueError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [None, 3, "", "a\0b"])
def test_paths_that_are_none(path: object) -> None:
    with pytest.raises(InvalidInputError, match="give the name of a folder"):
        load_similarity(path)  # type: ignore[arg-type]
