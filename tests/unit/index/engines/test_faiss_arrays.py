"""Stored arrays of FAISS: whatever they hold, FAISS follows no number in them out of its memory."""

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import Faiss
from railsearch.foundation.errors import EngineError
from tests.support.trials import trials

NUM_ROWS, DIM = 400, 4
KINDS = ["hnsw", "ivf", "sq8"]


def make_vectors(num_rows: int = NUM_ROWS) -> Tensor:
    return torch.randn(num_rows, DIM, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_rows", [1, 2, 400])
def test_an_opened_table_answers_as_the_one_that_was_built(kind: str, num_rows: int) -> None:
    vectors, queries = make_vectors(num_rows), torch.randn(5, 2, DIM, generator=torch.Generator().manual_seed(1))
    built = Faiss(kind).build("a", vectors)
    opened = Faiss(kind).open("a", vectors, built.to_bytes())
    for n in (1, 20):
        expected, found = built.best(queries, n, None), opened.best(queries, n, None)
        assert torch.equal(found.rows, expected.rows)
        assert torch.equal(found.scores, expected.scores)
    assert opened.to_bytes() == built.to_bytes()


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("hnsw", "neighbors", NUM_ROWS),
        ("hnsw", "neighbors", -2),
        ("hnsw", "levels", 0),
        ("hnsw", "levels", 100),
        ("hnsw", "entry_point", -1),
        ("hnsw", "entry_point", NUM_ROWS),
        ("ivf", "lists", -1),
        ("ivf", "lists", 10**6),
        ("ivf", "centroids", np.nan),
        ("sq8", "ranges", np.inf),
    ],
)
def test_numbers_that_point_nowhere_are_refused(kind: str, name: str, values: float) -> None:
    vectors = make_vectors()
    arrays = dict(safetensors.numpy.load(Faiss(kind).build("a", vectors).to_bytes()))
    arrays[name] = arrays[name].copy()
    arrays[name].flat[-1] = values
    with pytest.raises(EngineError, match=r"the stored table a of Faiss.* is not usable"):
        Faiss(kind).open("a", vectors, safetensors.numpy.save(arrays))


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_another_table_are_refused(kind: str) -> None:
    stored = Faiss(kind).build("a", make_vectors(300)).to_bytes()
    with pytest.raises(EngineError, match="is not usable"):
        Faiss(kind).open("a", make_vectors(), stored)
    with pytest.raises(EngineError, match="is not usable"):
        Faiss(kind).open("a", make_vectors(), safetensors.numpy.save({}))


STORED = {kind: Faiss(kind).build("a", make_vectors()).to_bytes() for kind in KINDS}


@settings(max_examples=trials(40, 150))
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**31 - 1), num_changes=st.integers(1, 30))
def test_forged_arrays_are_refused_or_harmless(kind: str, seed: int, num_changes: int) -> None:
    """Change numbers within the file and keep its form, as a forger does who knows the format."""
    generator = np.random.default_rng(seed)
    arrays = {name: array.copy() for name, array in safetensors.numpy.load(STORED[kind]).items()}
    for _ in range(num_changes):
        array = arrays[str(generator.choice(sorted(arrays)))]
        place = generator.integers(array.size)
        choices = [array.flat[generator.integers(array.size)], 0, 1, 3, min(NUM_ROWS - 1, 256**array.itemsize - 1)]
        array.flat[place] = choices[generator.integers(len(choices))]
    try:
        table = Faiss(kind).open("a", make_vectors(), safetensors.numpy.save(arrays))
    except EngineError:
        return
    found = table.best(torch.from_numpy(generator.standard_normal((3, 1, DIM))).float(), 20, None)
    assert tuple(found.rows.shape) == (3, 1, 20)
    assert -1 <= int(found.rows.min()) <= int(found.rows.max()) < NUM_ROWS
