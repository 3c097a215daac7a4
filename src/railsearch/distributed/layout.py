"""The layout of a split index: a folder of ordinary index folders, and the sealed list of them.

    LOCK                      one writer at a time
    shards.json               the shards, how items are assigned to them, and the model; sealed, never changed
    similarity/               the model folder
    snapshots/<number>.json   one version of every shard; the newest is current
    shard-00000/ ...          ordinary index folders

The names of the shards follow from their number, so that no file names a path.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from railsearch.folders import FolderFormat
from railsearch.foundation.errors import FingerprintError, IndexFolderError
from railsearch.foundation.files import new_file
from railsearch.foundation.safe_files import others_inside, read_inside
from railsearch.index import source
from railsearch.index.storage.manifest import FINGERPRINT, IDENTIFIER, Manifest
from railsearch.index.storage.places import check_is_index, current_version, manifest_file
from railsearch.index.storage.writer import storage_errors

SHARDS_FILE = source.SHARDS_FILE
SIMILARITY = "similarity"
MOST_SHARDS = 10_000
SHARD_NAME = re.compile(r"shard-([0-9]{5})")
SHARDS = FolderFormat(
    name="railsearch.shards",
    version=1,
    noun="split index",
    writer="railsearch index shard",
    files=frozenset({SIMILARITY}),
    config_file=SHARDS_FILE,
    error=IndexFolderError,
)
"""The format of the folder."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Contents of shards.json."""

    split: str
    """A random id of this split, which its snapshots repeat."""
    births: tuple[str, ...]
    """The random id of the index in each shard."""
    fingerprint: str
    models: tuple[str, ...]
    """Fingerprints of the models whose parts are accepted, as in an index."""
    has_keys: bool
    """Whether ids are strings."""
    by: str | None = None
    """The column of the metadata that decides the shard of an item; None if its id does."""
    source: dict[str, str] = field(default_factory=dict)
    """Where the embeddings come from, as in an index."""

    @property
    def num_shards(self) -> int:
        """The number of shards."""
        return len(self.births)

    def write(self, folder: Path) -> None:
        """Write shards.json, complete or not at all; after this the folder is a split index."""
        text = SHARDS.encode(folder, dataclasses.asdict(self))
        with storage_errors(folder), new_file(folder / SHARDS_FILE) as written:
            written.write_text(text)

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        """Read shards.json, and check the similarity beside it; refuse one that is damaged, foreign or absurd."""
        config = SHARDS.read(folder)
        SHARDS.check_files(folder, config)
        stated = {name: config.get(name) for name in (own.name for own in dataclasses.fields(cls))}
        problem = _problem(stated)
        if problem is not None:
            raise IndexFolderError(
                f"{folder / SHARDS_FILE} states {problem}; restore it from a copy, or split the index again."
            )
        stated["births"], stated["models"] = tuple(stated["births"]), tuple(stated["models"])  # type: ignore[arg-type]
        return cls(**stated)  # type: ignore[arg-type]

    def check_shards(self, folder: Path, versions: tuple[int, ...] | None = None) -> None:
        """Check that every shard is there and belongs to this split; reads their manifests, not their items.

        Args:
            folder: the folder of the split index.
            versions: a version of each shard; the current ones if omitted.
        """
        numbers = [int(found[1]) for found in map(SHARD_NAME.fullmatch, others_inside(folder)) if found is not None]
        for number in sorted(set(range(self.num_shards)) ^ set(numbers)):
            path = folder / shard_name(number)
            state = "is missing" if number < self.num_shards else "is not one of them"
            raise IndexFolderError(
                f"{folder / SHARDS_FILE} lists {self.num_shards} shards but {path} {state} ({len(numbers)} shard "
                "folders were found); restore the folder from a copy, or split the index again."
            )
        for number in range(self.num_shards):
            path = folder / shard_name(number)
            if path.is_symlink():
                raise IndexFolderError(f"{path} is a symbolic link, which is not followed; put the shard itself there.")
            manifest = read_manifest(path, None if versions is None else versions[number])
            if manifest.fingerprint != self.fingerprint:
                raise FingerprintError(
                    f"{path} was built with model {manifest.fingerprint} but this split has {self.fingerprint}; "
                    "restore the shard from a copy, or split the index again."
                )
            if manifest.birth != self.births[number]:
                raise IndexFolderError(
                    f"{path} holds index {manifest.birth} but {self.births[number]} belongs to this split; restore "
                    "the shard from a copy, or split the index again."
                )


def shard_name(number: int) -> str:
    """Return the name of the folder of a shard.

    >>> shard_name(7)
    'shard-00007'
    """
    return f"shard-{number:05d}"


def read_manifest(path: Path, version: int | None = None) -> Manifest:
    """Read the manifest of a version of an index folder, the current one if none is named."""
    check_is_index(path)
    name = manifest_file(current_version(path) if version is None else version)
    try:
        return Manifest.decode(read_inside(path, name), path / name)
    except FileNotFoundError as error:
        raise IndexFolderError(f"{path / name} does not exist, but the split index needs it; restore it.") from error
    except OSError as error:
        raise IndexFolderError(f"{path / name} cannot be read ({error.strerror}); check permissions.") from error


def _problem(stated: Mapping[str, object]) -> str | None:
    """Return what is wrong with values that shards.json states; None if nothing is."""
    births, models, source = stated["births"], stated["models"], stated["source"]
    if not isinstance(births, list) or not 1 <= len(births) <= MOST_SHARDS:
        count = len(births) if isinstance(births, list) else repr(births)[:80]
        return f"{count} shards, not 1 to {MOST_SHARDS}"
    names = [("split", stated["split"], IDENTIFIER), ("fingerprint", stated["fingerprint"], FINGERPRINT)]
    for name, value, pattern in [*names, *(("shard", birth, IDENTIFIER) for birth in births)]:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            return f"the {name} {value!r:.80}"
    checks = {
        "births": len(set(births)) == len(births),
        "models": isinstance(models, list) and all(isinstance(model, str) for model in models),
        "has_keys": isinstance(stated["has_keys"], bool),
        "by": isinstance(stated["by"], str | None),
        "source": isinstance(source, dict) and all(isinstance(text, str) for pair in source.items() for text in pair),
    }
    return next((f"{name} {stated[name]!r:.80}" for name, is_right in checks.items() if not is_right), None)
