"""Models of encoder and similarity, as training and serving use them, and the ranking of held-out items."""

from railsearch.models.listing import list_held_out, list_passages
from railsearch.models.query_graph import QueryGraph
from railsearch.models.question_generation import generate_questions
from railsearch.models.ranking import (
    ITEM_CUTOFFS,
    PASSAGE_CUTOFFS,
    rank_held_out,
    rank_pairs,
    rank_questions,
    recommend_held_out,
)
from railsearch.models.sequential import SequentialModel, histories_between
from railsearch.models.text import TextModel

__all__ = [
    "ITEM_CUTOFFS",
    "PASSAGE_CUTOFFS",
    "QueryGraph",
    "SequentialModel",
    "TextModel",
    "generate_questions",
    "histories_between",
    "list_held_out",
    "list_passages",
    "rank_held_out",
    "rank_pairs",
    "rank_questions",
    "recommend_held_out",
]
