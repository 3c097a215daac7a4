"""Downloads from a server on this machine: whole, wrong, cut short and refused; and archives that mean harm."""

import hashlib
import socket
import zipfile
from pathlib import Path

import pytest

from railsearch.data.interactions.download import download, unpack
from railsearch.errors import DownloadError, InvalidInputError
from tests.support.file_server import CONTENT

DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("name", ["whole", "unstated"])
def test_a_good_download(server: str, tmp_path: Path, name: str) -> None:
    download(f"{server}/{name}", tmp_path / "file", sha256=DIGEST, max_bytes=len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "sha256", "max_bytes", "message"),
    [
        ("whole", "0" * 64, 10**7, f"has checksum {DIGEST} but {'0' * 64} was expected"),
        ("cut", DIGEST, 10**7, "ended after 512,000 of 1,024,000 bytes; try again"),
        ("absent", DIGEST, 10**7, "absent answers 404 Not Found"),
        ("whole", DIGEST, 1000, "is 1,024,000 bytes long but at most 1,000 are expected"),
        ("unstated", DIGEST, 1000, "is longer than the expected 1,000 bytes"),
    ],
)
def test_a_bad_download_leaves_nothing(
    server: str, tmp_path: Path, name: str, sha256: str, max_bytes: int, message: str
) -> None:
    with pytest.raises(DownloadError, match=message):
        download(f"{server}/{name}", tmp_path / "file", sha256=sha256, max_bytes=max_bytes)
    assert not list(tmp_path.iterdir())


def test_no_network(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(
            DownloadError,
            match=r"Connection refused.*check the network, or download the file by hand and pass it with source=PATH",
        ):
            download(f"http://127.0.0.1:{port}/file", tmp_path / "file", sha256=DIGEST, max_bytes=10)
    with pytest.raises(InvalidInputError, match="is not an http or https address"):
        download((tmp_path / "file").as_uri(), tmp_path / "copy", sha256=DIGEST, max_bytes=10)
    assert not list(tmp_path.iterdir())


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as content:
        for name, text in files.items():
            content.writestr(name, text)
    return path


def test_only_named_files_are_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    names = {
        "../../evil.txt": "e",
        "/etc/evil": "e",
        "ml/../../ratings.dat": "r",
        "ml/users.dat": "u",
        "movies.dat": "m",
    }
    unpack(archive(tmp_path / "a.zip", **names), ["ratings.dat", "movies.dat"], folder, max_bytes=10)
    assert {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()} == {
        "a.zip", "folder/ratings.dat", "folder/movies.dat"
    }  # fmt: skip


def test_archives_that_cannot_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    bomb = archive(tmp_path / "bomb.zip", **{"ratings.dat": "0" * 10**6})
    with pytest.raises(DownloadError, match=r"ratings.dat in .*bomb.zip is longer than the expected 1,000 bytes"):
        unpack(bomb, ["ratings.dat"], folder, max_bytes=1000)
    for name, message in (("movies.dat", "holds 0 files called movies.dat"), ("twice", "holds 2 files called twice")):
        with pytest.raises(InvalidInputError, match=message):
            unpack(archive(tmp_path / "b.zip", **{"a/twice": "", "b/twice": ""}), [name], folder, max_bytes=10)
    damaged = bytearray(bomb.read_bytes())
    damaged[60] ^= 255
    bomb.write_bytes(damaged)
    with pytest.raises(InvalidInputError, match=r"bomb.zip cannot be unpacked"):
        unpack(bomb, ["ratings.dat"], folder, max_bytes=10**7)
    bomb.write_text("no archive")
    with pytest.raises(InvalidInputError, match=r"bomb.zip cannot be unpacked .*not a zip file"):
        unpack(bomb, ["ratings.dat"], folder, max_bytes=10**7)
