"""The parts of when_it_pays.py: comparisons over embeddings, over sequences, and intervals."""
