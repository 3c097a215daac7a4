"""Run by torchrun: trains a similarity on pairs, without anything that differs by process, and writes its weights."""

import json
import sys
from pathlib import Path

import torch

from railsearch import MixtureOfLogits
from railsearch.training import TrainingConfig
from railsearch.training.loop import train
from railsearch.training.processes import joined_processes
from railsearch.training.tasks.pairs import PairTask, as_pair_data

generator = torch.Generator().manual_seed(0)
queries, items = (torch.randn(30, 6, generator=generator, dtype=torch.float64) for _ in range(2))
pairs = torch.stack([torch.randperm(30, generator=generator), torch.arange(30)], dim=1)
similarity = MixtureOfLogits(
    query_dim=6, item_dim=6, num_query_components=2, num_item_components=2, component_dim=4, projection_dim=8,
    gate_dim=8, item_dropout=0.0, gate_dropout=0.0, seed=0,
).double()  # fmt: skip
config = TrainingConfig(epochs=3, batch_size=7, negatives="in_batch", learning_rate=0.01, balance_weight=0.0)
data = as_pair_data(similarity, queries, items, pairs, validation_pairs=pairs, like=next(similarity.parameters()))
with joined_processes() as processes:
    report = train(PairTask(similarity, data, config), config, processes=processes)
    assert report.best.validation is not None
    values = torch.cat([parameter.detach().flatten() for parameter in similarity.parameters()]).tolist()
    Path(f"{sys.argv[1]}-{processes.rank}.json").write_text(json.dumps(values))
