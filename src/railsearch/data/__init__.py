"""Data: items and queries from files, and synthetic worlds whose truth is known."""

from railsearch.data.items import read_array, read_items, read_queries
from railsearch.data.synthetic import World, make_world

__all__ = ["World", "make_world", "read_array", "read_items", "read_queries"]
