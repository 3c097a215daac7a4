"""The logic of the explorer, in its small modules: URL state, numbers, metrics, ranks, certificates, snippets."""

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import find_chromium
from tests.support.served import Served, make_index, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    find_chromium()
    make_index(folder := tmp_path_factory.mktemp("logic") / "movies.index")
    with serving(folder) as served:
        yield served


def call(page: "Page", module: str, expression: str, *arguments: object) -> Any:
    """Evaluate an expression with the names of a module (as m) and arguments (as a)."""
    code = f"async (a) => {{ const m = await import('/explorer/{module}.js'); return {expression}; }}"
    return page.evaluate(code, list(arguments))


def test_state_survives_the_url(page: "Page") -> None:
    state = call(page, "state", "m.parse('')")
    assert call(page, "state", "m.format(a[0])", state) == ""
    changed = {
        **state, "index": "a b", "view": "compare", "by": "history", "text": "what? & why=1", "k": 25, "strategy": "A",
        "items": ["1", "a,b/ü", "1"], "why": ["x&y", "9007199254740993"], "vector": "1, -2e-3", "measure": "gate",
    }  # fmt: skip
    assert call(page, "state", "m.parse(m.format(a[0]))", changed) == changed


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("?view=nowhere", "view", "search"), ("?k=0", "k", 10), ("?k=1e9", "k", 10), ("?k=2.5", "k", 10),
        ("?by=magic", "by", ""), ("?measure=%00", "measure", "contribution"), ("?why=1&why=2&why=3", "why", ["1", "2"]),
        ("?__proto__=1&constructor=2", "text", ""), ("?%", "k", 10), ("?k=x", "k", 10),
    ],
)  # fmt: skip
def test_a_strange_url_is_read_as_defaults(page: "Page", query: str, name: str, value: object) -> None:
    assert call(page, "state", f"m.parse(a[0]).{name}", query) == value


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1, -2.5e-1;3", [1, -0.25, 3]), ("[[0.5 1.]\n [2. 3.]]", [0.5, 1, 2, 3]), ("tensor([1., 2.])", [1, 2]),
        ("array([1, 2])", [1, 2]),
    ],
)  # fmt: skip
def test_pasted_vectors_are_read(page: "Page", text: str, numbers: list[float]) -> None:
    assert call(page, "state", "m.parseVector(a[0])", text) == numbers
    assert call(page, "state", "m.shaped([1, 2, 3, 4], [2, 2])") == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("m.parseVector('1, two')", "Value 2 of the vector is “two”"),
        ("m.parseVector(' ')", "The vector is empty"),
        ("m.parseVector('1 nan')", "Value 2"),
        ("m.shaped([1, 2, 3], [2, 2])", "3 numbers but this index takes 2 x 2; paste 4 numbers"),
    ],
)
def test_wrong_vectors_are_refused(page: "Page", expression: str, message: str) -> None:
    from playwright.sync_api import Error

    with pytest.raises(Error, match=message):
        call(page, "state", expression)


def test_numbers_are_aligned_and_have_units(page: "Page") -> None:
    assert call(page, "format", "m.column([18.794, 9.5, -0.25])") == ["18.79", "9.50", "−0.25"]
    assert call(page, "format", "m.column([0.01234, 0.5])") == ["0.0123", "0.5000"]
    assert call(page, "format", "[m.fixed(-0.0001, 2), m.fixed(null, 2), m.fixed(Infinity, 2)]") == ["0.00", "–", "∞"]
    assert call(page, "format", "[0.5, 12.34, 250.4, 20000].map(m.milliseconds)") == [
        "0.50 ms", "12.3 ms", "250 ms", "20.0 s",
    ]  # fmt: skip
    assert call(page, "format", "[0, 1023, 2485120, 1024 ** 4].map(m.bytes)") == ["0 B", "1023 B", "2.4 MiB", "1.0 TiB"]
    assert call(page, "format", "[m.count(1234567), m.percent(0.125), m.plural(1, 'item')]") == [
        "1,234,567", "12.5 %", "1 item",
    ]  # fmt: skip


METRICS = """
# HELP railsearch_request_seconds help
railsearch_request_seconds_bucket{route="/v1/x/search",le="0.01"} 2
railsearch_request_seconds_bucket{route="/v1/x/search",le="0.1"} 10.0
railsearch_request_seconds_bucket{route="/v1/x/search",le="+Inf"} 10
railsearch_request_seconds_sum{route="/v1/x/search"} 0.5
railsearch_request_seconds_bucket{route="/other",le="0.01"} 5
odd{text="a \\"b\\" \\\\ {c} d",x="1"} 3
plain 7 1700000000
"""


def test_metrics_are_read(page: "Page") -> None:
    assert call(page, "metrics", "m.parse(a[0]).get('odd')", METRICS) == [
        {"labels": {"text": 'a "b" \\ {c} d', "x": "1"}, "value": 3}
    ]
    assert call(page, "metrics", "m.total(m.parse(a[0]), 'plain')", METRICS) == 7
    found = "m.histogram(m.parse(a[0]), 'railsearch_request_seconds', {route: value => value.endsWith('search')})"
    assert call(page, "metrics", f"{found}.count", METRICS) == 10
    assert call(page, "metrics", f"m.quantile({found}, 0.5)", METRICS) == pytest.approx(0.01 + 0.09 * 3 / 8)
    assert call(page, "metrics", f"m.quantile({found}, 0.1)", METRICS) == pytest.approx(0.005)
    assert [bar["count"] for bar in call(page, "metrics", f"m.bars({found})", METRICS)] == [2, 8, 0]
    assert call(page, "metrics", f"m.growth({found}, {found}).count", METRICS) == 0
    assert call(page, "metrics", f"m.quantile(m.growth({found}, {found}), 0.5)", METRICS) is None
    assert call(page, "metrics", f"m.growth({{...{found}, count: 99}}, {found}).count", METRICS) == 10  # a restart


def test_moves_between_two_lists(page: "Page") -> None:
    found = call(page, "ranks", "m.moves(['a', 'b', 'c', 'd'], ['b', 'a', 'c', 'x'])")
    assert [each["move"] for each in found] == [1, -1, 0, None]
    assert call(page, "ranks", "m.summarise(['a', 'b', 'd'], ['b', 'a', 'x'])") == {
        "shared": 2, "moved": 2, "onlyFirst": 1, "onlySecond": 1,
    }  # fmt: skip
    assert call(page, "ranks", "[3, -2, 0, null].map(each => m.describeMove(each).text)") == [
        "3 higher", "2 lower", "same rank", "only here",
    ]  # fmt: skip


RESULT = {"hits": [{"id": "1"}] * 3, "is_exact": False, "gap": 0.5, "ceiling": 2.0, "num_certified": 1}
MEASURED = {"recall": 0.991, "confidence": 0.95, "version": 8}


@pytest.mark.parametrize(
    ("changes", "expected", "kind", "label", "after"),
    [
        ({"is_exact": True, "gap": 0, "ceiling": None, "num_certified": 3}, None, "exact", "Exact", 3),
        ({}, None, "gap", "Gap ≤ 0.50", 1),
        ({"num_certified": 0}, None, "gap", "Gap ≤ 0.50", 0),
        ({"gap": None, "ceiling": None, "num_certified": 0}, None, "open", "No bound", 0),
        ({}, MEASURED, "measured", "Recall ≥ 99.1 % measured", 1),
        ({"is_exact": True, "num_certified": 3}, MEASURED, "exact", "Exact", 3),
    ],
)
def test_certificates_in_words(
    page: "Page", changes: dict[str, object], expected: object, kind: str, label: str, after: int
) -> None:
    result = RESULT | changes
    badge = call(page, "certificate", "m.badgeOf(a[0], a[1], 2)", result, expected)
    assert (badge["kind"], badge["label"]) == (kind, label)
    assert call(page, "certificate", "m.lineOf(a[0], 2)", result)["after"] == after
    if expected is not None and kind == "measured":
        assert "Proven" in badge["text"]  # what was measured never hides what is proven


def test_the_best_component_pair(page: "Page") -> None:
    assert call(page, "why", "m.bestPair([[1, 2], [5, 5], [0, -9]])") == [1, 0]


def test_metadata_for_people(page: "Page") -> None:
    columns = [
        {"name": "year", "type": "Int64"},
        {"name": "Title", "type": "String"},
        {"name": "plot", "type": "String"},
    ]
    fields = {"year": 1979, "Title": "Alien|Aliens", "plot": "x" * 200}
    found = call(page, "fields", "m.present('7', a[0], a[1])", fields, columns)
    assert (found["title"], found["details"], found["body"]) == (
        "Alien, Aliens",
        [["id", "7"], ["year", "1979"]],
        "x" * 200,
    )
    assert call(page, "fields", "m.present('7', {item: 7}, [{name: 'item', type: 'Int64'}])")["details"] == []
    assert call(page, "fields", "m.present('7', {item: 'f3'}, [{name: 'item', type: 'String'}]).title") == "f3"
    assert (
        call(page, "fields", "m.present('p1', {passage: 'y'.repeat(99)}, [{name: 'passage', type: 'String'}]).title")
        == ""
    )


def test_snippets_quote_what_was_typed(page: "Page") -> None:
    body = {"texts": ['it\'s "so" $HOME `x` \\ end'], "k": 3, "pad": True, "ids": "string"}
    curl = call(page, "snippets", "m.asCurl('http://host:1/', 'a b', a[0], true)", body)
    words = shlex.split(curl)
    assert words[1] == "http://host:1/v1/indexes/a%20b/search"
    assert json.loads(words[-1]) == body
    assert "Authorization: Bearer $RAILSEARCH_API_KEY" in curl
    python = call(page, "snippets", "m.asPython('http://host:1/', 'a b', a[0])", body)
    compile(python, "snippet", "exec")
    assert "pad=True" in python
    assert "ids=" not in python


def test_text_is_never_markup(page: "Page") -> None:
    found = call(page, "dom", "m.h('p', {title: a[0]}, a[0]).outerHTML", "<img src=x onerror=alert(1)>")
    assert "<img" not in found.replace('title="<img', "")


def test_integers_beyond_javascript_stay_texts(page: "Page") -> None:
    assert call(page, "query", "['7', '-3', '9007199254740993', '007a', ''].map(m.asId)") == [
        7, -3, "9007199254740993", "007a", "",
    ]  # fmt: skip
