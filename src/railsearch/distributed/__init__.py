"""Shards: one index over several folders, processes or machines, with the same calls and the same certificate."""
