"""Text retrievers inside other libraries: one thin adapter for each, behind its extra."""
