"""SASRec and HSTU: what they promise for any history, and what they refuse."""

import itertools
import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from railsearch.encoders import HSTU, Histories, SASRec, SequenceEncoder
from railsearch.encoders.sequence import packing, tiled_attention
from railsearch.encoders.sequence.packing import group_histories
from railsearch.encoders.sequence.tiled_attention import time_buckets
from railsearch.foundation.errors import InvalidInputError

NUM_ITEMS = 30
MAX_LENGTH = 12
BUILDERS: dict[str, Callable[..., SASRec | HSTU]] = {
    "sasrec": lambda **options: SASRec(
        num_items=NUM_ITEMS, dim=8, num_heads=2, max_length=MAX_LENGTH, **{"seed": 0, **options}
    ),
    "hstu": lambda **options: HSTU(
        num_items=NUM_ITEMS, dim=8, num_blocks=2, num_heads=2, head_dim=3, max_length=MAX_LENGTH,
        **{"seed": 0, **options},
    ),
}  # fmt: skip
both = pytest.mark.parametrize("kind", sorted(BUILDERS))


def make_encoder(kind: str) -> SASRec | HSTU:
    """An encoder whose weights are large enough that every input matters."""
    encoder = BUILDERS[kind]().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return encoder


def make_histories(*lengths: int, seed: int = 0) -> Histories:
    generator = torch.Generator().manual_seed(seed)
    events = sum(lengths)
    times = torch.randint(0, 50_000, (events,), generator=generator).cumsum(dim=0)
    return Histories(
        items=torch.randint(0, NUM_ITEMS, (events,), generator=generator),
        times=times,
        next_times=times + torch.randint(0, 50_000, (events,), generator=generator),
        lengths=torch.tensor(lengths),
    )


def one_by_one(histories: Histories) -> list[Histories]:
    lengths = histories.lengths.tolist()
    columns = zip(
        histories.items.split(lengths), histories.times.split(lengths), histories.next_times.split(lengths), strict=True
    )
    return [Histories(*column, lengths=torch.tensor([len(column[0])])) for column in columns]


def together(histories: list[Histories]) -> Histories:
    return Histories(
        *(torch.cat([getattr(own, name) for own in histories]) for name in ("items", "times", "next_times", "lengths"))
    )


def changed(histories: Histories, name: str, place: int, value: int) -> Histories:
    columns = {key: getattr(histories, key).clone() for key in ("items", "times", "next_times", "lengths")}
    columns[name][place] = value
    return Histories(**columns)


@both
def test_gives_one_output_for_each_event(kind: str) -> None:
    outputs = make_encoder(kind)(make_histories(3, 1, 12))
    assert outputs.shape == (16, 8)
    assert bool(outputs.isfinite().all())


@both
def test_is_a_sequence_encoder(kind: str) -> None:
    encoder = make_encoder(kind)
    members = {*SequenceEncoder.__annotations__, *(name for name in dir(SequenceEncoder) if name[0] != "_")}
    assert {"item_table", "embed_items"} < members
    assert all(hasattr(encoder, name) for name in members)  # isinstance sees no submodules from Python 3.12 on
    assert encoder.kind == kind


@both
def test_later_items_change_no_earlier_output(kind: str) -> None:
    encoder, histories = make_encoder(kind), make_histories(5, 9)
    for place in range(5, 14):
        other_item = (int(histories.items[place]) + 1) % NUM_ITEMS
        before, after = encoder(histories), encoder(changed(histories, "items", place, other_item))
        torch.testing.assert_close(after[:place], before[:place], rtol=0, atol=1e-6)
        assert bool(((after - before)[place:].abs().amax(dim=1) > 1e-4).all()), place


def test_no_score_is_too_large_to_block() -> None:
    encoder, histories = make_encoder("hstu"), make_histories(9)
    with torch.no_grad():
        encoder.blocks[0].input.weight.mul_(1000)
    before, after = (encoder(changed(histories, "items", 8, item)) for item in (3, 4))
    assert torch.equal(after[:8], before[:8])


@both
def test_same_gradients_every_time(kind: str) -> None:
    encoder, histories = make_encoder(kind), make_histories(12, 3, 7, 7)
    gradients = []
    for _ in range(2):
        encoder.zero_grad()
        encoder(histories).square().mul(torch.arange(8)).sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))


@both
def test_no_history_sees_another(kind: str) -> None:
    encoder, histories = make_encoder(kind), make_histories(5, 9)
    before, after = (
        encoder(histories),
        encoder(changed(histories, "items", 4, (int(histories.items[4]) + 1) % NUM_ITEMS)),
    )
    torch.testing.assert_close(after[5:], before[5:], rtol=0, atol=1e-6)


def test_times_change_only_outputs_that_know_them() -> None:
    encoder, histories = make_encoder("hstu"), make_histories(9)
    before = encoder(histories)
    for place in range(9):
        as_key = encoder(changed(histories, "times", place, -(10**9)))
        torch.testing.assert_close(as_key[:place], before[:place], rtol=0, atol=1e-6)
        assert bool(((as_key - before)[place:].abs().amax(dim=1) > 1e-4).all()), place
        as_query = encoder(changed(histories, "next_times", place, 10**9))
        torch.testing.assert_close(as_query[:place], before[:place], rtol=0, atol=1e-6)
        assert bool(((as_query - before)[place:].abs().amax(dim=1) > 1e-4).all()), place


def test_sasrec_does_not_look_at_times() -> None:
    encoder, histories = make_encoder("sasrec"), make_histories(9)
    assert torch.equal(encoder(changed(histories, "times", 3, 0)), encoder(histories))


@both
@given(lengths=st.lists(st.integers(1, MAX_LENGTH), min_size=1, max_size=8), seed=st.integers(0, 100))
def test_company_and_order_do_not_matter(kind: str, lengths: list[int], seed: int) -> None:
    encoder, histories = make_encoder(kind), one_by_one(make_histories(*lengths, seed=seed))
    alone = [encoder(history) for history in histories]
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = encoder(together([histories[place] for place in order]))
    torch.testing.assert_close(shuffled, torch.cat([alone[place] for place in order]), rtol=1e-5, atol=1e-5)


@both
@pytest.mark.parametrize("queries_per_tile", [1, 3, 5])
@pytest.mark.parametrize(("per_group", "spare"), [(1, 0), (200, 50), (10**6, 10**6)])
def test_cuts_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, kind: str, queries_per_tile: int, per_group: int, spare: int
) -> None:
    encoder, histories = make_encoder(kind).double(), make_histories(3, 12, 7, 11, 1, 12, 8)
    expected = encoder(histories)
    expected.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None]
    encoder.zero_grad()
    monkeypatch.setattr(tiled_attention, "QUERIES_PER_TILE", queries_per_tile)
    monkeypatch.setattr(packing, "SCORES_PER_GROUP", per_group)
    monkeypatch.setattr(packing, "SPARE_SCORES_PER_HISTORY", spare)
    outputs = encoder(histories)
    torch.testing.assert_close(outputs, expected)
    outputs.square().sum().backward()
    for parameter, gradient in zip(encoder.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@both
def test_output_is_normalized_only_if_asked(kind: str) -> None:
    histories = make_histories(6, 4)
    normalized = make_encoder(kind)
    raw = BUILDERS[kind](normalizes_output=False).eval()
    raw.load_state_dict(normalized.state_dict())
    outputs = raw(histories)
    assert float(outputs.detach().mean(dim=1).abs().max()) > 0.1
    torch.testing.assert_close(normalized(histories), torch.nn.functional.layer_norm(outputs, (8,)))


@both
def test_gradients_reach_every_weight(kind: str) -> None:
    encoder, histories = make_encoder(kind), make_histories(MAX_LENGTH, 5)
    encoder(histories).mul(torch.randn(17, 8, generator=torch.Generator().manual_seed(0))).sum().backward()
    seen = {
        int(time_buckets(history.next_times[query] - history.times[key]))
        for history in one_by_one(histories)
        for query in range(len(history.items))
        for key in range(query + 1)
    }
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        reached = parameter.grad.nonzero()[:, 0].unique().tolist()
        if name == "item_table.weight":
            assert reached == histories.items.unique().tolist()
        elif name.endswith("time_bias"):
            assert reached == sorted(seen)
        elif "hidden" in name:
            assert len(reached) > 4, name  # a ReLU that is never on passes none
        else:
            assert reached == list(range(len(parameter))), name


@both
def test_config_builds_the_same_encoder(kind: str) -> None:
    encoder = BUILDERS[kind](dropout=0.3, normalizes_output=False)
    twin = type(encoder)(**json.loads(json.dumps(encoder.config)))
    twin.load_state_dict(encoder.state_dict())
    assert twin.config == encoder.config
    histories = make_histories(6, 4)
    assert torch.equal(twin.eval()(histories), encoder.eval()(histories))


@both
def test_same_seed_same_weights(kind: str) -> None:
    first, second, other = (BUILDERS[kind](seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["item_table.weight"], other["item_table.weight"])


@both
def test_first_weights(kind: str) -> None:
    big = {"sasrec": SASRec, "hstu": HSTU}[kind](num_items=2000, seed=0)
    assert float(big.item_table.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert float(big.position_table.weight.detach().std()) == pytest.approx(math.sqrt(1 / 50), rel=0.05)


@both
def test_dropout_only_while_training(kind: str) -> None:
    encoder, histories = make_encoder(kind), make_histories(6, 4)
    assert torch.equal(encoder(histories), encoder(histories))
    encoder.train()
    torch.manual_seed(0)
    first = encoder(histories)
    assert not torch.equal(encoder(histories), first)
    torch.manual_seed(0)
    assert torch.equal(encoder(histories), first)


@both
def test_embed_items_gives_raw_rows(kind: str) -> None:
    encoder = make_encoder(kind)
    assert torch.equal(encoder.embed_items(), encoder.item_table.weight)
    assert torch.equal(encoder.embed_items(torch.tensor([4, 0, 4])), encoder.item_table.weight[[4, 0, 4]])
    with pytest.raises(InvalidInputError, match=r"rows holds row 30 but the item table has 30 rows"):
        encoder.embed_items(torch.tensor([4, 30]))
    with pytest.raises(InvalidInputError, match=r"rows holds torch.float32 values"):
        encoder.embed_items(torch.tensor([4.0]))


@both
def test_refuses_histories_it_cannot_encode(kind: str) -> None:
    encoder = make_encoder(kind)
    with pytest.raises(InvalidInputError, match=r"history 1 has 13 events but max_length is 12; keep its last 12"):
        encoder(make_histories(2, 13))
    for row in (-1, 30):
        with pytest.raises(InvalidInputError, match=rf"items holds row {row} but the item table has 30 rows.*0 to 29"):
            encoder(changed(make_histories(2, 3), "items", 1, row))
    nothing = torch.empty(0, dtype=torch.int64)
    with pytest.raises(InvalidInputError, match="there are 0 histories; give at least 1"):
        encoder(Histories(nothing, nothing, nothing, nothing))


def test_refuses_what_is_no_history() -> None:
    five, six = torch.arange(5), torch.arange(6)
    with pytest.raises(InvalidInputError, match=r"lengths sum to 6 but there are 5 events"):
        Histories(five, five, five, torch.tensor([2, 4]))
    with pytest.raises(
        InvalidInputError, match=r"history 1 has length 0 but needs at least 1 event; omit this history"
    ):
        Histories(five, five, five, torch.tensor([2, 0, 3]))
    with pytest.raises(InvalidInputError, match=r"next_times has 6 values but there are 5 events"):
        Histories(five, five, six, torch.tensor([5]))
    with pytest.raises(InvalidInputError, match=r"times is torch.float32 of shape \(5,\); give one row of torch.int64"):
        Histories(five, five.float(), five, torch.tensor([5]))
    with pytest.raises(InvalidInputError, match=r"lengths is torch.int64 of shape \(\)"):
        Histories(five, five, five, torch.tensor(5))


def test_refuses_options_that_cannot_work() -> None:
    with pytest.raises(InvalidInputError, match="num_heads is 3 but dim is 50; choose num_heads that divides dim"):
        SASRec(num_items=5, num_heads=3)
    for build in (SASRec, HSTU):
        for name in ("num_items", "dim", "num_blocks", "num_heads", "max_length"):
            with pytest.raises(InvalidInputError, match=f"{name} is 0"):
                build(**{"num_items": 5, name: 0})
        with pytest.raises(InvalidInputError, match=r"dropout is 1\.0"):
            build(num_items=5, dropout=1.0)


def test_time_buckets_at_their_borders() -> None:
    seconds = [0, 1, -1, 2, -2, 3, 60, 3600, 86_400, -86_400, 31_536_000, 2**62]
    expected = [0, 0, 0, 2, 2, 3, 13, 27, 37, 37, 57, 128]
    assert time_buckets(torch.tensor(seconds)).tolist() == expected
    for bucket in range(8, 60):  # below these, whole seconds leave buckets empty
        border = math.exp(0.301 * bucket)
        below, above = math.floor(border * (1 - 1e-5)), math.ceil(border * (1 + 1e-5))
        assert time_buckets(torch.tensor([below, above])).tolist() == [bucket - 1, bucket]


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_packing_loses_nothing_and_pads_little(lengths: list[int]) -> None:
    packed = group_histories(torch.tensor(lengths), num_heads=2)
    events = torch.arange(sum(lengths))
    assert torch.equal(packed.pack(packed.unpack(events)), events)
    assert packed.positions.tolist() == list(itertools.chain.from_iterable(map(range, lengths)))
    assert sum(count for count, _ in packed.shapes) == len(lengths)
    for group in packed.split(packed.unpack(packed.positions)):
        own, width = group.amax(dim=1) + 1, group.shape[1]
        assert torch.equal(group, torch.minimum(torch.arange(width), own[:, None] - 1))
        assert int((width**2 - own**2).max()) * 2 <= packing.SPARE_SCORES_PER_HISTORY
        assert len(group) == 1 or len(group) * 2 * width**2 <= packing.SCORES_PER_GROUP


def test_unpack_takes_gradients_back() -> None:
    packed = group_histories(torch.tensor([3, 1, 2]), num_heads=1)
    rows = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def there_and_back(values: Tensor) -> Tensor:
        return packed.pack(packed.unpack(values).sin())

    assert torch.autograd.gradcheck(there_and_back, rows)
