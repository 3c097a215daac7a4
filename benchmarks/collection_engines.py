"""Recall of Milvus and PostgreSQL as first stages, at several efforts, in a synthetic world.

    python benchmarks/collection_engines.py --milvus http://127.0.0.1:19530 --token-env MILVUS_TOKEN
    python benchmarks/collection_engines.py --postgres

Without a server of your own, `--start` starts those that `make services` installs.
"""

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

from torch import Tensor

from railsearch import Average, Combined, Index, PerComponent, Weighted
from railsearch.data import make_world
from railsearch.engines import Milvus, Postgres, sync_engine
from railsearch.testing.collections import check_is_free, drop_collection

STRATEGIES = [Average(200), PerComponent(20), Combined(10, 200), Weighted(200)]
EFFORTS = [32, 128, 400]
COLLECTION = "railsearch_benchmark"


def recall(found: Tensor, truth: Tensor) -> float:
    pairs = zip(found.tolist(), truth.tolist(), strict=True)
    return sum(len(set(own) & set(true)) for own, true in pairs) / truth.numel()


def measure(path: Path, queries: Tensor, engines: list[Milvus | Postgres]) -> None:
    plain = Index.open(path)
    truth = plain.search(queries, 10).ids
    print("| engine | effort | sync s | " + " | ".join(map(str, STRATEGIES)) + " |")
    print("|---" * (3 + len(STRATEGIES)) + "|")
    row = [f"{recall(plain.search(queries, 10, strategy).ids, truth):.3f}" for strategy in STRATEGIES]
    print(f"| scan | | | {' | '.join(row)} |")
    for engine in engines:
        check_is_free(engine)
        started = time.perf_counter()
        sync_engine(plain, engine)
        seconds = time.perf_counter() - started
        for effort in EFFORTS:
            with Index.open(path, engine=dataclasses.replace(engine, effort=effort)) as index:
                row = [f"{recall(index.search(queries, 10, strategy).ids, truth):.3f}" for strategy in STRATEGIES]
            print(f"| {type(engine).__name__} | {effort} | {seconds:.1f} | {' | '.join(row)} |", flush=True)
        drop_collection(engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=6000)
    parser.add_argument("--milvus", help="address of a Milvus server")
    parser.add_argument("--token-env", help="environment variable with its token")
    parser.add_argument("--postgres", action="store_true", help="use the server in RAILSEARCH_POSTGRES")
    parser.add_argument("--start", action="store_true", help="start both servers")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if given.start:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from tests.support.servers import running_milvus, running_postgres  # noqa: PLC0415

            milvus, postgres = stack.enter_context(running_milvus()), stack.enter_context(running_postgres())
            os.environ["MILVUS_TOKEN"] = milvus.token
            os.environ["RAILSEARCH_POSTGRES"] = f"{postgres.address} password={postgres.token}"
            given.milvus, given.token_env, given.postgres = milvus.address, "MILVUS_TOKEN", True
        engines: list[Milvus | Postgres] = []
        if given.milvus:
            engines.append(Milvus(given.milvus, COLLECTION, token_env=given.token_env))
        if given.postgres:
            engines.append(Postgres(COLLECTION))
        world = make_world(num_users=64, num_items=given.items, num_interests=2, num_aspects=4, taste_dim=8)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "world.index"
        Index.build(world.truth, world.item_embeddings, path=path)
        measure(path, world.query_embeddings, engines)


if __name__ == "__main__":
    main()
