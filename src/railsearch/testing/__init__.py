"""Contract tests that come with the package: check your own engine against what strategies rely on."""

from railsearch.testing.engines import check_engine

__all__ = ["check_engine"]
