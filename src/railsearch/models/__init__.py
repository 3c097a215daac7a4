"""Encoder and similarity as one model: what training trains and serving serves."""
