"""Search: the top K of a corpus under a similarity (the paper's section 3)."""

from pathlib import Path

from railsearch.folders import register_opener
from railsearch.index.corpus import Precision
from railsearch.index.engines import Engine, Faiss, Flat, ScanPrecision, parse_engine, register_engine
from railsearch.index.filters import Allow, Exclude
from railsearch.index.index import Index
from railsearch.index.source import ModelSource, SourcedIndex, folder_of, model_of
from railsearch.index.storage import Problem, StoredTable, TableState, Verification
from railsearch.index.strategies import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    PerComponent,
    Strategy,
    TwoPass,
    Weighted,
)
from railsearch.index.strategy_text import format_strategy, parse_strategies, parse_strategy
from railsearch.index.tuning import TuningReport, TuningRow

__all__ = [
    "Adaptive",
    "Allow",
    "Average",
    "BruteForce",
    "Combined",
    "Engine",
    "Exclude",
    "Faiss",
    "Flat",
    "Index",
    "ModelSource",
    "PerComponent",
    "Precision",
    "Problem",
    "ScanPrecision",
    "SourcedIndex",
    "StoredTable",
    "Strategy",
    "TableState",
    "TuningReport",
    "TuningRow",
    "TwoPass",
    "Verification",
    "Weighted",
    "folder_of",
    "format_strategy",
    "model_of",
    "parse_engine",
    "parse_strategies",
    "parse_strategy",
    "register_engine",
]


def _is_index(folder: Path) -> bool:
    return (folder / "manifests").is_dir() and (folder / "similarity").is_dir()


register_opener("railsearch.index", Index.open, is_in=_is_index)
