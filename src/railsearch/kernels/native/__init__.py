"""Kernels in C++ for CPUs: compiled when railsearch is installed, if there is a compiler."""

from railsearch.kernels.native.attention import AttentionPlan, has_attention, native_attention
from railsearch.kernels.native.dropout import has_dropout, native_dropout
from railsearch.kernels.native.forms import can_compute, has_plain_gate
from railsearch.kernels.native.int8 import Int8Table, can_use_int8
from railsearch.kernels.native.kernel import NativeKernel
from railsearch.kernels.native.layers import can_project, item_parts, query_parts
from railsearch.kernels.native.library import ISA_VARIABLE, chosen_isa, is_available, usable_isas, why_missing
from railsearch.kernels.native.lists import can_select, select_best, unite
from railsearch.kernels.native.scan import scan
from railsearch.kernels.native.training import can_train, has_training, native_mixture
from railsearch.kernels.native.training_softmax import SharedSoftmax, can_share_softmax, shared_softmax

__all__ = [
    "ISA_VARIABLE",
    "AttentionPlan",
    "Int8Table",
    "NativeKernel",
    "SharedSoftmax",
    "can_compute",
    "can_project",
    "can_select",
    "can_share_softmax",
    "can_train",
    "can_use_int8",
    "chosen_isa",
    "has_attention",
    "has_dropout",
    "has_plain_gate",
    "has_training",
    "is_available",
    "item_parts",
    "native_attention",
    "native_dropout",
    "native_mixture",
    "query_parts",
    "scan",
    "select_best",
    "shared_softmax",
    "unite",
    "usable_isas",
    "why_missing",
]
