"""Prepare a release: give the unreleased changes of the changelog the version and the date, and check what names them.

python -m tools.release [--date 2026-11-30] [--check] [--tag v0.2.0]

The version is `__version__` in `src/railsearch/__init__.py` and nowhere else; the build reads it there. With `--check`
nothing is written: the command fails unless the changelog and CITATION.cff are ready for this version.
"""

import argparse
import datetime as dt
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION_FILE = Path("src/railsearch/__init__.py")
CHANGELOG = Path("CHANGELOG.md")
CITATION = Path("CITATION.cff")
UNRELEASED = "## [Unreleased]"


class NotReadyError(Exception):
    """A reason why this version cannot be released."""


def read_version(root: Path = ROOT) -> str:
    """Return the version of the sources."""
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)"$', (root / VERSION_FILE).read_text(), re.M)
    if found is None:
        raise NotReadyError(f'{VERSION_FILE} has no line __version__ = "X.Y.Z"; write it.')
    return found[1]


def released(changelog: str, version: str, date: str) -> str:
    """Return the changelog with the unreleased changes under a heading of this version; unchanged if they have it.

    >>> print(released("# Changelog\\n\\n## [Unreleased]\\n\\n### Added\\n- A.\\n", "0.2.0", "2026-11-30"))
    # Changelog
    <BLANKLINE>
    ## [Unreleased]
    <BLANKLINE>
    ## [0.2.0] - 2026-11-30
    <BLANKLINE>
    ### Added
    - A.
    <BLANKLINE>
    """
    head, found, rest = changelog.partition(f"{UNRELEASED}\n")
    if not found:
        raise NotReadyError(f"{CHANGELOG} has no heading {UNRELEASED!r}; add it above the changes.")
    end = rest.find("\n## [")
    waiting = (rest if end < 0 else rest[:end]).strip()
    has_section = re.search(rf"^## \[{re.escape(version)}\]", rest, re.M) is not None
    if has_section and waiting:
        raise NotReadyError(
            f"{CHANGELOG} has unreleased changes but also a section of {version}; raise __version__ in {VERSION_FILE}."
        )
    if has_section:
        return changelog
    if not waiting:
        raise NotReadyError(f"{CHANGELOG} has no changes for {version}; write them under {UNRELEASED!r}.")
    return f"{head}{UNRELEASED}\n\n## [{version}] - {date}\n{rest}"


def check_citation(citation: str, version: str) -> None:
    """Check that CITATION.cff names this version."""
    found = re.search(r"^version: (\S+)$", citation, re.M)
    if found is None or found[1] != version:
        stated = "no version" if found is None else found[1]
        raise NotReadyError(f"{CITATION} names {stated} but the sources are {version}; write version: {version} there.")


def prepare(root: Path, *, date: str, writes: bool, tag: str | None = None) -> str:
    """Write the section of the changelog, or only check that it is there; return the version."""
    version = read_version(root)
    if tag is not None and tag != f"v{version}":
        raise NotReadyError(f"the tag is {tag} but the sources are {version}; tag them v{version}.")
    check_citation((root / CITATION).read_text(), version)
    before = (root / CHANGELOG).read_text()
    after = released(before, version, date)
    if after != before and not writes:
        raise NotReadyError(f"{CHANGELOG} has no section of {version}; run make release.")
    if after != before:
        (root / CHANGELOG).write_text(after)
    return version


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    today = dt.datetime.now(dt.UTC).date()
    parser.add_argument("--date", type=dt.date.fromisoformat, default=today, help="of the release, as 2026-11-30")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--tag", help="check that this tag is of this version")
    given = parser.parse_args(arguments)
    try:
        version = prepare(ROOT, date=given.date.isoformat(), writes=not given.check, tag=given.tag)
    except NotReadyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"railsearch {version}: the changelog has its section")
    return 0


if __name__ == "__main__":
    sys.exit(main())
