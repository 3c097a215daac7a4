"""Releases: one version, a changelog section that is written once, and workflows that only call make."""

import doctest
import re
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
from tools import release

import railsearch

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n- A.\n\n## [0.1.0]\n\n### Added\n- B.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project at version 0.2.0 with one unreleased change."""
    (tmp_path / release.VERSION_FILE).parent.mkdir(parents=True)
    (tmp_path / release.VERSION_FILE).write_text('"""A package."""\n\n__version__ = "0.2.0"\n')
    (tmp_path / release.CHANGELOG).write_text(CHANGES)
    (tmp_path / release.CITATION).write_text("type: software\nversion: 0.2.0\n")
    return tmp_path


def test_the_version_is_in_one_place() -> None:
    assert release.read_version() == railsearch.__version__
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text
    assert not re.search(r"^version =", text, re.MULTILINE)
    release.check_citation((ROOT / release.CITATION).read_text(), railsearch.__version__)


def test_the_installed_version_is_that_of_the_sources() -> None:
    assert installed_version("railsearch") == railsearch.__version__


def test_a_section_is_written_once(project: Path) -> None:
    with pytest.raises(release.NotReadyError, match=r"has no section of 0\.2\.0; run make release"):
        release.prepare(project, date="2026-11-30", writes=False)
    assert release.prepare(project, date="2026-11-30", writes=True) == "0.2.0"
    written = (project / release.CHANGELOG).read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-11-30\n\n### Added\n- A.\n\n## [0.1.0]" in written
    assert release.prepare(project, date="2026-12-31", writes=False) == "0.2.0"
    release.prepare(project, date="2026-12-31", writes=True, tag="v0.2.0")
    with pytest.raises(release.NotReadyError, match=r"the tag is v0\.3\.0 but the sources are 0\.2\.0"):
        release.prepare(project, date="2026-12-31", writes=True, tag="v0.3.0")
    assert (project / release.CHANGELOG).read_text() == written
    (project / release.CHANGELOG).write_text(written.replace("[Unreleased]\n", "[Unreleased]\n\n- C.\n"))
    with pytest.raises(release.NotReadyError, match=r"but also a section of 0\.2\.0; raise __version__"):
        release.prepare(project, date="2026-12-31", writes=True)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (release.VERSION_FILE, '"0.2.0"', '"next"', "has no line __version__"),
        (release.CITATION, "0.2.0", "0.1.0", r"names 0\.1\.0 but the sources are 0\.2\.0"),
        (release.CHANGELOG, "## [Unreleased]", "## Soon", "has no heading"),
        (release.CHANGELOG, "### Added\n- A.\n", "", r"has no changes for 0\.2\.0"),
    ],
)
def test_what_is_not_ready_is_named(project: Path, file: Path, old: str, new: str, message: str) -> None:
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new, 1))
    with pytest.raises(release.NotReadyError, match=message):
        release.prepare(project, date="2026-11-30", writes=True)


def test_examples() -> None:
    assert doctest.testmod(release).failed == 0


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = workflow.read_text()
    listed = re.search(r"^ +target: \[(.*)\]$", text, re.MULTILINE)
    called = re.findall(r"run: make ([a-z-]+)", text) + ([] if listed is None else listed[1].split(", "))
    for target in called:
        assert target in targets, f"{workflow.name} calls make {target}, which is not a target"
    assert "permissions:" in text
    assert "pull_request_target" not in text
