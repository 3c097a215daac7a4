"""From raw input to embeddings: encoders that turn a history into a query, or a text into components."""

from railsearch.encoders.sequence.contract import SequenceEncoder
from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.hstu import HSTU
from railsearch.encoders.sequence.sasrec import SASRec
from railsearch.encoders.text.encoder import TextEncoder
from railsearch.encoders.text.mixed_precision import mixed_precision
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig, TokenPlace
from railsearch.encoders.text.top_layers import training_top

__all__ = [
    "HSTU",
    "Histories",
    "Pooling",
    "SASRec",
    "SequenceEncoder",
    "Side",
    "TextEncoder",
    "TextEncoderConfig",
    "TokenPlace",
    "mixed_precision",
    "training_top",
]
