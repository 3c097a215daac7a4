"""A small index whose content can be read back exactly, and the plain dictionary that it must equal."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import polars as pl
import torch
from torch import Tensor

from railsearch import DotProduct, Index

DIM = 4
NUM_IDS = 40
KEPT_VERSIONS = 3

Content: TypeAlias = dict[int, tuple[tuple[float, ...], str]]
"""The vector and the name of every item, by id."""


@dataclass(frozen=True)
class Change:
    """One call that changes an index, described by numbers that can be sent to another process."""

    kind: str
    ids: tuple[int, ...]
    number: int
    """Distinguishes the vectors of this change from those of all others."""

    @classmethod
    def draw(cls, choice: random.Random, content: Content, number: int) -> "Change":
        """Draw a change that the content allows."""
        absent = sorted(set(range(NUM_IDS)) - set(content))
        kinds = ["upsert", "compact", *(["add"] * 2 if absent else []), *(["remove"] if content else [])]
        kind = choice.choice(kinds)
        pool = {"add": absent, "remove": sorted(content), "upsert": list(range(NUM_IDS)), "compact": []}[kind]
        ids = choice.sample(pool, min(len(pool), choice.randint(1, 6)))
        return cls(kind, tuple(ids), number)

    def rows(self) -> Content:
        """Return the rows that this change brings."""
        return {
            item: ((float(item), float(self.number), float(item * self.number % 31), 0.5), f"{item} of {self.number}")
            for item in self.ids
        }

    def apply(self, index: Index) -> None:
        """Make the call."""
        if self.kind == "compact":
            index.compact()
        elif self.kind == "remove":
            index.remove(self._own_ids(index.has_keys))
        else:
            call = index.add if self.kind == "add" else index.upsert
            call(self._items(), self._own_ids(index.has_keys), metadata=self._metadata())

    def build(self, path: Path | None, *, has_keys: bool = False) -> Index:
        """Build an index of the rows that this change brings; with keys, its ids are strings."""
        ids = self._own_ids(has_keys)
        return Index.build(DotProduct(dim=DIM), self._items(), ids, path=path, metadata=self._metadata())

    def applied(self, content: Content) -> Content:
        """Return the content that the call must lead to."""
        if self.kind == "compact":
            return content
        if self.kind == "remove":
            return {item: row for item, row in content.items() if item not in self.ids}
        return content | self.rows()

    def _items(self) -> Tensor:
        return torch.tensor([vector for vector, _ in self.rows().values()])

    def _own_ids(self, has_keys: bool) -> list[str] | list[int]:
        return [f"item {item}" for item in self.ids] if has_keys else list(self.ids)

    def _metadata(self) -> pl.DataFrame:
        return pl.DataFrame({"name": [name for _, name in self.rows().values()]})


FIRST = Change("build", tuple(range(12)), 0)
"""The first content of the indexes in these tests."""


def read_content(index: Index) -> Content:
    """Return everything that an index holds, read by searches and from `metadata`."""
    if not len(index):
        return {}
    result = index.search(torch.eye(DIM), len(index))
    both = zip(result.ids.tolist(), result.scores.tolist(), strict=True)
    columns = [dict(zip(ids, scores, strict=True)) for ids, scores in both]
    assert all(sorted(column) == index.ids.tolist() for column in columns)
    assert index.metadata is not None
    names = dict(zip(index.ids.tolist(), index.metadata["name"], strict=True))
    own = [int(key.removeprefix("item ")) for key in index.keys] if index.has_keys else index.ids.tolist()
    return {
        item: (tuple(column[inside] for column in columns), names[inside])
        for item, inside in zip(own, index.ids.tolist(), strict=True)
    }


def read_manifest(path: Path) -> dict:
    """Return the body of a manifest; its checksum is not verified."""
    return json.loads(path.read_text().partition("\n")[2])


def stray_files(folder: Path) -> list[str]:
    """List files that no kept version of an index needs."""
    manifests = sorted((folder / "manifests").glob("*.json"))[-KEPT_VERSIONS:]
    needed = {"LOCK", "CURRENT", *(f"manifests/{path.name}" for path in manifests)}
    for path in manifests:
        needed |= set(read_manifest(path)["files"])
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and str(path.relative_to(folder)) not in needed
    )
