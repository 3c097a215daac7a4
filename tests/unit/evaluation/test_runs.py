"""Ranked lists: TREC files read by an independent parser, and measures against a plain loop."""

import math
from pathlib import Path

import pytest
import torch

from railsearch.errors import InvalidInputError
from railsearch.evaluation import Run


def make_run(*, num_queries: int = 12, num_items: int = 30, depth: int = 10, seed: int = 0) -> Run:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_queries, num_items, generator=generator)
    best = scores.topk(depth)
    rows = best.indices.clone()
    rows[0, depth // 2 :] = -1  # a query with fewer items
    is_right = torch.rand(num_queries, num_items, generator=generator) < 0.2
    is_right[1] = False  # a query without right items does not count
    pairs = is_right.nonzero()
    grades = torch.randint(1, 4, (len(pairs), 1), generator=generator)
    return Run(
        tuple(f"q{row}" for row in range(num_queries)),
        tuple(f"d{row}" for row in range(num_items)),
        rows, best.values, torch.cat([pairs, grades], dim=1),
    )  # fmt: skip


def parse_run(path: Path) -> dict[str, list[tuple[str, int, float]]]:
    """Read a TREC run by its definition: six columns, with white space between."""
    lists: dict[str, list[tuple[str, int, float]]] = {}
    for line in path.read_text().splitlines():
        query, q0, item, rank, score, tag = line.split()
        assert (q0, tag) == ("Q0", "railsearch")
        lists.setdefault(query, []).append((item, int(rank), float(score)))
    return lists


def parse_qrels(path: Path) -> dict[str, dict[str, int]]:
    labels: dict[str, dict[str, int]] = {}
    for line in path.read_text().splitlines():
        query, zero, item, grade = line.split()
        assert zero == "0"
        labels.setdefault(query, {})[item] = int(grade)
    return labels


def measured(lists: dict[str, list[tuple[str, int, float]]], labels: dict[str, dict[str, int]]) -> dict[str, float]:
    """Compute the measures by loops over parsed files, in the order of scores."""
    sums = dict.fromkeys(("nDCG@10", "R@5", "RR@10", "AP@10", "P@5"), 0.0)
    for query, right in labels.items():
        ordered = [item for item, _, _ in sorted(lists.get(query, []), key=lambda entry: -entry[2])]
        gains = [right.get(item, 0) for item in ordered]
        ideal = sorted(right.values(), reverse=True)[:10]
        sums["nDCG@10"] += sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:10])) / sum(
            gain / math.log2(place + 2) for place, gain in enumerate(ideal)
        )
        sums["R@5"] += sum(gain > 0 for gain in gains[:5]) / len(right)
        sums["P@5"] += sum(gain > 0 for gain in gains[:5]) / 5
        sums["RR@10"] += next((1 / place for place, gain in enumerate(gains[:10], start=1) if gain), 0.0)
        hits = 0
        for place, gain in enumerate(gains[:10], start=1):
            hits += gain > 0
            sums["AP@10"] += hits / place / len(right) if gain else 0.0
    return {name: total / len(labels) for name, total in sums.items()}


def test_files_hold_the_lists_and_measures_equal_a_loop(tmp_path: Path) -> None:
    run = make_run()
    run.save(tmp_path / "run.txt")
    run.save_qrels(tmp_path / "qrels.txt")
    lists, labels = parse_run(tmp_path / "run.txt"), parse_qrels(tmp_path / "qrels.txt")
    assert len(lists["q0"]) == 5
    for query, entries in lists.items():
        row = int(query[1:])
        assert [rank for _, rank, _ in entries] == list(range(1, len(entries) + 1))
        assert [item for item, _, _ in entries] == [f"d{item}" for item in run.rows[row].tolist() if item >= 0]
        assert torch.equal(torch.tensor([score for _, _, score in entries]), run.scores[row, : len(entries)])
    assert "q1" not in labels
    expected = measured(lists, labels)
    assert run.measure(expected) == pytest.approx(expected)
    assert run.to_frame().height == sum(len(entries) for entries in lists.values())


def test_default_measures_are_those_that_the_lists_are_long_enough_for() -> None:
    assert list(make_run(depth=10).measure()) == ["nDCG@10", "RR@10"]
    assert list(make_run(depth=30).measure()) == ["nDCG@10", "R@100", "RR@10", "AP@100"]  # lists of all items
    whole = make_run(depth=30).measure(["R@30", "R@100"])
    assert whole["R@30"] == whole["R@100"]


def test_wrong_input(tmp_path: Path) -> None:
    run = make_run()
    with pytest.raises(
        InvalidInputError, match=r"R@100 needs lists of 100 but they have 10 items; evaluate with a depth of 100"
    ):
        run.measure(["R@100"])
    with pytest.raises(InvalidInputError, match="the measure is 'Recall@10'; give one such as nDCG@10"):
        run.measure(["Recall@10"])
    with pytest.raises(InvalidInputError, match="tag is 'my run'"):
        run.save(tmp_path / "run.txt", tag="my run")
    with pytest.raises(InvalidInputError, match=r"there is no folder .*nowhere; create it first"):
        run.save(tmp_path / "nowhere" / "run.txt")
    with pytest.raises(InvalidInputError, match="is a folder; give a file to write"):
        run.save_qrels(tmp_path)
    (tmp_path / "run.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="already exists; choose another path or pass overwrite=True"):
        run.save(tmp_path / "run.txt")
    assert (tmp_path / "run.txt").read_text() == "mine"
    run.save(tmp_path / "run.txt", overwrite=True)
    spaced = Run(("a user",), ("d1",), torch.tensor([[0]]), torch.tensor([[1.0]]), torch.tensor([[0, 0, 1]]))
    with pytest.raises(InvalidInputError, match="the query id 'a user' is empty or has white space"):
        spaced.save(tmp_path / "spaced.txt")
    assert not (tmp_path / "spaced.txt").exists()
