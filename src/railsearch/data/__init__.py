"""Data: so far, synthetic worlds whose truth is known."""

from railsearch.data.synthetic import World, make_world

__all__ = ["World", "make_world"]
