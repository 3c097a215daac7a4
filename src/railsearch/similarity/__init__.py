"""Similarities: components, gate, mixture, and the dot product that they replace (the paper's section 2)."""

from railsearch.similarity.balance import load_balance_loss
from railsearch.similarity.configs import (
    CosineConfig,
    GateConfig,
    MixtureConfig,
    RegisteredConfig,
    SimilarityConfig,
    Start,
    similarity_from,
    similarity_tag,
)
from railsearch.similarity.contract import ConfigValue, Similarity, check_similarity
from railsearch.similarity.decomposition import Decomposition, decompose
from railsearch.similarity.dot_product import DotProduct
from railsearch.similarity.gate import GateActivation, GateInput
from railsearch.similarity.late_interaction import LateInteraction
from railsearch.similarity.mixture import MixtureOfLogits
from railsearch.similarity.parts import Comparison, ItemParts, QueryParts, all_pairs, best_pairs, own_pairs
from railsearch.similarity.projection import Projection
from railsearch.similarity.registry import fingerprint, is_continued, register_similarity, registered_kinds
from railsearch.similarity.user_table import NO_USER
from railsearch.similarity.widening import widen

__all__ = [
    "NO_USER",
    "Comparison",
    "ConfigValue",
    "CosineConfig",
    "Decomposition",
    "DotProduct",
    "GateActivation",
    "GateConfig",
    "GateInput",
    "ItemParts",
    "LateInteraction",
    "MixtureConfig",
    "MixtureOfLogits",
    "Projection",
    "QueryParts",
    "RegisteredConfig",
    "Similarity",
    "SimilarityConfig",
    "Start",
    "all_pairs",
    "best_pairs",
    "check_similarity",
    "decompose",
    "fingerprint",
    "is_continued",
    "load_balance_loss",
    "own_pairs",
    "register_similarity",
    "registered_kinds",
    "similarity_from",
    "similarity_tag",
    "widen",
]
