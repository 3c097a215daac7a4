"""TextRetriever: from questions and passages to answers with a certificate, by one object that can be saved."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import xxhash
from torch import Tensor

from railsearch.data import QuestionPassages, read_passages
from railsearch.encoders import Pooling, TokenPlace
from railsearch.encoders.text.tokens import check_texts
from railsearch.evaluation import Evaluation, evaluate_questions
from railsearch.folders import ModelCard, register_opener
from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.foundation.inputs import as_choice, as_path, check_count
from railsearch.foundation.progress import counting
from railsearch.foundation.results import ItemBatch, ItemBatches, SearchResult
from railsearch.index import Index, Precision, Strategy
from railsearch.models import TextModel
from railsearch.similarity import CosineConfig
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.text_retriever.card import describe_retriever, questions_digest
from railsearch.text_retriever.folder import FORMAT, SavedRetriever, read_retriever, write_retriever
from railsearch.text_retriever.recipe import (
    TextEncoderConfig,
    TextMixtureConfig,
    TextRecipe,
    build_text_model,
    read_split_data,
)
from railsearch.training import FitReport, TextTrainingConfig
from railsearch.training.loop import train
from railsearch.training.processes import Processes
from railsearch.training.tasks.texts import TextTask

PASSAGES_PER_BATCH = 2048
"""Passages whose components are held at once while an index is built."""
SOURCE_KIND = "railsearch.text_retriever"


class TextRetriever:
    """A pretrained language model whose texts are compared by a learned similarity, and an index of passages.

    The weights are read when they are first needed.

        retriever = TextRetriever("models/minilm", num_query_components=4, num_item_components=4)
        retriever.fit([("who wrote dune?", "Dune is a novel by Frank Herbert."), ...])
        retriever.build_index(passages, "passages.index")
        result = retriever.search(["who wrote dune?"], k=10)
        print(result.to_frame(), result.gap, result.is_exact)
    """

    def __init__(
        self,
        base: str | Path,
        *,
        num_query_components: int = 4,
        num_item_components: int = 4,
        pooling: Pooling | str = Pooling.TOKENS,
        token_place: TokenPlace | str | None = None,
        shares_backbone: bool = True,
        max_query_length: int = 64,
        max_passage_length: int = 256,
        similarity: TextMixtureConfig | CosineConfig | None = None,
        seed: int = 0,
        allow_download: bool = False,
    ) -> None:
        """Say what the retriever is made of.

        Args:
            base: a folder with a Hugging Face model, "package:NAME" for one inside an installed Python package, or a
                name on the Hugging Face Hub that is in the local cache.
            num_query_components: Pq, components of a question.
            num_item_components: Px, components of a passage.
            pooling: "tokens", one component for each aggregation token; "parameterised", learned weights over
                positions; or "mean", one component.
            token_place: where aggregation tokens stand: "front", "end", or None for what suits the model.
            shares_backbone: whether questions and passages are encoded by the same weights.
            max_query_length: tokens of a question; what is longer is cut off.
            max_passage_length: tokens of a passage; what is longer is cut off.
            similarity: settings of the mixture, or `CosineConfig()` for one component each.
            seed: of the first weights that are new; that of order and dropout is the training's.
            allow_download: whether a name that is not in the local cache may be fetched from the Hub.
        """
        encoder = TextEncoderConfig(
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
        self.recipe = TextRecipe(encoder=encoder, similarity=TextMixtureConfig() if similarity is None else similarity)
        self.card: ModelCard | None = None
        """What is known of a model that was trained."""
        self.report: FitReport | None = None
        """How training went; None for a model that was loaded."""
        self.index: Index | None = None
        """What `search` looks through."""
        self._allow_download = allow_download
        self._model: TextModel | None = None
        self._fingerprint: str | None = None
        self._folder: Path | None = None

    @classmethod
    def from_recipe(cls, recipe: TextRecipe, *, allow_download: bool = False) -> Self:
        """A retriever as a recipe describes it."""
        retriever = cls(recipe.encoder.base, allow_download=allow_download)
        retriever.recipe = recipe
        return retriever

    @property
    def model(self) -> TextModel:
        """Encoder and similarity, read from the base where that was not done yet."""
        if self._model is None:
            self._model = build_text_model(self.recipe, allow_download=self._allow_download).train(False)
        return self._model

    @property
    def fingerprint(self) -> str:
        """The name of the model's content; an index remembers which one it was built with."""
        if self._fingerprint is None:
            model = self.model
            similarity = {f"similarity.{name}": value for name, value in model.similarity.config.items()}
            self._fingerprint = compute_fingerprint(
                "text_retriever", {**model.encoder.identity, **similarity}, dict(model.state_dict())
            )
        return self._fingerprint

    def fit(
        self,
        pairs: object,
        training: TextTrainingConfig | None = None,
        *,
        folder: str | Path | None = None,
        processes: Processes | None = None,
        show_progress: bool | None = None,
    ) -> FitReport:
        """Train on questions and passages that are right for them; test questions, where there are any, are ranked.

        Args:
            pairs: (question, passage) pairs, a table with these two columns, or `QuestionPassages`.
            training: how; the recipe's settings if left out.
            folder: where checkpoints and the log go; a run that was cut short goes on from there.
            processes: those that train together, where `torchrun` started several.
            show_progress: a progress bar; by default on a terminal only.
        """
        data = pairs if isinstance(pairs, QuestionPassages) else QuestionPassages.from_pairs(pairs)  # type: ignore[arg-type]
        if training is not None:
            self.recipe = self.recipe.model_copy(update={"training": training})
        config, processes = self.recipe.training, processes or Processes()
        task = TextTask(self.model, data, config, processes)
        factor = config.new_learning_rate / config.learning_rate
        before = self.fingerprint
        about = {**_about(self.recipe, data), "first weights": before}
        try:
            report = train(
                task,
                config,
                folder=None if folder is None else as_path(folder),
                about=about,
                processes=processes,
                rate_factors=dict.fromkeys(self.model.new_names(), factor),
                unit="pairs",
                show_progress=show_progress,
            )
        finally:  # done or cut short, it may be another model now
            self._fingerprint = None
            if self.fingerprint != before:
                self._folder = self.index = self.card = None
        self.report = report
        evaluation = None
        if data.test is not None and processes.is_first:
            evaluation = self.evaluate(data, show_progress=show_progress)
        self.card = describe_retriever(data, self.recipe, report, evaluation, num_ranked=len(task.ranked))
        return report

    def evaluate(self, data: QuestionPassages, *, show_progress: bool | None = None) -> Evaluation:
        """Rank the right passages of the test questions among all passages: HR at 1, 10 and 100, and MRR.

        Whether the model was trained on these questions is for the caller to know; see `test_data`.
        """
        return evaluate_questions(self.model, data, show_progress=show_progress)

    def test_data(self, path: str | Path) -> QuestionPassages:
        """Read data with test questions that the model was not trained on, in the layout of its recipe.

        Where the data hold out none themselves, the questions that the recipe holds out must be those that were held
        out when the model was trained.
        """
        whole = read_passages(path, self.recipe.data.layout)
        if whole.test is not None:
            return whole
        split = read_split_data(self.recipe, path)
        if split.test is None or self.card is None or self.card.tested_on != questions_digest(split.test):
            raise InvalidInputError(
                f"{path} holds out no test questions, and none that the recipe would hold out were held out when this "
                "model was trained, so that it may have been trained on them; give data with a test split."
            )
        return split

    def encode_queries(self, texts: Sequence[str], *, show_progress: bool | None = None) -> Tensor:
        """What an index of this retriever takes as queries: components (B, Pq, d), or (B, d) for a cosine."""
        return self.model.encode_queries(texts, show_progress=show_progress)

    def encode_passages(self, texts: Sequence[str], *, show_progress: bool | None = None) -> Tensor:
        """What an index of this retriever takes as items: components (N, Px, d), or (N, d) for a cosine."""
        return self.model.encode_passages(texts, show_progress=show_progress)

    def build_index(
        self,
        passages: Sequence[str] | Mapping[str, str] | QuestionPassages,
        path: str | Path | None = None,
        *,
        precision: Precision | str = Precision.FP32,
        show_progress: bool | None = None,
    ) -> Index:
        """Encode passages and index them, in memory or as a folder; `search` looks through them from now on.

        Ids of the index are the places of the passages. Its metadata has the columns passage_id and passage.

        Args:
            passages: texts; a mapping from ids to texts; or the passages of a collection.
            path: a folder to make, which must not exist yet.
            precision: how components are kept: fp32, fp16 or bf16.
            show_progress: a progress bar with the encoding rate; by default on a terminal only.
        """
        ids, texts = _ids_and_texts(passages)
        if path is not None and as_path(path).exists():
            raise InvalidInputError(f"{path} exists already; open it with open_index, or choose another path.")
        check_texts(texts)
        with counting("encoding passages", len(texts), is_shown=show_progress) as count:
            self.index = Index.build(
                self.model.similarity,
                ItemBatches(self._batches(ids, texts, count), len(texts)),
                path=path,
                precision=precision,
                source={
                    "kind": SOURCE_KIND,
                    "model": self.fingerprint,
                    "folder": "" if self._folder is None else str(self._folder),
                },
                show_progress=False,
            )
        return self.index

    def open_index(self, path: str | Path) -> Index:
        """Open an index that this model built, for `search`."""
        index = Index.open(path)
        self.check_index(index)
        self.index = index
        return index

    def check_index(self, index: Index) -> None:
        """Refuse an index that was not built with this model."""
        built_with = _model_of(index)
        if built_with != self.fingerprint:
            raise FingerprintError(
                f"{_name(index)} was built by text model {built_with} but this is {self.fingerprint}; load the model "
                "that built it, or build the index anew."
            )

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        strategy: Strategy | None = None,
        *,
        allow: object = None,
    ) -> SearchResult:
        """Find the k best passages of each question, with scores, gap and certificate; `to_frame()` has the texts.

        Args:
            texts: questions.
            k: how many passages each.
            strategy: how to search; what the index was tuned to, or brute force, if left out.
            allow: as in `Index.search`.
        """
        check_count(k, name="k")
        if self.index is None:
            raise InvalidInputError("there is no index to search; call build_index(passages), or open_index(path).")
        queries = self.encode_queries(texts, show_progress=False)
        return self.index.search(queries, k, strategy, allow=allow)  # type: ignore[arg-type]

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a model folder: config.json, encoder/ with its tokenizer, similarity/, and a model card, README.md.

        A kill at any moment leaves the old folder or the new one. The index is a folder of its own.
        """
        target = as_path(path)
        write_retriever(
            SavedRetriever(self.model, self.recipe, self.card, self.fingerprint), target, overwrite=overwrite
        )
        self._folder = target.resolve()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model folder that `save` wrote; nothing else is needed, and nothing is downloaded."""
        folder = as_path(path)
        saved = read_retriever(folder)
        retriever = cls.from_recipe(saved.recipe)
        retriever.card = saved.card
        retriever._model, retriever._folder = saved.model, folder.resolve()
        if retriever.fingerprint != saved.fingerprint:
            raise FingerprintError(
                f"{folder} says that it holds model {saved.fingerprint} but holds {retriever.fingerprint}; restore it "
                "from a copy."
            )
        return retriever

    def _batches(self, ids: Sequence[str], texts: Sequence[str], count: Callable[[int], None]) -> Iterator[ItemBatch]:
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        for first in range(0, len(texts), PASSAGES_PER_BATCH):
            rows = slice(first, first + PASSAGES_PER_BATCH)
            components = self.model.encode_passages(texts[rows])
            table = pl.DataFrame({"passage_id": list(ids[rows]), "passage": list(texts[rows])})
            count(len(components))
            yield ItemBatch(components, None, table)


def load_for_index(index: Index, model: str | Path | None = None) -> TextRetriever:
    """The retriever that built an index, from the folder that the index remembers or the one that is said."""
    _model_of(index)
    folder = model or index.source.get("folder")
    if not folder:
        raise InvalidInputError(
            f"{_name(index)} does not say where its text model is: the model was not saved before the index was built; "
            "give the folder of the model."
        )
    if model is None and not Path(folder).exists():
        raise InvalidInputError(
            f"{_name(index)} was built with the text model in {folder}, which is not there; give the folder of the "
            "model."
        )
    retriever = TextRetriever.load(folder)
    retriever.check_index(index)
    retriever.index = index
    return retriever


def _model_of(index: Index) -> str:
    """The fingerprint of the text model that built an index."""
    if index.source.get("kind") != SOURCE_KIND:
        raise FingerprintError(
            f"{_name(index)} was not built by a text retriever, so that texts cannot be searched in it; search it with "
            "embeddings, or build one with TextRetriever.build_index."
        )
    return index.source.get("model", "unknown")


def _name(index: Index) -> str:
    return "the index in memory" if index.path is None else str(index.path)


def _ids_and_texts(passages: object) -> tuple[Sequence[str], Sequence[str]]:
    if isinstance(passages, QuestionPassages):
        return passages.passage_ids, passages.passages
    if isinstance(passages, Mapping):
        return [str(key) for key in passages], list(passages.values())
    if isinstance(passages, Sequence) and not isinstance(passages, str):
        return [str(row) for row in range(len(passages))], passages
    raise InvalidInputError(
        f"passages is a {type(passages).__name__}; give a list of texts, a mapping from ids to texts, or a collection."
    )


def _about(recipe: TextRecipe, data: QuestionPassages) -> dict[str, object]:
    """What makes a training run what it is, beside how it is trained: the model, and every text."""
    digest = xxhash.xxh3_64()
    questions = [data.train] if data.validation is None else [data.train, data.validation]
    for texts in (data.passages, *(own.texts for own in questions)):
        digest.update(json.dumps(texts).encode())  # quoted, so that no text runs into the next
    for pairs in (rows for own in questions for rows in (own.pairs, own.hard_negatives)):
        digest.update(pairs.numpy().tobytes())
    settings = {
        f"{section}.{name}": value
        for section in ("encoder", "similarity")
        for name, value in getattr(recipe, section).model_dump(mode="json").items()
    }
    return {**settings, "data": f"{len(data.train.pairs):,} pairs with checksum {digest.hexdigest()}"}


register_opener(FORMAT.name, TextRetriever.load)
