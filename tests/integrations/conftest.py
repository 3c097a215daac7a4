"""An indexed text retriever that the adapters share."""

from pathlib import Path

import pytest

from railsearch import TextRetriever
from tests.support.tiny_text import PAIRS, make_base, make_retriever


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and the index that it built."""
    folder = tmp_path_factory.mktemp("adapters")
    retriever = make_retriever(make_base(folder / "base"), num_query_components=1, num_item_components=1)
    retriever.save(folder / "model")
    retriever.build_index({f"p{row}": text for row, (_, text) in enumerate(PAIRS)}, folder / "index")
    return folder


@pytest.fixture(scope="session")
def retriever(folders: Path) -> TextRetriever:
    found = TextRetriever.load(folders / "model")
    found.open_index(folders / "index")
    return found
