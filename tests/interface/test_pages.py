"""Pages that are generated: they are complete, and they fail on what they cannot describe."""

from pathlib import Path

import pytest
from tools.pages.file_tree import PACKAGE, first_sentence, render_tree


def test_the_file_tree_names_every_module_with_its_purpose() -> None:
    lines = render_tree().splitlines()
    modules = list(PACKAGE.rglob("*.py"))
    assert len(lines) == len(modules)
    names = [line.split()[0] for line in lines]
    for path in modules:
        name = f"{path.parent.name}/" if path.name == "__init__.py" else path.name
        assert names.count(f"src/{name}" if path.parent == PACKAGE and name.endswith("/") else name), path
    assert all(len(line.split()) > 2 for line in lines[1:])


def test_a_module_without_a_purpose_is_named(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text('"""Count apples. Then pears.\n\nMore."""\n')
    assert render_tree(package).splitlines() == ["src/package/", "  one.py                       Count apples"]
    (package / "two.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"two\.py has no docstring"):
        render_tree(package)
    assert first_sentence(package / "one.py") == "Count apples"
