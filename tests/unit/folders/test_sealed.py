"""Sealed folders: what is listed is checked, what is not regular is refused, what is not ours is never replaced."""

import os
from pathlib import Path

import pytest

from railsearch.folders import FolderFormat, check_target, writing
from railsearch.foundation.errors import DataFolderError, InvalidInputError, ModelFolderError

INNER = FolderFormat("test.inner", 1, noun="inner thing", writer="test", files=frozenset({"weights"}))
OUTER = FolderFormat(
    "test.outer",
    1,
    noun="outer thing",
    writer="test",
    files=frozenset({"data", "words"}),
    free=frozenset({"README.md"}),
    inner={"inner": INNER},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with writing(OUTER, tmp_path / "outer", overwrite=False) as written:
        (written / "data").write_bytes(b"12345")
        (written / "words").mkdir()
        (written / "words" / "list.txt").write_text("a b c")
        (written / "README.md").write_text("read me")
        with writing(INNER, written / "inner", overwrite=False) as inner:
            (inner / "weights").write_bytes(b"678")
            INNER.write(inner, {})
        OUTER.write(written, {"color": "red"})
    return tmp_path / "outer"


def check(folder: Path) -> None:
    OUTER.check_files(folder, OUTER.read(folder))


def test_what_was_written_is_read_back(folder: Path) -> None:
    config = OUTER.read(folder)
    assert config["color"] == "red"
    assert sorted(config["files"]) == ["data", "words/list.txt"]
    OUTER.check_files(folder, config)
    assert OUTER.read_file(folder, config, "data") == b"12345"
    (folder / "README.md").write_text("edited by hand, as people do")
    check(folder)


@pytest.mark.parametrize("name", ["data", "words/list.txt"])
def test_every_listed_file_is_checked(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for changed in (content[:-1], content + b"x", b"y" + content[1:]):
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelFolderError, match=rf"{name} was changed or damaged after saving: it.* written;"):
            check(folder)
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=rf"{name} does not exist"):
        check(folder)


def test_a_file_that_nobody_listed_is_refused(folder: Path) -> None:
    (folder / "words" / "more.txt").write_text("who wrote this?")
    with pytest.raises(ModelFolderError, match=r"words/more\.txt is not in the list of config\.json; remove the file"):
        check(folder)


@pytest.mark.parametrize("name", ["data", "words/list.txt", "config.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        (folder / name).symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    with pytest.raises(ModelFolderError, match=rf"{name} (cannot be read|does not exist)"):
        check(folder)


def test_a_config_that_is_too_large_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ModelFolderError, match=r"config\.json cannot be read \(it has 1099511627776 bytes but"):
        OUTER.read(folder)


@pytest.mark.parametrize("name", ["../outside", "words/../../outside", "/etc/hostname", "config.json", "README.md"])
def test_a_config_that_lists_other_files_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "outside").write_bytes(b"12345")
    config = OUTER.read(folder)
    config["files"][name] = config["files"]["data"]
    OUTER.write(folder, config)
    with pytest.raises(ModelFolderError, match="which is not a file of a outer thing"):
        check(folder)


@pytest.mark.parametrize("stated", [None, 5, "x", {}, {"size": "5", "checksum": "0"}, {"size": 5, "checksum": 0}])
def test_a_config_that_states_no_checksum_is_refused(folder: Path, stated: object) -> None:
    config = OUTER.read(folder)
    config["files"]["data"] = stated
    OUTER.write(folder, config)
    with pytest.raises(ModelFolderError, match=r"states no size and checksum of data|does not list data"):
        check(folder)


def test_a_folder_of_ours_is_replaced_if_asked(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"outer already exists; choose another path or pass overwrite=True\."):
        check_target(OUTER, folder, overwrite=False)
    check_target(OUTER, folder, overwrite=True)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("red", "blue"))
    check_target(OUTER, folder, overwrite=True)  # damaged, but ours


@pytest.mark.parametrize("files", [None, 5, [], "words/list.txt"])
def test_a_folder_whose_list_of_files_is_damaged_is_not_replaced(folder: Path, files: object) -> None:
    OUTER.write(folder, {**OUTER.read(folder), "files": files})
    with pytest.raises(InvalidInputError, match="will not be replaced"):
        check_target(OUTER, folder, overwrite=True)  # nobody knows whose words/list.txt it is


@pytest.mark.parametrize("place", ["notes.txt", "words/notes.txt", "inner/notes.txt"])
def test_a_folder_with_other_files_is_not_replaced(folder: Path, place: str) -> None:
    (folder / place).write_text("mine")
    with pytest.raises(
        InvalidInputError, match="holds other files than a railsearch outer thing, and will not be repl"
    ):
        check_target(OUTER, folder, overwrite=True)
    with pytest.raises(InvalidInputError), writing(OUTER, folder, overwrite=True):
        pytest.fail("nothing must be written")
    assert (folder / place).read_text() == "mine"


def test_a_folder_of_the_same_names_that_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    for config in (None, "{}", '{"format": "other"}', "not json"):
        if config is not None:
            (tmp_path / "config.json").write_text(config)
        with pytest.raises(InvalidInputError, match="will not be replaced"):
            check_target(OUTER, tmp_path, overwrite=True)


def test_a_format_raises_the_error_of_its_room(tmp_path: Path) -> None:
    kind = FolderFormat("x", 1, noun="x", writer="prepare", config_file="about.json", error=DataFolderError)
    with pytest.raises(DataFolderError, match=r"about\.json does not exist; give a folder that prepare wrote"):
        kind.read(tmp_path)
