"""Bodies of requests: checked settings, and limits before any work."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.settings import Config
from railsearch.index.rules import MaxPer, Rules
from railsearch.server.encoding import INPUTS
from railsearch.server.limits import Limits

FIRST = Field(fail_fast=True)
"""Of a list with many wrong values, only the first is reported."""
IdNumber = Annotated[int, Field(ge=-(2**63), lt=2**63)]
IdText = Annotated[str, Field(max_length=10_000)]
Ids = Annotated[list[IdNumber], FIRST] | Annotated[list[IdText], FIRST]
Texts = Annotated[list[str], FIRST]
Column = Annotated[str, Field(max_length=1000)]
Columns = Annotated[list[Column], FIRST]
NUMBERS = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}


class Body(Config):
    """A JSON object; values are never converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """Check the members of a JSON object; only the first of many wrong values is reported."""
        unknown = next((name for name in members if name not in cls.model_fields), None)
        if unknown is not None:
            raise InvalidInputError(
                f"{unknown:.80} is not a setting; choose from: {', '.join(sorted(cls.model_fields))}."
            )
        return cls(**members)


class Inputs(Body):
    """Queries in one of four forms."""

    embeddings: Annotated[
        object, Field(description="B x D numbers, or B x Pq x d components.", json_schema_extra=NUMBERS)
    ] = None
    texts: Annotated[Texts | None, Field(description="B texts, if the model encodes texts.")] = None
    histories: Annotated[
        Annotated[list[Ids], FIRST] | None, Field(description="B lists of item ids, oldest first.")
    ] = None
    users: Annotated[Ids | None, Field(description="B ids of users, if the server has their histories.")] = None

    def chosen(self, limits: Limits) -> tuple[str, list[object]]:
        """Return the name and the values of the one input that was given; check how many there are."""
        given = [name for name in INPUTS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} were given" if given else "no query was given"
            raise InvalidInputError(f"{found}; give exactly one of: {', '.join(INPUTS)}.")
        name = given[0]
        values = getattr(self, name)
        if not hasattr(values, "__len__") or isinstance(values, (str, dict)):
            raise InvalidInputError(f"{name} is {values!r:.80}; give a list with one entry for each query.")
        if not len(values):
            raise InvalidInputError(f"{name} is empty; give at least one query.")
        limits.check("max_queries", len(values), f"the number of {name}")
        if name == "texts":
            limits.check("max_text_length", max(map(len, values)), "the length of a text")
        if name == "histories":
            limits.check("max_history_length", max(map(len, values)), "the length of a history")
        return name, values


class Limit(Body):
    """The most hits of one value of a column."""

    limit: Annotated[int, Field(ge=1)]
    separator: Annotated[
        str | None, Field(min_length=1, max_length=100, description="Cuts a text into several values, such as |.")
    ] = None


class SearchBody(Inputs):
    """A search: queries, and how to answer them."""

    k: Annotated[int, Field(ge=1, description="Items for each query.")] = 10
    strategy: Annotated[
        str | None,
        Field(max_length=200, description="Such as Average(500); null for the tuned one of this k, or brute force."),
    ] = None
    allow: Annotated[
        str | Ids | None, Field(description='A condition such as "year >= 2000", or ids; only these are searched.')
    ] = None
    exclude: Annotated[
        Annotated[list[Ids | None], FIRST] | None, Field(description="Ids that each query must not find.")
    ] = None
    max_per: Annotated[
        dict[Column, int | Limit] | None,
        Field(max_length=16, description='The most hits of one value of a column: {"genre": 2}.'),
    ] = None
    diversity: Annotated[
        float, Field(ge=0, le=1, description="Re-rank the best items so that they differ more, from 0 to 1.")
    ] = 0.0
    pool: Annotated[
        int | None, Field(ge=1, description="Best items that max_per and diversity choose from; 4 k, at least 100.")
    ] = None
    filter_viewed: Annotated[bool, Field(description="Exclude the items of histories and users.")] = True
    pad: Annotated[bool, Field(description="Answer fewer than k hits if filters leave fewer.")] = False
    partial: Annotated[
        Literal["refuse", "allow"], Field(description="Answer from the other shards if a shard does not answer.")
    ] = "refuse"
    fields: Annotated[Columns | Literal["all"] | None, Field(description="Metadata to return with each hit.")] = None
    explain: Annotated[int, Field(ge=0, description="Explain this many of the best hits of each query.")] = 0
    timeout_ms: Annotated[int, Field(ge=1, description="The longest wait in the queue.")] = 10_000
    ids: Annotated[Literal["number", "string"], Field(description="Write integer ids as strings.")] = "number"

    @property
    def rules(self) -> Rules:
        """The rules of the answers, checked."""
        limits = {
            column: limit if isinstance(limit, int) else MaxPer(limit.limit, separator=limit.separator)
            for column, limit in (self.max_per or {}).items()
        }
        return Rules.of(limits, self.diversity, self.pool)

    def check(self, limits: Limits, num_queries: int) -> None:
        """Check the limits of this server."""
        if self.pool is not None:
            limits.check("max_pool", self.pool, "pool")
        limits.check("max_k", self.k, "k")
        limits.check("max_hits", self.k * num_queries, "k times the number of queries")
        limits.check("max_explained", self.explain, "explain")
        explained = min(self.explain, self.k) * num_queries
        limits.check("max_explained_hits", explained, "explain times the number of queries")
        limits.check("max_timeout_ms", self.timeout_ms, "timeout_ms")
        if isinstance(self.allow, list):
            limits.check("max_allowed", len(self.allow), "the number of ids in allow")
        if self.exclude is not None:
            if len(self.exclude) != num_queries:
                raise InvalidInputError(
                    f"exclude has {len(self.exclude)} lists but there are {num_queries} queries; give one for each."
                )
            most = max((len(own) for own in self.exclude if own is not None), default=0)
            limits.check("max_excluded", most, "the number of ids in exclude of a query")


class ExplainBody(Inputs):
    """An explanation of the scores of some items for one query."""

    item_ids: Annotated[Ids, Field(min_length=1, description="1 to 100 ids of items.")]
    fields: Annotated[Columns | Literal["all"] | None, Field(description="Metadata to return.")] = None
    ids: Literal["number", "string"] = "number"


class SimilarBody(Body):
    """Items whose most similar ones are asked for."""

    item_ids: Annotated[Ids, Field(min_length=1, description="1 to 32 ids of items.")]
    k: Annotated[int, Field(ge=1, description="Similar items for each item.")] = 10
    allow: Annotated[
        str | Ids | None, Field(description='A condition such as "year >= 2000", or ids; only these are searched.')
    ] = None
    exclude: Annotated[Ids | None, Field(description="Ids that no answer may hold.")] = None
    pad: Annotated[bool, Field(description="Answer fewer than k hits if filters leave fewer.")] = False
    fields: Annotated[Columns | Literal["all"] | None, Field(description="Metadata to return with each hit.")] = None
    ids: Annotated[Literal["number", "string"], Field(description="Write integer ids as strings.")] = "number"

    def check(self, limits: Limits) -> None:
        """Check the limits of this server."""
        limits.check("max_similar_items", len(self.item_ids), "the number of item_ids")
        limits.check("max_k", self.k, "k")
        if isinstance(self.allow, list):
            limits.check("max_allowed", len(self.allow), "the number of ids in allow")
        if self.exclude is not None:
            limits.check("max_excluded", len(self.exclude), "the number of ids in exclude")


class ItemsBody(Body):
    """Items to add or replace."""

    ids: Ids | None = None
    embeddings: Annotated[
        object, Field(description="N x D numbers, or N x Px x d components.", json_schema_extra=NUMBERS)
    ] = None
    texts: Annotated[Texts | None, Field(description="N passages, if the model encodes texts.")] = None
    metadata: Annotated[
        Annotated[list[dict[str, object]], FIRST] | None, Field(description="One object for each item.")
    ] = None


class RemoveBody(Body):
    """Items to remove."""

    ids: Ids
    missing_ok: Annotated[bool, Field(description="Ignore ids that are not in the index.")] = False


class TuneBody(Inputs):
    """Sample queries, and the recall that a strategy must reach."""

    k: Annotated[int, Field(ge=1)] = 10
    target_recall: Annotated[float, Field(gt=0, lt=1)] = 0.99
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
