"""Dependencies: an install gets versions that are tested, and every message about an install names what exists."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from railsearch.cli import doctor
from railsearch.errors import MissingExtraError
from railsearch.foundation.extras import EXTRAS, install_advice, missing_extra

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def read_versions(file: str) -> dict[str, Version]:
    found = re.findall(r"^([\w-]+)==(\S+)$", (ROOT / file).read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


TESTED, LOWEST = read_versions("constraints.txt"), read_versions("constraints-lowest.txt")
GROUPS = [PYPROJECT["build-system"]["requires"], PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
REQUIREMENTS = [text for group in GROUPS for text in group if Requirement(text).name != "railsearch"]
TEXTS = [
    *(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".toml"}),
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").rglob("*.md"),
]
ON_PYPI = re.compile(r"""pip install (?:[^\n]*['" ])?railsearch\b|railsearch\[\w""")


def next_untested(version: Version) -> str:
    """Return the next major version, or the next minor version before 1.0, where any of them may break callers."""
    return f"{version.major + 1}" if version.major else f"0.{version.minor + 1}"


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_a_plain_install_gets_tested_versions(text: str) -> None:
    requirement = Requirement(text)
    tested = TESTED[canonicalize_name(requirement.name)]
    assert tested in requirement.specifier
    bounds = {each.operator: each.version for each in requirement.specifier}
    assert bounds.keys() == {">=", "<"}
    assert bounds["<"] == next_untested(tested)


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_the_lowest_versions_are_the_lower_bounds(text: str) -> None:
    requirement = Requirement(text)
    (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
    name = canonicalize_name(requirement.name)
    assert LOWEST.get(name, Version(bound)) == Version(bound)
    assert name in LOWEST or text not in PROJECT["dependencies"]


def test_the_names_of_extras_are_those_of_the_project() -> None:
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - {"dev"} == set(doctor.EXTRAS)
    for extra in EXTRAS:
        assert f"pip install '.[{extra}]'" in install_advice(extra)
    error = missing_extra("faiss", "faiss")
    assert isinstance(error, MissingExtraError)
    assert str(error) == "faiss is not installed; from a checkout of railsearch, run: pip install '.[faiss]'"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_says_that_railsearch_is_on_pypi(path: Path) -> None:
    assert ON_PYPI.findall(path.read_text()) == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("pip install 'railsearch[faiss]'", True),
        ("pip install railsearch", True),
        ("pip install --constraint constraints.txt 'railsearch'", True),
        ("Install railsearch[text].", True),
        ("pip install --constraint constraints.txt .", False),
        ("from a checkout of railsearch, run: pip install '.[faiss]'", False),
    ],
)
def test_such_a_line_would_be_found(line: str, *, is_wrong: bool) -> None:
    assert bool(ON_PYPI.search(line)) == is_wrong
