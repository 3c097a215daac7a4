"""Folders that a stranger wrote: refused by name or answered rightly, and nothing outside them is touched."""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, save_similarity
from railsearch.errors import IndexFolderError
from railsearch.index import changes
from railsearch.index.storage.manifest import seal
from railsearch.index.storage.tensor_files import map_tensors, write_tensors
from tests.support.faults.model import read_manifest
from tests.support.faults.mutations import reseal_index
from tests.support.similarities import make_similarity
from tests.support.trials import IS_FULL, trials

ROOT = Path(__file__).parents[2]
SECONDS_PER_MUTATION = 30
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two indexes of several versions and segments with a gate and metadata, a model, and files that are not ours.

    The ids of one index are integers, and those of the other are strings.
    """
    world = tmp_path_factory.mktemp("hostile")
    generator = torch.Generator().manual_seed(0)

    def build(path: Path, own_id: Callable[[int], object]) -> None:
        def some(*ids: int) -> dict:
            names = pl.DataFrame({"name": [f"item {item}" for item in ids], "year": [1900 + item for item in ids]})
            items = torch.randn(len(ids), 6, generator=generator)
            return {"items": items, "ids": list(map(own_id, ids)), "metadata": names}

        with Index.build(make_similarity("mixture"), **some(*range(9)), path=path) as index:
            index.add(**some(10, 11, 12))
            index.remove([own_id(3), own_id(11)])
            index.upsert(**some(4, 20, 21))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "SMALL", 0)
        build(world / "index", int)
        build(world / "keyed", str)
    save_similarity(make_similarity("mixture"), world / "model")
    (world / "canaries").mkdir()
    for name in ("0" * 32 + ".safetensors", "notes.txt", "CURRENT", "x.tmp", "0" * 32 + ".arrow", "00000001.json"):
        (world / "canaries" / name).write_text(f"not yours: {name}")
    return world


@pytest.fixture
def copy(world: Path, tmp_path: Path) -> Path:
    """A copy of the index, beside files that are not its own."""
    shutil.copytree(world / "index", tmp_path / "index")
    shutil.copytree(world / "canaries", tmp_path / "canaries")
    return tmp_path / "index"


@pytest.fixture
def limited_time() -> Iterator[None]:
    """Fail a test that waits, for a FIFO say."""

    def stop(*_: object) -> None:
        pytest.fail("it waits for a file")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def canaries(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((file.name, file.read_bytes()) for file in (folder.parent / "canaries").iterdir())


@pytest.mark.parametrize("part", [0, 1] if IS_FULL else [0])
def test_mutations(world: Path, part: int, say: Callable[[str], None]) -> None:
    """The fuzz test: one process with a limit on memory opens many mutated folders; two parts, for two workers."""
    count = trials(40, 5_000)
    first = part * count
    request = {"folder": str(world), "seed": 11, "first": first, "last": first + count}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.faults.hostile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.close()
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    bad = []
    for number, line in enumerate(answers_of(process), start=first):
        answer = json.loads(line)
        assert answer["number"] == number
        outcomes[answer["what"], answer["outcome"]] += 1
        if answer["outcome"] not in {"refused", "answered"}:
            bad.append(answer)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 0, f"the process ended with {process.returncode} at mutation {outcomes.total()}"
    assert outcomes.total() == count
    assert not bad, "\n\n".join(f"{len(bad)} bad: {answer}" for answer in bad[:5])
    assert all(outcomes[what, outcome] for what in ("index", "model") for outcome in ("refused", "answered"))
    said = ", ".join(f"{what} {outcome} {count}" for (what, outcome), count in sorted(outcomes.items()))
    say(f"hostile folders: {count} resealed mutations, none crashed, hung or touched a file outside ({said})")


def answers_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Give the lines of a process; end it if none comes for long."""
    assert process.stdout is not None
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        process.kill()

    while True:
        timer = threading.Timer(10 * SECONDS_PER_MUTATION, stop)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        assert not is_late.is_set(), "a mutation hangs"
        if not line:
            return
        yield line


def linked(target: str | Path) -> Callable[[Path], None]:
    return lambda place: place.symlink_to(target)


PLACES = {
    "a link to a folder": linked("../canaries"),
    "a link to a file": linked("../../canaries/notes.txt"),
    "a link to a device": linked("/dev/zero"),
    "a FIFO": os.mkfifo,
}


@pytest.mark.usefixtures("limited_time")
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("name", ["LOCK", "CURRENT", "manifests", "segments", "tombstones", "metadata", "similarity"])
def test_only_regular_files_inside_are_opened(copy: Path, name: str, kind: str) -> None:
    """A subfolder or its files, or a file at the top, in every place that is read, locked, written or cleaned up."""
    place, before = copy / name, canaries(copy)
    places = [place] if not place.is_dir() else [place, sorted(place.iterdir())[-1]]
    for each in places:
        kept = copy.parent / "kept"
        if each.exists():
            each.rename(kept)
        PLACES[kind](each)
        with (
            pytest.raises(IndexFolderError, match=r"which is not followed|is not a railsearch index"),
            Index.open(copy) as index,
        ):
            index.remove([1])
        if name != "manifests":
            Index.check(copy)
        assert canaries(copy) == before
        each.unlink()
        if kept.exists():
            kept.rename(each)
    with Index.open(copy) as index:
        index.remove([1])


def test_cleanup_leaves_the_folder_that_a_link_points_to(copy: Path) -> None:
    with Index.open(copy) as index:
        index.compact()  # so that no tombstone is needed
        before = canaries(copy)
        shutil.rmtree(copy / "tombstones")
        (copy / "tombstones").symlink_to("../canaries")
        for change in (index.compact, lambda: index.remove([1]), lambda: index.tune(QUERIES.repeat(2, 1), 2)):
            with pytest.raises(IndexFolderError, match=r"tombstones cannot be used: it is a symbolic link"):
                change()
            assert canaries(copy) == before


def test_a_hard_link_to_the_lock_is_not_overwritten(copy: Path) -> None:
    (copy / "LOCK").unlink(missing_ok=True)
    (copy / "LOCK").hardlink_to(copy.parent / "canaries" / "notes.txt")
    before = canaries(copy)
    with Index.open(copy) as index:
        index.remove([1])
    assert canaries(copy) == before


def newest(folder: Path) -> str:
    return f"manifests/{sorted((folder / 'manifests').iterdir())[-1].name}"


def first_segment(folder: Path) -> tuple[str, dict[str, torch.Tensor]]:
    name = read_manifest(folder / newest(folder))["segments"][0]["name"]
    return f"segments/{name}.safetensors", {
        key: value.clone() for key, value in map_tensors(folder, f"segments/{name}.safetensors").items()
    }


def swapped(values: torch.Tensor) -> torch.Tensor:
    return torch.cat([values[1:2], values[:1], values[2:]])


def with_value(values: torch.Tensor, value: float) -> torch.Tensor:
    values.view(-1)[3] = value
    return values


FORGED_TENSORS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "ids in another order": (lambda t: t.update(ids=swapped(t["ids"])), "ids are not ascending"),
    "an id twice": (lambda t: t.update(ids=t["ids"].clamp_min(1)), "ids are not ascending"),
    "a negative id": (lambda t: t.update(ids=t["ids"] - 5), "ids are not ascending, or negative"),
    "ids as floats": (lambda t: t.update(ids=t["ids"].double()), "ids is torch.float64"),
    "ids of another shape": (lambda t: t.update(ids=t["ids"][:, None]), r"ids is torch.int64 of shape \(9, 1\)"),
    "another precision": (lambda t: t.update(components=t["components"].half()), "components is torch.float16"),
    "fewer components": (lambda t: t.update(components=t["components"][:, :1]), r"of shape \(9, 1, 4\)"),
    "shorter components": (lambda t: t.update(components=t["components"][..., :2]), r"of shape \(9, 2, 2\)"),
    "no gate": (lambda t: t.pop("gate"), "it has a gate but the similarity has none, or the reverse"),
    "a narrow gate": (lambda t: t.update(gate=t["gate"][:, :1]), r"gate is .* of shape \(9, 1\)"),
    "fewer rows of sums": (lambda t: t.update(sums=t["sums"][:4]), r"sums has shape \(4, 4\)"),
    "sums of others": (lambda t: t.update(sums=swapped(t["sums"])), "sums are off"),
    "NaN components": (lambda t: with_value(t["components"], torch.nan), "components have NaN or infinite"),
    "infinite components": (lambda t: with_value(t["components"], torch.inf), "components have NaN or infinite"),
    "NaN gate": (lambda t: with_value(t["gate"], torch.nan), "gate has NaN or infinite"),
    "NaN sums": (lambda t: with_value(t["sums"], torch.nan), "sums have NaN or infinite"),
    "longer components": (lambda t: t["components"].mul_(2), "longest component has length"),
    "one more tensor": (lambda t: t.update(more=t["ids"]), "it holds .*more"),
}


@pytest.mark.parametrize("case", FORGED_TENSORS)
def test_resealed_tensors(copy: Path, case: str) -> None:
    forge, message = FORGED_TENSORS[case]
    file, tensors = first_segment(copy)
    forge(tensors)
    write_tensors(copy / file, tensors)
    reseal_index(copy, newest(copy), read_manifest(copy / newest(copy)))
    with pytest.raises(IndexFolderError, match=message):
        Index.open(copy)
    assert any(file.partition("/")[2].partition(".")[0] in problem.message for problem in Index.check(copy).problems)


FORGED_MANIFESTS: dict[str, tuple[Callable[[dict, dict], object], str]] = {
    "a segment twice": (lambda body, first: body["segments"].append(first), "names a segment twice"),
    "longest is 0": (lambda body, first: first.update(longest=0.0), "longest component has .* manifest states 0.0"),
    "longest is too small": (lambda body, first: first.update(longest=first["longest"] * 0.99), "manifest states"),
    "longest is NaN": (lambda body, first: first.update(longest=float("nan")), "longest of segment .* is nan"),
    "longest is infinite": (lambda body, first: first.update(longest=float("inf")), "longest of segment .* is inf"),
    "fewer rows": (lambda body, first: first.update(num_rows=4), "4 rows are needed"),
    "too many rows": (lambda body, first: first.update(num_rows=2**40), "rows are needed"),
    "a count that is true": (lambda body, first: body.update(num_items=True), "num_items is True"),
    "more items": (lambda body, first: body.update(num_items=99), "has 12 items but its manifest states 99"),
    "another precision": (lambda body, first: body.update(precision="fp16"), "torch.float16 .* is needed"),
    "another scan": (lambda body, first: body.update(scan="int4"), "scan is 'int4'"),
    "a scan that is no text": (lambda body, first: body.update(scan=8), "scan is 8"),
    "no precision": (lambda body, first: body.update(precision="fp12"), "has precision 'fp12', which is unknown"),
    "another birth": (lambda body, first: body.update(birth="x"), "birth is 'x'"),
    "another model": (lambda body, first: body.update(models=["0" * 64]), "models does not name"),
    "metadata for some": (lambda body, first: first.update(has_metadata=False), "some segments have metadata"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED_MANIFESTS)
def test_resealed_manifests(copy: Path, case: str) -> None:
    forge, message = FORGED_MANIFESTS[case]
    body = read_manifest(copy / newest(copy))
    forge(body, body["segments"][0])
    (copy / newest(copy)).write_bytes(seal(json.dumps(body)))
    with pytest.raises(IndexFolderError, match=message):
        Index.open(copy)
    assert not Index.check(copy).is_intact


def test_the_same_id_in_two_segments(copy: Path) -> None:
    body = read_manifest(copy / newest(copy))
    body["num_items"] += sum(1 for segment in body["segments"] if segment["tombstones"])
    rows = {
        segment["tombstones"]: map_tensors(copy, segment["tombstones"])["rows"]
        for segment in body["segments"]
        if segment["tombstones"]
    }
    assert rows
    for file, removed in rows.items():
        write_tensors(copy / file, {"rows": removed[:-1].clone()})  # one comes back
    reseal_index(copy, newest(copy), body)
    with pytest.raises(IndexFolderError, match="holds id 4 more than once"):
        Index.open(copy)
    assert any("holds id 4 more than once" in problem.message for problem in Index.check(copy).problems)


@pytest.mark.parametrize("rows", [[9], [-1], [3, 3], [4, 3], [2**62], [[1, 2]], [0.5]], ids=str)
def test_tombstones_of_rows_that_do_not_exist(copy: Path, rows: list) -> None:
    body = read_manifest(copy / newest(copy))
    file = next(segment["tombstones"] for segment in body["segments"] if segment["tombstones"])
    write_tensors(copy / file, {"rows": torch.tensor(rows)})
    reseal_index(copy, newest(copy), body)
    with pytest.raises(IndexFolderError, match=r"lists rows that are not ascending|does not hold the removed rows"):
        Index.open(copy)


def test_a_small_metadata_file_of_many_rows(copy: Path) -> None:
    body = read_manifest(copy / newest(copy))
    file = next(file for file in body["files"] if file.startswith("metadata/"))
    columns = {"name": pl.repeat("", 10_000_000, eager=True), "year": pl.repeat(0, 10_000_000, eager=True)}
    pl.DataFrame(columns).write_ipc(copy / file, compression="zstd")
    assert (copy / file).stat().st_size < 300_000
    reseal_index(copy, newest(copy), body)
    with Index.open(copy) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl, "read_ipc", lambda *_: pytest.fail("it was decompressed"))
        with pytest.raises(IndexFolderError, match=r"has 10000000 rows but its segment has"):
            index.search(QUERIES, 2).to_frame()
        assert any("has 10000000 rows" in problem.message for problem in index.verify().problems)


def test_a_file_that_is_cut_while_it_is_open(copy: Path) -> None:
    """Reading beyond the new end would kill the process, so sizes come first."""
    with Index.open(copy) as index:
        file, _ = first_segment(copy)
        os.truncate(copy / file, 100)
        for call in (index.refresh, index.compact, lambda: index.remove([1])):
            with pytest.raises(IndexFolderError, match=f"{file} has 100 bytes but should have"):
                call()
        assert any(f"{file} has 100 bytes" in problem.message for problem in index.verify().problems)


def test_a_manifest_as_large_as_a_film(copy: Path) -> None:
    os.truncate(copy / newest(copy), 2**40)  # a sparse file: it takes no room
    with pytest.raises(IndexFolderError, match=r"json cannot be read \(it has 1099511627776 bytes but"):
        Index.open(copy)
    os.truncate(copy / "CURRENT", 2**40)
    with pytest.raises(IndexFolderError, match=r"CURRENT cannot be read \(it has 1099511627776 bytes but"):
        Index.open(copy)
