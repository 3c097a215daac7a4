"""Synthetic worlds whose truth is known, and the paper's workloads."""
