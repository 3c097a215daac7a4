"""The summary of an index, as a table or as JSON."""

from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.distributed import ShardedIndex
from railsearch.index import Index


def report(index: Index | ShardedIndex, as_json: bool, more: dict[str, str] | None = None) -> None:
    """Print what an index, one or split, holds."""
    described = {**index.describe(), **(more or {})}
    if as_json:
        print_json(described)
        return
    shown = (
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else _joined(value))
        for name, value in described.items()
    )
    make_console(wraps=True).print(make_summary_table(shown))


def _joined(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
