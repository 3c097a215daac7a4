"""A process that opens mutated folders, one after the other, with little memory to spare; run by test_hostile_folders.

The request is a line of JSON on stdin: a folder, a seed, and the numbers of the mutations. The answer to each mutation
is a line: what was mutated, and whether it was refused or answered. A wrong answer, an error that is not ours, a file
outside that has changed: a line that says so. If this process dies or does not answer, the number of lines says where.
"""

import json
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path

import polars as pl  # noqa: F401  (before memory is limited)
import torch
from torch import Tensor

from railsearch import Average, BruteForce, Index, RailsearchError, SearchResult, TwoPass, load_similarity
from railsearch.folders.similarity_folder import fingerprint
from tests.support.faults.mutations import Resealed, mutate_index, mutate_model
from tests.support.faults.reference import read_reference

ROOM = 2**30
"""Bytes of address space that all mutations may take together, besides those that the process has already."""
SECONDS = 20
K = 4
TOLERANCE = 1e-4


def main() -> None:
    """Answer requests until stdin ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        folder, seed = Path(request["folder"]), request["seed"]
        with Index.open(folder / "keyed") as index:  # everything is imported and warm before memory is limited
            index.search(torch.zeros(1, 6), 1).to_frame()
        limit_memory()
        for number in range(request["first"], request["last"]):
            signal.alarm(SECONDS)
            print(json.dumps(run(folder, random.Random(seed * 1_000_000 + number), number)), flush=True)
        signal.alarm(0)


def limit_memory() -> None:
    """Refuse every allocation beyond the room that is left."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def run(folder: Path, choice: random.Random, number: int) -> dict[str, str | int]:
    """Mutate a copy, open it, and say what happened."""
    work = folder / f"work-{number}"
    work.mkdir()
    shutil.copytree(folder / "canaries", work / "canaries", symlinks=True)
    canaries = sorted((file.name, file.read_bytes()) for file in (work / "canaries").iterdir())
    is_model = choice.random() < 0.25
    kind = message = "?"
    try:
        source = "model" if is_model else choice.choice(["index", "keyed"])
        target = Resealed(folder / source, work / "target", choice)
        kind = mutate_model(target) if is_model else mutate_index(target)
        outcome = "answered"
        if is_model:
            check_model(target.path)
        else:
            check_index(target.path, choice)
        message = ""
    except RailsearchError as error:
        outcome, message = "refused", f"{type(error).__name__}: {error}"
        if str(work) not in message and "version" not in message:
            outcome = "unnamed"
    except BaseException:
        outcome, message = "wrong", traceback.format_exc()
    if sorted((file.name, file.read_bytes()) for file in (work / "canaries").iterdir()) != canaries:
        outcome, message = "touched", kind
    shutil.rmtree(work)
    return {
        "number": number,
        "what": "model" if is_model else "index",
        "kind": kind,
        "outcome": outcome,
        "message": message,
    }


def check_model(path: Path) -> None:
    """Load a model: its fingerprint is that of its content, and its scores are those of the paper's formula."""
    similarity = load_similarity(path)
    assert fingerprint(similarity) == json.loads((path / "config.json").read_text())["fingerprint"]


def check_index(path: Path, choice: random.Random) -> None:
    """Open and search an index, and compare it with what its files say; then, in some cases, change it."""
    queries = torch.randn(3, 6, generator=torch.Generator().manual_seed(choice.randrange(2**31)))
    with Index.open(path) as index:
        check_answers(index, queries)
        index.verify()
        if choice.random() < 0.5:
            for change in choice.sample(["remove", "upsert", "compact", "refresh"], 2):
                ids = index.keys if index.has_keys else index.ids.tolist()
                if change == "remove":
                    index.remove(ids[:1], missing_ok=True)
                elif change == "upsert":
                    index.upsert(torch.ones(1, 6), ids[-1:] or [1], metadata=index.metadata[-1:])
                elif change == "compact":
                    index.compact()
                else:
                    index.refresh()
                check_answers(index, queries)


def check_answers(index: Index, queries: Tensor) -> None:
    """Compare answers and certificates with brute force in fp64 over what the folder's files hold."""
    ids, scores = read_reference(index.path, index.version, queries)  # (M,), (B, M)
    assert index.ids.tolist() == sorted(ids.tolist())
    k = min(K, len(index))
    if not k:
        return
    best = scores.topk(k, dim=1).values  # (B, k)
    scale = max(1.0, float(scores.abs().max()))
    for strategy in (None, BruteForce(), TwoPass(), Average(k)):
        result = index.search(queries, k, strategy)
        check_result(result, ids, scores, best, TOLERANCE * scale)
        result.to_frame()


def check_result(result: SearchResult, ids: Tensor, scores: Tensor, best: Tensor, tolerance: float) -> None:
    """Check that each item has its own score, that nothing unseen is above the ceiling, and that exact means exact."""
    place = {item: column for column, item in enumerate(ids.tolist())}
    for query, own in enumerate(result.ids.tolist()):
        assert len(set(own)) == len(own)
        expected = scores[query, [place[item] for item in own]]
        torch.testing.assert_close(result.scores[query].double(), expected, atol=tolerance, rtol=0)
        if bool(result.is_exact[query]):
            torch.testing.assert_close(expected, best[query], atol=tolerance, rtol=0)
        unseen = [column for item, column in place.items() if item not in own]
        if unseen:
            limit = max(float(result.ceiling[query]), float(result.scores[query, -1]))
            assert float(scores[query, unseen].max()) <= limit + tolerance


if __name__ == "__main__":
    main()
