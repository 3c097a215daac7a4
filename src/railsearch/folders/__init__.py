"""Folders that railsearch writes and checks: sealed config, checksums, replace-or-refuse rule, model cards, openers."""

from railsearch.folders.card import SEGMENTS_PLOT, TRAINING_PLOT, ModelCard
from railsearch.folders.opening import format_of, open_folder, register_opener
from railsearch.folders.replacing import check_target, writing
from railsearch.folders.sealed import CARD_FILE, CONFIG_FILE, FolderFormat
from railsearch.folders.similarity_folder import load_similarity, save_similarity
from railsearch.folders.weights import WEIGHTS_FILE, check_shapes, fill, pack_weights, unpack_weights

__all__ = [
    "CARD_FILE",
    "CONFIG_FILE",
    "SEGMENTS_PLOT",
    "TRAINING_PLOT",
    "WEIGHTS_FILE",
    "FolderFormat",
    "ModelCard",
    "check_shapes",
    "check_target",
    "fill",
    "format_of",
    "load_similarity",
    "open_folder",
    "pack_weights",
    "register_opener",
    "save_similarity",
    "unpack_weights",
    "writing",
]
