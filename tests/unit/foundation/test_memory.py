"""The memory guard with pretended machines: what is available, and what a refusal says."""

from pathlib import Path

import pytest

from railsearch.errors import InvalidInputError, NotEnoughMemoryError, RailsearchError
from railsearch.foundation import memory

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 4 GiB that are free, and no control groups."""
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "MOUNT", tmp_path / "mount")
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 1024 kB\nMemAvailable:    4194304 kB\n")
    return tmp_path


def limit_group(group: Path, limit: str, used: int, cached: int) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file 0\n")


def test_the_machine(machine: Path) -> None:
    assert memory.available_memory() == 4 * GIB
    (machine / "meminfo").unlink()
    assert memory.available_memory() is None
    memory.check_memory(2**60, work="nothing known", remedy="none")  # nothing is refused


def test_control_groups(machine: Path) -> None:
    (machine / "cgroup").write_text("0::/outer/inner\n")
    limit_group(machine / "mount/outer/inner", "max", used=GIB, cached=0)
    assert memory.available_memory() == 4 * GIB
    limit_group(machine / "mount/outer", str(3 * GIB), used=2 * GIB, cached=GIB // 2)  # a limit above counts too
    assert memory.available_memory() == 3 * GIB // 2
    limit_group(machine / "mount/outer/inner", str(GIB), used=2 * GIB, cached=0)
    assert memory.available_memory() == 0


def test_control_groups_of_version_1(machine: Path) -> None:
    (machine / "cgroup").write_text("9:name=systemd:/\n4:cpu,memory:/job\n0::/\n")
    group = machine / "mount/memory/job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(str(2 * GIB))
    (group / "memory.usage_in_bytes").write_text(str(GIB))
    (group / "memory.stat").write_text(f"total_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}\n")
    assert memory.available_memory() == 3 * GIB // 2


def test_the_variable_replaces_the_machine(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, "512 MiB")
    assert memory.available_memory() == GIB // 2
    for wrong in ("much", "-1", "8 GiG"):
        monkeypatch.setenv(memory.VARIABLE, wrong)
        with pytest.raises(InvalidInputError, match=f"RAILSEARCH_MEMORY is '{wrong}'; give a size such as 8GiB"):
            memory.available_memory()


def test_a_refusal_has_both_numbers(machine: Path) -> None:
    memory.check_memory(4 * GIB, work="a search", remedy="search less")
    with pytest.raises(NotEnoughMemoryError) as caught:
        memory.check_memory(4 * GIB + 2**29, work="a search", remedy="search less")
    assert str(caught.value).startswith("a search needs at least 4.5 GiB of memory but 4.0 GiB are available; search")
    assert isinstance(caught.value, (RailsearchError, MemoryError))


def test_small_work_does_not_ask(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: pytest.fail("it asked"))
    memory.check_memory(memory.SMALL, work="a search", remedy="search less")
