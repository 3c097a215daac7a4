INTERFACE: int

class Form:
    def __init__(
        self,
        *,
        num_query_components: int,
        num_item_components: int,
        dim: int,
        hidden_dim: int,
        has_query_gate: bool,
        has_item_gate: bool,
        has_silu: bool,
        is_mixture: bool,
        is_late_interaction: bool,
        absent_gate: float,
        temperature: float,
        hidden_weight: int,
        hidden_bias: int,
        output_weight: int,
        output_bias: int,
    ) -> None: ...

class Layer:
    def __init__(
        self, isa: str, activation: int, weight: int, bias: int, output_dim: int, input_dim: int, /
    ) -> None: ...
    def apply(self, isa: str, num_threads: int, inputs: int, count: int, results: int, stride: int, /) -> None: ...

def normalize(isa: str, num_threads: int, rows: int, count: int, dim: int, epsilon: float, /) -> None: ...

class Items:
    def __init__(self, number: int) -> None: ...
    def add(self, components: int, stride: int, gate: int, gate_stride: int, count: int) -> None: ...
    def __len__(self) -> int: ...

class Filter:
    def __init__(
        self, is_allowed: int = ..., queries: int = ..., rows: int = ..., num_pairs: int = ..., num_queries: int = ...
    ) -> None: ...

def score(
    isa: str,
    num_threads: int,
    form: Form,
    components: int,
    gate: int,
    num_queries: int,
    items: Items,
    is_bound: bool,
    out: int,
    stride: int,
    /,
) -> bool: ...
def top_k(
    isa: str,
    num_threads: int,
    form: Form,
    components: int,
    gate: int,
    num_queries: int,
    items: Items,
    row_filter: Filter,
    k: int,
    scores: int,
    rows: int,
    /,
) -> bool: ...
def top_k_above(
    isa: str,
    num_threads: int,
    form: Form,
    components: int,
    gate: int,
    num_queries: int,
    items: Items,
    row_filter: Filter,
    k: int,
    thresholds: int,
    scores: int,
    rows: int,
    num_scored: int,
    best_skipped: int,
    /,
) -> bool: ...
def best_by_component(
    isa: str,
    num_threads: int,
    form: Form,
    components: int,
    num_queries: int,
    items: Items,
    row_filter: Filter,
    n: int,
    m: int,
    scores: int,
    rows: int,
    bounds: int,
    bound_rows: int,
    /,
) -> bool: ...
def score_candidates(
    isa: str,
    num_threads: int,
    form: Form,
    components: int,
    gate: int,
    num_queries: int,
    items: Items,
    rows: int,
    width: int,
    out: int,
    /,
) -> bool: ...
def scan(
    isa: str,
    num_threads: int,
    vectors: int,
    num_vectors: int,
    group: int,
    dim: int,
    items: Items,
    row_filter: Filter,
    n: int,
    scores: int,
    rows: int,
    bounds: int,
    stride: int,
    /,
) -> None: ...

class Int8Table:
    def __init__(self, isa: str, num_threads: int, items: Items, dim: int, /) -> None: ...
    @property
    def is_usable(self) -> bool: ...
    @property
    def num_bytes(self) -> int: ...

def scan_int8(
    isa: str,
    num_threads: int,
    vectors: int,
    num_vectors: int,
    group: int,
    table: Int8Table,
    items: Items,
    row_filter: Filter,
    n: int,
    scores: int,
    rows: int,
    /,
) -> None: ...
def bound_int8(
    isa: str,
    vectors: int,
    num_vectors: int,
    table: Int8Table,
    thresholds: int,
    low: int,
    high: int,
    is_reached: int,
    /,
) -> bool: ...
def select_best(
    isa: str,
    num_threads: int,
    scores: int,
    ties: int,
    count: int,
    width: int,
    k: int,
    best: int,
    columns: int,
    /,
) -> None: ...
def unite(
    isa: str,
    num_threads: int,
    rows: int,
    count: int,
    width: int,
    united: int,
    is_real: int,
    counts: int,
    /,
) -> None: ...

class TrainingStep:
    def __init__(
        self,
        *,
        num_queries: int,
        num_items: int,
        num_query_components: int,
        num_item_components: int,
        hidden_dim: int,
        has_silu: bool,
        has_own_items: bool,
        scores: int,
        query_gate: int,
        item_gate: int,
        seed: int,
        dropped: int,
    ) -> None: ...

def mix_in_training(isa: str, num_threads: int, step: TrainingStep, weights: list[int], mixed: int, /) -> None: ...
def mix_backward(
    isa: str,
    num_threads: int,
    step: TrainingStep,
    weights: list[int],
    upstream: int,
    gradients: list[int],
    /,
) -> None: ...
def shared_softmax(
    *,
    isa: str,
    num_threads: int,
    num_queries: int,
    num_items: int,
    dim: int,
    weight: float,
    queries: int,
    rights: int,
    own: int,
    excluded: int,
    excluded_rows: int,
    items: int,
    offsets: int,
    to_queries: int,
    to_rights: int,
    to_items: int,
) -> float: ...

class AttentionStep:
    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        inputs: int,
        distance_bias: int,
        time_bias: int,
        scale: float,
        epsilon: float,
        seed: int,
        dropped: int,
    ) -> None: ...

class AttentionPlan:
    def __init__(
        self,
        isa: str,
        num_threads: int,
        lengths: int,
        num_histories: int,
        times: int,
        next_times: int,
        bounds: int,
        num_buckets: int,
        /,
    ) -> None: ...
    def forward(self, isa: str, num_threads: int, step: AttentionStep, attended: int, outputs: int, /) -> None: ...
    def backward(
        self,
        isa: str,
        num_threads: int,
        step: AttentionStep,
        attended: int,
        upstream: int,
        to_inputs: int,
        to_distances: int,
        num_distances: int,
        to_times: int,
        /,
    ) -> None: ...

def drop(isa: str, num_threads: int, values: int, count: int, seed: int, dropped: int, results: int, /) -> None: ...
def usable_isas() -> list[str]: ...
def agrees_with_portable(isa: str, /) -> bool: ...
def exponential(isa: str, values: int, count: int, results: int, /) -> None: ...
def silu(isa: str, values: int, count: int, results: int, /) -> None: ...
