"""Only regular files inside a folder are opened: no link, FIFO or device, whatever its name."""

import os
from pathlib import Path

import pytest

from railsearch.foundation.files import describe
from railsearch.foundation.safe_files import (
    NotRegularError,
    describe_inside,
    files_inside,
    folder_inside,
    open_inside,
    read_inside,
    remove_inside,
    size_inside,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a file in a subfolder, links, a FIFO and a socket; a secret lies beside it."""
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_bytes(b"content")
    (folder / "inner" / "file").write_bytes(b"inner content")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "file").write_bytes(b"secret")
    (folder / "link").symlink_to("../secret")
    (folder / "dangling").symlink_to("../nowhere")
    (folder / "linked").symlink_to("../beside")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    return folder


def test_regular_files(folder: Path) -> None:
    assert read_inside(folder, "file") == b"content"
    assert read_inside(folder, "inner/file") == b"inner content"
    assert size_inside(folder, "inner/file") == 13
    assert describe_inside(folder, "file", expected_size=7) == describe(folder / "file")
    assert describe_inside(folder, "file", expected_size=8).size == 7
    assert describe_inside(folder, "file", expected_size=8).checksum == ""
    assert files_inside(folder) == ["file"]
    assert files_inside(folder, "inner") == ["file"]


def test_the_folder_itself_may_be_reached_by_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to("folder")
    assert read_inside(tmp_path / "way", "inner/file") == b"inner content"


@pytest.mark.parametrize("name", ["link", "dangling", "linked", "device", "fifo", "inner", "linked/file"])
def test_anything_else_is_refused(folder: Path, name: str) -> None:
    for use in (read_inside, size_inside, open_inside, lambda *place: open_inside(*place, os.O_RDWR | os.O_CREAT)):
        with pytest.raises(NotRegularError, match=r"it is .*, which is not followed") as caught:
            use(folder, name)
        assert str(folder / name) in str(caught.value) or str(folder / "linked") in str(caught.value)
    assert not (folder.parent / "nowhere").exists()


@pytest.mark.parametrize("name", ["../secret", "..", ".", "inner/../../secret", "/etc/passwd", "", "a\0b"])
def test_names_stay_inside(folder: Path, name: str) -> None:
    for use in (read_inside, remove_inside):
        with pytest.raises(OSError, match=r"is not the name of a file in it|No such file|it is a folder"):
            use(folder, name)
    assert (folder.parent / "secret").read_bytes() == b"secret"


def test_folders_are_not_reached_by_links(folder: Path) -> None:
    for use in (files_inside, lambda *place: remove_inside(place[0], f"{place[1]}/file")):
        with pytest.raises(NotRegularError, match="linked"):
            use(folder, "linked")
    with pytest.raises(NotRegularError), folder_inside(folder, "fifo"):
        pass
    assert (folder.parent / "beside" / "file").exists()


def test_removing(folder: Path) -> None:
    remove_inside(folder, "link")  # the link, not the file
    remove_inside(folder, "inner/file")
    remove_inside(folder, "inner/file")
    assert (folder.parent / "secret").exists()
    assert files_inside(folder, "inner") == []


def test_large_files_are_not_read(folder: Path) -> None:
    os.truncate(folder / "file", 2**40)
    with pytest.raises(OSError, match="it has 1099511627776 bytes but 4096 are allowed"):
        read_inside(folder, "file", largest=4096)


def test_descriptors_are_closed(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("file", "inner/file", "linked/file", "fifo", "missing", "inner"):
        try:
            read_inside(folder, name)
        except OSError:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
