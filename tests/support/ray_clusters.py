"""A Ray cluster of separate processes on loopback: a head and other nodes, each with its own resources."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import railsearch

PATIENCE = 240.0
"""The machine may be busy; a node needs 5 seconds on a quiet one."""
QUICK = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
"""A lost node is noticed within seconds, and other work on this machine does not starve the actors (niceness 15)."""

SMALL = (
    "--block",
    "--num-cpus=2",
    "--object-store-memory=100000000",
    "--include-log-monitor=false",
    "--disable-usage-stats",
)


class RayNodes:
    """The processes of a cluster. Nodes have addresses of their own: 127.0.0.2, 127.0.0.3 and so on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[str] = set()
        self._count = 0

    @property
    def address(self) -> str:
        """The address of the head."""
        return f"127.0.0.2:{self._port}"

    def add(self) -> str:
        """Start a node, the head first; return its address once it is there."""
        host = f"127.0.0.{2 + self._count}"
        is_head = not self._count
        self._count += 1
        place = (
            ["--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
            if is_head
            else [f"--address={self.address}"]
        )
        log = self._folder / f"{host}.log"
        with log.open("wb") as output:
            self._nodes[host] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ray.scripts.scripts",
                    "start",
                    "--block",
                    *place,
                    *SMALL,
                    f"--node-ip-address={host}",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **QUICK, "OMP_NUM_THREADS": "1", "PYTHONPATH": _python_path()},
            )
        wait_until(lambda: "Ray runtime started" in log.read_text() or self._nodes[host].poll() is not None)
        assert self._nodes[host].poll() is None, log.read_text()
        return host

    def others(self) -> list[str]:
        """Return the nodes that live, without the head."""
        return [host for host, node in self._nodes.items() if node.poll() is None and host not in self._killed][1:]

    def kill_raylet(self, host: str) -> None:
        """Kill the raylet of a node; its other processes follow once they notice."""
        (raylet,) = [pid for pid in _descendants(self._nodes[host].pid) if "raylet/raylet" in _command(pid)]
        self._killed.add(host)
        os.kill(raylet, signal.SIGKILL)

    def actors(self, host: str) -> list[int]:
        """Return the process ids of the actors that hold shards on a node."""
        return [pid for pid in _descendants(self._nodes[host].pid) if _command(pid).startswith("ray::Holder")]

    def all_actors(self) -> list[int]:
        """Return the process ids of the actors that hold shards on any node."""
        return [pid for host in self._nodes for pid in self.actors(host)]

    def end(self) -> None:
        """End all processes, the head last."""
        for process in reversed(self._nodes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self._nodes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def ray_nodes(count: int) -> Iterator[RayNodes]:
    """Start a cluster of a head and other nodes, and end it; the program that asks is disconnected, too."""
    import ray

    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as folder:
        nodes = RayNodes(Path(folder))
        try:
            for _ in range(count):
                nodes.add()
            yield nodes
        finally:
            ray.shutdown()
            nodes.end()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _free_port() -> int:
    """Return a port that nobody has and that the system gives to nobody who asks for any port."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.2", port))
            return port
    raise AssertionError("no port is free")


def _python_path() -> str:
    return os.pathsep.join([str(Path(railsearch.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])


def _descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, level = [], [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
