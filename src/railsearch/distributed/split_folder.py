"""The folder of a split that is being written, shard by shard; if the process is killed, a second call continues."""

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from railsearch.distributed.layout import (
    MOST_SHARDS,
    SHARD_NAME,
    SHARDS_FILE,
    SIMILARITY,
    Layout,
    read_manifest,
    shard_name,
)
from railsearch.distributed.snapshots import SNAPSHOTS, Snapshot
from railsearch.folders import save_similarity
from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.foundation.files import new_file
from railsearch.foundation.inputs import check_count
from railsearch.foundation.safe_files import read_inside, remove_inside
from railsearch.index import Index
from railsearch.index.segment import Segment
from railsearch.index.storage import Store
from railsearch.index.storage.creating import new_index
from railsearch.index.storage.lock import LOCK, WriterLock
from railsearch.index.storage.manifest import Manifest, SealBrokenError, seal, unseal
from railsearch.index.storage.reading import map_segment
from railsearch.index.storage.writer import storage_errors
from railsearch.similarity import Similarity, fingerprint

PLAN_FILE = "splitting.json"
"""The plan of a split that is not finished."""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Everything that all shards have in common, apart from their similarity."""

    models: tuple[str, ...]
    precision: str
    scan: str
    source: dict[str, str]
    tuned: dict[str, str]


def check_target(path: Path, num_shards: int) -> int:
    """Check the number of shards and the path of a new split; call it before any work."""
    num_shards = check_count(num_shards, name="num_shards")
    if num_shards > MOST_SHARDS:
        raise InvalidInputError(f"num_shards is {num_shards} but at most {MOST_SHARDS} are possible; ask for fewer.")
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return num_shards
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be used ({error.strerror}); choose another path.") from error
    if SHARDS_FILE in names:
        raise InvalidInputError(f"{path} already holds a split index; choose another path.")
    if names - {LOCK} and PLAN_FILE not in names:
        raise InvalidInputError(f"{path} holds other files; choose another path.")
    return num_shards


@contextlib.contextmanager
def splitting(
    path: Path, similarity: Similarity, plan: Mapping[str, object], *, continues: bool = True
) -> Iterator[None]:
    """Hold the lock of a folder that is being split; refuse one that was begun with another plan.

    The similarity is saved first, so that other processes find it there. Unless the split continues what is there,
    shards that are complete already are removed.
    """
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with WriterLock(path).held("shard"), storage_errors(path):
        body = json.dumps({**plan, "fingerprint": fingerprint(similarity)}, sort_keys=True)
        known = _read_plan(path)
        if known is not None and known != body:
            raise InvalidInputError(
                f"{path} holds an unfinished split of something else ({known:.400}) but this is {body:.400}; remove "
                "the folder, or choose another path."
            )
        if known is None:
            with new_file(path / PLAN_FILE) as written:
                written.write_bytes(seal(body))
        if not continues:
            _remove_shards(path)
        save_similarity(similarity, path / SIMILARITY, overwrite=True)
        yield


def finished_shard(path: Path, number: int, num_items: int | None) -> bool:
    """Return whether a shard is complete and intact; one that is not is removed."""
    folder = path / shard_name(number)
    if not folder.is_dir() or folder.is_symlink():
        folder.unlink(missing_ok=True)
        return False
    with contextlib.suppress(IndexFolderError):
        if Index.check(folder).is_intact and num_items in (None, read_manifest(folder).num_items):
            return True
    shutil.rmtree(folder)
    return False


def write_shard(
    path: Path, number: int, similarity: Similarity, settings: IndexSettings, segments: Iterable[Segment]
) -> None:
    """Write the segments of one shard as an index folder, complete or not at all."""
    with (
        new_index(path / shard_name(number)) as folder,
        Store.creating(
            folder,
            similarity,
            models=settings.models,
            precision=settings.precision,
            source=settings.source,
            scan=settings.scan,
        ) as writer,
    ):
        writer.commit((writer.keep(segment) for segment in segments), tuned=settings.tuned)


def finish(path: Path, num_shards: int, settings: IndexSettings, *, by: str | None, next_id: int | None = None) -> None:
    """Write the first snapshot, and then shards.json: only now the folder is a split index."""
    manifests = [read_manifest(path / shard_name(number)) for number in range(num_shards)]
    largest = max(_largest_id(path / shard_name(number), manifest) for number, manifest in enumerate(manifests))
    split = uuid.uuid4().hex
    shutil.rmtree(path / SNAPSHOTS, ignore_errors=True)
    Snapshot(
        split=split,
        number=1,
        versions=tuple(manifest.version for manifest in manifests),
        num_items=tuple(manifest.num_items for manifest in manifests),
        next_id=largest + 1 if next_id is None else next_id,
    ).write(path)
    Layout(
        split=split,
        births=tuple(manifest.birth for manifest in manifests),
        fingerprint=manifests[0].fingerprint,
        models=settings.models,
        has_keys=any(segment.has_keys for manifest in manifests for segment in manifest.segments),
        by=by,
        source=settings.source,
    ).write(path)
    remove_inside(path, PLAN_FILE)


def run_jobs(jobs: Iterable[Callable[[], None]]) -> None:
    """Run jobs one after the other."""
    for job in jobs:
        job()


def _remove_shards(path: Path) -> None:
    """Remove the shards that an earlier attempt has left."""
    for stale in path.glob("shard-*"):
        found = SHARD_NAME.fullmatch(stale.name)
        if found is not None and not stale.is_symlink():
            shutil.rmtree(stale)


def _largest_id(folder: Path, manifest: Manifest) -> int:
    """Return the greatest integer id of an index folder, without reading its items; -1 if it has none."""
    ends = [map_segment(folder, entry).ids[-1:] for entry in manifest.segments]
    return max((int(end) for end in ends if len(end)), default=-1)


def _read_plan(path: Path) -> str | None:
    try:
        return unseal(read_inside(path, PLAN_FILE))
    except FileNotFoundError:
        return None
    except (SealBrokenError, ValueError) as error:
        raise InvalidInputError(f"{path / PLAN_FILE} is damaged; remove {path}, and split again.") from error
