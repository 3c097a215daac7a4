"""Data: interactions, passages, items and queries from files, splits, and synthetic data with known preferences."""

from railsearch.data.interactions.columns import TimeUnit
from railsearch.data.interactions.continuing import continue_rows, continue_split
from railsearch.data.interactions.frequent import keep_frequent
from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.prepared import About, check_prepared, read_about, read_prepared, write_prepared
from railsearch.data.interactions.preparing import Prepared, TableOptions, prepare
from railsearch.data.interactions.public_files import read_amazon, read_movielens, read_sequences
from railsearch.data.interactions.published import PUBLISHED, Published
from railsearch.data.interactions.since import Time, train_since
from railsearch.data.interactions.splits import HeldOut, Split, leave_last_out
from railsearch.data.interactions.tables import read_interactions
from railsearch.data.items import read_array, read_ids, read_items, read_queries
from railsearch.data.pair_files import read_pair_rows
from railsearch.data.passages.layouts import (
    PassageLayout,
    is_beir,
    read_beir,
    read_insuranceqa,
    read_medquad,
    read_nq320k,
    read_pairs,
    read_passages,
)
from railsearch.data.passages.passages import PairsLike, QuestionPassages, Questions
from railsearch.data.passages.question_files import read_question_files
from railsearch.data.passages.question_splits import add_generated, split_questions
from railsearch.data.passages.texts import read_passage_texts
from railsearch.data.synthetic.shapes import Shape, ShapeName, make_shape
from railsearch.data.synthetic.world import World, make_world

__all__ = [
    "PUBLISHED",
    "About",
    "HeldOut",
    "Interactions",
    "PairsLike",
    "PassageLayout",
    "Prepared",
    "Published",
    "QuestionPassages",
    "Questions",
    "Shape",
    "ShapeName",
    "Split",
    "TableOptions",
    "Time",
    "TimeUnit",
    "World",
    "add_generated",
    "check_prepared",
    "continue_rows",
    "continue_split",
    "is_beir",
    "keep_frequent",
    "leave_last_out",
    "make_shape",
    "make_world",
    "prepare",
    "read_about",
    "read_amazon",
    "read_array",
    "read_beir",
    "read_ids",
    "read_insuranceqa",
    "read_interactions",
    "read_items",
    "read_medquad",
    "read_movielens",
    "read_nq320k",
    "read_pair_rows",
    "read_pairs",
    "read_passage_texts",
    "read_passages",
    "read_prepared",
    "read_queries",
    "read_question_files",
    "read_sequences",
    "split_questions",
    "train_since",
    "write_prepared",
]
