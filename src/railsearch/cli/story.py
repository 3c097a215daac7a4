"""How the demo is told on a terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from railsearch.demo import Chapter, GateChapter, QualityChapter, SearchChapter, WorldChapter

SHADES = " ░▒▓█"


def tell_demo(chapters: Iterable[Chapter], console: Console) -> None:
    """Print each chapter as it comes."""
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
                    console.rule("Search: the index answers (items liked in training left out)")
                    console.print("Scores compare items for one user, not users with each other.")
                _tell_search(chapter, console)
            case GateChapter():
                if is_first:
                    console.rule("Why: what the gate weighed")
                _tell_gate(chapter, console)
    console.rule("Next")
    console.print(
        "Bring your own embeddings: fit_similarity(MixtureOfLogits(...), queries, items, pairs), then\n"
        "Index.build(similarity, items).search(queries, k=10). The README shows it in 12 lines."
    )


def _tell_world(world: WorldChapter, console: Console) -> None:
    console.rule("A world in which the truth is known")
    console.print(
        f"{world.num_users:,} users with {world.num_interests} interests each, {world.num_items:,} items with "
        f"{world.num_aspects} aspects each, {world.num_likes:,} likes.\n"
        "A user likes an item when ANY of its aspects meets ANY of the user's interests.\n"
        f"All of that stands in the embeddings: {world.query_dim} numbers a user, {world.item_dim} an item.\n"
        f"A dot product of {world.query_dim} dimensions gives scores of rank {world.query_dim} at most; "
        f"this truth needs {world.preference_rank} for 99 % of its sum of squares.\n\n"
        "Training two similarities on the same embeddings and likes:"
    )


def _tell_quality(qualities: list[QualityChapter], console: Console) -> None:
    table = Table(title="Rank of each user's held-out like among all items (those liked in training left out)")
    table.add_column("similarity")
    for name in qualities[0].metrics:
        table.add_column(name, justify="right")
    for quality in qualities:
        table.add_row(quality.name, *(f"{value:.4f}" for value in quality.metrics.values()))
    console.print(table)
    console.print(
        "Same embeddings, likes, negatives and epochs: the rows differ in how a user and an item are compared."
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
    console.print(heat_map(chapter.gate_weights, chapter.component_scores))


def heat_map(gate_weights: list[list[float]], component_scores: list[list[float]]) -> Text:
    """Gate weight and component score of every (query component, item component), darker for more weight."""
    lines = ["      " + "".join(f"{f'item {column}':^16}" for column in range(len(gate_weights[0])))]
    for row, (weights, scores) in enumerate(zip(gate_weights, component_scores, strict=True)):
        cells = (
            f" {SHADES[min(4, int(weight * 5))] * 2} {weight:4.0%} x {score:5.1f} "
            for weight, score in zip(weights, scores, strict=True)
        )
        lines.append(f"  q {row} " + "".join(cells))
    return Text("\n".join(lines))
