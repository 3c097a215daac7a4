"""The verdict claims only differences that the queries show, and prefers the simpler system."""

import itertools

import pytest

from railsearch.comparison.verdict import Pairing, judge
from railsearch.evaluation import Difference

NAMES = ["frozen cosine", "tuned cosine", "MoL"]


def pairings(names: list[str], differences: dict[str, tuple[float, float]], num_queries: int = 500) -> list[Pairing]:
    """Return a pairing of every later system with every earlier one; "01": mean and margin of second minus first."""
    found = []
    for (place, earlier), (later_place, later) in itertools.combinations(enumerate(names), 2):
        mean, margin = differences[f"{place}{later_place}"]
        difference = Difference(mean, mean - margin, mean + margin, num_queries, num_different=100)
        found.append(Pairing(later, earlier, "MRR", difference))
    return found


@pytest.mark.parametrize(
    ("differences", "choice", "text"),
    [
        (
            {"01": (0.05, 0.01), "02": (0.071, 0.01), "12": (0.021, 0.006)},
            "MoL",
            "MoL is ahead of the tuned cosine by 0.021 +- 0.006 MRR. Use MoL: it is ahead of the frozen cosine by "
            "0.071 +- 0.010 MRR.",
        ),
        (
            {"01": (0.05, 0.01), "02": (0.051, 0.01), "12": (0.001, 0.006)},
            "tuned cosine",
            "MoL and the tuned cosine: no difference that 500 questions can show (+0.001 +- 0.006 MRR). Use the tuned "
            "cosine: it is ahead of the frozen cosine by 0.050 +- 0.010 MRR.",
        ),
        (
            {"01": (0.001, 0.01), "02": (0.002, 0.01), "12": (0.001, 0.006)},
            "frozen cosine",
            "MoL and the tuned cosine: no difference that 500 questions can show (+0.001 +- 0.006 MRR). Keep the "
            "frozen cosine.",
        ),
        (
            {"01": (0.05, 0.01), "02": (0.03, 0.01), "12": (-0.02, 0.006)},
            "tuned cosine",
            "MoL is behind the tuned cosine by 0.020 +- 0.006 MRR. Use the tuned cosine: it is ahead of the frozen "
            "cosine by 0.050 +- 0.010 MRR.",
        ),
        (
            {"01": (-0.05, 0.01), "02": (0.001, 0.01), "12": (0.051, 0.01)},
            "frozen cosine",
            "MoL is ahead of the tuned cosine by 0.051 +- 0.010 MRR. But it is not clearly ahead of the frozen cosine: "
            "keep the frozen cosine.",
        ),
        (
            {"01": (0.009, 0.01), "02": (0.02, 0.01), "12": (0.011, 0.012)},
            "MoL",
            "MoL and the tuned cosine: no difference that 500 questions can show (+0.011 +- 0.012 MRR). Use MoL: it "
            "is ahead of the frozen cosine by 0.020 +- 0.010 MRR.",
        ),
    ],
)
def test_words(differences: dict[str, tuple[float, float]], choice: str, text: str) -> None:
    verdict = judge(NAMES, pairings(NAMES, differences), unit="questions", num_runs=3)
    assert verdict.text == text
    assert verdict.choice == choice


def test_a_single_run_and_two_systems() -> None:
    names = ["popularity", "MoL"]
    verdict = judge(names, pairings(names, {"01": (0.1, 0.01)}), unit="users", num_runs=1)
    assert verdict.text == (
        "MoL is ahead of popularity by 0.100 +- 0.010 MRR. Use MoL. Each model was trained once; another seed may turn "
        "out otherwise."
    )


def test_too_few_queries() -> None:
    found = pairings(NAMES, {"01": (0.5, 0.1), "02": (0.5, 0.1), "12": (0.3, 0.1)}, num_queries=49)
    verdict = judge(NAMES, found, unit="queries", num_runs=3)
    assert verdict.choice == "frozen cosine"
    assert verdict.text.startswith("49 test queries are too few for a verdict; give data with at least 50.")


def test_few_different_queries_claim_nothing() -> None:
    difference = Difference(0.02, 0.01, 0.03, num_queries=500, num_different=5)
    verdict = judge(["tuned cosine", "MoL"], [Pairing("MoL", "tuned cosine", "MRR", difference)], unit="queries",
                    num_runs=3)  # fmt: skip
    assert verdict.choice == "tuned cosine"
    assert "no difference that 500 queries can show" in verdict.text
