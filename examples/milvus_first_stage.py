"""Milvus as the first stage: it proposes candidates, and railsearch scores them with the learned similarity.

MILVUS_URI=http://127.0.0.1:19530 python examples/milvus_first_stage.py        # needs the extra `milvus`

The index folder stays the source of truth: it holds components, gates and metadata. Milvus holds one vector for each
item, which a sync writes. A server with a password reads it from the environment variable that `token_env` names.
"""

import os
import secrets
import tempfile

from railsearch import BruteForce, Index, MixtureOfLogits, PerComponent
from railsearch.data import make_world
from railsearch.engines import Milvus, sync_engine

world = make_world(num_users=200, num_items=3000, num_interests=2, num_aspects=2, taste_dim=8)
items, queries = world.item_embeddings, world.query_embeddings[:50]
similarity = MixtureOfLogits.around(dim=items.shape[1], cosine=True, seed=0)  # your trained one

milvus = Milvus(
    os.environ.get("MILVUS_URI", "http://127.0.0.1:19530"),
    f"railsearch_example_{secrets.token_hex(4)}",  # a collection belongs to one index; yours keeps its name
    token_env="MILVUS_TOKEN" if "MILVUS_TOKEN" in os.environ else None,
)

with tempfile.TemporaryDirectory() as folder:
    # 1. An index folder, and a collection of the same items on the server.
    index = Index.build(similarity, items, path=f"{folder}/items.index")
    print(sync_engine(index, milvus))
    print(sync_engine(index, milvus))  # nothing to do: only differences are sent

    # 2. The same folder, with candidates from Milvus. An approximate engine proves nothing, so measure what it finds.
    with_milvus = Index.open(f"{folder}/items.index", engine=milvus)
    exact = index.search(queries, k=10, strategy=BruteForce())
    found = with_milvus.search(queries, k=10, strategy=PerComponent(50))
    recall = sum(len(set(a) & set(b)) for a, b in zip(found.ids.tolist(), exact.ids.tolist(), strict=True)) / 500
    print(f"found {recall:.0%} of the true top 10; certified: {bool(found.is_exact.any())}")

    # 3. After a change, the collection is behind, and a search says so instead of missing items. Sync again.
    index.remove(exact.ids[0, :1].tolist())
    print(sync_engine(index, milvus))

milvus.connect().drop()  # only because this is an example
