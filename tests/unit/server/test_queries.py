"""Bodies of requests that are wrong in many places: one short answer, and no memory for the rest."""

import tracemalloc

import pytest

from railsearch.errors import InvalidInputError
from railsearch.server.encoding import as_floats
from railsearch.server.queries import ItemsBody, RemoveBody, SearchBody

MANY = 20_000


@pytest.mark.parametrize(
    "members",
    [
        {"allow": [1.5] * MANY},
        {"exclude": [[1.5] * MANY]},
        {"exclude": [5] * MANY},
        {"histories": [5] * MANY},
        {"users": [None] * MANY},
        {"texts": [5] * MANY},
        {"fields": [5] * MANY},
        {f"name{number}": 1 for number in range(MANY)},
    ],
    ids=lambda members: next(iter(members)),
)
def test_only_the_first_of_many_wrong_values_is_reported(members: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        SearchBody.of(members)
    assert len(str(caught.value)) < 1000


def test_the_same_for_changes() -> None:
    with pytest.raises(InvalidInputError) as caught:
        RemoveBody.of({"ids": [None] * MANY})
    assert len(str(caught.value)) < 1000
    with pytest.raises(InvalidInputError) as caught:
        ItemsBody.of({"metadata": [5] * MANY})
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_text_among_numbers_takes_no_memory(depth: int) -> None:
    values: list[object] = ["x" * 2000, *([1.0] * 10_000)]  # numpy would take 80 MB for it
    for _ in range(depth):
        values = [values]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="holds text"):
            as_floats(values)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
