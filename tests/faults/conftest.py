"""How many trials a run makes, and the figures that it prints at its end."""

import os
from collections.abc import Callable

import pytest

IS_FULL = os.environ.get("RAILSEARCH_FAULTS") == "full"
"""Set by `make faults`: as many trials as the figures in the documentation rest on."""

_figures = pytest.StashKey[list[str]]()


def trials(few: int, full: int) -> int:
    """How many trials to make: a few in the default suite."""
    return full if IS_FULL else few


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Keeps a line that is printed after the last test."""
    return pytestconfig.stash.setdefault(_figures, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_figures, []):
        terminalreporter.write_line(line)
