"""An index that is opened without reading it: every block is checked before its first use, and never later."""

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Adaptive, Average, BruteForce, Combined, Index, PerComponent, TwoPass, Weighted
from railsearch.errors import IndexFolderError
from railsearch.index import changes
from railsearch.index.storage import segment_files
from railsearch.index.storage.blocks import CHECKSUMS, block_checksums
from railsearch.index.storage.manifest import seal
from railsearch.index.storage.tensor_files import map_tensors, write_tensors
from tests.support.faults.model import read_manifest
from tests.support.faults.mutations import reseal_index
from tests.support.similarities import make_similarity
from tests.support.trials import trials

NUM_ITEMS = 300
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(5))
STRATEGIES = [BruteForce(), Average(20), Weighted(40), PerComponent(3), Combined(2, 10), TwoPass(), Adaptive()]
BLOCK = 256
"""Bytes of a block in these tests."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of many small blocks, with metadata, two segments and removed items."""
    path = tmp_path_factory.mktemp("lazy") / "index"
    items = torch.randn(NUM_ITEMS, 6, generator=torch.Generator().manual_seed(0))
    titles = pl.DataFrame({"title": [f"item {item}" for item in range(NUM_ITEMS)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "SMALL", 0)
        patch.setattr(segment_files, "BLOCK_BYTES", BLOCK)
        with Index.build(make_similarity("mixture"), items[:200], metadata=titles[:200], path=path) as index:
            index.add(items[200:], metadata=titles[200:])
            index.remove([7, 250])
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "index"))


@pytest.mark.parametrize("verify", ["full", "lazy"])
def test_an_index_without_items_can_be_opened(tmp_path: Path, verify: str) -> None:
    with Index.build(make_similarity("mixture"), torch.ones(1, 6), path=tmp_path / "index") as built:
        built.remove([0])
        built.compact()
    assert Index.check(tmp_path / "index").is_intact
    with Index.open(tmp_path / "index", verify=verify) as index:
        assert len(index) == 0


def current_manifest(folder: Path) -> Path:
    return sorted((folder / "manifests").iterdir())[-1]


def files_of(folder: Path) -> list[str]:
    """Return the files that the newest version needs."""
    manifest = current_manifest(folder)
    return ["CURRENT", f"manifests/{manifest.name}", *read_manifest(manifest)["files"]]


def first_segment(folder: Path) -> Path:
    return folder / "segments" / f"{read_manifest(current_manifest(folder))['segments'][0]['name']}.safetensors"


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.unlink()
    path.write_bytes(content)


def place_of(file: Path, tensor: str, row: int) -> int:
    """Return the byte of a row of a tensor in a segment file."""
    size = int.from_bytes(file.read_bytes()[:8], "little")
    entry = json.loads(file.read_bytes()[8 : 8 + size])[tensor]
    first, last = entry["data_offsets"]
    return 8 + size + first + row * (last - first) // entry["shape"][0]


def use_everything(index: Index) -> object:
    return [index.search(QUERIES, 5, strategy).to_frame().to_dicts() for strategy in STRATEGIES]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("options", [{}, {"allow": "title != 'item 3'", "exclude": [[1, 2], [], [290]]}], ids=["", "f"])
def test_answers_are_the_same(folder: Path, strategy: object, options: dict) -> None:
    with Index.open(folder) as full, Index.open(folder, verify="lazy") as lazy:
        expected, found = (index.search(QUERIES, 5, strategy, **options) for index in (full, lazy))
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.scores.tolist() == expected.scores.tolist()
        if not isinstance(strategy, Average):
            assert found.ceiling.tolist() == expected.ceiling.tolist()


def test_nothing_is_certified_of_unchecked_items(folder: Path) -> None:
    strategy = Average(20)
    with Index.open(folder) as full, Index.open(folder, verify="lazy") as lazy:
        assert not lazy.search(QUERIES, 5, strategy).ceiling.isfinite().any()
        lazy.search(QUERIES, 5, BruteForce())  # reads and checks all items
        expected = full.search(QUERIES, 5, strategy)
        assert expected.ceiling.isfinite().all()
        assert lazy.search(QUERIES, 5, strategy).ceiling.tolist() == expected.ceiling.tolist()


@pytest.mark.parametrize("seed", range(trials(20, 400)))
def test_damage_in_any_file_is_noticed(folder: Path, seed: int) -> None:
    choice = random.Random(seed)
    files = files_of(folder)
    file = files[seed % len(files)]
    path = folder / file
    size = path.stat().st_size
    if choice.random() < 0.2:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[: choice.randrange(size)])
    else:
        flip(path, choice.randrange(size))
    with pytest.raises(IndexFolderError) as caught, Index.open(folder, verify="lazy") as index:
        use_everything(index)
    assert file in str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "harmless"),
    [("components", Average(6)), ("gate", Average(6)), ("sums", BruteForce()), ("components", None)],
)
def test_damage_is_noticed_at_the_first_use(folder: Path, tensor: str, harmless: object) -> None:
    with Index.open(folder) as index:
        scored = {item // 16 for item in index.search(QUERIES[:1], 6, Average(6)).ids[0].tolist()}
    unused = next(item for item in range(8, 200, 16) if item // 16 not in scored)
    file = first_segment(folder)
    flip(file, place_of(file, tensor, unused))
    with Index.open(folder, verify="lazy") as index:
        if harmless is not None:
            index.search(QUERIES[:1], 1, harmless)
        message = "is damaged: its checksum does not match; restore it from a copy"
        for _ in range(2):  # and at every later use
            with pytest.raises(IndexFolderError, match=f"{file.name} {message}"):
                index.search(QUERIES[:1], 1, Average(6) if tensor == "sums" else BruteForce())
        with pytest.raises(IndexFolderError, match=message):
            index.search(QUERIES[:1], 1, Average(6))
        with pytest.raises(IndexFolderError, match=message):
            index.compact()
    assert not Index.check(folder).is_intact


def num_bytes_read(work: Callable[[], object]) -> int:
    """Return how many bytes this process has read from files while it did some work; maps are not counted."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = read()
    work()
    return read() - before


def test_opening_reads_only_ids_and_checksums(tmp_path: Path) -> None:
    items = torch.randn(20_000, 6, generator=torch.Generator().manual_seed(0))
    titles = pl.DataFrame({"title": torch.rand(len(items), generator=torch.Generator().manual_seed(0)).numpy()})
    Index.build(make_similarity("mixture"), items, metadata=titles, path=tmp_path / "index").close()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    with Index.open(tmp_path / "index") as index:
        index.search(QUERIES[:1], 1, Average(1))  # imports what a search needs
    assert num_bytes_read(lambda: Index.open(tmp_path / "index")) > size
    opened = []
    head = read_manifest(current_manifest(tmp_path / "index"))["segments"][0]["head_size"]
    assert 8 * len(items) < head < 9 * len(items)
    assert num_bytes_read(lambda: opened.append(Index.open(tmp_path / "index", verify="lazy"))) < head + 50_000
    (index,) = opened
    components, sums = 32 * len(items), 16 * len(items)
    assert sums <= num_bytes_read(lambda: index.search(QUERIES[:1], 1, Average(1))) < sums + components // 2
    assert num_bytes_read(lambda: index.search(QUERIES[:1], 1, Average(1))) < 10_000  # what was checked is not read


FORGED: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "NaN components": (lambda t: t["components"].view(-1)[3].fill_(torch.nan), "components have NaN or infinite"),
    "infinite gate": (lambda t: t["gate"].view(-1)[3].fill_(torch.inf), "gate has NaN or infinite"),
    "NaN sums": (lambda t: t["sums"].view(-1)[3].fill_(torch.nan), "sums has NaN or infinite"),
    "longer components": (lambda t: t["components"].mul_(2), "longest component has length"),
}


def reseal(folder: Path, forge: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a segment as a stranger would, with every checksum set right."""
    file = first_segment(folder)
    tensors = {key: value.clone() for key, value in map_tensors(folder, f"segments/{file.name}").items()}
    forge(tensors)
    values = {key: tensors[key] for key in ("components", "sums", "gate")}
    tensors[CHECKSUMS] = block_checksums(values, BLOCK)
    write_tensors(file, tensors)
    body = read_manifest(current_manifest(folder))
    first = body["segments"][0]
    first["head_checksum"] = segment_files.describe_start(file, first["head_size"])
    reseal_index(folder, f"manifests/{current_manifest(folder).name}", body)


@pytest.mark.parametrize("case", FORGED)
def test_values_that_a_stranger_sealed(folder: Path, case: str) -> None:
    forge, message = FORGED[case]
    reseal(folder, forge)
    with Index.open(folder, verify="lazy") as index, pytest.raises(IndexFolderError, match=message):
        use_everything(index)


def test_sums_of_others_are_found_in_the_background(folder: Path) -> None:
    reseal(folder, lambda tensors: tensors["sums"].copy_(tensors["sums"].flip(0)))
    with Index.open(folder, verify="lazy") as index:
        assert index.search(QUERIES, 5, BruteForce()).is_exact.all()  # it does not read sums
        assert not index.search(QUERIES, 5, Average(20)).is_exact.any()
    with Index.open(folder, verify="background") as index:
        wait_for_checks()
        with pytest.raises(IndexFolderError, match="sums are off"):
            index.search(QUERIES, 5, BruteForce())


@pytest.mark.parametrize("head_size", [8, 100, 2**40])
def test_a_forged_head(folder: Path, head_size: int) -> None:
    body = read_manifest(current_manifest(folder))
    body["segments"][0]["head_size"] = head_size
    current_manifest(folder).write_bytes(seal(json.dumps(body)))
    with pytest.raises(IndexFolderError, match=r"is damaged|was truncated"):
        Index.open(folder, verify="lazy")
    body["segments"][0]["head_checksum"] = segment_files.describe_start(first_segment(folder), head_size)
    current_manifest(folder).write_bytes(seal(json.dumps(body)))
    with pytest.raises(IndexFolderError, match=r"do not end with the ids|was truncated"):
        Index.open(folder, verify="lazy")


def wait_for_checks() -> None:
    for thread in threading.enumerate():
        if thread.name == "railsearch-checks":
            thread.join()


def test_the_background_checks_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.open(folder, verify="background") as index:
        wait_for_checks()
        assert index.search(QUERIES, 5, Average(20)).ceiling.isfinite().all()
        use_everything(index)
    file = first_segment(folder)
    flip(file, place_of(file, "gate", 199))
    with Index.open(folder, verify="background") as index:
        wait_for_checks()
        with pytest.raises(IndexFolderError, match="is damaged"):
            index.search(QUERIES, 5, Average(20))


def test_a_segment_without_a_head_is_read_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of format version 2 can be opened, changed and damaged as before."""
    with Index.open(folder) as index:
        expected = use_everything(index)
    body = read_manifest(current_manifest(folder))
    for segment in body["segments"]:
        file = f"segments/{segment['name']}.safetensors"
        tensors = {key: value.clone() for key, value in map_tensors(folder, file).items() if key != CHECKSUMS}
        write_tensors(folder / file, tensors)
        for name in ("head_size", "head_checksum", "block_bytes"):
            del segment[name]
    reseal_index(folder, f"manifests/{current_manifest(folder).name}", body | {"format_version": 2})
    for verify in ("full", "lazy"):
        with Index.open(folder, verify=verify) as index:
            assert use_everything(index) == expected
    with Index.open(folder, verify="lazy") as index:
        index.remove([1])
        index.add(torch.ones(1, 6), metadata=pl.DataFrame({"title": ["new"]}))
        assert len(index) == NUM_ITEMS - 2
    file = first_segment(folder)
    flip(file, place_of(file, "gate", 199))
    with pytest.raises(IndexFolderError, match="is damaged"):
        Index.open(folder, verify="lazy")


def test_changes_of_an_index_that_was_opened_lazily(folder: Path) -> None:
    with Index.open(folder, verify="lazy") as index:
        index.upsert(torch.ones(2, 6), ids=[0, 999], metadata=pl.DataFrame({"title": ["a", "b"]}))
        index.remove([3])
        index.compact()
        found = use_everything(index)
    with Index.open(folder) as index:
        assert use_everything(index) == found
        assert index.verify().is_intact


def test_an_unknown_way_to_verify(folder: Path) -> None:
    with pytest.raises(ValueError, match="verify is 'never'"):
        Index.open(folder, verify="never")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_background_ends_quietly_with_the_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a program ends, Python stops its workers before it waits for other threads."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr("railsearch.index.storage.blocks.for_each_block", refuse)
    with Index.open(folder, verify="background"):
        wait_for_checks()
