"""The model that computed an index's embeddings: the index stores its name and refuses queries of another model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.foundation.inputs import as_path
from railsearch.index.engines import Engine
from railsearch.index.index import Index

SHARDS_FILE = "shards.json"
"""The file that a split index has; `distributed.layout` writes it."""


class SourcedIndex(Protocol):
    """An index that knows where its embeddings come from: one index, or a split one."""

    @property
    def path(self) -> Path | None:
        """The folder, if there is one."""
        ...

    @property
    def source(self) -> dict[str, str]:
        """Text by name, as `Index.build` was given it."""
        ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model whose embeddings are indexed."""

    kind: str
    """The format of its folder, such as "railsearch.recommender"."""
    fingerprint: str
    folder: Path | None = None
    """The folder in which the model was saved, if any."""
    ancestors: tuple[str, ...] = ()
    """Fingerprints of the models before items were added: the embeddings of all other items are the same."""

    def to_dict(self) -> dict[str, str]:
        """Return the text that an index keeps as its `source`."""
        folder = "" if self.folder is None else str(self.folder)
        return {"kind": self.kind, "model": self.fingerprint, "folder": folder}

    def open_index(self, path: str | Path, *, version: int | None, engine: Engine | None) -> Index:
        """Open an index folder, and refuse one whose items another model has encoded."""
        if (as_path(path) / SHARDS_FILE).is_file():
            raise InvalidInputError(
                f"{path} is split into shards, but a {_noun(self.kind)} searches an index in one folder; open the "
                "index that was split, or serve the shards together with the model."
            )
        index = Index.open(path, version=version, engine=engine)
        self.check(index)
        return index

    def is_same(self, fingerprint: str | None) -> bool:
        """Return whether a fingerprint is that of this model, or of the same one before items were added."""
        return fingerprint in {self.fingerprint, *self.ancestors}

    def check(self, index: SourcedIndex) -> None:
        """Refuse an index whose items another model has encoded."""
        built_with = model_of(index, self.kind)
        if not self.is_same(built_with):
            raise FingerprintError(
                f"{_name(index)} was built by {_noun(self.kind)} {built_with} but this is {self.fingerprint}; load the "
                "model that built it, or build a new index with this one: training and updates change every embedding."
            )


def model_of(index: SourcedIndex, kind: str) -> str:
    """Return the fingerprint of the model that built an index; refuse an index that no model of this kind built."""
    if index.source.get("kind") != kind:
        raise FingerprintError(
            f"{_name(index)} was not built by a {_noun(kind)}; search it with embeddings, or build an index with "
            "build_index of the model."
        )
    return index.source.get("model", "unknown")


def folder_of(index: SourcedIndex, kind: str) -> Path:
    """Return the folder of the model that built an index; refuse if it is not recorded or no longer exists."""
    model_of(index, kind)
    folder = index.source.get("folder")
    if not folder:
        raise InvalidInputError(
            f"{_name(index)} does not record where its model is: the model was not saved before the build; give "
            "the folder of the model."
        )
    if not Path(folder).exists():
        raise InvalidInputError(
            f"{_name(index)} was built with the model in {folder}, which does not exist; give the folder of the model."
        )
    return Path(folder)


def _noun(kind: str) -> str:
    return kind.removeprefix("railsearch.").replace("_", " ")


def _name(index: SourcedIndex) -> str:
    return "the index in memory" if index.path is None else str(index.path)
