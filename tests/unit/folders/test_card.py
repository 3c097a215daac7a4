"""The model card: one type for both front doors, complete as text and as JSON."""

import dataclasses
import json

from railsearch.folders import ModelCard
from railsearch.recipes import Recipe

CARD = ModelCard(
    title="sasrec with cosine",
    purpose="It ranks items.",
    data="events.csv: 10 events.",
    counts={"events": 10},
    protocol="leave the last out",
    best_epoch=2,
    num_epochs=3,
    picked_by="MRR on validation items",
    validation={"MRR": 0.25},
    metrics={"HR@10": 0.5, "MRR": 0.123456},
    seed=7,
    seconds=61.4,
)


def test_the_text_says_everything_a_reader_needs() -> None:
    text = CARD.to_markdown(Recipe())
    for part in (
        "# sasrec with cosine\n", "It ranks items.", "events.csv: 10 events.", "Protocol: leave the last out.",
        "Epoch 2 of 3, picked by MRR on validation items. With its weights:", "| HR@10 | 0.5000 |", "| MRR | 0.1235 |",
        "61 seconds; seed 7; python ", "- encoder: ", "- training: ",
    ):  # fmt: skip
        assert part in text, part


def test_without_a_test_there_is_no_table() -> None:
    text = dataclasses.replace(CARD, metrics={}, protocol="not tested").to_markdown(Recipe())
    assert "| metric |" not in text
    assert "Protocol: not tested." in text


def test_a_card_survives_json() -> None:
    assert ModelCard(**json.loads(json.dumps(dataclasses.asdict(CARD)))) == CARD
