"""Export of the query side to ONNX: from a padded history to a query, for services in other languages."""

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from railsearch.foundation.errors import InvalidInputError, StorageError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.files import new_file
from railsearch.foundation.json_values import JsonValue, as_json_value
from railsearch.models import QueryGraph, SequentialModel
from railsearch.models.query_graph import PADDED
from railsearch.recommender.answers import index_ids
from railsearch.recommender.folder import SavedRecommender

OPSET = 18
LARGEST_GRAPH = 2**31 - 2**20
"""Bytes. A single ONNX file cannot be larger than 2 GiB."""


@dataclass(frozen=True, slots=True)
class ExportedQuery:
    """The two files of an export, and the inputs and outputs of the graph."""

    graph: Path
    """The ONNX file."""
    contract: Path
    """A JSON file beside it: inputs, outputs, the longest history, and the row of each item and user."""
    inputs: dict[str, str]
    """Name and shape of each input; all are int64."""
    outputs: dict[str, str]
    """Name and shape of each output; all are fp32."""
    fingerprint: str
    """Fingerprint of the model."""

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON values."""
        return {
            "graph": str(self.graph),
            "contract": str(self.contract),
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "model": self.fingerprint,
        }


def export_query(saved: SavedRecommender, target: Path, *, overwrite: bool) -> ExportedQuery:
    """Write the query side of a model as ONNX, and its contract as JSON beside it; see `Recommender.export`."""
    model, contract = saved.model, target.with_suffix(".json")
    _check_target(target, contract, overwrite=overwrite)
    _check_extra()
    _check_size(model)
    graph = QueryGraph(model)
    exported = ExportedQuery(target, contract, _inputs(graph), _outputs(graph, model), saved.fingerprint)
    content: dict[str, JsonValue] = {
        "format": "railsearch.query",
        "format_version": 1,
        "model": saved.fingerprint,
        "max_length": model.encoder.max_length,
        "inputs": dict(exported.inputs),
        "outputs": dict(exported.outputs),
        "items": [as_json_value(item) for item in saved.items["item"]],
        "index_ids": [*index_ids(saved.items).tolist()],
    }
    if saved.user_ids is not None:
        content["users"] = [as_json_value(user) for user in saved.user_ids]
    try:
        with new_file(target) as file:
            _write(graph, file)
        with new_file(contract) as file:
            file.write_text(json.dumps(content) + "\n")
    except OSError as error:
        raise StorageError(f"{target} cannot be written ({error.strerror or error}); choose another path.") from error
    return exported


def _inputs(graph: QueryGraph) -> dict[str, str]:
    return {name: "(batch, length)" if name in PADDED else "(batch)" for name in graph.input_names}


def _outputs(graph: QueryGraph, model: SequentialModel) -> dict[str, str]:
    similarity = model.similarity
    num_pairs = similarity.num_query_components * similarity.num_item_components
    components = f"(batch, {similarity.num_query_components}, {similarity.component_dim})"
    shapes = {"embeddings": f"(batch, {model.encoder.dim})", "components": components, "gate": f"(batch, {num_pairs})"}
    return {name: shapes[name] for name in graph.output_names}


def _write(graph: QueryGraph, file: Path) -> None:
    """Trace the graph and write it as one file, with any number of histories of any length."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=graph.encoder.max_length)
    examples = graph.examples()
    with _quietly():
        program = torch.onnx.export(
            graph,
            (),
            kwargs=examples,
            dynamo=True,
            opset_version=OPSET,
            input_names=list(graph.input_names),
            output_names=list(graph.output_names),
            dynamic_shapes={name: {0: batch, 1: length} if name in PADDED else {0: batch} for name in examples},
            verbose=False,
        )
        assert program is not None
        program.save(str(file), external_data=False)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the exporter of torch, which warns of its own deprecations and of libraries that are not needed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _check_target(target: Path, contract: Path, *, overwrite: bool) -> None:
    if target.suffix.lower() != ".onnx":
        raise InvalidInputError(f"{target} ends in {target.suffix!r}; give a file that ends in .onnx.")
    if not target.parent.is_dir():
        raise InvalidInputError(f"{target} cannot be written: there is no folder {target.parent}; create it first.")
    for file in (target, contract):
        if file.exists() and not overwrite:
            raise InvalidInputError(f"{file} already exists; choose another path or pass overwrite=True.")


def _check_extra() -> None:
    for library in ("onnx", "onnxscript"):
        if importlib.util.find_spec(library) is None:
            raise missing_extra(library, "onnx")


def _check_size(model: SequentialModel) -> None:
    size = sum(4 * weight.numel() for weight in model.state_dict().values())
    if size > LARGEST_GRAPH:
        raise InvalidInputError(
            f"the weights take {size:,} bytes but an ONNX file holds at most {LARGEST_GRAPH:,}; serve this model with "
            "`railsearch serve`."
        )
