"""Strategies as text, there and back, and what is refused."""

import pytest

from railsearch import Adaptive, Average, BruteForce, Combined, PerComponent, TwoPass, Weighted
from railsearch.errors import InvalidInputError
from railsearch.index import Strategy, format_strategy, parse_strategies, parse_strategy


@pytest.mark.parametrize(
    ("text", "strategies"),
    [
        ("Average(500)", (Average(500),)),
        ("Combined(5,200)", (Combined(5, 200),)),
        ("Combined( 5 , 200 ), twopass;BruteForce()", (Combined(5, 200), TwoPass(), BruteForce())),
        ("Adaptive(1.0) Adaptive Adaptive(0, 50)", (Adaptive(1.0), Adaptive(), Adaptive(0, 50))),
        (" PerComponent(5)\n", (PerComponent(5),)),
        ("Weighted(300)", (Weighted(300),)),
    ],
)
def test_strategies_from_text(text: str, strategies: tuple) -> None:
    found = parse_strategies(text)
    assert found == strategies
    assert parse_strategies(" ".join(map(format_strategy, found))) == strategies


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no strategy was given; choose from: BruteForce, TwoPass, Adaptive"),
        ("Avrage(5)", "there is no strategy 'Avrage'"),
        ("Average", "Average has 0 numbers"),
        ("Average(5, 6)", r"Average\(5, 6\) has 2 numbers"),
        ("Average(n)", r"'n' in Average\(n\) is not a number"),
        ("Average(1e3)", "n is 1000.0; give a whole number"),
        ("Average(5.5)", "n is 5.5; give a whole number"),
        ("Average(0)", "n is 0"),
        ("Average(5", r"'\(5' is not a strategy"),
        ("Average(__import__('os'))", "is not a strategy"),
        ("5", "'5' is not a strategy"),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_strategies(text)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (TwoPass(), "TwoPass"),
        (PerComponent(5), "PerComponent(5)"),
        (Combined(5, 200), "Combined(5, 200)"),
        (Adaptive(0.5), "Adaptive(0.5)"),
        (Adaptive(0.0, 70), "Adaptive(0.0, 70)"),
        (Adaptive(1e-5), "Adaptive(1e-05)"),
    ],
)
def test_one_strategy_there_and_back(strategy: Strategy, text: str) -> None:
    assert format_strategy(strategy) == text
    assert parse_strategy(text) == parse_strategy(text.lower()) == strategy


def test_one_strategy_is_not_two() -> None:
    with pytest.raises(InvalidInputError, match="names 2 strategies; give one"):
        parse_strategy("TwoPass Average(5)")
