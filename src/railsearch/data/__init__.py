"""Data: interactions, items and queries from files, splits, and synthetic worlds whose truth is known."""

from railsearch.data.collections import read_amazon, read_movielens, read_sequences
from railsearch.data.columns import TimeUnit
from railsearch.data.frequent import keep_frequent
from railsearch.data.generation import generate_questions
from railsearch.data.interactions import Interactions
from railsearch.data.items import read_array, read_items, read_queries
from railsearch.data.passage_collections import (
    PassageLayout,
    read_beir,
    read_insuranceqa,
    read_medquad,
    read_nq320k,
    read_pairs,
    read_passages,
)
from railsearch.data.passage_texts import read_passage_texts
from railsearch.data.passages import QuestionPassages, Questions
from railsearch.data.prepared import About, check_prepared, read_about, read_prepared, write_prepared
from railsearch.data.preparing import Prepared, TableOptions, prepare
from railsearch.data.published import PUBLISHED, Published
from railsearch.data.question_splits import add_generated, split_questions
from railsearch.data.shapes import Shape, ShapeName, make_shape
from railsearch.data.splits import HeldOut, Split, leave_last_out
from railsearch.data.synthetic import World, make_world
from railsearch.data.tables import read_interactions

__all__ = [
    "PUBLISHED",
    "About",
    "HeldOut",
    "Interactions",
    "PassageLayout",
    "Prepared",
    "Published",
    "QuestionPassages",
    "Questions",
    "Shape",
    "ShapeName",
    "Split",
    "TableOptions",
    "TimeUnit",
    "World",
    "add_generated",
    "check_prepared",
    "generate_questions",
    "keep_frequent",
    "leave_last_out",
    "make_shape",
    "make_world",
    "prepare",
    "read_about",
    "read_amazon",
    "read_array",
    "read_beir",
    "read_insuranceqa",
    "read_interactions",
    "read_items",
    "read_medquad",
    "read_movielens",
    "read_nq320k",
    "read_pairs",
    "read_passage_texts",
    "read_passages",
    "read_prepared",
    "read_queries",
    "read_sequences",
    "split_questions",
    "write_prepared",
]
