"""TextRetriever: from questions and passages to answers with a certificate, as one object that can be saved."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.data import PairsLike, QuestionPassages
from railsearch.encoders import mixed_precision
from railsearch.evaluation import Evaluation, evaluate_questions
from railsearch.folders import ModelCard, check_target, register_opener
from railsearch.foundation.bf16 import check_bf16
from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.foundation.inputs import as_path, check_count
from railsearch.foundation.progress import counting
from railsearch.foundation.results import SearchResult
from railsearch.index import (
    Allow,
    Engine,
    Exclude,
    Index,
    ModelSource,
    Precision,
    ScanPrecision,
    SourcedIndex,
    Strategy,
    folder_of,
    model_of,
)
from railsearch.models import TextModel
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.similarity.registry import kind_of
from railsearch.text_retriever.card import describe_retriever
from railsearch.text_retriever.continuing import continue_model, continue_recipe
from railsearch.text_retriever.fitting import keeping_outputs, train_model
from railsearch.text_retriever.folder import FORMAT, SavedRetriever, read_retriever, write_retriever
from railsearch.text_retriever.held_out import read_test_data
from railsearch.text_retriever.passages import EncodedPassages, PassagesLike, as_passages, check_new
from railsearch.text_retriever.recipe import TextRecipe, build_text_model
from railsearch.training import FitReport, TeacherLike
from railsearch.training.processes import Processes

QuestionsLike = TypeAliasType("QuestionsLike", QuestionPassages | PairsLike)


class TextRetriever:
    """A pretrained language model whose texts are compared by a learned similarity, and an index of passages.

    The weights are read when they are first needed. Untrained, it searches with the pretrained model as it is.

    >>> from railsearch.encoders import TextEncoderConfig
    >>> TextRetriever(TextRecipe(encoder=TextEncoderConfig(base="models/minilm")))
    TextRetriever(models/minilm with mixture_of_logits, 4 x 4 components)

    With a model at hand, `TextRetriever.fit(pairs, recipe)` trains it on pairs of questions and passages,
    `retriever.build_index(passages, "passages.index")` indexes passages, and `retriever.search(questions, k=10)` finds
    the best ones, with their certificates.
    """

    def __init__(self, recipe: TextRecipe, *, allow_download: bool = False) -> None:
        """Store the settings of the retriever; weights are read later.

        Args:
            recipe: encoder and similarity; training settings are used by `fit`.
            allow_download: download a base by name from the Hugging Face Hub if it is not in the local cache.
        """
        self.recipe = recipe
        self.card: ModelCard | None = None
        """Facts about the trained model; None if it was not trained."""
        self.report: FitReport | None = None
        """The report of training; None for a model that was loaded."""
        self.index: Index | None = None
        """The index that `search` uses."""
        self._allow_download = allow_download
        self._model: TextModel | None = None
        self._folder: Path | None = None

    def __repr__(self) -> str:
        encoder, similarity = self.recipe.encoder, self.recipe.similarity
        counts = "{} x {} components".format(*self.recipe.num_components)
        return f"TextRetriever({encoder.base} with {similarity.kind}, {counts})"

    @classmethod
    def fit(
        cls,
        pairs: QuestionsLike,
        recipe: TextRecipe,
        *,
        start: "TextRetriever | None" = None,
        teacher: TeacherLike | None = None,
        folder: str | Path | None = None,
        save_to: str | Path | None = None,
        overwrite: bool = False,
        processes: Processes | None = None,
        allow_download: bool = False,
        show_progress: bool | None = None,
    ) -> Self:
        """Train on questions and passages that are right for them; test questions are ranked if there are any.

        Args:
            pairs: (question, passage) pairs, a table with these two columns, or `QuestionPassages`.
            recipe: settings of the model and of training.
            start: a retriever whose model is trained further, in place of the recipe's base; it is not changed.
                Settings of the encoder that the recipe leaves open are those of the start. A mixture over one
                embedding for each text can follow a cosine, and starts as that cosine; so can multi and merged pooling,
                which start as that cosine with `first_spread=0`. Windows can follow a cosine of windows.
            teacher: a scorer to follow, such as a cross-encoder: a function of questions (n,) and passages (n,) that
                returns scores (n,), or a table or a file of question, passage, score, in place of `training.teacher`.
            folder: folder for checkpoints and the log; an interrupted run in it continues.
            save_to: save the model there when training is done; checked before training starts.
            overwrite: replace a text retriever that is in `save_to`.
            processes: the processes that train together, if `torchrun` started several; the first one saves.
            allow_download: as in the constructor.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        if save_to is not None:
            check_target(FORMAT, as_path(save_to), overwrite=overwrite)
        data = pairs if isinstance(pairs, QuestionPassages) else QuestionPassages.from_pairs(pairs)
        if recipe.training.mixed_precision and (start is None or start.model.encoder.backbone.device.type == "cpu"):
            check_bf16("mixed_precision is on")
        if start is not None:
            recipe = continue_recipe(recipe, start.model)
        retriever = cls(recipe, allow_download=allow_download)
        if start is not None:
            retriever._model = continue_model(start.model, recipe)
        processes = processes or Processes()
        evaluation = None
        with ExitStack() as kept:
            kept.enter_context(keeping_outputs(retriever.model.encoder, recipe.training))
            with mixed_precision(retriever.model.encoder, is_used=recipe.training.mixed_precision):
                retriever.report, num_ranked = train_model(
                    retriever.model, recipe, data, first_weights=retriever.fingerprint, processes=processes,
                    folder=None if folder is None else as_path(folder), teacher=teacher, show_progress=show_progress,
                )  # fmt: skip
            if recipe.training.mixed_precision:
                kept.close()  # outputs in bf16 are of no use for the test
            if data.test is not None and processes.is_first:
                evaluation = retriever.evaluate(data, show_progress=show_progress)
        retriever.card = describe_retriever(data, recipe, retriever.report, evaluation, num_ranked=num_ranked)
        if save_to is not None and processes.is_first:
            retriever.save(save_to, overwrite=overwrite)
        return retriever

    @property
    def model(self) -> TextModel:
        """Encoder and similarity; they are read from the base when they are first needed."""
        if self._model is None:
            self._model = build_text_model(self.recipe, allow_download=self._allow_download).train(False)
        return self._model

    @property
    def fingerprint(self) -> str:
        """The name of the model's content; an index stores the name of the model that built it."""
        model = self.model
        similarity = {f"similarity.{name}": value for name, value in model.similarity.config.items()}
        settings = {**model.encoder.identity, **similarity, "similarity": kind_of(model.similarity)}
        return compute_fingerprint("text_retriever", settings, dict(model.state_dict()))

    def evaluate(
        self, data: QuestionPassages | str | Path, *, depth: int = 0, show_progress: bool | None = None
    ) -> Evaluation:
        """Rank the right passages of the test questions among all passages: HR at 1, 10 and 100, and MRR.

        Args:
            data: data with test questions; the caller must know that the model was not trained on them. Or a path, from
                which `test_data` reads questions that the model was certainly not trained on.
            depth: best passages of each question to keep in `run` of the result, which can be saved as a TREC run and
                measures nDCG@10, R@100 and the like; 0 for none.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        if isinstance(data, (str, Path)):
            data = self.test_data(data)
        return evaluate_questions(self.model, data, depth=depth, show_progress=show_progress)

    def test_data(self, path: str | Path) -> QuestionPassages:
        """Read data with test questions that the model was not trained on, in the layout of BEIR or of its recipe.

        If the data hold out none themselves, the questions that the recipe holds out must be those that were held out
        when the model was trained.
        """
        return read_test_data(self.recipe, self.card, path)

    def encode_queries(self, texts: Sequence[str], *, show_progress: bool | None = None) -> Tensor:
        """Return the queries that an index of this retriever takes: components (B, Pq, d), or (B, d) for a cosine."""
        return self.model.encode_queries(texts, show_progress=show_progress)

    def encode_passages(self, texts: Sequence[str], *, show_progress: bool | None = None) -> Tensor:
        """Return the items that an index of this retriever takes: components (N, Px, d), or (N, d) for a cosine."""
        return self.model.encode_passages(texts, show_progress=show_progress)

    def build_index(
        self,
        passages: PassagesLike | EncodedPassages,
        path: str | Path | None = None,
        *,
        precision: Precision | str = Precision.FP32,
        scan: ScanPrecision | str = ScanPrecision.FULL,
        engine: Engine | None = None,
        show_progress: bool | None = None,
    ) -> Index:
        """Encode passages and index them, in memory or as a folder; `search` uses this index from now on.

        The metadata of the index have the column passage, and those of `foundation.matched_parts` with windows.

        Args:
            passages: a mapping from ids to texts, or the passages of `QuestionPassages`: their ids, usually strings,
                are those of the index. Or a list of texts, which are numbered from 0; or passages that this
                model has encoded.
            path: a folder to create, which must not exist.
            precision: precision of the item components: fp32, fp16 or bf16.
            scan: "int8" for faster scans with the same results, as in `Index.build`.
            engine: engine of the first stage, as in `Index.build`.
            show_progress: draw a progress bar with the encoding rate; by default only on a terminal.
        """
        given = passages if isinstance(passages, EncodedPassages) else as_passages(passages)
        if path is not None and as_path(path).exists():
            raise InvalidInputError(f"{path} already exists; open it with open_index, or choose another path.")
        with counting("encoding passages", len(given), is_shown=show_progress) as count:
            self.index = Index.build(
                self.model.similarity,
                given.encode(self.model, count),
                path=path,
                precision=precision,
                scan=scan,
                engine=engine,
                source=self._source().to_dict(),
                show_progress=False,
            )
        return self.index

    def open_index(self, path: str | Path, *, version: int | None = None, engine: Engine | None = None) -> Index:
        """Open an index that this model built, for `search`; refuse one of another model.

        Args:
            path: a folder that `build_index` created.
            version: as in `Index.open`.
            engine: as in `Index.open`.
        """
        self.index = self._source().open_index(path, version=version, engine=engine)
        return self.index

    def add(self, passages: PassagesLike, *, show_progress: bool | None = None) -> None:
        """Encode passages and add them to the index; durable once this returns.

        Args:
            passages: as in `build_index`. Ids that are in the index are refused; a list of texts continues its numbers.
            show_progress: draw a progress bar with the encoding rate; by default only on a terminal.
        """
        given, index = as_passages(passages), self._opened()
        check_new(given, index)
        with counting("encoding passages", len(given), is_shown=show_progress) as count:
            index.add(given.encode(self.model, count), show_progress=False)

    def upsert(self, passages: PassagesLike, *, show_progress: bool | None = None) -> None:
        """Encode passages, and add them to the index or replace those that have the same ids, as `add` does."""
        given, index = as_passages(passages), self._opened()
        if given.ids is None:
            raise InvalidInputError("passages is a list without ids; give a mapping from ids to texts, or use add.")
        index.find(given.ids)  # raises if they are not of the kind that the index has
        with counting("encoding passages", len(given), is_shown=show_progress) as count:
            index.upsert(given.encode(self.model, count), show_progress=False)

    def remove(self, passage_ids: Sequence[str] | Sequence[int], *, missing_ok: bool = False) -> None:
        """Remove passages from the index; durable once this returns.

        Args:
            passage_ids: ids of passages in the index.
            missing_ok: ignore ids that are not in the index; by default, they raise an error.
        """
        self._opened().remove(passage_ids, missing_ok=missing_ok)

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        strategy: Strategy | None = None,
        exclude: Exclude = None,
        allow: Allow = None,
        *,
        pad: bool = False,
    ) -> SearchResult:
        """Find the k best passages for each question, with scores, gap and certificate; `to_frame()` has the texts.

        Args:
            texts: questions.
            k: the number of passages for each question.
            strategy: how to search; by default the one that the index was tuned to, or brute force.
            exclude: as in `Index.search`.
            allow: as in `Index.search`.
            pad: as in `Index.search`.
        """
        check_count(k, name="k")
        index = self._opened()
        queries = self.encode_queries(texts, show_progress=False)
        result = index.search(queries, k, strategy, exclude, allow, pad=pad)
        return dataclasses.replace(result, questions=tuple(texts))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a model folder: config.json, encoder/ with its tokenizer, similarity/, and a model card, README.md.

        If the process is killed at any moment, the old or the new folder remains. The index is a separate folder.
        """
        target = as_path(path)
        saved = SavedRetriever(self.model, self.recipe, self.card, self.fingerprint)
        write_retriever(saved, target, overwrite=overwrite)
        self._folder = target.resolve()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model folder that `save` wrote; nothing else is needed, and nothing is downloaded."""
        folder = as_path(path)
        saved = read_retriever(folder)
        retriever = cls(saved.recipe)
        retriever.card = saved.card
        retriever._model, retriever._folder = saved.model, folder.resolve()
        if retriever.fingerprint != saved.fingerprint:
            raise FingerprintError(
                f"{folder} states model {saved.fingerprint} but holds {retriever.fingerprint}; restore it from a copy."
            )
        return retriever

    @classmethod
    def load_for(cls, index: Index, path: str | Path | None = None) -> Self:
        """Read the retriever that built an index, from the folder that the index records or from another one."""
        retriever = cls.load_beside(index, path)
        retriever.index = index
        return retriever

    @classmethod
    def load_beside(cls, index: SourcedIndex, path: str | Path | None = None) -> Self:
        """Read the retriever that built an index, as `load_for` does, and leave the index out: it may be split."""
        model_of(index, FORMAT.name)
        retriever = cls.load(folder_of(index, FORMAT.name) if path is None else path)
        retriever._source().check(index)
        return retriever

    def _opened(self) -> Index:
        if self.index is None:
            raise InvalidInputError("there is no index; call build_index(passages), or open_index(path).")
        return self.index

    def _source(self) -> ModelSource:
        return ModelSource(FORMAT.name, self.fingerprint, self._folder)


register_opener(FORMAT.name, TextRetriever.load)
