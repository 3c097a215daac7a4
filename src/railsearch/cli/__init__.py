"""The command line: `railsearch --help` is its documentation."""

from railsearch.cli.app import main

__all__ = ["main"]
