"""Recall that was measured, and never proven; apart from other results, so that a client needs no torch for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedRecall:
    """The recall that `tune` measured for a strategy: a statement about queries like its sample, not a proof."""

    recall: float
    """Mean recall of such queries is at least this."""
    confidence: float
    """The probability that the statement is true."""
    version: int
    """The version of the index on which it was measured."""
