"""Sequence encoders: from a history of items to a query embedding."""
