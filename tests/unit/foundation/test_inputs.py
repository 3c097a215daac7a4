"""Conversions at the border: what is shared, what is refused, what threads may do."""

import threading
import warnings

import numpy as np
import pytest
import torch

from railsearch.errors import InvalidInputError
from railsearch.foundation.inputs import as_embeddings, as_integers, as_tensor


def test_memory_is_shared_where_possible() -> None:
    array = np.zeros((2, 3), dtype=np.float32)
    tensor = as_tensor(array, "items")
    array[0, 0] = 5.0
    assert tensor[0, 0] == 5.0


def test_read_only_big_endian_and_reversed_arrays() -> None:
    expected = torch.arange(6.0).view(2, 3)
    array = expected.numpy().copy()
    read_only = array.copy()
    read_only.flags.writeable = False
    for values in (read_only, array.astype(">f4"), array[::-1][::-1], np.asfortranarray(array)):
        assert torch.equal(as_tensor(values, "items"), expected)
    assert torch.equal(as_tensor(array[:, ::-1], "items"), expected.flip(1))


def test_threads_leave_warning_filters_alone() -> None:
    read_only = np.zeros(3, dtype=np.float32)
    read_only.flags.writeable = False
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [as_tensor(read_only, "items") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0], [1.0, 2.0]], "items is not an array of numbers"),
        (np.zeros(3, dtype=np.longdouble), "holds float128|longdouble"),
        (np.zeros(3, dtype=complex), "complex128"),
        ([None], "object values"),
        (["a"], "give an array or tensor of numbers"),
        (torch.zeros(2, dtype=torch.complex64), "give a dense, real one"),
    ],
)
def test_what_is_no_array_of_numbers(values: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_tensor(values, "items")


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_integers_of_any_width(dtype: type) -> None:
    assert as_integers(np.array([1, 2], dtype=dtype), name="ids").tolist() == [1, 2]


def test_embeddings_of_any_float() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert as_embeddings(torch.ones(2, 3, dtype=dtype), name="items", shape=(3,)).dtype == dtype
    with pytest.raises(InvalidInputError, match=r"as large as 1e\+300, in row 1"):
        as_embeddings(np.array([[0.0], [1e300]]), name="items", shape=(1,))
