"""Credentials: never in a setting, a key, a repr or an error."""

import builtins
import sys
import traceback

import pytest

from railsearch.engines import Milvus, Postgres, parse_engine
from railsearch.errors import EngineError, InvalidInputError, MissingExtraError
from railsearch.index.engines.credentials import hide_credentials, speaking_to

SECRET = "hunter2secret"  # noqa: S105


def everything_of(error: BaseException) -> str:
    """Return all that a traceback of the error would show, of its causes too."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    "uri",
    [
        f"http://root:{SECRET}@127.0.0.1:19530",
        f"http://{SECRET}@127.0.0.1",
        f"http://127.0.0.1:19530?token={SECRET}",
        f"http://127.0.0.1:19530#{SECRET}",
        f"http://127.0.0.1:{SECRET}",
        f"http://127.0.0.1/{'a' * 300}{SECRET}",
    ],
)
def test_an_address_with_a_credential_is_refused_and_not_repeated(uri: str) -> None:
    for make in (lambda: Milvus(uri, "movies"), lambda: parse_engine(f"Milvus({uri.replace('=', '%')}, movies)")):
        with pytest.raises(InvalidInputError) as caught:
            make()
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", [f"root:{SECRET}", SECRET, f"postgresql://me:{SECRET}@host/db", "", None])
def test_a_credential_in_the_place_of_a_variable_is_not_repeated(name: str | None) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Postgres("movies", url_env=name)  # type: ignore[arg-type]
    assert "url_env is not the name of an environment variable" in str(caught.value)
    assert SECRET not in everything_of(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"Milvus(http://root:{SECRET}@host:1, movies, speed=3)",
        f"Milvus(http://host:1, movies, token={SECRET})",
        f"Milvus(http://host:1, movies, token='{SECRET}'",
        f"Postgres(movies, password={SECRET})",
        f"Nowhere(http://root:{SECRET}@host)",
    ],
)
def test_an_engine_as_text_is_shown_without_credentials(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_engine(text)
    assert SECRET not in str(caught.value)


def test_names_of_variables_are_no_credentials() -> None:
    text = "Milvus(http://host:1, movies, token_env=MILVUS_TOKEN)"
    assert hide_credentials(text) == text
    engine = parse_engine(text)
    assert engine == Milvus("http://host:1", "movies", token_env="MILVUS_TOKEN")  # noqa: S106
    assert parse_engine(engine.key).key == engine.key
    assert parse_engine(Postgres("movies", effort=7).key) == Postgres("movies", effort=7)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.delenv("RAILSEARCH_POSTGRES", raising=False)
    with pytest.raises(EngineError, match="RAILSEARCH_POSTGRES, which is not set; export it first"):
        Postgres("movies").check_available()


def test_the_cause_of_a_failure_is_shown_without_the_secret() -> None:
    with (
        pytest.raises(EngineError, match=r"the shop failed to search \(RuntimeError: no \*\*\* here\)") as caught,
        speaking_to("the shop", "search", SECRET, ""),
    ):
        raise RuntimeError(f"no {SECRET} here")
    assert SECRET not in everything_of(caught.value)


@pytest.mark.parametrize(
    ("engine", "library", "extra"),
    [(Milvus("http://host:1", "movies"), "pymilvus", "milvus"), (Postgres("movies"), "psycopg", "postgres")],
)
def test_a_missing_client_is_named(
    engine: Milvus | Postgres, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: object, **options: object) -> object:
        if name.split(".", maxsplit=1)[0] == library:
            raise ImportError(name)
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=rf"{library} is not installed.*\.\[{extra}\]"):
        engine.check_available()


@pytest.mark.parametrize(
    ("engine", "dim", "message"),
    [
        (Postgres("movies"), 2001, "have 2,001 values but pgvector indexes at most 2,000 of type vector; use column="),
        (Postgres("movies"), 4001, "at most 2,000 of type vector; use Milvus"),
        (Postgres("movies", column="halfvec"), 4001, "at most 4,000 of type halfvec; use Milvus"),
        (Milvus("http://host:1", "movies"), 40_000, "have 40,000 values but Milvus holds at most 32,768"),
    ],
)
def test_a_dimension_that_does_not_fit_is_refused(engine: Milvus | Postgres, dim: int, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        engine.check_available(dim)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a;drop", 'a"b', "a" * 61])
def test_names_of_collections_are_plain(name: str) -> None:
    with pytest.raises(InvalidInputError, match="collection is"):
        Postgres(name)
    with pytest.raises(InvalidInputError, match="collection is"):
        Milvus("http://host:1", name)
