"""Models: encoder and similarity must fit, and histories end where the next item stands."""

import pytest
import torch

from railsearch import DotProduct
from railsearch.encoders import SASRec
from railsearch.errors import InvalidInputError
from railsearch.models import SequentialModel, histories_between
from tests.support.cycles import cycles


def test_encoder_and_similarity_have_one_size() -> None:
    encoder = SASRec(num_items=5, dim=4, max_length=3, seed=0)
    with pytest.raises(InvalidInputError, match=r"embeddings of 4 values but the similarity takes queries of \(6,\)"):
        SequentialModel(encoder=encoder, similarity=DotProduct(dim=6))


@pytest.mark.parametrize("max_length", [2, 100])
def test_histories_hold_the_last_events_before_the_next_item(max_length: int) -> None:
    interactions = cycles(num_users=3, num_items=9, length=6)
    starts, ends = interactions.offsets[:-1], interactions.offsets[:-1] + torch.tensor([1, 4, 5])
    histories = histories_between(interactions, starts, ends, max_length=max_length)
    assert histories.lengths.tolist() == [min(max_length, length) for length in (1, 4, 5)]
    expected = [
        row
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        for row in range(start, end)[-max_length:]
    ]
    assert torch.equal(histories.items, interactions.items[expected])
    assert torch.equal(histories.times, interactions.timestamps[expected])
    assert torch.equal(histories.next_times, interactions.timestamps[[row + 1 for row in expected]])


def test_scores_of_a_history_are_those_of_its_last_position() -> None:
    interactions = cycles(num_users=3, num_items=9, length=6)
    model = SequentialModel(
        encoder=SASRec(num_items=9, dim=4, max_length=8, seed=0), similarity=DotProduct(dim=4)
    ).eval()
    starts = interactions.offsets[:-1]
    histories = histories_between(interactions, starts, starts + 5, max_length=8)
    with torch.no_grad():
        last = model.encoder(histories)[histories.last_positions]  # (3, D)
    assert torch.equal(model.encode(histories), last)
    scores = model.similarity.score(model.query_parts(histories, torch.arange(3)), model.item_parts())
    torch.testing.assert_close(scores, last @ model.encoder.item_table.weight.mT)
