"""TREC files, read by ir-measures: its measures of the files are those of the run."""

from pathlib import Path

import pytest
import torch

from railsearch.evaluation import Run

library = pytest.importorskip("ir_measures", reason="ir-measures is not installed")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def test_measures_of_the_files_are_those_of_the_run(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 400, generator=generator)
    best = scores.topk(200)
    pairs = (torch.rand(30, 400, generator=generator) < 0.03).nonzero()
    grades = torch.randint(1, 4, (len(pairs), 1), generator=generator)
    run = Run(
        tuple(f"q{row}" for row in range(30)), tuple(f"d{row}" for row in range(400)), best.indices, best.values,
        torch.cat([pairs, grades], dim=1),
    )  # fmt: skip
    run.save(tmp_path / "run.txt")
    run.save_qrels(tmp_path / "qrels.txt")
    names = ["nDCG@10", "nDCG@100", "R@100", "RR@10", "AP@100", "P@10"]
    found = library.calc_aggregate(
        [library.parse_measure(name) for name in names],
        library.read_trec_qrels(str(tmp_path / "qrels.txt")),
        library.read_trec_run(str(tmp_path / "run.txt")),
    )
    assert {str(measure): value for measure, value in found.items()} == pytest.approx(run.measure(names))
