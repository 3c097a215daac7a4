"""The libraries transformers and tokenizers, which are optional: only this file imports them."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from railsearch.foundation.extras import missing_extra

if TYPE_CHECKING:  # other files import these classes from here
    from transformers import PretrainedConfig as PretrainedConfig  # noqa: PLC0414
    from transformers import PreTrainedModel as PreTrainedModel  # noqa: PLC0414
    from transformers import PreTrainedTokenizerBase as PreTrainedTokenizerBase  # noqa: PLC0414
    from transformers import PreTrainedTokenizerFast as PreTrainedTokenizerFast  # noqa: PLC0414


def import_transformers() -> ModuleType:
    """Import and return transformers; the error if it is missing says how to install it."""
    try:
        import transformers  # noqa: PLC0415  (optional: imported only if it is used)
    except ImportError as error:
        raise missing_extra("transformers", "text") from error
    return transformers


def add_lowercasing(tokenizer: "PreTrainedTokenizerFast") -> None:
    """Let a tokenizer lowercase every text first."""
    from tokenizers.normalizers import Lowercase, Sequence  # noqa: PLC0415  (optional: imported only if it is used)

    backend = tokenizer.backend_tokenizer
    backend.normalizer = Lowercase() if backend.normalizer is None else Sequence([Lowercase(), backend.normalizer])


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Turn off the progress bars and warnings of transformers, and restore both afterwards."""
    log = transformers.utils.logging
    level, has_bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if has_bars:
            log.enable_progress_bar()
