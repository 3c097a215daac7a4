"""Commands of railsearch, run in this process."""

import sys

import pytest
from typer.testing import CliRunner

from railsearch import RailsearchError
from railsearch.cli import main
from railsearch.cli.app import app


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process and return its standard output; raise an error of ours, which `main` prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, RailsearchError):
        raise result.exception
    assert result.exit_code == code, result.output or repr(result.exception)
    return result.stdout


def run_main(*arguments: object) -> int:
    """Run a command in this process as the shell does, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["railsearch", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
    return int(done.value.code or 0)
