"""Folders that railsearch writes: sealed, checksummed, and written whole or not at all."""
