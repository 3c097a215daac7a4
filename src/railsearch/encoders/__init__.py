"""FROM raw input to embeddings: sequence encoders that turn a history into a query."""

from railsearch.encoders.histories import Histories

__all__ = ["Histories"]
