"""FROM raw input to embeddings: encoders that turn a history into a query, or a text into components."""

from railsearch.encoders.contract import SequenceEncoder
from railsearch.encoders.histories import Histories
from railsearch.encoders.hstu import HSTU
from railsearch.encoders.sasrec import SASRec
from railsearch.encoders.text import TextEncoder
from railsearch.encoders.text_settings import Pooling, Side, TextSettings, TokenPlace

__all__ = [
    "HSTU",
    "Histories",
    "Pooling",
    "SASRec",
    "SequenceEncoder",
    "Side",
    "TextEncoder",
    "TextSettings",
    "TokenPlace",
]
