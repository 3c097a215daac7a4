"""Data: so far, synthetic worlds whose truth is known, and the paper's workloads as such worlds."""

from railsearch.data.shapes import Shape, ShapeName, make_shape
from railsearch.data.synthetic import World, make_world

__all__ = ["Shape", "ShapeName", "World", "make_shape", "make_world"]
