"""The registry of similarities: a registered class can be saved, loaded, indexed on disk and named in a recipe."""

import inspect
import re
from collections.abc import Mapping
from typing import TypeVar

from torch import nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.similarity.contract import ConfigValue, Similarity
from railsearch.similarity.dot_product import DotProduct
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.similarity.late_interaction import LateInteraction
from railsearch.similarity.mixture import MixtureOfLogits

Kind = TypeVar("Kind", bound=type[nn.Module])

KIND_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
RECIPE_NAMES = frozenset({"cosine"})
"""Names of similarities in recipes that have their own class of settings."""

_kinds: dict[str, type[nn.Module]] = {}


def register_similarity(similarity: Kind) -> Kind:
    """Register a class of similarities under its `kind`; use it as a decorator.

    The class is an `nn.Module` that keeps the contract (`railsearch.similarity.Similarity`). Its constructor takes
    keyword arguments only, and `config` returns the arguments that build the same module again. Registration is part
    of the program, not of the folder: a program that loads such a similarity must import the module that registers it.
    `railsearch.testing.check_similarity_contract` checks an instance against the contract.

    >>> @register_similarity
    ... class OwnDotProduct(DotProduct):
    ...     kind = "own_dot_product"
    >>> fingerprint(OwnDotProduct(dim=2)) == fingerprint(DotProduct(dim=2))
    False
    """
    given: object = similarity
    if not isinstance(given, type) or not issubclass(given, nn.Module):
        raise InvalidInputError(f"{similarity!r} is not a class of torch modules; register the class itself.")
    kind = vars(similarity).get("kind")
    if not isinstance(kind, str) or not KIND_NAME.fullmatch(kind):
        raise InvalidInputError(
            f"{similarity.__name__}.kind is {kind!r}; give it its own kind: lower-case letters, digits and _."
        )
    if not isinstance(inspect.getattr_static(similarity, "config", None), property):
        raise InvalidInputError(f"{similarity.__name__} has no property `config`; return its keyword arguments there.")
    for name, parameter in _parameters(similarity).items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise InvalidInputError(
                f"argument {name} of {similarity.__name__} is not keyword-only; put * before it in __init__."
            )
    known = _kinds.get(kind)
    is_same = known is not None and (known.__module__, known.__qualname__) == (
        similarity.__module__,
        similarity.__qualname__,
    )
    if kind in RECIPE_NAMES or (known is not None and not is_same):  # a notebook cell may run again
        taken = "the recipes' cosine" if known is None else known.__name__
        raise InvalidInputError(f"kind {kind!r} of {similarity.__name__} belongs to {taken}; choose another kind.")
    _kinds[kind] = similarity
    return similarity


def registered_kinds() -> tuple[str, ...]:
    """Return the kinds of all registered similarities, sorted."""
    return tuple(sorted(_kinds))


def kind_of(similarity: Similarity) -> str:
    """Return the kind that a similarity's class is registered under; refuse one that is not registered."""
    own: type = type(similarity)
    kind = getattr(own, "kind", None)
    if isinstance(kind, str) and _kinds.get(kind) is own:
        return kind
    raise InvalidInputError(
        f"{type(similarity).__name__} cannot be named or saved: it is not registered; decorate the class with "
        f"register_similarity (registered kinds: {', '.join(registered_kinds())})."
    )


def is_registered(kind: object) -> bool:
    """Return True if a similarity is registered under this kind."""
    return isinstance(kind, str) and kind in _kinds


def settings_of(kind: str) -> dict[str, inspect.Parameter]:
    """Return the keyword arguments of a registered similarity by name."""
    return _parameters(_kinds[kind])


def required_settings(kind: str) -> list[str]:
    """Return the names of the arguments of a registered similarity that have no default."""
    return [name for name, parameter in settings_of(kind).items() if parameter.default is inspect.Parameter.empty]


def build_similarity(
    kind: str, settings: Mapping[str, ConfigValue], given: Mapping[str, ConfigValue] | None = None
) -> Similarity:
    """Build a registered similarity from its keyword arguments.

    Args:
        kind: the registered name.
        settings: keyword arguments, such as `config` returned.
        given: values for arguments that `settings` does not set; those that the constructor does not have are ignored.
    """
    known = settings_of(kind)
    filled = {name: value for name, value in (given or {}).items() if name in known and name not in settings}
    similarity = _kinds[kind](**settings, **filled)
    assert isinstance(similarity, Similarity)
    return similarity


def is_continued(similarity: Similarity, start: Similarity) -> bool:
    """Return whether training can continue a similarity: same kind and settings, apart from dropout and temperature.

    A user table may have more rows than that of the start.

    >>> is_continued(DotProduct(dim=2, temperature=0.1), DotProduct(dim=2)), is_continued(
    ...     DotProduct(dim=2, cosine=True), DotProduct(dim=2)
    ... )
    (True, False)
    """
    ours, theirs = (
        {name: value for name, value in each.config.items() if name != "temperature" and "dropout" not in name}
        for each in (similarity, start)
    )
    size, start_size = ours.pop("user_table_size", None), theirs.pop("user_table_size", None)
    is_large_enough = (
        size >= start_size if isinstance(size, int) and isinstance(start_size, int) else size == start_size
    )
    return type(similarity) is type(start) and ours == theirs and is_large_enough


def fingerprint(similarity: Similarity) -> str:
    """Return the name of a similarity's content: sha256 over kind, config, and name, type, shape and bytes of tensors.

    >>> fingerprint(DotProduct(dim=2)) == fingerprint(DotProduct(dim=2))
    True
    >>> fingerprint(DotProduct(dim=2)) == fingerprint(DotProduct(dim=2, cosine=True))
    False
    """
    return compute_fingerprint(kind_of(similarity), similarity.config, similarity.state_dict())


def _parameters(similarity: type[nn.Module]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(similarity.__init__).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


register_similarity(MixtureOfLogits)
register_similarity(DotProduct)
register_similarity(LateInteraction)
