"""The verdict of a comparison in words: it claims a difference only if the queries and the seeds show it."""

from collections.abc import Sequence
from dataclasses import dataclass

from railsearch.evaluation import Difference

FEWEST_TEST_QUERIES = 50
"""With fewer test queries, intervals are too short: the bootstrap assumes that the queries represent all others."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The difference between two systems on the same queries."""

    first: str
    second: str
    metric: str
    difference: Difference

    def __str__(self) -> str:
        found = self.difference
        return (
            f"{self.first} - {self.second}: {found.mean:+.4f} {self.metric} ({found.low:+.4f} to {found.high:+.4f}), "
            f"{found.num_different:,} of {found.num_queries:,} queries differ"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A choice, and the sentences that justify it."""

    choice: str
    text: str


def judge(names: Sequence[str], pairings: Sequence[Pairing], *, unit: str, num_runs: int) -> Verdict:
    """Choose a system, and say why in words.

    The systems are in the order of their cost. A later one is chosen only if it is clearly ahead of the earlier choice.

    Args:
        names: names of the systems, the simplest first; the last one is the mixture.
        pairings: the difference of every later system to every earlier one.
        unit: the name of queries in the text, such as "questions".
        num_runs: training runs of each trained system.
    """
    by_names = {(pairing.first, pairing.second): pairing for pairing in pairings}
    num_queries = pairings[0].difference.num_queries
    last, rival = names[-1], names[-2]
    main = by_names[last, rival]
    if num_queries < FEWEST_TEST_QUERIES:
        return Verdict(
            names[0],
            f"{num_queries} test {unit} are too few for a verdict; give data with at least {FEWEST_TEST_QUERIES}. "
            f"Until then, keep {_the(names[0])}.",
        )
    choice = names[0]
    for name in names[1:]:
        found = by_names[name, choice].difference
        if found.is_clear and found.mean > 0:
            choice = name
    is_ahead = main.difference.is_clear and main.difference.mean > 0
    sentences = [_claim(main, unit)]
    if choice == last:
        sentences.append(f"Use {_the(choice)}{_gain(choice, names, by_names)}.")
    elif is_ahead:
        sentences.append(f"But it is not clearly ahead of {_the(choice)}: keep {_the(choice)}.")
    else:
        verb = "Keep" if choice == names[0] else "Use"
        sentences.append(f"{verb} {_the(choice)}{_gain(choice, names, by_names)}.")
    if num_runs == 1:
        sentences.append("Each model was trained once; another seed may turn out otherwise.")
    return Verdict(choice, " ".join(sentences))


def _claim(pairing: Pairing, unit: str) -> str:
    found = pairing.difference
    size = f"{abs(found.mean):.3f} +- {found.margin:.3f} {pairing.metric}"
    if found.is_clear:
        place = "ahead of" if found.mean > 0 else "behind"
        return f"{pairing.first} is {place} {_the(pairing.second)} by {size}."
    return (
        f"{pairing.first} and {_the(pairing.second)}: no difference that {found.num_queries:,} {unit} can show "
        f"({found.mean:+.3f} +- {found.margin:.3f} {pairing.metric})."
    )


def _gain(choice: str, names: Sequence[str], by_names: dict[tuple[str, str], Pairing]) -> str:
    """Return how far the choice is ahead of the simplest system, if that is clear and not said yet."""
    if choice == names[0] or (choice, names[0]) == (names[-1], names[-2]):
        return ""
    pairing = by_names[choice, names[0]]
    found = pairing.difference
    if not (found.is_clear and found.mean > 0):
        return ""
    return f": it is ahead of {_the(names[0])} by {found.mean:.3f} +- {found.margin:.3f} {pairing.metric}"


def _the(name: str) -> str:
    """Return a name with its article: the tuned cosine, but MoL and BM25."""
    return f"the {name}" if name.endswith(("cosine", "dot product")) else name
