"""Verification of a split index: its own files, and every file of every version of every shard."""

import dataclasses
from pathlib import Path

from railsearch.distributed.layout import Layout, shard_name
from railsearch.distributed.snapshots import SNAPSHOTS, Snapshot, find_snapshots
from railsearch.foundation.errors import RailsearchError
from railsearch.foundation.inputs import as_path
from railsearch.index import Index, Problem, Verification


def verify_shards(path: str | Path) -> Verification:
    """Read every file of a split index, and list all problems; raises IndexFolderError if it has no list of shards.

    The versions are the numbers of the snapshots that are kept.
    """
    folder = as_path(path)
    layout = Layout.read(folder)
    numbers = find_snapshots(folder)
    problems = [] if numbers else [Problem(f"{folder / SNAPSHOTS} holds no snapshot.", SNAPSHOTS)]
    for number in numbers:
        is_current = number == numbers[-1]
        try:
            snapshot = Snapshot.read(folder, number, split=layout.split, num_shards=layout.num_shards)
            if is_current:  # older ones may name versions that are gone
                layout.check_shards(folder, snapshot.versions)
        except RailsearchError as error:
            problems.append(Problem(str(error), versions=(number,), is_current=is_current))
    num_files = num_bytes = 0
    for shard in range(layout.num_shards):
        name = shard_name(shard)
        try:
            found = Index.check(folder / name)
        except RailsearchError as error:
            problems.append(Problem(str(error)))
            continue
        num_files, num_bytes = num_files + found.num_files, num_bytes + found.num_bytes
        problems += [
            dataclasses.replace(own, file=None if own.file is None else f"{name}/{own.file}", versions=())
            for own in found.problems
        ]
    return Verification(tuple(numbers), num_files, num_bytes, tuple(problems))
