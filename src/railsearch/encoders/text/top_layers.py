"""Train only the top layers of a pretrained model: the outputs of the layers below are computed once for each text."""

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
import xxhash
from torch import Generator, Tensor, nn

from railsearch.encoders.text.backbone import eval_mode, run, vocabulary_table
from railsearch.encoders.text.settings import Pooling, Side
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from railsearch.encoders.text.encoder import TextEncoder
    from railsearch.encoders.text.pretrained import PreTrainedModel


class LowerOutputs:
    """The outputs of frozen layers, by the token ids of a text; in memory, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._found: dict[bytes, Tensor] = {}  # (n, D) each

    def get(self, ids: Sequence[int], *, is_mixed: bool = False) -> Tensor | None:
        """Return the outputs (n, D) of a text that was kept; those of mixed precision are kept apart."""
        return self._found.get(_key(ids, is_mixed))

    def keep(self, ids: Sequence[int], outputs: Tensor, *, is_mixed: bool = False) -> None:
        """Keep the outputs (n, D) of a text, if there is room."""
        size, key = outputs.numel() * outputs.element_size(), _key(ids, is_mixed)
        if self.num_bytes + size <= self.most_bytes and key not in self._found:
            self._found[key] = outputs.clone()
            self.num_bytes += size


_SHARED: WeakValueDictionary[str, LowerOutputs] = WeakValueDictionary()
"""Outputs by the digest of the frozen weights: models that are trained from the same base share them."""


class TopLayers:
    """A pretrained model whose lower layers are frozen, without dropout, and whose top layers are trained.

    The outputs of the lower layers are computed for one text at a time, so they do not depend on its batch: a run that
    resumes has the same ones.

    Args:
        backbone: the pretrained model.
        trained_layers: number of top layers that are trained; 0 freezes the model.
        most_bytes: memory for outputs of the lower layers; those of further texts are computed each time.
    """

    def __init__(self, backbone: "PreTrainedModel", *, trained_layers: int, most_bytes: int) -> None:
        self._backbone = backbone
        self._holder, self._name, self._layers = _find_layers(backbone)
        if trained_layers >= len(self._layers):
            raise InvalidInputError(
                f"trained_layers is {trained_layers} but {type(backbone).__name__} has {len(self._layers)} layers; "
                "set fewer, or omit trained_layers to train all of them."
            )
        self._num_lower = len(self._layers) - trained_layers
        self._is_whole = trained_layers == 0  # the outputs that are kept are those of the complete model
        self._returns_tuples = False
        self.frozen = self._check_split()
        """The weights that are not trained."""
        digest = xxhash.xxh3_128()
        for weight in self.frozen:
            digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        digest.update(f"{type(backbone).__name__} {self._num_lower} {most_bytes}".encode())
        kept = _SHARED.get(digest.hexdigest())
        if kept is None:
            kept = _SHARED[digest.hexdigest()] = LowerOutputs(most_bytes)
        self._kept = kept

    def run(self, tokens: Sequence[Sequence[int]], is_real: Tensor) -> Tensor:
        """Return the output at every position (B, n, D) of texts, given as token ids."""
        is_mixed = torch.is_autocast_enabled(is_real.device.type)
        rows = [self._kept.get(ids, is_mixed=is_mixed) for ids in tokens]
        missing = [row for row, found in enumerate(rows) if found is None]
        if missing:
            with eval_mode(self._backbone.modules()), torch.no_grad():
                for row in missing:
                    rows[row] = found = self._run_lower(tokens[row]).cpu()
                    self._kept.keep(tokens[row], found, is_mixed=is_mixed)
        outputs = [found for found in rows if found is not None]
        assert len(outputs) == len(tokens)
        hidden = nn.utils.rnn.pad_sequence(outputs, batch_first=True).to(is_real.device)  # (B, n, D)
        return hidden if self._is_whole else self._run_top(hidden, is_real)

    def _run_lower(self, ids: Sequence[int]) -> Tensor:
        """Return the outputs (n, D) of the lower layers for one text."""
        table = self._backbone.get_input_embeddings()
        embeddings = table(torch.tensor(ids, device=self._backbone.device)[None])  # (1, n, E)
        return self._lower(embeddings, embeddings.new_ones(embeddings.shape[:2], dtype=torch.bool))[0]

    def _lower(self, embeddings: Tensor, is_real: Tensor) -> Tensor:
        """Return the outputs (B, n, D) of the lower layers."""
        if self._is_whole:
            return run(self._backbone, embeddings, is_real)
        last = self._layers[self._num_lower - 1]
        with self._skipping(range(self._num_lower, len(self._layers))), _watching(last) as found:
            run(self._backbone, embeddings, is_real)
        outputs: Tensor = found[0][0] if self._returns_tuples else found[0]
        return outputs

    def _run_top(self, hidden: Tensor, is_real: Tensor) -> Tensor:
        """Return the outputs (B, n, D) of the model for outputs of its lower layers."""
        unused = hidden.new_zeros(*hidden.shape[:2], vocabulary_table(self._backbone).shape[1])
        with self._skipping(range(self._num_lower), given=hidden):
            return run(self._backbone, unused, is_real)

    @contextlib.contextmanager
    def _skipping(self, places: range, given: Tensor | None = None) -> Iterator[None]:
        """Replace layers with ones that pass on their input, or the last of them a given tensor."""
        layers = [
            _Skipped(layer, given if place == places[-1] else None, returns_tuple=self._returns_tuples)
            if place in places
            else layer
            for place, layer in enumerate(self._layers)
        ]
        self._holder._modules[self._name] = nn.ModuleList(layers)
        try:
            yield
        finally:
            self._holder._modules[self._name] = self._layers

    def _check_split(self) -> list[nn.Parameter]:
        """Return the frozen weights; raise if the model cannot be split, as one whose first layer serves the others."""
        weights = list(self._backbone.parameters())
        if self._is_whole:
            return weights
        table = vocabulary_table(self._backbone)  # (V, E)
        embeddings = torch.randn(2, 5, table.shape[1], generator=Generator().manual_seed(0)).to(table) * table.std()
        is_real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2], device=table.device)
        problem = "their outputs differ"
        try:
            with eval_mode(self._backbone.modules()):
                with torch.no_grad():
                    with _watching(self._layers[0]) as found:
                        whole = run(self._backbone, embeddings, is_real)
                    self._returns_tuples = isinstance(found[0], tuple)
                    hidden = self._lower(embeddings, is_real)
                split = self._run_top(hidden, is_real)
                gradients: Sequence[Tensor | None] = torch.autograd.grad(split.sum(), weights, allow_unused=True)
            is_same = torch.allclose(split[is_real], whole[is_real], rtol=1e-3, atol=1e-4)
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            is_same, problem = False, str(error).partition("\n")[0]
        if not is_same:
            raise InvalidInputError(
                f"the layers of {type(self._backbone).__name__} cannot run apart ({problem}); omit trained_layers."
            )
        return [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is None]


class _Skipped(nn.Module):
    """Stands in for a layer: passes on its input, or a given tensor, in the form in which the layer returns it."""

    def __init__(self, layer: nn.Module, given: Tensor | None, *, returns_tuple: bool) -> None:
        super().__init__()
        self._given = given
        self._returns_tuple = returns_tuple
        self.__dict__["layer"] = layer  # no submodule: its weights are not ours

    def __getattr__(self, name: str) -> Any:
        """Return attributes of the layer that some models read, such as its kind of attention."""
        return getattr(self.__dict__["layer"], name)

    def forward(self, hidden_states: Tensor, *_arguments: object, **_options: object) -> Any:
        output = hidden_states if self._given is None else self._given
        return (output,) if self._returns_tuple else output


@contextlib.contextmanager
def _watching(layer: nn.Module) -> Iterator[list[Any]]:
    """Yield a list to which the layer's outputs are added."""
    found: list[Any] = []
    hook = layer.register_forward_hook(lambda _layer, _inputs, output: found.append(output))
    try:
        yield found
    finally:
        hook.remove()


@contextlib.contextmanager
def training_top(encoder: "TextEncoder", trained_layers: int | None, *, most_bytes: int) -> Iterator[None]:
    """Freeze all layers of an encoder's pretrained model but the top ones while the context lasts; None freezes none.

    Args:
        encoder: its pretrained weights below the top layers get no gradient, and their outputs are kept.
        trained_layers: number of top layers that are trained.
        most_bytes: memory for the outputs that are kept.
    """
    if trained_layers is None:
        yield
        return
    if encoder.pooling is Pooling.TOKENS:
        raise InvalidInputError(
            f"trained_layers is {trained_layers} but pooling is tokens, which trains embeddings below all layers; omit "
            "trained_layers, or choose another pooling."
        )
    backbones = {Side.QUERY: encoder.backbone, Side.PASSAGE: encoder.passage_backbone or encoder.backbone}
    tops: dict[int, TopLayers] = {}
    for backbone in backbones.values():
        if id(backbone) not in tops:
            tops[id(backbone)] = TopLayers(backbone, trained_layers=trained_layers, most_bytes=most_bytes)
    frozen = [weight for top in tops.values() for weight in top.frozen if weight.requires_grad]
    encoder.top_layers = {side: tops[id(backbone)] for side, backbone in backbones.items()}
    for weight in frozen:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        encoder.top_layers = {}
        for weight in frozen:
            weight.requires_grad_(True)


def _find_layers(backbone: "PreTrainedModel") -> tuple[nn.Module, str, nn.ModuleList]:
    """Return the module that holds the list of layers, the name of the list in it, and the list."""
    lists = [
        (module, name, child)
        for module in backbone.modules()
        for name, child in module.named_children()
        if isinstance(child, nn.ModuleList)
    ]
    if not lists:
        raise InvalidInputError(f"{type(backbone).__name__} has no list of layers; omit trained_layers.")
    return max(lists, key=lambda found: len(found[2]))


def _key(ids: Sequence[int], is_mixed: bool) -> bytes:
    return array("q", [is_mixed, *ids]).tobytes()
