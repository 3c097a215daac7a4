"""Contract tests that come with the package: check an engine or a similarity of your own."""

from railsearch.testing.engines import check_engine
from railsearch.testing.similarity import check_similarity_contract

__all__ = ["check_engine", "check_similarity_contract"]
