"""A tuned strategy, with the recall that was measured for it, as the text that an index stores."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.recall import ExpectedRecall
from railsearch.index.strategy_text import format_strategy, parse_strategy

if TYPE_CHECKING:
    from railsearch.index.engines import Engine
    from railsearch.index.strategies import Strategy

MEASURED = re.compile(
    r"(?P<strategy>[^;]*); recall >= (?P<recall>[01]\.\d{1,17}) with confidence (?P<confidence>0\.\d{1,17}) "
    r"at version (?P<version>\d{1,18})"
)


def tuned_for(k: int, engine: "Engine") -> str:
    """Return the key of a tuned strategy: with another engine it would find other items, at another cost."""
    return f"k = {k}, {engine.key}"


@dataclass(frozen=True, slots=True)
class TunedStrategy:
    """The strategy that `tune` chose, and the recall that it established on its sample."""

    strategy: "Strategy"
    expected_recall: ExpectedRecall | None = None
    """None if the strategy is exact, or if an earlier railsearch stored it."""

    def __str__(self) -> str:
        text, measured = format_strategy(self.strategy), self.expected_recall
        if measured is None:
            return text
        return (
            f"{text}; recall >= {measured.recall:.6f} with confidence {measured.confidence:.6f} "
            f"at version {measured.version}"
        )

    def recall_of(self, strategy: "Strategy", *, is_filtered: bool) -> ExpectedRecall | None:
        """Return the recall that is expected of a search; None for another strategy, and with filters."""
        return self.expected_recall if self.strategy == strategy and not is_filtered else None

    @classmethod
    def parse(cls, text: str) -> "TunedStrategy":
        """Read the text that `str` returns; raises InvalidInputError if it is none.

        >>> print(TunedStrategy.parse("Average(500); recall >= 0.991000 with confidence 0.950000 at version 8"))
        Average(500); recall >= 0.991000 with confidence 0.950000 at version 8
        """
        found = MEASURED.fullmatch(text)
        if found is None:
            if ";" in text:
                raise InvalidInputError(f"{text!r:.80} is not a tuned strategy; tune the index again.")
            return cls(parse_strategy(text))
        measured = ExpectedRecall(float(found["recall"]), float(found["confidence"]), int(found["version"]))
        return cls(parse_strategy(found["strategy"]), measured)
