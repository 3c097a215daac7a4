"""Keys and hosts: who may ask, and under which name."""

from pathlib import Path

import pytest

from railsearch.errors import InvalidInputError
from railsearch.server.hosts import Hosts, is_loopback
from railsearch.server.keys import READ_VARIABLE, WRITE_VARIABLE, Keys, Role, read_keys

READ, WRITE = "r" * 20, "w" * 20


def write_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "keys.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = write_file(tmp_path, f'read = ["{READ}"]')
    keys = read_keys(file, {WRITE_VARIABLE: f" {WRITE} , {'v' * 16}"})
    assert keys.role_of(f"Bearer {READ}".encode()) is Role.READ
    assert keys.role_of(f"Bearer {WRITE}".encode()) is Role.WRITE
    assert keys.role_of(b"Bearer " + b"v" * 16) is Role.WRITE
    assert keys.role_of(f"Bearer {READ}x".encode()) is Role.NONE
    assert keys.role_of(None) is Role.NONE
    assert keys.role_of(b"Bearer ") is Role.NONE
    assert READ not in repr(keys)


def test_without_keys_everyone_may_do_everything() -> None:
    assert not Keys()
    assert read_keys(None, {}).role_of(None) is Role.WRITE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("read = 3", "is not a list of keys"),
        ("read = [3]", "is not a list of keys"),
        (f'other = ["{READ}"]', "'other', which is not a list"),
        ("read = []", "holds no key"),
        ("read = [", "is not TOML"),
        ('read = ["short"]', "a key has 5 characters"),
        ('read = ["0123456789 abcdefgh"]', "visible ASCII"),
        ('read = ["0123456789\u00e9abcdefgh"]', "visible ASCII"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_keys(write_file(tmp_path, text), {})


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInputError, match="can be read by other users"):
        read_keys(write_file(tmp_path, f'read = ["{READ}"]', mode), {})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_keys(tmp_path / "missing", {})
    with pytest.raises(InvalidInputError, match=r"cannot be read|is not a file"):
        read_keys(tmp_path, {})
    with pytest.raises(InvalidInputError, match="a key has 3 characters"):
        read_keys(None, {READ_VARIABLE: "abc"})


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True), ("LOCALHOST:8080", True), ("127.0.0.1", True), ("10.1.2.3:80", True), ("[::1]:80", True),
        ("search.example", True), ("search.example.:80", True), ("evil.example", False), ("", False), ("a:b", False),
        ("localhost:123456", False), ("localhost:", False), ("[::1", False), ("[evil]", False),
        ("127.0.0.1.evil", False),
    ],
)  # fmt: skip
def test_hosts(host: str, is_known: bool) -> None:
    assert Hosts(["Search.Example"]).knows(host) == is_known


def test_wrong_host_names_are_refused() -> None:
    for name in ("", "a b", "http://a", "a:80", "*"):
        with pytest.raises(InvalidInputError, match="is not a host name"):
            Hosts([name])


def test_only_this_machine_reaches_a_loopback_address() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "a.example"))  # noqa: S104
