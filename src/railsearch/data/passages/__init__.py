"""Questions and passages from files, and the splits of questions."""
