import pytest

from railsearch import Adaptive, Average, BruteForce, Combined, InvalidInputError, PerComponent, TwoPass
from railsearch.index import Strategy, format_strategy, parse_strategy

EXAMPLES = [
    (BruteForce(), "BruteForce()"),
    (TwoPass(), "TwoPass()"),
    (PerComponent(5), "PerComponent(5)"),
    (Average(500), "Average(500)"),
    (Combined(5, 200), "Combined(5, 200)"),
    (Adaptive(), "Adaptive()"),
    (Adaptive(0.5), "Adaptive(0.5)"),
    (Adaptive(0.0, 70), "Adaptive(0.0, 70)"),
]


@pytest.mark.parametrize(("strategy", "text"), EXAMPLES, ids=[text for _, text in EXAMPLES])
def test_there_and_back(strategy: Strategy, text: str) -> None:
    assert format_strategy(strategy) == text
    assert parse_strategy(text) == parse_strategy(repr(strategy)) == strategy


def test_what_people_type() -> None:
    assert parse_strategy("bruteforce") == BruteForce()
    assert parse_strategy(" average( 7 ) ") == Average(7)
    assert parse_strategy("Combined(by_average=9, per_component=2)") == Combined(2, 9)
    assert parse_strategy("Adaptive(max_scored=30)") == Adaptive(max_scored=30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write one of BruteForce, TwoPass"),
        ("Foo(3)", "write one of BruteForce"),
        ("Average", "but Average takes n"),
        ("Average(1, 2)", "but Average takes n"),
        ("Average(x=1)", "but Average takes n"),
        ("Average(n=1, n=2)", "but Average takes n"),
        ("Average(ten)", "'ten' is no number"),
        ("Average(0)", "n is 0"),
        ("Average(1.5)", "n is 1.5"),
        ("TwoPass(1)", "but TwoPass takes nothing"),
        ("__import__('os').system('x')", "write one of"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_strategy(text)
