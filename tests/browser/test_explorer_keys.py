"""The explorer at a server with keys: Basic authentication for the page, or a key that only the tab knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import accessibility_violations, find_chromium
from tests.support.served import Served, make_index, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.browser
KEY = "reader-key-reader-key"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    find_chromium()
    folder: Path = tmp_path_factory.mktemp("guarded")
    make_index(folder / "movies.index")
    with serving(folder / "movies.index", environment={"RAILSEARCH_READ_KEYS": KEY}) as served:
        yield served


def without_basic(route: "Route") -> None:
    """Pass a request on without the credentials that the browser has added, as if it knew none for the API."""
    headers = route.request.all_headers()
    if headers.get("authorization", "").startswith("Basic"):
        del headers["authorization"]
    route.continue_(headers=headers)


def test_the_page_asks_the_browser_for_a_key(browser: "Browser", guarded: Served) -> None:
    refused = browser.new_context()
    answer = refused.request.get(guarded.url, headers={"Accept": "text/html"})
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    refused.close()
    context = browser.new_context(http_credentials={"username": "me", "password": KEY})
    page = context.new_page()
    page.goto(guarded.url)
    page.get_by_text("200 items are ready").wait_for()
    assert page.locator("#key-dialog").is_hidden()
    context.close()


def test_a_key_is_kept_in_the_tab_alone(browser: "Browser", guarded: Served) -> None:
    context = browser.new_context(http_credentials={"username": "me", "password": KEY})
    page = context.new_page()
    page.route("**/v1/**", without_basic)
    page.add_init_script(
        "window.fetch = (original => (url, options) => original(url, {...options, credentials: 'omit'}))(fetch)"
    )
    page.goto(guarded.url)
    page.get_by_role("dialog", name="API key").wait_for()
    assert accessibility_violations(page) == []
    page.get_by_label("Key", exact=True).fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_text("200 items are ready").wait_for()
    assert page.evaluate("Object.values(sessionStorage)") == [KEY]
    assert KEY not in page.evaluate("JSON.stringify([{...localStorage}, document.cookie, location.href])")
    page.get_by_role("button", name="API key").click()
    page.get_by_role("button", name="Forget key").click()
    page.get_by_role("dialog", name="API key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    context.close()
