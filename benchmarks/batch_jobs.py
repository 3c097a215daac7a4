"""Times of batch jobs in one process and on Ray, with one and with two workers of one thread each.

python benchmarks/batch_jobs.py
python benchmarks/batch_jobs.py --queries 20000 --passages 4000 --workers 1 2 4

Searches: queries over 24,186 items, 8 x 4 components of 128 (the ML-20M shape), `Average(500)`, k = 100. Passages:
texts of 60 words through a language model of the shape of MiniLM (6 layers of 384), with random weights. Items: a
Parquet file of embeddings becomes two shards, under the same similarity. Workers have imported railsearch before the
clock starts; loading the model and writing the files count. Read figures as ratios within one run.
"""

import argparse
import functools
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import ray
import tokenizers
import torch
import transformers

from railsearch import Average, Index, MixtureOfLogits, TextRetriever
from railsearch.data import read_items
from railsearch.distributed import build_shards
from railsearch.distributed.batch import LocalRunner, RayRunner, Runner, build_passages_index, build_with, search_file
from railsearch.recipes import TextRecipe

NUM_ITEMS, EMBEDDING_DIM, K = 24_186, 64, 100
WORDS_PER_PASSAGE, NUM_WORDS = 60, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--passages", type=int, default=800)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        make_search(folder, options.queries)
        make_texts(folder, options.passages)
        make_items(folder, options.items)
        stream = functools.partial(read_items, folder / "items.parquet", id_column="id", embedding_column="embedding")
        jobs = {
            f"search, {options.queries:,} queries": lambda runner, target: search_file(
                folder / "index", folder / "queries.parquet", target, K, strategy=Average(500),
                rows_per_part=-(-options.queries // options.parts), runner=runner, show_progress=False,
            ),
            f"encode, {options.passages:,} passages": lambda runner, target: build_passages_index(
                folder / "model", folder / "passages.jsonl", target,
                passages_per_part=-(-options.passages // options.parts), runner=runner, show_progress=False,
            ),
            f"build, {options.items:,} items": lambda runner, target: build_shards(
                make_similarity(), stream, target, 2, run=build_with(runner, show_progress=False)
            ),
        }  # fmt: skip
        measure(folder, jobs, options.workers)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, jobs: dict[str, Callable[[Runner, Path], object]], workers: list[int]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for count in (0, *workers):
        runner: Runner = LocalRunner()
        if count:
            ray.init(
                address="local", num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                _node_ip_address="127.0.0.1",
            )  # fmt: skip
            runner = RayRunner()
            ray.get([ray.remote(import_railsearch).remote() for _ in range(count)])
        for name, job in jobs.items():
            target = folder / f"{name.partition(',')[0]}-{count}"
            started = time.perf_counter()
            job(runner, target)
            seconds[name].append(time.perf_counter() - started)
        if count:
            ray.shutdown()
    print("| job | one process | " + " | ".join(f"Ray, {count} workers" for count in workers) + " |")
    print("|---|" + "---|" * (1 + len(workers)))
    for name, own in seconds.items():
        others = " | ".join(f"{each:.1f} s ({own[0] / each:.2f} x)" for each in own[1:])
        print(f"| {name} | {own[0]:.1f} s | {others} |")


def import_railsearch() -> None:
    import railsearch.distributed.batch  # noqa: F401, PLC0415

    time.sleep(2)  # so that every worker process gets one of these tasks


def make_similarity() -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=EMBEDDING_DIM, item_dim=EMBEDDING_DIM, num_query_components=8, num_item_components=4,
        component_dim=128, seed=0,
    ).eval()  # fmt: skip


def make_items(folder: Path, num_items: int) -> None:
    embeddings = np.random.default_rng(1).normal(size=(num_items, EMBEDDING_DIM)).astype(np.float32)
    pl.DataFrame({"id": np.arange(num_items), "embedding": embeddings}).write_parquet(
        folder / "items.parquet", row_group_size=50_000
    )


def make_search(folder: Path, num_queries: int) -> None:
    rng = np.random.default_rng(0)
    items = rng.normal(size=(NUM_ITEMS, EMBEDDING_DIM)).astype(np.float32)
    Index.build(make_similarity(), items, path=folder / "index", show_progress=False)
    queries = pl.DataFrame({"embedding": rng.normal(size=(num_queries, EMBEDDING_DIM)).astype(np.float32)})
    queries.write_parquet(folder / "queries.parquet")


def make_texts(folder: Path, num_passages: int) -> None:
    vocabulary = {word: row for row, word in enumerate(["[PAD]", "[UNK]", *(f"w{n}" for n in range(NUM_WORDS))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder / "base")
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder / "base")
    settings = {"kind": "text", "base": str(folder / "base"), "max_passage_length": 128}
    TextRetriever(TextRecipe(encoder=settings, similarity={"kind": "mixture_of_logits"})).save(folder / "model")
    rng = np.random.default_rng(0)
    with (folder / "passages.jsonl").open("w") as file:
        for words in rng.integers(NUM_WORDS, size=(num_passages, WORDS_PER_PASSAGE)):
            file.write(json.dumps({"text": " ".join(f"w{word}" for word in words)}) + "\n")


if __name__ == "__main__":
    main()
