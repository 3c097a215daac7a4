"""Engines as text: what is read, what is refused, and engines of users."""

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railsearch import Faiss, Flat
from railsearch.errors import InvalidInputError
from railsearch.index.engines import Engine, check_choice, parse_engine, register_engine
from railsearch.index.engines import registry as registry_module
from tests.support.engines import AtMost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Flat", Flat()),
        (" flat( ) ", Flat()),
        ("Flat(int8)", Flat("int8")),
        ("Flat(scan='int8')", Flat(scan="int8")),
        ("Faiss", Faiss()),
        ("faiss(hnsw)", Faiss("hnsw")),
        ("Faiss('hnsw', 64, 16)", Faiss("hnsw", 64, 16)),
        ('Faiss(kind="ivf", effort=5)', Faiss("ivf", effort=5)),
        ("Faiss(ivf, effort=none)", Faiss("ivf")),
    ],
)
def test_text_is_read(text: str, expected: Engine) -> None:
    assert parse_engine(text) == expected


@given(kind=st.sampled_from(["flat", "hnsw", "ivf", "sq8"]), effort=st.none() | st.integers(1, 2**31 - 1))
def test_a_key_is_text_that_can_be_read(kind: str, effort: int | None) -> None:
    engine = Faiss(kind, effort)
    assert parse_engine(engine.key).key == engine.key
    assert parse_engine(engine.table_key).table_key == engine.table_key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("annoy", r"there is no engine 'annoy'; choose from: Flat\(scan\), Faiss\(kind, effort, links\)"),
        ("", "cannot be read; choose from"),
        ("Faiss(hnsw", "cannot be read; choose from"),
        ("Faiss(Flat())", "cannot be read; choose from"),
        ("__import__('os')", "cannot be read; choose from"),
        ("Flat(int4)", "scan is 'int4'; choose from: full, int8"),
        ("Faiss(annoy)", "kind is 'annoy'; choose from: flat, hnsw, ivf, sq8"),
        ("Faiss(hnsw, speed=3)", "speed in .* is not one of its settings"),
        ("Faiss(hnsw, kind=ivf)", "kind in .* is given twice"),
        ("Faiss(kind=hnsw, 5)", "the setting 5 in .* follows a named one"),
        ("Faiss(hnsw, 5, 32, 1)", "the setting 1 in .* is one too many"),
        ("Faiss(hnsw,)", "'' in .* is not a setting"),
        ("Faiss(hnsw, effort=1.5)", "effort is 1.5; give a whole number"),
        (f"Faiss(hnsw, effort={10**30})", r"effort is 1000\d*; ask for effort <= 2147483647"),
        (f"Faiss(hnsw, effort=1{'0' * 60})", "effort is '10*'; give a whole number"),
        (3, "the engine is 3; give text"),
    ],
)
def test_text_that_cannot_be_an_engine(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_engine(text)


@given(st.text(max_size=60) | st.text("Faishnwl(),='\"0123 ", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        assert isinstance(parse_engine(text), Engine)


def test_an_engine_of_a_user_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_kinds", dict(registry_module._kinds))
    assert register_engine(AtMost) is AtMost
    register_engine(AtMost)  # a second time changes nothing
    assert parse_engine("atmost(7)") == AtMost(7)
    with pytest.raises(InvalidInputError, match=r"AtMost\(max_n\)"):
        parse_engine("nothing")
    with pytest.raises(InvalidInputError, match="has wrong settings"):
        parse_engine("AtMost()")

    @dataclass(frozen=True)
    class Flat(AtMost):
        pass

    with pytest.raises(InvalidInputError, match="the name Flat is taken by"):
        register_engine(Flat)
    for wrong in (int, AtMost(3), "AtMost"):
        with pytest.raises(InvalidInputError, match="is not an engine class"):
            register_engine(wrong)


def test_what_is_not_an_engine() -> None:
    for wrong in ("faiss", None, Faiss, 3):
        with pytest.raises(InvalidInputError, match=r"give an engine such as Flat\(\)"):
            check_choice(wrong)
    assert check_choice(AtMost(3)) == AtMost(3)

    class WithoutOpen(AtMost):
        open = None

    with pytest.raises(InvalidInputError, match="which lacks open; see"):
        check_choice(WithoutOpen(3))


@pytest.mark.parametrize("settings", [{"effort": 10**30}, {"links": 10**6}, {"effort": True}, {"effort": "64"}])
def test_absurd_settings_of_faiss(settings: dict[str, int]) -> None:
    (name,) = settings
    with pytest.raises(InvalidInputError, match=f"{name} is .*; (ask for {name} <=|give a whole number)"):
        Faiss("hnsw", **settings)
