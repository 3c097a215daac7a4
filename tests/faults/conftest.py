"""Figures that the fault suites print at the end of a run."""

from collections.abc import Callable

import pytest

_figures = pytest.StashKey[list[str]]()


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return a function that keeps a line until the last test is done and prints it then."""
    return pytestconfig.stash.setdefault(_figures, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_figures, []):
        terminalreporter.write_line(line)
