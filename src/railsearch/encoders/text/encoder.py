"""The text encoder: a pretrained language model turns each text into P components (the paper's section 5 and A.2)."""

import contextlib
import copy
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
import xxhash
from torch import Generator, Tensor, nn

from railsearch.encoders.text.aggregation import add_aggregation_tokens, choose_place, first_embeddings
from railsearch.encoders.text.backbone import (
    build_backbone,
    check_positions,
    config_of,
    load_backbone,
    run,
)
from railsearch.encoders.text.base import find_base
from railsearch.encoders.text.batches import OnTexts, encode_windows, encoding, run_batches
from railsearch.encoders.text.folder import (
    FORMAT,
    SavedText,
    fill_encoder,
    read_text_folder,
    tensors_of,
    write_text_folder,
)
from railsearch.encoders.text.learned_pooling import build_poolings
from railsearch.encoders.text.mixed_precision import autocast
from railsearch.encoders.text.pooling import pool_mean, pool_tokens
from railsearch.encoders.text.sentence_head import SentenceHead
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig, TokenPlace
from railsearch.encoders.text.starting import PROMPTS, read_start, saved_head, with_prompts
from railsearch.encoders.text.tokens import TextTokens, check_texts, chunks
from railsearch.encoders.text.top_layers import TopLayers
from railsearch.encoders.text.windowed import WindowEncoding
from railsearch.encoders.text.windows import Window
from railsearch.folders import WEIGHTS_FILE, register_opener
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.similarity.contract import ConfigValue

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedModel, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

UNTRUE_OF_COPIES = {"_name_or_path", "transformers_version", "architectures"}
"""Entries of a Hugging Face config that state the origin of a model, not its behaviour."""


class TextEncoder(nn.Module):
    """A pretrained model that encodes queries and passages; build one with `from_pretrained` or `load`.

    Args:
        backbone: the pretrained model.
        tokenizer: its tokenizer, with the aggregation tokens.
        settings: all choices.
        place: place of aggregation tokens; with parameterised pooling, the output that the weights are computed from.
        head: the pooling and the layers of a sentence-transformers folder, with `Pooling.OWN`.
    """

    def __init__(
        self,
        *,
        backbone: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerFast",
        settings: TextEncoderConfig,
        place: TokenPlace,
        head: SentenceHead | None = None,
    ) -> None:
        super().__init__()
        # With windows, a head is that of a sentence-transformers folder that does more than take the mean.
        if settings.pooling is not Pooling.WINDOWS and (settings.pooling is Pooling.OWN) != (head is not None):
            given = "no head" if head is None else "a head"
            raise InvalidInputError(f"pooling is {settings.pooling} but there is {given}; only own has one.")
        self._settings = settings
        self._backbone_config = config_of(backbone)
        self._tokens = TextTokens(tokenizer, settings=settings, place=place)
        self.num_query_components = settings.num_query_components
        self.num_item_components = settings.num_item_components
        self.max_query_length = settings.max_query_length
        self.max_passage_length = settings.max_passage_length
        self.pooling = settings.pooling
        self.token_place = place
        self.dim = int(backbone.config.hidden_size) if head is None else head.dim
        self.backbone = backbone
        self.passage_backbone = None if settings.shares_backbone else copy.deepcopy(backbone)
        self.head = head
        self.passage_head = None if settings.shares_backbone else copy.deepcopy(head)
        generator = Generator().manual_seed(settings.seed)
        self.aggregation_embeddings = (
            nn.Parameter(
                first_embeddings(
                    backbone,
                    settings.num_query_components + settings.num_item_components,
                    summary_id=self._tokens.summary_id,
                    generator=generator,
                )
            )  # (Pq + Px, E)
            if settings.pooling is Pooling.TOKENS
            else None
        )
        self.poolings = build_poolings(settings, self.dim, place, generator)
        self.top_layers: dict[Side, TopLayers] = {}  # filled by `training_top`
        self.is_mixed = False  # changed by `mixed_precision`
        self.eval()

    @classmethod
    def from_pretrained(cls, settings: TextEncoderConfig, *, allow_download: bool = False) -> Self:
        """Start from a pretrained Hugging Face model: an encoder, the encoder of a T5, or a decoder-only model.

        Of a sentence-transformers folder, prompts are used as well, and with `pooling="own"` its pooling, its layers
        and its longest text. The encoder is in fp32, on the CPU, in eval mode: call `train()` before training.

        Args:
            settings: the base and all choices.
            allow_download: download a model by name if it is not in the local cache; otherwise the network is not used.
        """
        folder = find_base(settings.base, allow_download=allow_download)
        start = read_start(folder, settings)
        tokenizer, settings = start.tokenizer, start.settings
        add_aggregation_tokens(tokenizer, settings)
        backbone = load_backbone(start.backbone)
        check_positions(settings, backbone)
        return cls(
            backbone=backbone,
            tokenizer=tokenizer,
            settings=settings,
            place=choose_place(settings, backbone),
            head=start.build_head(int(backbone.config.hidden_size)),
        )

    def repooled(self, settings: TextEncoderConfig) -> Self:
        """Return an encoder with a copy of the pretrained weights, as they are now, and the pooling of the settings.

        With `first_spread=0`, components then begin as the mean of a fine-tuned encoder.
        """
        check_positions(settings, self.backbone)
        if settings.shares_backbone != (self.passage_backbone is None):
            raise InvalidInputError(
                f"shares_backbone is {settings.shares_backbone} but {self.passage_backbone is None} in the encoder to "
                "start from; use the same value."
            )
        repooled = type(self)(
            backbone=copy.deepcopy(self.backbone),
            tokenizer=self._tokens.tokenizer,
            settings=with_prompts(settings, {side: self._settings.prompt(side) for side in Side}),
            place=self.token_place,
        )
        repooled._backbone_config = self._backbone_config
        repooled.passage_backbone = copy.deepcopy(self.passage_backbone)
        return repooled

    @property
    def settings(self) -> dict[str, ConfigValue]:
        """Arguments of `from_pretrained`, as JSON values."""
        settings: dict[str, ConfigValue] = self._settings.model_dump(mode="json")
        return settings

    @property
    def identity(self) -> dict[str, ConfigValue]:
        """Everything besides the weights that determines the encoder's outputs; no paths and no versions."""
        config = self._backbone_config.items()
        architecture = {name: value for name, value in config if name not in UNTRUE_OF_COPIES}
        digests = {
            "backbone": xxhash.xxh3_128_hexdigest(json.dumps(architecture, sort_keys=True).encode()),
            "tokenizer": xxhash.xxh3_128_hexdigest(self._tokens.tokenizer.backend_tokenizer.to_str().encode()),
        }
        # Fingerprints of models without windows or prompts stay as they were before there were any.
        excluded = {"base", "seed", "first_spread", *PROMPTS} | (set() if self.has_windows else {"window_overlap"})
        unset = {"window_components": 1, "window_context": 0}  # models without them keep their fingerprints as well
        excluded |= {name for name, value in unset.items() if getattr(self._settings, name) == value}
        settings = self._settings.model_dump(mode="json", exclude=excluded)
        settings |= {name: text for name in PROMPTS if (text := getattr(self._settings, name))}
        if self.head is not None:
            settings["head"] = self.head.config.model_dump_json()
        return {**settings, "token_place": self.token_place.value, **digests}

    def pretrained_names(self) -> set[str]:
        """Return the names of pretrained parameters; all others are new and may learn faster."""
        pretrained = {"backbone", "passage_backbone", "head", "passage_head"}
        return {name for name, _ in self.named_parameters() if name.split(".")[0] in pretrained}

    def tokenize(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Return token ids with special and aggregation tokens; the end of a text that is too long is cut off."""
        side = as_choice(Side, side, name="side")
        return self._tokens.tokenize(self._prompted(texts, side), side)

    @property
    def has_windows(self) -> bool:
        """Whether passages are cut into windows."""
        return self.pooling is Pooling.WINDOWS

    def tokenize_windows(self, texts: Sequence[str]) -> list[list[Window]]:
        """Return the windows of each passage, of any length, with their token ids and their characters."""
        check_texts(texts)
        prompt = self._settings.prompt(Side.PASSAGE) or ""
        return [self._tokens.tokenize_windows(text, prompt) for text in texts]

    def count_cut(self, texts: Sequence[str], side: Side) -> int:
        """Return the number of texts that are too long for their side, so that their end is cut off."""
        side = as_choice(Side, side, name="side")
        cut = (self._tokens.count_cut(self._prompted(texts[first:last], side), side) for first, last in chunks(texts))
        return sum(cut)

    def forward(self, tokens: Sequence[Sequence[int]], side: Side) -> Tensor:
        """Return the components (B, P, D) of token ids from `tokenize`; they are not normalised.

        If passages are cut into windows, each of their rows is one window, with `window_components` components.
        """
        side = as_choice(Side, side, name="side")
        self._tokens.check(tokens, side)
        ids, is_real = self._pad(tokens)  # (B, n) each
        backbone = self.backbone if side is Side.QUERY or self.passage_backbone is None else self.passage_backbone
        top = self.top_layers.get(side)
        with autocast(ids.device) if self.is_mixed else contextlib.nullcontext():
            outputs = run(backbone, self._embed(ids, backbone), is_real) if top is None else top.run(tokens, is_real)
        outputs = outputs.float() if self.is_mixed else outputs  # (B, n, D)
        head = self.head if side is Side.QUERY or self.passage_head is None else self.passage_head
        if head is not None:
            embeddings: Tensor = head(outputs, is_real)  # (B, 1, D)
            return embeddings
        if self.pooling is Pooling.MEAN or (self.has_windows and not self._settings.pools_late):
            return pool_mean(outputs, is_real)  # (B, 1, D)
        if self.pooling is Pooling.TOKENS:
            count = self._settings.num_components(side)
            return pool_tokens(outputs, is_real, num_tokens=count, place=self.token_place)  # (B, P, D)
        components: Tensor = self.poolings[side.value](outputs, is_real)  # (B, P, D)
        return components

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[str],
        side: Side,
        *,
        tokens_per_batch: int = 8192,
        show_progress: bool | None = None,
        on_texts: OnTexts | None = None,
    ) -> Tensor:
        """Return the components of texts in eval mode: (N, P, D) in fp32 on the CPU, in the order of the texts.

        Args:
            texts: each has at least one visible character.
            side: the side of the texts.
            tokens_per_batch: most tokens of a batch, including padding; this bounds memory.
            show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
                occasional line elsewhere.
            on_texts: is told how many more texts are encoded, in place of the bar.
        """
        side = as_choice(Side, side, name="side")
        if self.has_windows and side is Side.PASSAGE:
            return self.encode_windows(
                texts, tokens_per_batch=tokens_per_batch, show_progress=show_progress, on_texts=on_texts
            ).components  # (N, P, D)
        check_texts(texts)
        check_count(tokens_per_batch, name="tokens_per_batch")
        components = torch.empty(len(texts), self._settings.num_components(side), self.dim)  # (N, P, D)
        with encoding(self, texts, side, show_progress=show_progress, on_texts=on_texts) as count:
            for first, last in chunks(texts):
                tokens = self.tokenize(texts[first:last], side)
                components[first:last] = run_batches(self, tokens, side, tokens_per_batch, count)
        return components

    def encode_windows(
        self,
        texts: Sequence[str],
        *,
        tokens_per_batch: int = 8192,
        show_progress: bool | None = None,
        on_texts: OnTexts | None = None,
    ) -> WindowEncoding:
        """Return the components of passages that are cut into windows, as `encode` does, and where each one is.

        Memory holds the windows of some passages at a time, about 4 million characters or a single longer passage, and
        the activations of `tokens_per_batch` tokens.
        """
        check_texts(texts)
        check_count(tokens_per_batch, name="tokens_per_batch")
        return encode_windows(
            self, texts, tokens_per_batch=tokens_per_batch, show_progress=show_progress, on_texts=on_texts
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder with weights, settings and tokenizer; if the process is killed, a complete folder remains."""
        saved = SavedText(
            self._settings, self.token_place, self._backbone_config, tensors_of(self), self._tokens.tokenizer,
            None if self.head is None else self.head.config,
        )  # fmt: skip
        write_text_folder(saved, Path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a folder that `save` wrote, on the CPU and in eval mode; refuse damaged and foreign folders."""
        saved = read_text_folder(Path(path))
        try:
            backbone = build_backbone(saved.backbone_config, saved.tensors)
            encoder = cls(
                backbone=backbone,
                tokenizer=saved.tokenizer,
                settings=saved.settings,
                place=saved.place,
                head=saved_head(saved.head, saved.tensors, dim=int(backbone.config.hidden_size)),
            )
        except ModelFolderError as error:
            raise ModelFolderError(f"{path} is inconsistent: {error}") from error
        except (TypeError, KeyError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFolderError(f"{path} is inconsistent ({error}); restore it from a copy.") from error
        # Another version of transformers has other defaults: the config as saved keeps the model's identity.
        encoder._backbone_config = saved.backbone_config
        fill_encoder(encoder, saved.tensors, Path(path) / WEIGHTS_FILE)
        return encoder

    def _prompted(self, texts: Sequence[str], side: Side) -> Sequence[str]:
        """Return texts with the prompt of their side, if it has one."""
        prompt = self._settings.prompt(side)
        check_texts(texts)  # an empty text is refused, with and without a prompt
        return [prompt + text for text in texts] if prompt else texts

    def _pad(self, tokens: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return ids (B, n), padded with 0, and which of them are tokens (B, n)."""
        lengths = torch.tensor([len(ids) for ids in tokens])  # (B,)
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)  # (B, n)
        is_real = torch.arange(ids.shape[1]) < lengths[:, None]  # (B, n)
        device = self.backbone.device
        return ids.to(device), is_real.to(device)

    def _embed(self, ids: Tensor, backbone: "PreTrainedModel") -> Tensor:
        """Return token embeddings (B, n, E): those of the pretrained model, and our own for aggregation tokens."""
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


register_opener(FORMAT.name, TextEncoder.load)
