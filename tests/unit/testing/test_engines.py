"""`check_engine` notices every way in which an engine can break the contract, and says which."""

import pytest

from railsearch.testing import check_engine
from tests.support.engines import AtMost, Complete


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("misses", "is not exact"),
        ("hidden", "that the filter hides"),
        ("twice", "returned twice"),
        ("ascending", "not in descending order"),
        ("other rows", "scores of other rows"),
        ("outside", "does not exist"),
        ("int32", "rows are torch.int32"),
        ("short", "wrong shape"),
        ("bias", "is not exact"),
        ("half precision", "cannot take it"),
        ("strides", "cannot take it"),
        ("low bounds", "wrong bounds"),
        ("bounds of hidden rows", "wrong bounds"),
        ("threshold", "wrong about a threshold"),
        ("lost", "stored and opened answers differently"),
        ("crash", "damaged bytes raise ZeroDivisionError"),
        ("key", "not one line of plain text"),
        ("key of the process", "of a copy of the engine differs"),
    ],
)
def test_a_broken_engine_is_noticed(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_engine(Complete(fault))


def test_an_engine_that_lacks_members_or_cannot_be_compared() -> None:
    class Unlike(AtMost):
        __eq__ = object.__eq__
        __hash__ = object.__hash__

    class Unhashable(AtMost):
        __hash__ = None  # type: ignore[assignment]

    class Old:
        is_exact = True

        def build(self, vectors: object) -> None: ...

    with pytest.raises(AssertionError, match="does not equal it"):
        check_engine(Unlike(9))
    with pytest.raises(AssertionError, match="cannot be hashed"):
        check_engine(Unhashable(9))
    with pytest.raises(AssertionError, match=r"which lacks key, table_key, .*check_available, open"):
        check_engine(Old())


def test_what_an_engine_says_of_itself() -> None:
    class Approximate(AtMost):
        is_exact = False
        sees_every_row = True

    with pytest.raises(AssertionError, match="sees every row must be exact"):
        check_engine(Approximate(None))
    with pytest.raises(AssertionError, match="max_n is 0, less than 1"):
        check_engine(AtMost(0))
