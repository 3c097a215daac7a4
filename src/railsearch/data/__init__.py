"""Data: items and queries from files, synthetic worlds whose truth is known, the paper's workloads as such worlds."""

from railsearch.data.items import read_array, read_items, read_queries
from railsearch.data.shapes import Shape, ShapeName, make_shape
from railsearch.data.synthetic import World, make_world

__all__ = ["Shape", "ShapeName", "World", "make_shape", "make_world", "read_array", "read_items", "read_queries"]
