"""The number of trials that a randomised test makes."""

import os

IS_FULL = os.environ.get("RAILSEARCH_FAULTS") == "full"
"""True in `make faults` and `make test-more`, which make as many trials as the figures in the documentation rest on."""


def trials(few: int, full: int) -> int:
    """Return the number of trials to make: `full` in `make test-all` and `make faults`, `few` in the default suite."""
    return full if IS_FULL else few
