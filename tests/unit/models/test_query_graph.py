"""The query side as plain operations on padded histories, against the encoders and similarities themselves."""

import pytest
import torch
from torch import Tensor

from railsearch import DotProduct, MixtureOfLogits
from railsearch.encoders import HSTU, Histories, SASRec
from railsearch.encoders.sequence.tiled_attention import time_buckets
from railsearch.encoders.sequence.time_thresholds import exact_time_buckets, time_thresholds
from railsearch.models import QueryGraph, SequentialModel

NUM_ITEMS, LONGEST = 50, 9


def make_model(encoder: str, similarity: str, *, has_features: bool = False) -> SequentialModel:
    features = torch.randn(NUM_ITEMS, 5, generator=torch.Generator().manual_seed(1)) if has_features else None
    sizes = {"num_items": NUM_ITEMS, "dim": 16, "max_length": LONGEST, "item_features": features, "seed": 0}
    made = SASRec(num_heads=2, **sizes) if encoder == "sasrec" else HSTU(num_blocks=2, head_dim=8, **sizes)
    made.position_table.weight.data.mul_(3)
    if similarity == "cosine":
        return SequentialModel(encoder=made, similarity=DotProduct(dim=16, cosine=True))
    users = 20 if similarity == "users" else None
    mixture = MixtureOfLogits(
        query_dim=16, item_dim=16, num_query_components=3, num_item_components=2, component_dim=8,
        user_table_size=users, seed=0,
    )  # fmt: skip
    return SequentialModel(encoder=made, similarity=mixture)


def make_histories() -> tuple[dict[str, Tensor], Histories]:
    """Return the same histories of every length padded with garbage, and packed."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.arange(1, LONGEST + 1)  # (B,)
    items = torch.randint(NUM_ITEMS, (LONGEST, LONGEST), generator=generator)  # (B, n)
    times = torch.randint(10**8, (LONGEST, LONGEST), generator=generator).sort(dim=1).values  # (B, n)
    requests = times.gather(1, lengths[:, None] - 1)[:, 0] + 1000  # (B,)
    rows = range(LONGEST)
    packed = Histories(
        items=torch.cat([items[row, : lengths[row]] for row in rows]),
        times=torch.cat([times[row, : lengths[row]] for row in rows]),
        next_times=torch.cat([torch.cat([times[row, 1 : lengths[row]], requests[row, None]]) for row in rows]),
        lengths=lengths,
    )
    users = torch.arange(-1, LONGEST - 1)
    padded = {"items": items, "lengths": lengths, "times": times, "request_times": requests, "user_rows": users}
    return padded, packed


@pytest.mark.parametrize("encoder", ["sasrec", "hstu"])
@pytest.mark.parametrize("similarity", ["cosine", "mixture", "users"])
@pytest.mark.parametrize("has_features", [False, True])
def test_padded_histories(encoder: str, similarity: str, *, has_features: bool) -> None:
    model = make_model(encoder, similarity, has_features=has_features)
    graph = QueryGraph(model.train())  # a model in training mode is copied and not changed
    assert model.training
    model.eval()
    padded, packed = make_histories()
    embeddings, components, *gate = graph(**{name: padded[name] for name in graph.input_names})
    expected = model.query_parts(packed, padded["user_rows"])
    torch.testing.assert_close(embeddings, model.encode(packed), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(components, expected.components, atol=1e-5, rtol=1e-5)
    assert len(graph.output_names) == 2 + len(gate)
    if expected.gate is not None:
        torch.testing.assert_close(gate[0], expected.gate, atol=1e-5, rtol=1e-5)


def test_examples_are_tensors_of_their_own() -> None:
    """An exporter takes one tensor that is given twice for one input."""
    examples = QueryGraph(make_model("hstu", "users")).examples()
    assert list(examples) == ["items", "lengths", "times", "request_times", "user_rows"]
    assert len({each.data_ptr() for each in examples.values()}) == 5


def test_weights_are_copied() -> None:
    model = make_model("sasrec", "mixture").eval()
    graph = QueryGraph(model)
    padded, _ = make_histories()
    before = graph(padded["items"], padded["lengths"])[0]
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    assert torch.equal(graph(padded["items"], padded["lengths"])[0], before)


def test_time_buckets_by_thresholds() -> None:
    thresholds = torch.tensor(time_thresholds())
    for change in (-1, 0, 1):
        seconds = (thresholds + change).clamp(min=0)
        assert torch.equal(exact_time_buckets(seconds), time_buckets(seconds))
    seconds = torch.randint(-(2**40), 2**40, (10_000,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(exact_time_buckets(seconds), time_buckets(seconds))


def test_a_wrong_guess_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime whose logarithm is slightly off finds the same buckets."""
    seconds = torch.tensor([value + change for value in time_thresholds()[3:100] for change in (-1, 0, 1)])
    expected = exact_time_buckets(seconds)
    exact = Tensor.log
    for off in (-1e-3, 1e-3):
        monkeypatch.setattr(Tensor, "log", lambda values, off=off: exact(values) + off)
        assert torch.equal(exact_time_buckets(seconds), expected)
