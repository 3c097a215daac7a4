"""Passages to index: ids and texts from several forms, encoded batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.data import QuestionPassages
from railsearch.encoders.text.tokens import check_texts
from railsearch.foundation.errors import IdExistsError, InvalidInputError
from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.matched_parts import ENDS, STARTS, TEXT
from railsearch.foundation.results import ItemBatch, ItemBatches
from railsearch.index.numbering import Numbering
from railsearch.models import TextModel

if TYPE_CHECKING:
    from polars import DataFrame

PASSAGES_PER_BATCH = 2048
"""Passages whose components are in memory at once while an index is built."""
TEXT_COLUMN = TEXT
"""Column of the texts in the metadata of an index."""

PassagesLike = TypeAliasType("PassagesLike", Sequence[str] | Mapping[str, str] | Mapping[int, str] | QuestionPassages)


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """Texts of passages that were checked, and their ids; None if they have none."""

    ids: list[str] | list[int] | None
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    def encode(self, model: TextModel, on_rows: Callable[[float], None]) -> ItemBatches:
        """Encode the passages batch by batch, with their texts as metadata; `on_rows` counts those that are done."""
        if not len(self):
            raise InvalidInputError("passages is empty; give at least 1 passage.")
        return ItemBatches(_encoded_batches(model, self, on_rows), len(self))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPassages:
    """Passages that were encoded before: batches of components, ids and texts, and the number of passages."""

    batches: Iterable[ItemBatch]
    num_passages: int

    def __len__(self) -> int:
        return self.num_passages

    def encode(self, model: TextModel, on_rows: Callable[[float], None]) -> ItemBatches:
        """Return the batches as they are; `model` must be the one that encoded them."""
        del model
        return ItemBatches(_counted(self.batches, on_rows), len(self))


def as_passages(passages: PassagesLike) -> Passages:
    """Check texts and ids of passages; a list of texts has no ids."""
    found = _ids_and_texts(passages)
    check_texts(found.texts, ids=found.ids)
    if found.ids is not None:
        Numbering().number(found.ids, len(found))  # raises if they are wrong
    return found


def _ids_and_texts(passages: PassagesLike) -> Passages:
    given: object = passages
    if isinstance(given, QuestionPassages):
        return Passages(list(given.passage_ids), given.passages)
    if isinstance(given, Mapping):
        return Passages(list(given), list(given.values()))
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Passages(None, given)
    raise InvalidInputError(
        f"passages is a {type(passages).__name__}; give a list of texts, a mapping from ids to texts, or "
        "QuestionPassages."
    )


class HasIds(Protocol):
    """An index whose ids can be found."""

    @property
    def has_keys(self) -> bool:
        """Whether the ids are strings."""
        ...

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,); -1 for those that are not there."""
        ...


def check_new(passages: Passages, index: HasIds) -> None:
    """Refuse passages whose ids are in the index, before they are encoded."""
    if passages.ids is None:
        if index.has_keys:
            raise InvalidInputError(
                "passages is a list without ids but the ids of this index are strings; give a mapping of ids to texts."
            )
        return
    is_known = index.find(passages.ids) >= 0  # (n,)
    if bool(is_known.any()):
        first = passages.ids[int(is_known.nonzero()[0])]
        raise IdExistsError(
            f"passage {first!r:.80} is already in the index ({int(is_known.sum())} of {len(passages)} passages are); "
            "use upsert to replace passages."
        )


def _counted(batches: Iterable[ItemBatch], on_rows: Callable[[float], None]) -> Iterator[ItemBatch]:
    for batch in batches:
        yield batch
        on_rows(len(batch.items))  # type: ignore[arg-type]  # components (n, Px, d)


def _encoded_batches(model: TextModel, passages: Passages, on_rows: Callable[[float], None]) -> Iterator[ItemBatch]:
    for first in range(0, len(passages), PASSAGES_PER_BATCH):
        rows = slice(first, first + PASSAGES_PER_BATCH)
        components, table = encode_table(model, passages.texts[rows], on_rows)
        yield ItemBatch(components, None if passages.ids is None else passages.ids[rows], table)


def encode_table(
    model: TextModel, texts: Sequence[str], on_texts: Callable[[float], None] | None = None
) -> "tuple[Tensor, DataFrame]":
    """Return the components of texts, and their metadata: the texts, and where each window is if there are windows."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    components, spans = model.locate_passages(texts, on_texts)  # (n, Px, d), (n, Px, 2)
    table = pl.DataFrame({TEXT_COLUMN: list(texts)})
    if spans is None:
        return components, table
    places = {name: spans[..., place].tolist() for place, name in enumerate((STARTS, ENDS))}
    return components, table.with_columns(pl.Series(name, own, dtype=pl.List(pl.Int64)) for name, own in places.items())
