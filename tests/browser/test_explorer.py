"""The explorer in a real browser, at a real server: every view, by mouse and keyboard, in both themes and sizes."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from railsearch.client import Client
from tests.support.browser import accessibility_violations
from tests.support.served import Served, make_queries

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route

pytestmark = pytest.mark.browser
VECTOR = ", ".join(f"{value:.4f}" for value in make_queries(1)[0])
SEARCH = f"?index=movies&by=vector&k=5&vector={VECTOR.replace(' ', '+')}"
VIEWS = {
    "empty": "",
    "results": "?index=films&by=history&item=3&item=9&k=6&strategy=Average(12)",
    "why": "?index=films&by=history&item=3&item=9&k=6&why=5",
    "error": "?index=movies&by=vector&vector=1+2+3&allow=yeer",
    "refused": f"{SEARCH}&allow=yeer+%3E+3",
    "compare": f"{SEARCH}&view=compare&strategy=Average(6)",
    "index": "?index=films&view=index",
}


def show(page: "Page", served: Served, query: str = "") -> None:
    page.goto(f"{served.url}/{query}")
    page.wait_for_selector("main[aria-busy=false]", state="attached")


def until(page: "Page", expression: str) -> None:
    """Wait until an expression is true; the policy of the page forbids what `wait_for_function` does."""
    for _ in range(2400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def state_of(page: "Page") -> dict[str, list[str]]:
    return parse_qs(str(page.evaluate("location.search")).removeprefix("?"))


def rows(page: "Page") -> "Locator":
    return page.locator("table.results tbody tr[data-id]")


def ids(page: "Page") -> list[str]:
    return [str(row.get_attribute("data-id")) for row in rows(page).all()]


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as client:
        yield client


def vector() -> list[list[float]]:
    return [[float(value) for value in VECTOR.split(",")]]


def test_results_are_those_of_the_server(page: "Page", served: Served, client: Client) -> None:
    show(page, served, f"{SEARCH}&strategy=Average(12)")
    found = client.search("movies", vector(), k=5, strategy="Average(12)", fields=["title"])
    assert ids(page) == [str(item) for item in found.ids[0]]
    titles = [row["title"] for row in found.fields[0]]  # type: ignore[index]
    assert [row.locator(".title").inner_text() for row in rows(page).all()] == titles
    scores = [float(row.locator("td.number").inner_text().replace("−", "-")) for row in rows(page).all()]
    assert scores == pytest.approx(found.scores[0].tolist(), abs=0.01)
    assert page.locator(".summary .badge").inner_text().startswith("Exact" if found.is_exact[0] else "Gap ≤")
    assert "12 of 200" in page.locator(".summary .facts").inner_text()


@pytest.mark.parametrize("strategy", ["BruteForce", "Average(6)", "Adaptive(0.2)", "PerComponent(4)"])
def test_the_line_is_where_certification_ends(page: "Page", served: Served, client: Client, strategy: str) -> None:
    show(page, served, f"{SEARCH}&strategy={strategy}")
    found = client.search("movies", vector(), k=5, strategy=strategy)
    kinds = [row.get_attribute("data-id") is None for row in page.locator("table.results tbody tr").all()]
    assert sum(kinds) == 1
    assert kinds.index(True) == (5 if found.is_exact[0] else found.num_certified[0])


def test_a_search_by_hand_is_in_the_url(page: "Page", served: Served) -> None:
    show(page, served, "?index=movies")
    page.get_by_label("Query vector").fill(VECTOR)
    page.get_by_label("Filter").fill("year < 1960")
    page.get_by_role("spinbutton", name="Items").fill("4")
    page.get_by_label("Strategy").fill("Average(20)")
    page.get_by_role("button", name="Search", exact=True).click()
    rows(page).nth(3).wait_for()
    state = state_of(page)
    assert (state["k"], state["allow"], state["strategy"]) == (["4"], ["year < 1960"], ["Average(20)"])
    before = ids(page)
    show(page, served, f"?{urlsplit(page.url).query}")
    assert ids(page) == before
    assert page.get_by_label("Filter").input_value() == "year < 1960"
    page.get_by_role("spinbutton", name="Items").fill("2")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('tr[data-id]').length === 2")
    page.go_back()
    until(page, "document.querySelectorAll('tr[data-id]').length === 4")


def test_a_history_is_built_by_looking_items_up(page: "Page", served: Served, client: Client) -> None:
    show(page, served, "?index=films")
    field = page.get_by_role("combobox", name="History, oldest first")
    field.fill("film-3")
    until(page, "/^film-3/.test(document.querySelector('#suggestions .title')?.textContent)")
    field.press("ArrowDown")
    assert page.locator("#suggestions [aria-selected=true]").count() == 1
    field.press("Enter")
    rows(page).first.wait_for()
    field.fill("FILM-12")
    page.locator("#suggestions .title", has_text=re.compile("^film-12$")).click()
    until(page, "new URLSearchParams(location.search).getAll('item').length === 2")
    page.wait_for_selector("main[aria-busy=false]")
    found = client.search("films", histories=[["film-3", "film-12"]], k=10)
    assert ids(page) == [str(item) for item in found.ids[0]]
    page.get_by_role("button", name="Remove film-3").click()
    assert page.locator("#history li").count() == 1


def test_enter_takes_the_best_match_of_what_is_typed(page: "Page", served: Served, client: Client) -> None:
    show(page, served, "?index=films")
    field = page.get_by_role("combobox", name="History, oldest first")
    field.focus()
    until(page, "document.querySelectorAll('#suggestions .title').length > 1")  # the first items, for an empty text
    field.fill("film-17")
    field.press("Enter")
    page.get_by_role("button", name="Remove film-17").wait_for()
    assert page.locator("#history li").count() == 1


def test_users_and_more_like_this(page: "Page", served: Served, client: Client) -> None:
    show(page, served, "?index=films&by=user&user=7&k=4")
    found = client.search("films", users=[7], k=4)
    assert ids(page) == [str(item) for item in found.ids[0]]
    first = ids(page)[0]
    page.get_by_role("button", name="More like this").first.click()
    until(page, "document.querySelector('#history li')")
    page.wait_for_selector("main[aria-busy=false]")
    assert state_of(page)["item"] == [first]
    item = client.item("films", int(first)).fields["item"]
    expected = client.search("films", histories=[[str(item)]], k=4)
    assert ids(page) == [str(each) for each in expected.ids[0]]


def test_why_is_a_table_of_component_pairs(page: "Page", served: Served, client: Client) -> None:
    show(page, served, SEARCH)
    page.get_by_role("button", name="Why").nth(1).click()
    page.locator("table.heat").wait_for()
    assert page.evaluate("document.activeElement.id") == "why-title"
    chosen = int(ids(page)[1])
    (expected,) = client.explain("movies", [chosen], embedding=vector()[0])

    def cells() -> list[list[float]]:
        found = page.locator("table.heat tbody tr").all()
        texts = [[cell.inner_text().split()[0].replace("−", "-") for cell in row.locator("td").all()] for row in found]
        return [[float(text) for text in row] for row in texts]

    for label, values in (
        ("Contribution", expected.contributions),
        ("Dot product", expected.component_scores),
        ("Gate weight", expected.gate_weights),
    ):
        page.locator("#why .segments label", has_text=label).click()
        assert cells() == [pytest.approx(row, abs=0.006) for row in values.tolist()]
    row, column, _ = expected.ranked()[0]
    best = page.locator("table.heat td.best")
    assert best.count() == 1
    assert (
        page.locator("table.heat tbody tr").nth(row).locator("td").nth(column).get_attribute("class").endswith("best")
    )

    page.get_by_role("button", name="Why").nth(3).click()
    until(page, "document.querySelectorAll('table.heat').length === 2")
    boxes = [table.bounding_box() for table in page.locator("table.heat").all()]
    assert boxes[0]["y"] == boxes[1]["y"]  # side by side
    assert state_of(page)["why"] == [str(chosen), ids(page)[3]]
    page.keyboard.press("Escape")
    assert page.locator("#why").is_hidden()
    assert "why" not in state_of(page)


def test_a_late_explanation_does_not_open_the_panel_again(page: "Page", served: Served) -> None:
    show(page, served, SEARCH)
    held: list[Route] = []
    page.route("**/explain", lambda route: held.append(route))  # noqa: PLW0108  (Playwright marks the function)
    why = page.get_by_role("button", name="Why").first
    with page.expect_request("**/explain"):
        why.click()
    why.click()  # before the answer came
    while not held:
        page.wait_for_timeout(10)
    with page.expect_response("**/explain"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert page.locator("#why").is_hidden()
    assert "why" not in state_of(page)


def test_two_strategies_side_by_side(page: "Page", served: Served, client: Client) -> None:
    show(page, served, f"{SEARCH}&view=compare&strategy=Average(6)&other=BruteForce")
    first, second = (client.search("movies", vector(), k=5, strategy=name) for name in ("Average(6)", "BruteForce"))
    tables = page.locator("table.results").all()
    for table, found in zip(tables, (first, second), strict=True):
        shown = [row.get_attribute("data-id") for row in table.locator("tr[data-id]").all()]
        assert shown == [str(item) for item in found.ids[0]]
    places = {int(item): place for place, item in enumerate(second.ids[0])}
    for place, row in enumerate(tables[0].locator("tr[data-id]").all()):
        there = places.get(int(first.ids[0, place]))
        expected = "only" if there is None else "same" if there == place else "up" if there > place else "down"
        assert expected in row.locator("td.move").get_attribute("class").split()
    summary = page.locator("table.grid").inner_text()
    assert "6 (3.0 %)" in summary
    assert "200 (100 %)" in summary


def test_the_index_and_live_plots(page: "Page", served: Served) -> None:
    show(page, served, "?index=films&view=index")
    text = page.locator(".index-view").inner_text()
    for expected in ("MixtureOfLogits", "3 × 2 components", "Segments", "embeddings, histories, users"):
        assert expected in text
    page.locator("figure.plot svg").nth(2).wait_for()
    for _ in range(3):
        served.search("films", users=[3], k=3)
    until(page, "document.querySelectorAll('.series-1').length >= 1")
    until(page, "/median \\d/.test(document.querySelector('figure.plot svg').getAttribute('aria-label'))")
    assert page.locator("figure.plot .bar-mark").count() >= 1


def test_copy_as_curl_and_python(context: "BrowserContext", page: "Page", served: Served) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    show(page, served, f"{SEARCH}&allow=title+LIKE+'%251%25'")
    page.get_by_text("Copy as").click()
    assert accessibility_violations(page) == []
    page.get_by_role("button", name="Copy as Python").click()
    page.get_by_text("Copied").wait_for()
    code = page.evaluate("navigator.clipboard.readText()")
    values: dict[str, object] = {}
    exec(compile(code, "copied", "exec"), values)  # noqa: S102  (this is the promise: it runs)
    assert [str(item) for item in values["result"].ids[0]] == ids(page)  # type: ignore[attr-defined]
    page.get_by_role("button", name="Copy as curl").click()
    until(page, "navigator.clipboard.readText().then(text => text.startsWith('curl'))")
    assert r"LIKE '\''%1%'\''" in page.evaluate("navigator.clipboard.readText()")


def test_errors_are_said_in_the_words_of_the_server(page: "Page", served: Served) -> None:
    show(page, served, VIEWS["refused"])
    assert "there is no column 'yeer'" in page.get_by_role("alert").filter(visible=True).inner_text()
    show(page, served, VIEWS["error"])
    assert "3 numbers but this index takes 8" in page.locator("#form-error").inner_text()


def test_a_server_that_stops_is_said(context: "BrowserContext", page: "Page", served: Served) -> None:
    show(page, served, SEARCH)
    context.set_offline(True)
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_text("The server cannot be reached").wait_for()
    context.set_offline(False)
    page.get_by_role("button", name="Search", exact=True).click()
    rows(page).first.wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_everyone_can_use_it(browser: "Browser", served: Served, theme: str, width: int, view: str) -> None:
    """No violation of axe-core, no request to elsewhere, no error of a script, nothing wider than the screen."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    outside, failed = [], []
    page.on("request", lambda request: None if request.url.startswith(served.url) else outside.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on(
        "console", lambda line: failed.append(line.text) if line.type == "error" and "422" not in line.text else None
    )
    show(page, served, VIEWS[view])
    if view == "index":
        page.locator("figure.plot svg").nth(2).wait_for()
    assert accessibility_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert (outside, failed) == ([], [])
    context.close()


def test_by_keyboard_alone(page: "Page", served: Served) -> None:
    show(page, served, f"{SEARCH}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    for _ in range(3):  # Copy as, Why of the first result, Why of the second
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("table.heat").wait_for()
    until(page, "document.activeElement.id === 'why-title'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # Close
    assert page.locator("#why").is_hidden()
    assert page.evaluate("document.activeElement.closest('tr').dataset.id") == ids(page)[1]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "vector"


def test_the_theme_can_be_chosen(page: "Page", served: Served) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    button = page.locator("#theme")
    assert button.get_attribute("aria-label") == "Theme: automatic"
    light = background()
    button.click()
    assert background() == light
    button.click()
    assert background() != light
    show(page, served)
    assert button.get_attribute("aria-label") == "Theme: dark"
    assert background() != light
