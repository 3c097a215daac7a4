"""Run by torchrun: trains a tiny text model for an epoch, with gate dropout and load balance; writes its weights."""

import json
import sys
from pathlib import Path

from railsearch import TextRetriever, TextTrainingConfig
from railsearch.training.loop import train
from railsearch.training.processes import joined_processes
from railsearch.training.text import TextTask
from tests.tiny_text import make_data

base, out = sys.argv[1:]
retriever = TextRetriever(
    base, num_query_components=2, num_item_components=2, max_query_length=12, max_passage_length=12
)
model = retriever.model.double()
# 20 pairs in batches of 9: the last one has two, and the plain loss of each depends on all of its batch.
config = TextTrainingConfig(epochs=1, batch_size=9, balance_weight=0.1, micro_batch_size=2, learning_rate=1e-3)
with joined_processes() as processes:
    train(TextTask(model, make_data(), config, processes), config, processes=processes)
    weights = {name: value.tolist() for name, value in model.state_dict().items() if value.is_floating_point()}
    text = json.dumps({"weights": weights, "num_steps": -(-20 // config.batch_size)})
    Path(f"{out}-{processes.rank}.json").write_text(text)
