"""The item table: learned rows, features and their sum against products by hand, and its growth."""

import json
import math

import pytest
import torch

from railsearch.encoders import HSTU, Histories, SASRec
from railsearch.encoders.sequence.item_table import ItemTable
from railsearch.foundation.errors import InvalidInputError

NUM_ITEMS, DIM, NUM_FEATURES = 6, 4, 3
FEATURES = 5 + 100 * torch.randn(NUM_ITEMS, NUM_FEATURES, generator=torch.Generator().manual_seed(0))


def make_table(**options: object) -> ItemTable:
    table = ItemTable(num_items=NUM_ITEMS, dim=DIM, features=FEATURES, **options)
    table.reset_parameters(torch.Generator().manual_seed(1))
    return table.eval()


def by_hand(table: ItemTable, features: list[float]) -> list[float]:
    """The projection of one item's features, number by number, in Python floats."""
    columns = FEATURES.double().t().tolist()
    means = [math.fsum(column) / NUM_ITEMS for column in columns]
    spreads = [
        math.sqrt(math.fsum((value - mean) ** 2 for value in column) / NUM_ITEMS)
        for column, mean in zip(columns, means, strict=True)
    ]
    inputs = [
        (value - mean) / spread / math.sqrt(NUM_FEATURES)
        for value, mean, spread in zip(features, means, spreads, strict=True)
    ]
    weights, bias = table.projection.weight.tolist(), table.projection.bias.tolist()
    return [
        math.fsum(w * x for w, x in zip(row, inputs, strict=True)) + b for row, b in zip(weights, bias, strict=True)
    ]


@pytest.mark.parametrize("has_ids", [True, False])
def test_an_embedding_is_its_row_plus_its_projected_features(has_ids: bool) -> None:
    table = make_table(has_ids=has_ids)
    rows = table.weight.detach() if has_ids else torch.zeros(NUM_ITEMS, DIM)
    expected = rows + torch.tensor([by_hand(table, own) for own in FEATURES.tolist()])
    torch.testing.assert_close(table.every(), expected)
    few, many = torch.tensor([2, 0]), torch.tensor([5, 1, 1, 0, 2, 3, 4, 5])
    torch.testing.assert_close(table(few), expected[few])
    torch.testing.assert_close(table(many), expected[many])


def test_features_start_as_small_as_learned_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    features = 1000 * torch.randn(500, 64, generator=generator)
    table = ItemTable(num_items=500, dim=50, features=features, has_ids=False)
    table.reset_parameters(generator)
    assert float(table.every().detach().std()) == pytest.approx(0.02, rel=0.2)
    assert float(table.features.square().sum(dim=1).mean()) == pytest.approx(1, rel=1e-4)


def test_a_constant_column_says_nothing() -> None:
    features = torch.cat([FEATURES, torch.full((NUM_ITEMS, 1), 0.1)], dim=1)
    table = ItemTable(num_items=NUM_ITEMS, dim=DIM, features=features)
    assert not table.features[:, 3].any()
    assert table.features[:, :3].any()


def test_dropout_omits_learned_rows_only_in_training() -> None:
    table = make_table(id_dropout=0.5).train()
    rows = torch.arange(NUM_ITEMS).repeat(40)
    torch.manual_seed(0)
    dropped = table(rows) - table.projection(table.features)[rows]
    is_kept = dropped.abs().amax(dim=1) > 0
    assert 0.3 < float(is_kept.float().mean()) < 0.7
    torch.testing.assert_close(dropped[is_kept], table.weight[rows[is_kept]])
    torch.testing.assert_close(table.eval()(rows), table.every()[rows])


@pytest.mark.parametrize("has_ids", [True, False])
def test_growth_appends_items_and_keeps_the_others(has_ids: bool) -> None:
    table = make_table(has_ids=has_ids, id_dropout=0.25)
    new = torch.tensor([[1.0, 2.0, 3.0], [1e4, 0.0, -7.0]])
    grown = table.grown(new)
    assert grown.num_items == NUM_ITEMS + 2
    assert grown.config == table.config
    assert torch.equal(grown.every()[:NUM_ITEMS], table.every())
    torch.testing.assert_close(grown.every()[NUM_ITEMS:], torch.tensor([by_hand(table, own) for own in new.tolist()]))
    assert table.num_items == NUM_ITEMS
    assert all(parameter.requires_grad for parameter in grown.parameters())


def test_a_new_table_continues_a_trained_one() -> None:
    trained = make_table()
    features = torch.cat([FEATURES[[3, 0]], torch.tensor([[9.0, -9.0, 0.0]])])
    table = ItemTable(num_items=3, dim=DIM, features=features)
    table.reset_parameters(torch.Generator().manual_seed(5))
    table.continue_from(trained, torch.tensor([3, 0, -1]))
    own = table.weight[2] + trained.projection(trained.standardize(features[2:]))[0]
    expected = torch.cat([trained.every()[[3, 0]], own[None]])
    torch.testing.assert_close(table.every(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("build", [SASRec, HSTU])
@pytest.mark.parametrize("item_ids", [True, False])
def test_an_encoder_reads_features_in_histories_and_for_the_similarity(
    build: type[SASRec | HSTU], item_ids: bool
) -> None:
    encoder = build(num_items=NUM_ITEMS, dim=DIM, item_features=FEATURES, item_ids=item_ids, seed=0).eval()
    times = torch.tensor([1, 2])
    histories = Histories(torch.tensor([1, 2]), times, times + 1, torch.tensor([2]))
    twin = build(**json.loads(json.dumps(encoder.config))).eval()
    twin.load_state_dict(encoder.state_dict())
    assert torch.equal(twin(histories), encoder(histories))
    before = encoder(histories)
    with torch.no_grad():
        encoder.item_table.features[1] += 1
    assert not torch.equal(encoder(histories), before)
    assert torch.equal(encoder.embed_items()[[0, 2]], twin.embed_items()[[0, 2]])
    assert not torch.equal(encoder.embed_items()[1], twin.embed_items()[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": FEATURES[:5]}, r"item_features has shape \(5, 3\) but there are 6 items"),
        ({"features": FEATURES.log()}, "must hold finite floating-point numbers"),
        ({"features": FEATURES.long()}, "must hold finite floating-point numbers"),
        ({"features": FEATURES, "feature_dim": 4}, "feature_dim is 4 but item_features has 3 columns"),
        ({"has_ids": False}, "item_ids is False but there are no item_features"),
        ({"features": FEATURES, "id_dropout": 1.5}, "item_id_dropout"),
    ],
)
def test_refuses_what_it_cannot_hold(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ItemTable(num_items=NUM_ITEMS, dim=DIM, **options)


def test_growth_needs_the_same_features() -> None:
    with pytest.raises(InvalidInputError, match=r"features have shape \(1, 2\) but the model takes 3 for each item"):
        make_table().grown(torch.ones(1, 2))
    with pytest.raises(InvalidInputError, match="this table has no features"):
        ItemTable(num_items=2, dim=2).grown(torch.ones(1, 2))
