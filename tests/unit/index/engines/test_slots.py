"""One vector for each item answers every first stage: against the naive formulas, in fp64."""

import torch

from railsearch.index.engines.slots import in_every_slot, in_one_slot

QUERIES, PAIRS, DIM, ITEMS = 3, (4, 5), 6, 20


def test_every_first_stage_is_an_inner_product_with_all_components(generator: torch.Generator) -> None:
    num_query, num_item = PAIRS
    queries = torch.randn(QUERIES, num_query, DIM, generator=generator, dtype=torch.float64)
    items = torch.randn(ITEMS, num_item, DIM, generator=generator, dtype=torch.float64)
    whole = items.flatten(1)  # (N, Px * d)
    sums = in_every_slot(queries.sum(dim=1, keepdim=True), num_item) @ whole.T  # (B, 1, N)
    for query in range(QUERIES):
        for item in range(ITEMS):
            naive = sum(
                float(queries[query, own] @ items[item, other]) for own in range(num_query) for other in range(num_item)
            )
            assert abs(float(sums[query, 0, item]) - naive) < 1e-9
    for slot in range(num_item):
        found = in_one_slot(queries, num_item, slot) @ whole.T  # (B, Pq, N)
        for query in range(QUERIES):
            for own in range(num_query):
                for item in range(ITEMS):
                    naive = float(queries[query, own] @ items[item, slot])
                    assert abs(float(found[query, own, item]) - naive) < 1e-9
