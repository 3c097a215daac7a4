"""The library that pretrained language models come with, if it is installed; quiet while it reads them."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from railsearch.foundation.errors import MissingExtraError


def import_transformers() -> ModuleType:
    """Import transformers, or say how to install it."""
    try:
        import transformers  # noqa: PLC0415  (an extra: only who asks for it needs it)
    except ImportError as error:
        raise MissingExtraError("transformers is not installed; pip install 'railsearch[text]'.") from error
    return transformers


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Keep transformers from drawing bars and from warning of weights that are not used, and restore both."""
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
