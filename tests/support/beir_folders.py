"""A small folder in the layout of BEIR, with graded labels."""

import json
from pathlib import Path

from tests.support.tiny_text import PAIRS


def make_beir(folder: Path) -> Path:
    """Write the questions of `tiny_text`: 12 to train on, 3 for validation, 5 to test with 2 right passages each."""
    (folder / "qrels").mkdir(parents=True)
    passages = [{"_id": f"d{row}", "title": "", "text": text} for row, (_, text) in enumerate(PAIRS)]
    questions = [{"_id": f"q{row}", "text": text} for row, (text, _) in enumerate(PAIRS)]
    for name, records in (("corpus", passages), ("queries", questions)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)))
    labels = {
        "train": [(row, row, 1) for row in range(12)],
        "dev": [(row, row, 1) for row in range(12, 15)],
        "test": [label for row in range(15, 20) for label in ((row, row, 2), (row, row - 10, 1))],
    }
    for name, rows in labels.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{query}\td{passage}\t{score}" for query, passage, score in rows)]
        (folder / "qrels" / f"{name}.tsv").write_text("\n".join(lines))
    return folder
