"""Run by torchrun: trains a tiny text model for an epoch, with gate dropout and load balance; writes its weights."""

import json
import sys
from pathlib import Path

from railsearch.recipes import TextTrainingConfig
from railsearch.training.loop import train
from railsearch.training.processes import Processes, joined_processes
from railsearch.training.tasks.texts import TextTask
from tests.support.tiny_text import make_data, make_retriever


def trained_weights(base: Path, processes: Processes) -> dict[str, object]:
    """Weights after 20 pairs in batches of 19: the last has one, which leaves the second of two processes nothing."""
    model = make_retriever(base, num_query_components=2, num_item_components=2).model.double()
    config = TextTrainingConfig(epochs=1, batch_size=19, balance_weight=0.1, micro_batch_size=2, learning_rate=1e-3)
    train(TextTask(model, make_data(), config, processes), config, processes=processes)
    return {name: value.tolist() for name, value in model.state_dict().items() if value.is_floating_point()}


if __name__ == "__main__":
    with joined_processes() as joined:
        Path(f"{sys.argv[2]}-{joined.rank}.json").write_text(json.dumps(trained_weights(Path(sys.argv[1]), joined)))
