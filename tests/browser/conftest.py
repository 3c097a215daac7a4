"""A server and a browser for the tests of the explorer.

Both live as long as a module: while Playwright runs, no other test can run an event loop in this process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import find_chromium, launch
from tests.support.served import Served, make_index, serving
from tests.support.served_models import make_recommender

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server of films, which take histories and users, and of movies, which take vectors."""
    find_chromium()
    folder: Path = tmp_path_factory.mktemp("explorer")
    films = make_recommender(folder)
    make_index(folder / "movies.index")
    with serving(films.index, folder / "movies.index", "--model", films.model, "--data", films.data) as served:
        yield served


@pytest.fixture(params=[1280, 390], ids=["desktop", "phone"])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(120_000)
    yield context
    context.close()


@pytest.fixture
def page(context: "BrowserContext", served: Served) -> "Page":
    """Return a page that fails the test if a script fails or something from outside is asked for."""
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector("main[aria-busy=false]")
    return page
