"""Errors in pairs: the library names arguments and calls, a command names its flags and other commands."""

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.main import get_command

import railsearch
from railsearch import Index, MixtureOfLogits, RailsearchError, Recommender, data, load_similarity, save_similarity
from railsearch.benchmark import benchmark_shape
from railsearch.cli.app import app
from railsearch.cli.flags import PHRASES, SUBJECTS, with_flags
from railsearch.recipes import Recipe, SASRecConfig, copy_recipe, read_interactions_of
from tests.support.commands import run_main

PACKAGE = Path(railsearch.__file__).parent
ASSIGNMENT = re.compile(r"(?<![\w.])\w+=[^\s,;]+")  # but not a setting of a recipe, section.setting=value
COLUMNS = ["user", "item", "timestamp"]
ONLY_IN_PYTHON = {
    "epochs=0",  # fit_similarity
    "partial='allow",  # ShardedIndex.search
    "workers='ray",  # ShardedIndex.open
    "user_table_hashing=True",  # fit_similarity
    "_share=0",  # split_questions
    "num_item_components=1",  # widen
    "num_query_components=1",  # widen
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a similarity, a recommender, an index and arrays of all kinds."""
    folder = tmp_path_factory.mktemp("flags")
    rng = np.random.default_rng(0)
    save_similarity(MixtureOfLogits(query_dim=4, item_dim=4, component_dim=4, gate_dim=4, seed=0), folder / "model")
    events = pl.DataFrame(
        [(user, item, item) for user in (1, 2) for item in (1, 2, 3, 4)], schema=COLUMNS, orient="row"
    )
    data.write_prepared(data.Interactions.from_frame(events), folder / "events", name="events")
    recipe = Recipe(encoder=SASRecConfig(dim=4, max_length=4), training={"epochs": 0, "batch_size": 2})
    Recommender.fit(events, recipe).save(folder / "rec")
    arrays = {"three": rng.normal(size=(3, 4)), "wide": rng.normal(size=(3, 5)), "tiny": np.full((3, 4), 1e-30)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.astype(np.float32))
    np.save(folder / "twice.npy", np.array([1, 1, 2]))
    np.save(folder / "known.npy", np.array([9, 1, 2]))
    (folder / "names.txt").write_text("a\nb\nc\n")
    frame = pl.DataFrame({"id": [1, 1, 2], "embedding": rng.normal(size=(3, 4)).astype(np.float32)})
    frame.write_parquet(folder / "twice.parquet")
    (folder / "lines.txt").write_text("1 5 3 9\n2 5 3\n")
    (folder / "recipe.toml").write_text('[encoder]\nkind = "sasrec"\n')
    Index.build(load_similarity(folder / "model"), np.load(folder / "three.npy"), path=folder / "index")
    return folder


@pytest.fixture
def world(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared)
    return shared


def array(name: str) -> np.ndarray:
    return np.load(f"{name}.npy")


def similarity() -> MixtureOfLogits:
    return load_similarity("model")


BUILD = ("index", "build", "new", "--model", "model", "--items")
SEARCH = ("search", "index", "--queries", "three.npy")
PAIRS: list[tuple[tuple[object, ...], Callable[[], object], str, str]] = [
    (
        ("search", "index", "--queries", "wide.npy", "-k", 2),
        lambda: Index.open("index").search(array("wide"), 2),
        "queries has shape (3, 5)",
        "--queries has shape (3, 5)",
    ),
    (
        (*SEARCH, "-k", 2, "--allow", "year > 1"),
        lambda: Index.open("index").search(array("three"), 2, allow="year > 1"),
        "build it with metadata=..., or give allow as a mask or a list of ids",
        "build it with --metadata, or omit --allow",
    ),
    (
        ("search", "nowhere", "--queries", "three.npy"),
        lambda: Index.open("nowhere"),
        "build it with Index.build(..., path=...)",
        "build it with `railsearch index build`",
    ),
    (
        ("index", "build", "index", "--model", "model", "--items", "three.npy"),
        lambda: Index.build(similarity(), array("three"), path="index"),
        "open it with Index.open, or choose another path",
        "add items with `railsearch index add`, or choose another path",
    ),
    (
        ("index", "add", "index", "--items", "three.npy", "--ids", "known.npy"),
        lambda: Index.open("index").add(array("three"), ids=array("known")),
        "id 1 is already in the index (2 of the given ids are); use upsert to replace items",
        "use --upsert to replace items",
    ),
    (
        ("index", "add", "index", "--items", "three.npy", "--ids", "names.txt"),
        lambda: Index.open("index").add(array("three"), ids=["a", "b", "c"]),
        "ids holds the string 'a' but the ids of this index are integers",
        "--ids holds the string 'a' but the ids of this index are integers",
    ),
    (
        (*BUILD, "wide.npy"),
        lambda: Index.build(similarity(), array("wide")),
        "items has shape (3, 5)",
        "--items has shape (3, 5)",
    ),
    (
        (*BUILD, "three.npy", "--ids", "twice.npy"),
        lambda: Index.build(similarity(), array("three"), ids=array("twice")),
        "ids holds 1 more than once",
        "--ids holds 1 more than once",
    ),
    (
        (*BUILD, "tiny.npy", "--precision", "fp16"),
        lambda: Index.build(similarity(), array("tiny"), precision="fp16"),
        "build with precision='fp32'",
        "build with --precision fp32",
    ),
    (
        (*BUILD, "twice.parquet", "--ids", "twice.npy"),
        lambda: data.read_items("twice.parquet", ids="twice.npy"),
        "omit ids and metadata",
        "omit --ids and --metadata",
    ),
    (
        ("index", "remove", "index", 77),
        lambda: Index.open("index").remove([77]),
        "pass missing_ok=True",
        "pass --missing-ok",
    ),
    (
        ("index", "tune", "index", "--queries", "three.npy", "-k", 1),
        lambda: Index.open("index").tune(array("three"), 1),
        "sample_queries holds 3",
        "--queries holds 3",
    ),
    (
        ("index", "tune", "index", "--queries", "three.npy", "--target-recall", 2),
        lambda: Index.open("index").tune(array("three"), 1, target_recall=2),
        "target_recall is 2",
        "--target-recall is 2",
    ),
    (
        ("bench", "ml-20m", "--items", 10**12),
        lambda: benchmark_shape("ml-20m", num_items=10**12),
        "num_items is 1000000000000, which takes",
        "--items is 1000000000000, which takes",
    ),
    (
        ("bench", "ml-30m"),
        lambda: benchmark_shape("ml-30m"),
        "shape is 'ml-30m'",
        "workload is 'ml-30m'",
    ),
    (
        ("data", "prepare", "x", "--from", "lines.txt", "--min-count", 50),
        lambda: data.prepare("x", "lines.txt", min_count=50),
        "ask for a smaller min_count",
        "ask for a smaller --min-count",
    ),
    (
        ("data", "prepare", "x"),
        lambda: data.prepare("x"),
        "with source=PATH",
        "with --from",
    ),
    (
        ("data", "prepare", "ml-1m"),
        lambda: data.prepare("ml-1m"),
        "accept them with accept_terms=True, or pass the files with source=PATH",
        "accept them with --accept-terms, or pass the files with --from",
    ),
    (
        ("recommend", "rec"),
        lambda: Recommender.load("rec").recommend(),
        "exactly one of users and histories",
        "exactly one of --users and --history",
    ),
    (
        ("recommend", "rec", "--history", "1,99", "-k", 1),
        lambda: Recommender.load("rec").recommend(histories=[["1", "99"]], k=1),
        'pass unknown_items="ignore"',
        "pass --ignore-unknown",
    ),
    (
        ("recommend", "rec", "--history", "1,2", "-k", 4),
        lambda: Recommender.load("rec").recommend(histories=[["1", "2"]], k=4),
        "pass filter_viewed=False",
        "pass --keep-viewed",
    ),
    (
        ("recommend", "rec", "--users", "1,99", "--data", "events", "-k", 1),
        lambda: Recommender.load("rec", interactions=data.read_prepared("events")).recommend(["1", "99"], k=1),
        "users[1] is '99', whose history is unknown; pass it as histories=...",
        "--users[1] is '99', whose history is unknown; pass it as --history",
    ),
    (
        ("recommend", "nowhere", "--history", 1),
        lambda: Recommender.load("nowhere"),
        "give a folder that Recommender.save wrote",
        "give a folder that `railsearch train` wrote",
    ),
    (
        ("recommend", "rec", "--history", 1, "--index", "index"),
        lambda: Recommender.load("rec").open_index("index"),
        "search it with embeddings, or build an index with build_index of the model",
        "search it with `railsearch search --queries`, or build an index with `railsearch index build --model`",
    ),
    (
        ("train", "recipe.toml"),
        lambda: read_interactions_of(Recipe()),
        "pass path=PATH",
        "pass --data",
    ),
    (
        ("recipes", "copy", "ml-1m/sasrec", "recipe.toml"),
        lambda: copy_recipe("ml-1m/sasrec", "recipe.toml"),
        "pass overwrite=True",
        "pass --overwrite",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "call", "in_python", "in_a_shell"), PAIRS, ids=[pair[3].replace(" ", "_") for pair in PAIRS]
)
@pytest.mark.usefixtures("world")
def test_an_error_in_both_languages(
    arguments: tuple[object, ...],
    call: Callable[[], object],
    in_python: str,
    in_a_shell: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RailsearchError) as caught:
        call()
    assert in_python in str(caught.value)
    assert "--" not in str(caught.value)
    assert run_main(*arguments) == 2
    error = capfd.readouterr().err
    assert in_a_shell in error
    assert f" {in_python}" not in error


@pytest.mark.usefixtures("world")
def test_a_word_is_a_flag_only_if_the_flag_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main(*BUILD, "twice.parquet") == 2
    assert ": ids holds 1 more than once" in capfd.readouterr().err
    message = "items.parquet has no column 'ids'; pairs of items hold ids."
    assert with_flags(message, ["--items", "--ids", "--pairs"]) == message
    assert with_flags("the file my_min_count.csv is empty.", ["--min-count"]) == "the file my_min_count.csv is empty."
    assert with_flags("my-model has no min_count.csv", ["--min-count"]) == "my-model has no min_count.csv"


@functools.cache
def texts() -> set[str]:
    """Return the texts of the library outside the commands and the server, with {} for values."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        if not any(file.is_relative_to(PACKAGE / outside) for outside in ("cli", "server")):
            found |= {_text(node) for node in ast.walk(ast.parse(file.read_text()))}
    return {text for text in found if "\n" not in text}  # docstrings have several lines


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def test_errors_and_flags_fit_each_other() -> None:
    """An error that says "pass pad=True" would mislead a user of the command line."""
    found = texts()
    advice = [text for text in found if re.search(r"\b(pass|with|choose|give|omit|use|open|set|build)\b", text)]
    assignments = {each.strip(".,;:)'") for text in advice for each in ASSIGNMENT.findall(text)}
    assert len(assignments) > 10
    unknown = {each for each in assignments if not any(each in phrase for phrase in PHRASES)} - ONLY_IN_PYTHON
    assert not unknown, f"{unknown} are arguments; add their flags to railsearch.cli.flags"
    stale = [phrase for phrase in PHRASES if not any(phrase in text for text in found)]
    assert not stale, f"no error says {stale}; remove them from railsearch.cli.flags"


def test_library_errors_never_name_flags() -> None:
    assert not [text for text in texts() if re.search(r"(^|[ (`])--[a-z]", text)]


def test_every_flag_exists() -> None:
    flags = {flag for text in [*PHRASES.values(), *SUBJECTS.values()] for flag in re.findall(r"--[a-z-]+", text)}
    assert flags <= _options(get_command(app))


def _options(command: object) -> set[str]:
    found = {flag for each in command.params for flag in each.opts}
    for each in getattr(command, "commands", {}).values():
        found |= _options(each)
    return found
