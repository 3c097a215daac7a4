"""Encoder and similarity as one model, and the ranking of held-out items: what training trains and serving serves."""

from railsearch.models.question_generation import generate_questions
from railsearch.models.ranking import ITEM_CUTOFFS, PASSAGE_CUTOFFS, rank_held_out, rank_questions
from railsearch.models.sequential import SequentialModel, histories_between
from railsearch.models.text import TextModel

__all__ = [
    "ITEM_CUTOFFS",
    "PASSAGE_CUTOFFS",
    "SequentialModel",
    "TextModel",
    "generate_questions",
    "histories_between",
    "rank_held_out",
    "rank_questions",
]
