"""A pretrained language model as encoder of texts: each text becomes P components (the paper's section 5 and A.2)."""

import copy
import json
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
import xxhash
from torch import Generator, Tensor, nn

from railsearch.encoders.text.backbone import (
    build_backbone,
    config_of,
    count_positions,
    is_causal,
    load_backbone,
    load_tokenizer,
    run,
    vocabulary_table,
)
from railsearch.encoders.text.base import find_base
from railsearch.encoders.text.folder import (
    FORMAT,
    SavedText,
    fill_encoder,
    read_text_folder,
    tensors_of,
    write_text_folder,
)
from railsearch.encoders.text.pooling import ParameterisedPooling, pool_mean, pool_tokens
from railsearch.encoders.text.settings import Pooling, Side, TextSettings, TokenPlace
from railsearch.encoders.text.tokens import TextTokens, add_aggregation_tokens, batches_by_length, check_texts
from railsearch.folders import WEIGHTS_FILE, register_opener
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.foundation.progress import counting
from railsearch.similarity.contract import ConfigValue

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

FIRST_NOISE = 0.5
"""Of aggregation tokens, as a share of the spread of the vocabulary. With 0.02 they stayed alike: after 65 steps of
MiniLM all components of a text were the same."""
TEXTS_PER_CHUNK = 8192
"""Tokenized and sorted by length at a time, so that token ids of a large corpus are never all in memory."""
CHARACTERS_PER_CHUNK = 2**22
"""The same for long texts, whose tokens take some twenty times their own room before they are cut off."""
UNTRUE_OF_COPIES = {"_name_or_path", "transformers_version", "architectures"}
"""What a Hugging Face config says of where a model came from."""
LONG_ENCODE = 1.0
"""Seconds, from which on it is worth a line in the log."""


class TextEncoder(nn.Module):
    """Encodes queries and passages with a pretrained model; make one with `from_pretrained` or `load`.

    Args:
        backbone: the pretrained model.
        tokenizer: its tokenizer, with the aggregation tokens.
        settings: all choices.
        place: where aggregation tokens stand; with parameterised pooling, whose output the weights come from.
    """

    def __init__(
        self,
        *,
        backbone: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerFast",
        settings: TextSettings,
        place: TokenPlace,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._tokens = TextTokens(tokenizer, settings=settings, place=place)
        self.num_query_components = settings.num_query_components
        self.num_item_components = settings.num_item_components
        self.max_query_length = settings.max_query_length
        self.max_passage_length = settings.max_passage_length
        self.pooling = settings.pooling
        self.token_place = place
        self.dim = int(backbone.config.hidden_size)
        self.backbone = backbone
        self.passage_backbone = None if settings.shares_backbone else copy.deepcopy(backbone)
        generator = Generator().manual_seed(settings.seed)
        self.aggregation_embeddings = (
            nn.Parameter(_first_embeddings(backbone, self._tokens, generator))  # (Pq + Px, E)
            if settings.pooling is Pooling.TOKENS
            else None
        )
        self.poolings = nn.ModuleDict(
            {
                side.value: ParameterisedPooling(
                    dim=self.dim,
                    num_components=settings.num_components(side),
                    max_length=settings.max_length(side),
                    place=place,
                    generator=generator,
                )
                for side in Side
                if settings.pooling is Pooling.PARAMETERISED
            }
        )
        self.eval()

    @classmethod
    def from_pretrained(
        cls,
        base: str | Path,
        *,
        num_query_components: int = 4,
        num_item_components: int = 4,
        pooling: Pooling | str = Pooling.TOKENS,
        token_place: TokenPlace | str | None = None,
        shares_backbone: bool = True,
        max_query_length: int = 64,
        max_passage_length: int = 256,
        seed: int = 0,
        allow_download: bool = False,
    ) -> Self:
        """Begin with a pretrained Hugging Face model: an encoder, the encoder of a T5, or a decoder-only model.

        It comes in fp32, on the CPU, in eval mode: call `train()` before training.

        Args:
            base: a folder; "package:NAME", the folder with a config.json within an installed Python package; or a
                name on the Hugging Face Hub. Only safetensors are read, and no code from the folder is run.
            num_query_components: how many vectors a query becomes.
            num_item_components: how many vectors a passage becomes.
            pooling: how they come from the model's outputs: "tokens", "parameterised" or "mean", which gives one.
            token_place: "front" or "end"; chosen by the model if not said: the end where a position sees only those
                before it. Aggregation tokens stand there, and parameterised pooling weighs by the output there.
            shares_backbone: use the same model for queries and passages, or two that begin alike.
            max_query_length: the most tokens of a query, special ones counted; the end of a longer text is cut off.
            max_passage_length: the same for a passage.
            seed: of the first weights that do not come with the model.
            allow_download: fetch a model by name if it is not in the local cache; otherwise there is no network use.
        """
        settings = TextSettings(
            base=str(base),
            num_query_components=num_query_components,
            num_item_components=num_item_components,
            pooling=as_choice(Pooling, pooling, name="pooling"),
            token_place=None if token_place is None else as_choice(TokenPlace, token_place, name="token_place"),
            shares_backbone=shares_backbone,
            max_query_length=max_query_length,
            max_passage_length=max_passage_length,
            seed=seed,
        )
        settings.check_pooling()
        folder = find_base(base, allow_download=allow_download)
        tokenizer = load_tokenizer(folder)
        add_aggregation_tokens(tokenizer, settings)
        backbone = load_backbone(folder)
        _check_positions(settings, count_positions(backbone))
        return cls(backbone=backbone, tokenizer=tokenizer, settings=settings, place=_choose_place(settings, backbone))

    @property
    def settings(self) -> dict[str, ConfigValue]:
        """What `from_pretrained` was given, as plain values; weights that were trained since are not in it."""
        settings: dict[str, ConfigValue] = self._settings.model_dump(mode="json")
        return settings

    @property
    def identity(self) -> dict[str, ConfigValue]:
        """What makes the encoder give the vectors that it gives, beside its weights; neither paths nor versions."""
        config = config_of(self.backbone)
        architecture = {name: value for name, value in config.items() if name not in UNTRUE_OF_COPIES}
        digests = {
            "backbone": xxhash.xxh3_128_hexdigest(json.dumps(architecture, sort_keys=True).encode()),
            "tokenizer": xxhash.xxh3_128_hexdigest(self._tokens.tokenizer.backend_tokenizer.to_str().encode()),
        }
        settings = self._settings.model_dump(mode="json", exclude={"base", "seed"})
        return {**settings, "token_place": self.token_place.value, **digests}

    def pretrained_names(self) -> set[str]:
        """Name the parameters that came with the pretrained model; all others are new and may learn faster."""
        return {name for name, _ in self.named_parameters() if name.split(".")[0] in {"backbone", "passage_backbone"}}

    def tokenize(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Give token ids, special and aggregation tokens in place; a text too long for its side loses its end."""
        return self._tokens.tokenize(texts, as_choice(Side, side, name="side"))

    def count_cut(self, texts: Sequence[str], side: Side) -> int:
        """How many of the texts are too long for their side, and lose their end."""
        side = as_choice(Side, side, name="side")
        return sum(self._tokens.count_cut(texts[first:last], side) for first, last in _chunks(texts))

    def forward(self, tokens: Sequence[Sequence[int]], side: Side) -> Tensor:
        """Encode what `tokenize` gave for the same side: components (B, P, D), of whatever length they come out."""
        side = as_choice(Side, side, name="side")
        self._tokens.check(tokens, side)
        ids, is_real = self._pad(tokens)  # (B, n) each
        backbone = self.backbone if side is Side.QUERY or self.passage_backbone is None else self.passage_backbone
        outputs = run(backbone, self._embed(ids, backbone), is_real)  # (B, n, D)
        if self.pooling is Pooling.MEAN:
            return pool_mean(outputs, is_real)  # (B, 1, D)
        if self.pooling is Pooling.TOKENS:
            count = self._settings.num_components(side)
            return pool_tokens(outputs, is_real, num_tokens=count, place=self.token_place)  # (B, P, D)
        components: Tensor = self.poolings[side.value](outputs, is_real)  # (B, P, D)
        return components

    @torch.no_grad()
    def encode(
        self, texts: Sequence[str], side: Side, *, tokens_per_batch: int = 8192, show_progress: bool | None = None
    ) -> Tensor:
        """Encode texts as they would be searched with or for: (N, P, D) in fp32 on the CPU, in the order given.

        Args:
            texts: at least one character each that is no space.
            side: which side they are of.
            tokens_per_batch: the most tokens, padding counted, that the model gets at once; this bounds memory.
            show_progress: draw a bar with texts per second; on a terminal only if not said.
        """
        side = as_choice(Side, side, name="side")
        check_texts(texts)
        check_count(tokens_per_batch, name="tokens_per_batch")
        components = torch.empty(len(texts), self._settings.num_components(side), self.dim)  # (N, P, D)
        modes = {module: module.training for module in self.modules()}
        start = time.perf_counter()
        self.eval()
        try:
            with counting(f"encoding {side} texts", len(texts), is_shown=show_progress) as count:
                for first, last in _chunks(texts):
                    tokens = self.tokenize(texts[first:last], side)
                    for rows in batches_by_length([len(ids) for ids in tokens], tokens_per_batch=tokens_per_batch):
                        found = self([tokens[row] for row in rows], side)  # (b, P, D)
                        components[first + torch.tensor(rows)] = found.float().cpu()
                        count(len(rows))
        finally:
            for module, mode in modes.items():
                module.training = mode
        seconds = time.perf_counter() - start
        level = logging.INFO if seconds >= LONG_ENCODE else logging.DEBUG  # searching with one query is no news
        logger.log(level, "encoded %d %s texts in %.1f s, %.0f/s", len(texts), side, seconds, len(texts) / seconds)
        return components

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder with weights, settings and tokenizer; a kill at any moment leaves the old one or the new."""
        saved = SavedText(
            self._settings, self.token_place, config_of(self.backbone), tensors_of(self), self._tokens.tokenizer
        )
        write_text_folder(saved, Path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a folder that `save` wrote, on the CPU and in eval mode; refuse what is damaged or foreign."""
        saved = read_text_folder(Path(path))
        try:
            encoder = cls(
                backbone=build_backbone(saved.backbone_config),
                tokenizer=saved.tokenizer,
                settings=saved.settings,
                place=saved.place,
            )
        except ModelFolderError as error:
            raise ModelFolderError(f"{path} does not hold together: {error}") from error
        except (TypeError, KeyError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFolderError(f"{path} does not hold together ({error}); restore it from a copy.") from error
        fill_encoder(encoder, saved.tensors, Path(path) / WEIGHTS_FILE)
        return encoder

    def _pad(self, tokens: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Give ids (B, n), 0 where a text has ended, and whether there is a token (B, n)."""
        lengths = torch.tensor([len(ids) for ids in tokens])  # (B,)
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)  # (B, n)
        is_real = torch.arange(ids.shape[1]) < lengths[:, None]  # (B, n)
        device = self.backbone.device
        return ids.to(device), is_real.to(device)

    def _embed(self, ids: Tensor, backbone: "PreTrainedModel") -> Tensor:
        """Give token embeddings (B, n, E): the pretrained table's, and for aggregation tokens our own."""
        table = backbone.get_input_embeddings()
        if self.aggregation_embeddings is None:
            embeddings: Tensor = table(ids)  # (B, n, E)
            return embeddings
        numbers = ids - self._tokens.first_aggregation_id  # (B, n)
        is_ours = numbers >= 0
        return torch.where(
            is_ours[..., None],
            nn.functional.embedding(numbers.clamp(min=0), self.aggregation_embeddings),
            table(ids.masked_fill(is_ours, 0)),
        )


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where chunks begin and end: so many texts or characters, and at least one text."""
    first = size = 0
    for row, text in enumerate(texts):
        if row > first and (row - first == TEXTS_PER_CHUNK or size + len(text) > CHARACTERS_PER_CHUNK):
            yield first, row
            first, size = row, 0
        size += len(text)
    if first < len(texts):
        yield first, len(texts)


@torch.no_grad()
def _first_embeddings(backbone: "PreTrainedModel", tokens: TextTokens, generator: Generator) -> Tensor:
    """Near the model's own token that sums a text up, or the mean of its vocabulary where it has none: (Pq + Px, E)."""
    vocabulary = vocabulary_table(backbone)  # (V, E)
    count = sum(len(ids) for ids in tokens.aggregation_ids.values())
    own = None if tokens.summary_id is None else torch.tensor(tokens.summary_id)
    start = vocabulary.mean(dim=0) if own is None else backbone.get_input_embeddings()(own)  # (E,)
    noise = torch.randn(count, vocabulary.shape[1], generator=generator)  # (Pq + Px, E)
    return start + FIRST_NOISE * vocabulary.std() * noise


def _choose_place(settings: TextSettings, backbone: "PreTrainedModel") -> TokenPlace:
    if not is_causal(backbone):
        return settings.token_place or TokenPlace.FRONT
    if settings.token_place is TokenPlace.FRONT:
        raise InvalidInputError(
            f'token_place is "front" but in {settings.base} a position sees only those before it, so that tokens '
            'there would know nothing of the text; say "end", or leave it out.'
        )
    return TokenPlace.END


def _check_positions(settings: TextSettings, num_positions: int | None) -> None:
    for side in Side:
        length = settings.max_length(side)
        if num_positions is not None and length > num_positions:
            raise InvalidInputError(
                f"max_{side}_length is {length} but {settings.base} takes {num_positions} tokens; "
                f"ask for max_{side}_length <= {num_positions}."
            )


register_opener(FORMAT.name, TextEncoder.load)
