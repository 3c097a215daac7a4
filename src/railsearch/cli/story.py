"""The demo as text on a terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from railsearch.demo import Chapter, GateChapter, QualityChapter, SearchChapter, WorldChapter

SHADES = " ░▒▓█"
ASCII_SHADES = " .:*#"


def tell_demo(chapters: Iterable[Chapter], console: Console) -> None:
    """Print each chapter as soon as it is ready."""
    qualities: list[QualityChapter] = []
    last: type[Chapter] | None = None
    for chapter in chapters:
        is_first = type(chapter) is not last
        last = type(chapter)
        match chapter:
            case WorldChapter():
                _tell_world(chapter, console)
            case QualityChapter():
                if chapter.seconds:
                    console.print(f"  trained {chapter.name} in {chapter.seconds:.0f} s")
                qualities.append(chapter)
            case SearchChapter():
                if is_first:
                    _tell_quality(qualities, console)
                    console.rule("Search: the index answers (without items liked in training)")
                    console.print("Scores compare the items of one user; they do not compare users.")
                _tell_search(chapter, console)
            case GateChapter():
                if is_first:
                    console.rule("Why: the gate weights")
                _tell_gate(chapter, console)
    console.rule("Next")
    console.print(
        "Your own embeddings: fit_similarity(MixtureOfLogits.around(dim=D, cosine=True), queries, items, pairs), then\n"
        "Index.build(similarity, items).search(queries, k=10). The README shows it in 12 lines."
    )


def _tell_world(world: WorldChapter, console: Console) -> None:
    console.rule("Synthetic data with known preferences")
    console.print(
        f"{world.num_users:,} users with {world.num_interests} interests each, {world.num_items:,} items with "
        f"{world.num_aspects} aspects each, {world.num_likes:,} likes.\n"
        "A user likes an item if ANY of its aspects meets ANY of the user's interests.\n"
        f"The embeddings hold all of this: {world.query_dim} numbers for each user, {world.item_dim} for each item.\n"
        f"A dot product of {world.query_dim} dimensions can produce scores of rank {world.query_dim} at most; "
        f"the true preferences need {world.preference_rank} for 99 % of their sum of squares.\n\n"
        "Training two similarities on the same embeddings and likes:"
    )


def _tell_quality(qualities: list[QualityChapter], console: Console) -> None:
    table = Table(title="Rank of each user's held-out like among all items (without items liked in training)")
    table.add_column("similarity")
    for name in qualities[0].metrics:
        table.add_column(name, justify="right")
    for quality in qualities:
        table.add_row(quality.name, *(f"{value:.4f}" for value in quality.metrics.values()))
    console.print(table)
    console.print(
        "Embeddings, likes, negatives and epochs are the same: the rows differ in how a user and an item are compared."
    )


def _tell_search(chapter: SearchChapter, console: Console) -> None:
    table = Table(title=f"user {chapter.user}", title_justify="left", box=None)
    for column in ("item", "score", "rank in truth", ""):
        table.add_column(column, justify="right")
    for answer in chapter.answers:
        mark = "held-out like" if answer.is_held_out_like else ""
        table.add_row(str(answer.item), f"{answer.score:.2f}", str(answer.true_rank), mark)
    console.print(table)
    console.print("  certified exact" if chapter.is_exact else "  not certified exact")


def _tell_gate(chapter: GateChapter, console: Console) -> None:
    console.print(
        f"user {chapter.user}, item {chapter.item}, score {chapter.score:.2f} "
        f"(truth: interest {chapter.true_interest} meets aspect {chapter.true_aspect})"
    )
    console.print(heat_map(chapter.gate_weights, chapter.component_scores, is_ascii=console.options.ascii_only))


def heat_map(gate_weights: list[list[float]], component_scores: list[list[float]], *, is_ascii: bool = False) -> Text:
    """Return gate weight and component score of every component pair, with darker shades for larger weights."""
    shades = ASCII_SHADES if is_ascii else SHADES
    lines = ["      " + "".join(f"{f'item {column}':^16}" for column in range(len(gate_weights[0])))]
    for row, (weights, scores) in enumerate(zip(gate_weights, component_scores, strict=True)):
        cells = (
            f" {shades[min(4, int(weight * 5))] * 2} {weight:4.0%} x {score:5.1f} "
            for weight, score in zip(weights, scores, strict=True)
        )
        lines.append(f"  q {row} " + "".join(cells))
    return Text("\n".join(lines))
