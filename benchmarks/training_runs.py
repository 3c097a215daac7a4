"""Training runs side by side, from the folders that `railsearch train` wrote: figures, curves, wall time. Markdown.

python benchmarks/training_runs.py runs/ml-1m/sasrec runs/ml-1m/sasrec-mol
python benchmarks/training_runs.py runs/ml-1m/* --at 10 20 40 --plot curves.png
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

METRICS = ("HR@1", "HR@10", "HR@50", "HR@200", "MRR")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--at", nargs="*", type=int, default=[], help="epochs to compare validation at")
    parser.add_argument("--plot", type=Path, help="draw validation HR@10 by epoch into this file")
    options = parser.parse_args()

    logs = {run.name: read_log(run / "log.jsonl") for run in options.runs}
    print("## Test, at the epoch that validation picked\n")
    print(f"| run | epochs | picked | {' | '.join(METRICS)} | NDCG@10 | minutes |")
    print("|---" * (len(METRICS) + 5) + "|")
    for run in options.runs:
        config = run / "model" / "config.json"
        if not config.is_file():
            continue
        card = json.loads(config.read_text())["card"]
        figures = " | ".join(f"{card['metrics'][name]:.4f}" for name in (*METRICS, "NDCG@10"))
        print(f"| {run.name} | {card['num_epochs']} | {card['best_epoch']} | {figures} | {card['seconds'] / 60:.0f} |")
    print("\n## Validation by epoch: HR@10 (MRR)\n")
    validated = {
        name: {line["epoch"]: line["validation"] for line in log if line["validation"]} for name, log in logs.items()
    }
    epochs = sorted(options.at or {epoch for curve in validated.values() for epoch in curve})
    print(f"| epoch | {' | '.join(logs)} |")
    print("|---" * (len(logs) + 1) + "|")
    for epoch in epochs:
        found = [curve.get(epoch) for curve in validated.values()]
        cells = ["" if each is None else f"{each['HR@10']:.4f} ({each['MRR']:.4f})" for each in found]
        print(f"| {epoch} | {' | '.join(cells)} |")
    print("\n## Time\n")
    print("| run | seconds an epoch, median | seconds a validation, median |")
    print("|---|---|---|")
    for name, log in logs.items():
        training = [line["seconds"] for line in log]
        validations = [line["validation_seconds"] for line in log if line["validation"]]
        print(f"| {name} | {median(training)} | {median(validations)} |")
    if options.plot:
        draw(validated, options.plot)


def median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.0f}" if seconds else ""


def read_log(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def draw(validated: dict[str, dict[int, dict[str, float]]], file: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, curve in validated.items():
        axes.plot(list(curve), [each["HR@10"] for each in curve.values()], marker=".", label=name)
    axes.set(xlabel="epoch", ylabel="validation HR@10")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
