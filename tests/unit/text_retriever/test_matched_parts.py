"""Results of an index of long passages say which part of a passage matched, after every change and from disk."""

from pathlib import Path

import polars as pl
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import Index, TextRetriever
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.encoders import Side
from railsearch.foundation.matched_parts import ENDS, STARTS, TEXT, make_snippet, show_matched
from tests.support.tiny_text import WORDS, make_base, make_retriever

PASSAGES = {
    "long": ". ".join(" ".join(WORDS[first : first + 5]) for first in range(0, 40, 5)) + ".",
    "turned": ". ".join(" ".join(WORDS[first : first + 5]) for first in range(35, -1, -5)) + ".",
    "short": "it is w3 end",
}
QUESTIONS = ["w20", "w1 w2 w3"]
SHOWN = ["passage_start", "passage_end", "snippet"]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> TextRetriever:
    base = make_base(tmp_path_factory.mktemp("base"))
    return make_retriever(base, pooling="windows", num_query_components=1, num_item_components=12)


def expected_span(retriever: TextRetriever, question: str, passage: str) -> tuple[int, int]:
    """Return the window with the best cosine, by a plain loop over the encoder."""
    query = retriever.model.encoder.encode([question], Side.QUERY)[0, 0]
    found = retriever.model.encoder.encode_windows([passage])
    scores = F.cosine_similarity(query[None], found.components[0], dim=-1)
    start, end = found.spans[0, int(scores.argmax())].tolist()
    return start, end


def check(retriever: TextRetriever, passages: dict[str, str]) -> pl.DataFrame:
    frame = retriever.search(QUESTIONS, k=len(passages)).to_frame()
    assert frame.columns == ["query", "rank", "id", "score", "passage", *SHOWN]
    for row in frame.iter_rows(named=True):
        start, end = expected_span(retriever, QUESTIONS[row["query"]], passages[row["id"]])
        assert (row["passage_start"], row["passage_end"]) == (start, end)
        assert row["snippet"] == passages[row["id"]][start:end]
    return frame


def test_the_part_that_matched_is_the_best_window_before_training(retriever: TextRetriever) -> None:
    retriever.build_index(PASSAGES)
    frame = check(retriever, PASSAGES)
    parts = frame.filter(pl.col("id") == "long").select(SHOWN[0]).to_series().to_list()
    assert len(set(parts)) == 2  # two questions, two parts


def test_similar_passages_are_shown_without_places(retriever: TextRetriever) -> None:
    index = retriever.build_index(PASSAGES)
    assert index.similar_items(["short"], k=2).to_frame().columns == ["query", "rank", "id", "score", "passage"]


def test_places_follow_every_change_of_an_index_on_disk(retriever: TextRetriever, tmp_path: Path) -> None:
    folder = tmp_path / "passages.index"
    retriever.build_index({"short": PASSAGES["short"]}, folder)
    retriever.add({"long": PASSAGES["short"]})
    retriever.upsert({name: PASSAGES[name] for name in ("long", "turned")})
    check(retriever, PASSAGES)
    retriever.remove(["turned"])
    rest = {name: PASSAGES[name] for name in ("long", "short")}
    check(retriever, rest)
    assert retriever.index is not None
    retriever.index.compact()
    check(retriever, rest)
    retriever.index.close()
    retriever.open_index(folder)
    check(retriever, rest)
    assert not Index.check(folder).problems


def test_a_result_without_items_has_the_columns(retriever: TextRetriever) -> None:
    retriever.build_index(PASSAGES)
    frame = retriever.search(QUESTIONS, k=2, allow=[], pad=True).to_frame()
    assert frame.columns == ["query", "rank", "id", "score", "passage", *SHOWN]
    assert len(frame) == 0


def test_parts_of_rounded_components_and_of_query_parts_are_found(retriever: TextRetriever) -> None:
    index = retriever.build_index(PASSAGES, precision="fp16")
    queries = retriever.encode_queries(QUESTIONS, show_progress=False)
    by_text = retriever.search(QUESTIONS, k=3).to_frame()
    by_parts = index.search(index.similarity.query_parts(queries), k=3).to_frame()
    assert by_parts[SHOWN[:2]].equals(by_text[SHOWN[:2]])


def test_a_split_index_finds_the_same_parts(retriever: TextRetriever, tmp_path: Path) -> None:
    index = retriever.build_index(PASSAGES, tmp_path / "whole.index")
    queries = retriever.encode_queries(QUESTIONS, show_progress=False)
    split = ShardedIndex.open(shard_index(tmp_path / "whole.index", tmp_path / "split.index", 2, show_progress=False))
    expected = index.search(queries, 3).to_frame()
    assert split.search(queries, 3).to_frame().select(expected.columns).equals(expected)


@pytest.mark.parametrize("pooling", ["mean", "tokens"])
def test_other_poolings_show_no_parts(retriever: TextRetriever, pooling: str) -> None:
    counts = {"num_query_components": 1, "num_item_components": 1 if pooling == "mean" else 2}
    other = make_retriever(Path(retriever.recipe.encoder.base), pooling=pooling, **counts)
    other.build_index(PASSAGES)
    assert other.search(QUESTIONS, k=1).to_frame().columns == ["query", "rank", "id", "score", "passage"]


@pytest.mark.parametrize(
    ("text", "starts", "ends"),
    [
        (["one two", None], [[0, 4], [0, 4]], [[3, 7], [3, 7]]),
        (["one two", "x"], [[0, 4], [0]], [[3, 7], [1]]),
        (["one two", "x"], [[0, 4], None], [[3, 7], [0, 1]]),
        (["one two", "x"], [[0, 4], [0, -9]], [[3, 7], [0, 1]]),
        (["one two", "x"], [[0, 4], [0, None]], [[3, 7], [0, 1]]),
    ],
)
def test_metadata_that_do_not_say_the_part_are_no_error(text: list[object], starts: object, ends: object) -> None:
    frame = pl.DataFrame({TEXT: text, STARTS: starts, ENDS: ends})
    found = show_matched(frame, torch.tensor([1, 1]), [None, None])
    assert found.select(SHOWN).rows() == [(4, 7, "two"), (None, None, None)]


def test_columns_of_another_type_are_no_error() -> None:
    frame = pl.DataFrame({TEXT: ["one"], STARTS: [0], ENDS: ["x"]})
    assert show_matched(frame, torch.tensor([0]), [None]).rows() == [("one", None, None, None)]


class TestSnippets:
    def test_a_short_text_is_shown_whole_in_one_line(self) -> None:
        assert make_snippet(" a\n b  ") == "a b"

    def test_without_a_question_it_is_the_beginning(self) -> None:
        found = make_snippet("word " * 100, length=30)
        assert found.endswith("word…")
        assert len(found) <= 31

    def test_rare_words_of_the_question_count_more(self) -> None:
        text = "the cat and the dog. " * 30 + "A zebra sleeps here. " + "the cat and the dog. " * 30
        assert "zebra" in make_snippet(text, "the zebra and the cat", length=60)

    def test_the_end_of_a_text_can_be_shown(self) -> None:
        found = make_snippet("filler words here. " * 50 + "The answer is owls.", "owls", length=40)
        assert found.startswith("…")
        assert found.endswith("owls.")

    def test_no_word_of_the_question_shows_the_beginning(self) -> None:
        assert make_snippet("first words " + "x " * 200, "nothing", length=20).startswith("first words")


def test_ties_of_repeated_windows_go_to_the_first(retriever: TextRetriever) -> None:
    retriever.build_index({"short": PASSAGES["short"]})
    frame = retriever.search(["w3"], k=1).to_frame()
    assert frame["passage_start"].to_list() == [0]
    assert frame["passage_end"].to_list() == [len(PASSAGES["short"])]
    assert torch.isfinite(torch.tensor(frame["score"].to_list())).all()
