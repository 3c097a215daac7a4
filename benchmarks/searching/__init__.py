"""The parts of trained_search.py: bounds that know the gate, and candidates that follow what was found."""
