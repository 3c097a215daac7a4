"""One index in shards on Ray: the same answers as one machine, certificate included.

python examples/ray_shards.py        # needs the extra `ray`; starts a small cluster on this machine

On a cluster of yours, only the address changes: `ShardedIndex.open("shards", replicas=2, address="10.0.0.7:6379")`.
"""

import tempfile

import torch

from railsearch import Index, MixtureOfLogits
from railsearch.distributed import ShardedIndex, shard_index

generator = torch.Generator().manual_seed(0)
items, queries = torch.randn(20_000, 32, generator=generator), torch.randn(8, 32, generator=generator)
similarity = MixtureOfLogits(query_dim=32, item_dim=32, seed=0)

with tempfile.TemporaryDirectory() as folder:  # on a cluster, one that all machines reach
    # 1. One index, split into two folders. Each shard is an index of its own.
    whole = Index.build(similarity, items, path=f"{folder}/movies.index")
    shard_index(whole, f"{folder}/shards", 2)

    # 2. A process for each shard; with replicas=2 there are two, and one may die. A search asks all shards and merges.
    with ShardedIndex.open(f"{folder}/shards", workers="ray") as shards:
        result = shards.search(queries, k=10)
        print(f"the same ids as one index: {torch.equal(result.ids, whole.search(queries, k=10).ids)}")
        print(f"exact: {bool(result.is_exact.all())}, share of the items that was searched: {result.coverage:.0%}")

        # 3. Changes reach the right shard, and are durable when the call returns.
        shards.upsert(queries[:1] * 2, ids=[50_000])
        shards.remove([int(result.ids[0, 0])])
        print(f"{len(shards):,} items after one was added and one removed")
