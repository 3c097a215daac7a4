"""Windows of long texts: where they are cut, what becomes of few and of many, and their encoding."""

import itertools
import random
import re
from pathlib import Path

import pytest
import torch
from torch import Generator

from railsearch.encoders import Side, TextEncoder, TextEncoderConfig
from railsearch.encoders.text import windows
from railsearch.encoders.text.merging import group_neighbours, merge_windows
from railsearch.encoders.text.windowed import WindowedTexts, join_windows, sample_windows
from railsearch.encoders.text.windows import TokenSpan, Window, count_context, cut, pieces
from railsearch.foundation.errors import InvalidInputError
from tests.support.tiny_text import WORDS, make_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


def make_encoder(base: Path, **options: object) -> TextEncoder:
    settings = {"max_query_length": 12, "max_passage_length": 12, "pooling": "windows", **options}
    return TextEncoder.from_pretrained(TextEncoderConfig(base=str(base), **settings))


def words_of(text: str) -> list[TokenSpan]:
    return [TokenSpan(0, word.start(), word.end()) for word in re.finditer(r"\S+", text)]


def shown(text: str, *, room: int, overlap: int, first_room: int | None = None) -> list[str]:
    tokens = words_of(text)
    return [
        text[tokens[first].start : tokens[last - 1].end]
        for first, last in cut(text, tokens, room=room, overlap=overlap, first_room=first_room)
    ]


class TestCutting:
    def test_a_text_that_fits_is_one_window(self) -> None:
        assert shown("a b. c d.", room=4, overlap=2) == ["a b. c d."]

    def test_windows_end_at_sentences_and_repeat_whole_ones(self) -> None:
        text = "a b c. d e. f g h. i j. k l. m n o."
        assert shown(text, room=6, overlap=2) == [
            "a b c. d e.",
            "d e. f g h.",
            "f g h. i j.",
            "i j. k l.",
            "k l. m n o.",
        ]

    def test_a_paragraph_is_preferred_to_a_later_sentence(self) -> None:
        assert shown("a b c d.\n\ne. f g h i j k.", room=6, overlap=0)[0] == "a b c d."

    def test_a_long_sentence_is_cut_between_words_and_repeats_some(self) -> None:
        assert shown("a b c d e f g h i j", room=4, overlap=1) == ["a b c d", "d e f g", "g h i j"]

    def test_nothing_is_repeated_if_the_last_sentence_is_much_longer_than_the_overlap(self) -> None:
        assert shown("a b c d e f. g h i j k l. m n.", room=6, overlap=1)[:2] == ["a b c d e f.", "g h i j k l."]

    def test_a_short_end_is_extended_to_the_front(self) -> None:
        assert shown("a b c d. e f g h. i.", room=8, overlap=0) == ["a b c d. e f g h.", "e f g h. i."]

    def test_the_first_window_may_have_more_room(self) -> None:
        text = "a b. c d. e f. g h. i j."
        assert shown(text, room=4, overlap=0, first_room=6) == ["a b. c d. e f.", "g h. i j."]
        assert shown(text, room=4, overlap=0) == ["a b. c d.", "e f. g h.", "i j."]

    def test_a_long_run_of_spaces_takes_linear_time(self) -> None:
        # Hours if a pattern looks at the rest of the run from each of its spaces.
        text = "a b c." + 500_000 * " " + "d e f."
        assert cut(text, words_of(text), room=3, overlap=0) == [(0, 3), (3, 6)]
        assert list(pieces(text))[-1][1] == len(text)

    @pytest.mark.parametrize("seed", range(20))
    def test_windows_cover_the_text_are_in_order_and_fit(self, seed: int) -> None:
        draw = random.Random(seed)
        text = "".join(
            draw.choice(["w", "word", "x"]) + draw.choice([" ", " ", ". ", "? ", "\n", "\n\n"]) for _ in range(99)
        )
        room, overlap = draw.randint(1, 30), draw.randint(0, 15)
        overlap, first_room = min(overlap, room // 2), room + draw.randint(0, room)
        found = cut(text, words_of(text), room=room, overlap=overlap, first_room=first_room)
        assert found[0][0] == 0
        assert found[-1][1] == 99
        assert 0 < found[0][1] <= first_room
        assert all(0 < last - first <= room for first, last in found[1:])
        assert all(one[0] < other[0] <= one[1] < other[1] for one, other in itertools.pairwise(found))

    def test_pieces_of_a_long_text_are_divided_at_sentences_or_spaces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "CHARACTERS_PER_PIECE", 10)
        text = "one. two. three four five sixteenseventeen"
        found = list(pieces(text))
        assert [text[first:last] for first, last in found] == [
            "one. two. ",
            "three ",
            "four five ",
            "sixteensev",
            "enteen",
        ]


class TestContext:
    @pytest.mark.parametrize(
        ("text", "most", "expected"),
        [
            ("a title\n\nb c d e f.", 4, "a title"),
            ("a b. c d. e f. g", 5, "a b. c d."),
            ("a b c d e f g.", 3, "a b c"),
            ("a b.", 0, ""),
        ],
    )
    def test_it_ends_at_a_sentence_or_else_between_words(self, text: str, most: int, expected: str) -> None:
        tokens = words_of(text)
        count = count_context(text, tokens, most=most)
        assert text[: tokens[count - 1].end if count else 0] == expected

    @pytest.mark.parametrize("seed", range(20))
    def test_every_later_window_begins_with_it_and_none_is_too_long(
        self, seed: int, base: Path, tmp_path: Path
    ) -> None:
        draw = random.Random(seed)
        text = "".join(
            draw.choice(WORDS) + draw.choice([" ", " ", " .\n", "\n\n"]) for _ in range(draw.randint(12, 99))
        )
        most = draw.randint(1, 6)
        encoder = make_encoder(base, window_context=most)
        whole = make_encoder(make_base(tmp_path, positions=999), max_passage_length=999)
        cls, *plain, sep = whole.tokenize([text], Side.PASSAGE)[0]
        found = encoder.tokenize_windows([text])[0]
        assert found[0].start == 0
        assert found[-1].end == len(text.rstrip())
        contexts = set()
        for window in found:
            own = whole.tokenize([text[window.start : window.end]], Side.PASSAGE)[0][1:-1]
            repeated = len(window.ids) - 2 - len(own)
            assert window.ids == [cls, *plain[:repeated], *own, sep]
            assert len(window.ids) <= 12
            before = whole.tokenize([text[: window.start]], Side.PASSAGE)[0][1:-1] if window.start else []
            contexts.add((repeated, len(before)))
        longest = max(repeated for repeated, _ in contexts)
        assert 0 < longest <= most
        assert all(repeated == min(longest, before) for repeated, before in contexts)
        assert len(found[0].ids) > 12 // 2  # the first window has no context, and room for more of the text
        places = [(window.start, window.end) for window in found]
        assert all(one[0] < other[0] and one[1] < other[1] for one, other in itertools.pairwise(places))

    def test_a_text_that_fits_has_none(self, base: Path) -> None:
        text = " ".join(WORDS[:10])
        expected = make_encoder(base).tokenize_windows([text])
        assert make_encoder(base, window_context=6).tokenize_windows([text]) == expected
        assert len(expected[0]) == 1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"window_context": 7}, "window_context is 7 but a window has max_passage_length = 12 tokens"),
            ({"window_context": 2, "pooling": "mean"}, "window_context is 2 but pooling is mean"),
            ({"window_context": -1}, "window_context"),
            ({"window_components": 16, "pooling": "multi"}, "window_components is 16 but pooling is multi"),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, base: Path, options: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_encoder(base, **options)


class TestMerging:
    def test_fewer_windows_are_repeated_in_turn(self) -> None:
        vectors = torch.eye(3)[:, None]  # (3, 1, 3)
        components, groups = merge_windows(vectors, 5)
        assert torch.equal(components, vectors[[0, 1, 2, 0, 1]])
        assert groups == [(0, 1), (1, 2), (2, 3), (0, 1), (1, 2)]

    def test_more_windows_are_merged_into_means_of_neighbours_about_one_subject(self) -> None:
        subjects = torch.eye(3).repeat_interleave(torch.tensor([4, 1, 3]), dim=0)  # (8, 3)
        components, groups = merge_windows(subjects[:, None], 3)  # (3, 1, 3)
        assert groups == [(0, 4), (4, 5), (5, 8)]
        torch.testing.assert_close(components[:, 0], torch.eye(3))

    @pytest.mark.parametrize("count", [1, 2, 5, 11])
    def test_merging_is_that_of_a_naive_search(self, count: int) -> None:
        vectors = torch.nn.functional.normalize(torch.randn(12, 4, generator=Generator().manual_seed(count)), dim=-1)
        groups = [(row, row + 1) for row in range(len(vectors))]

        def spread(first: int, last: int) -> float:
            own = vectors[first:last].double()
            return float((own - own.mean(dim=0)).square().sum())

        while len(groups) > count:
            losses = [
                spread(one[0], other[1]) - spread(*one) - spread(*other) for one, other in itertools.pairwise(groups)
            ]
            place = losses.index(min(losses))
            groups[place : place + 2] = [(groups[place][0], groups[place + 1][1])]
        assert group_neighbours(vectors, count) == groups

    def test_the_gradient_reaches_every_window(self) -> None:
        vectors = torch.randn(9, 2, 4, generator=Generator().manual_seed(0)).requires_grad_()
        merge_windows(vectors, 4)[0].square().sum().backward()
        assert vectors.grad is not None
        assert (vectors.grad.abs().sum(dim=-1) > 0).all()

    def test_components_of_windows_are_merged_each_with_its_like(self) -> None:
        generator = Generator().manual_seed(0)
        text = [Window(place, place + 2, []) for place in range(6)]
        alike = torch.eye(4)[:3] + 0.05 * torch.randn(6, 3, 4, generator=generator)  # (6, 3, 4)
        orders = [torch.randperm(3, generator=generator) for _ in text]
        vectors = torch.stack([own[order] for own, order in zip(alike, orders, strict=True)])
        joined = join_windows(vectors, WindowedTexts.of([text]), 4 * 3)
        groups = group_neighbours(vectors.mean(dim=1), 4)
        assert max(last - first for first, last in groups) > 1
        expected = torch.cat([alike[first:last].mean(dim=0)[orders[first]] for first, last in groups])
        torch.testing.assert_close(joined.components[0], expected)
        assert joined.spans[0].tolist() == [[first, last + 1] for first, last in groups for _ in range(3)]

    def test_a_component_of_several_windows_spans_them_all(self) -> None:
        text = [Window(0, 5, []), Window(3, 9, []), Window(8, 12, [])]
        vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])[:, None]  # (3, 1, 2)
        joined = join_windows(vectors, WindowedTexts.of([text]), 2)
        assert joined.spans.tolist() == [[[0, 9], [8, 12]]]


class TestSampling:
    def test_a_sample_keeps_the_order_and_draws_again(self) -> None:
        text = [Window(place, place + 1, []) for place in range(50)]
        generator = Generator().manual_seed(0)
        draws = [[window.start for window in sample_windows(text, 5, generator)] for _ in range(8)]
        assert all(draw == sorted(set(draw)) and len(draw) == 5 for draw in draws)
        assert len({tuple(draw) for draw in draws}) > 1
        assert sample_windows(text, 50, generator) == text


class TestEncoding:
    def test_every_component_is_the_mean_pooled_text_of_its_window(self, base: Path) -> None:
        encoder, plain = make_encoder(base, num_item_components=4), make_encoder(base, pooling="mean")
        text = " ".join(f"{' '.join(WORDS[first : first + 4])} end. " for first in (0, 4, 8, 12, 16, 20))
        (found,) = encoder.tokenize_windows([text])
        assert len(found) > 1
        assert all(len(window.ids) <= 12 for window in found)
        encoded = encoder.encode_windows([text])
        for component, (start, end) in zip(encoded.components[0], encoded.spans[0].tolist(), strict=True):
            expected = plain.encode([text[start:end]], Side.PASSAGE)[0, 0]
            if len(found) <= 4:
                torch.testing.assert_close(component, expected, rtol=1e-4, atol=1e-5)

    def test_a_short_text_repeats_the_vector_of_the_plain_encoder(self, base: Path) -> None:
        encoder, plain = make_encoder(base, num_item_components=3), make_encoder(base, pooling="mean")
        texts = ["  it is w3 w4 end ", "w9"]
        expected = plain.encode(texts, Side.PASSAGE).expand(-1, 3, -1)
        torch.testing.assert_close(encoder.encode(texts, Side.PASSAGE), expected)
        assert encoder.encode_windows(texts).spans.tolist() == [[[0, 18]] * 3, [[0, 2]] * 3]

    def test_no_token_of_a_long_text_is_left_out(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "CHARACTERS_PER_PIECE", 100)
        encoder = make_encoder(base)
        text = " ".join(WORDS[number % 40] for number in range(500))
        (found,) = encoder.tokenize_windows([text])
        covered = {place for window in found for place in range(window.start, window.end)}
        assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
        assert encoder.count_cut([text], Side.PASSAGE) == 0

    def test_batches_of_any_size_give_the_same(self, base: Path) -> None:
        encoder = make_encoder(base, num_item_components=2)
        texts = [" ".join(WORDS[:count]) for count in (3, 40, 17, 25)]
        whole = encoder.encode(texts, Side.PASSAGE)
        torch.testing.assert_close(
            encoder.encode(texts, Side.PASSAGE, tokens_per_batch=13), whole, rtol=1e-4, atol=1e-5
        )

    def test_a_saved_encoder_returns_the_same(self, base: Path, tmp_path: Path) -> None:
        encoder = make_encoder(base, num_item_components=2, window_overlap=3)
        encoder.save(tmp_path / "encoder")
        texts = [" ".join(WORDS)]
        loaded = TextEncoder.load(tmp_path / "encoder")
        assert torch.equal(loaded.encode_windows(texts).spans, encoder.encode_windows(texts).spans)
        assert loaded.identity == encoder.identity

    def test_the_fingerprint_of_other_poolings_does_not_know_windows(self, base: Path) -> None:
        assert "window_overlap" not in make_encoder(base, pooling="mean").identity
        assert "window_overlap" in make_encoder(base).identity


class TestSettings:
    def test_a_passage_has_8_components_by_default(self) -> None:
        settings = TextEncoderConfig(base="b", pooling="windows")
        assert (settings.num_query_components, settings.num_item_components, settings.overlap) == (1, 8, 32)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_query_components": 2}, "one component for a query, but num_query_components is 2"),
            ({"window_overlap": 7}, "window_overlap is 7 .*max_passage_length = 12 .*at most half"),
            ({"pooling": "mean", "window_overlap": 2}, "pooling is mean, which has no windows"),
        ],
    )
    def test_what_cannot_work_is_refused(self, options: dict[str, object], message: str) -> None:
        settings = {"pooling": "windows", "max_passage_length": 12, **options}
        with pytest.raises(InvalidInputError, match=message):
            TextEncoderConfig(base="b", **settings)
