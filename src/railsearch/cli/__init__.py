"""The command line: `railsearch --help` is its documentation."""

import contextlib
import errno
import logging
import os
import sys
from typing import NoReturn

INTERRUPTED = 130
FAILED = 2


def main() -> NoReturn:
    """Run the command line; an error that the user can fix is one line on standard error, and exit code 2."""
    try:
        code = _run()
    except KeyboardInterrupt:  # also while modules are imported
        code = INTERRUPTED
    if code == INTERRUPTED:
        _complain("interrupted")
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or _complain(f"error: the output cannot be written ({error.strerror}).")
        _close_output()
    sys.exit(code)


def _run() -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # pytest puts other streams in their place
            stream.reconfigure(errors="backslashreplace")
    from railsearch.cli.app import app  # noqa: PLC0415  (Ctrl-C while modules are imported is caught by main)
    from railsearch.cli.flags import with_flags  # noqa: PLC0415
    from railsearch.cli.terminal import WarningFormatter, lines_of  # noqa: PLC0415
    from railsearch.foundation.errors import RailsearchError  # noqa: PLC0415

    if logging.lastResort is not None:  # prints warnings of the library, which quote values of files
        logging.lastResort.setFormatter(WarningFormatter())
    try:
        app()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except RailsearchError as error:
        return _complain(f"error: {lines_of(with_flags(str(error), sys.argv[1:]))}")
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            return _complain(f"error: the output cannot be written ({error.strerror}).")
        name = "" if error.filename is None else f"{error.filename!r}: "
        return _complain(f"error: {name}{error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's own message
            raise
        return _complain("error: there is not enough memory for these sizes; choose smaller ones.")
    return 0


def _complain(text: str) -> int:
    with contextlib.suppress(OSError):  # if standard error is full too, only the exit code reports it
        print(text, file=sys.stderr, flush=True)
    return FAILED


def _close_output() -> None:
    """Discard output that could not be written, so that the interpreter does not retry and complain at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


__all__ = ["main"]
