"""FROM raw input to embeddings: sequence encoders that turn a history into a query."""

from railsearch.encoders.contract import SequenceEncoder
from railsearch.encoders.histories import Histories
from railsearch.encoders.hstu import HSTU
from railsearch.encoders.sasrec import SASRec

__all__ = ["HSTU", "Histories", "SASRec", "SequenceEncoder"]
