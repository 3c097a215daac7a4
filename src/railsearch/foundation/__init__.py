"""Layer 0: errors, results, input checks, settings, files and progress. Nothing here depends on a similarity."""
