"""Training in mixed precision: the language model runs in bf16, and everything else stays in fp32."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from railsearch import TextRetriever
from railsearch.encoders import Side, TextEncoder, mixed_precision, training_top
from railsearch.errors import InvalidInputError
from railsearch.foundation import bf16
from railsearch.recipes import TextTrainingConfig
from tests.support.tiny_text import PAIRS, make_base, make_data, make_recipe, make_retriever

pytest.importorskip("transformers")

TEXTS = [passage for _, passage in PAIRS[:6]] + ["w1", "end w1 w2 w3 w4 w5"]
ONE = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean"}
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
SPARED = "import os, signal\nif not os.environ.get('ONEDNN_MAX_CPU_ISA'): os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert", num_layers=2)


@pytest.fixture(scope="module")
def is_safe() -> None:
    if bf16.probe_bf16() is not bf16.Bf16Matmul.SAFE:
        pytest.skip("matrix products in bf16 kill a process on this CPU, as railsearch doctor says")


def run(encoder: TextEncoder, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Return components of TEXTS, and the gradient of the top layer's weights in a direction."""
    encoder.zero_grad()
    outputs = encoder(encoder.tokenize(TEXTS, Side.QUERY), Side.QUERY)
    (outputs * direction).sum().backward()
    gradient = encoder.backbone.encoder.layer[-1].output.dense.weight.grad
    assert gradient is not None
    return outputs.detach(), gradient.clone()


@pytest.mark.usefixtures("is_safe")
@pytest.mark.parametrize("pooling", ["mean", "parameterised", "multi"])
@pytest.mark.parametrize("trained_layers", [None, 1])
def test_outputs_are_fp32_and_near_those_of_fp32(base: Path, pooling: str, trained_layers: int | None) -> None:
    counts = ONE if pooling == "mean" else {"pooling": pooling}
    encoder = make_retriever(base, **counts).model.encoder
    tokens = encoder.tokenize(TEXTS, Side.QUERY)
    direction = torch.randn(encoder(tokens, Side.QUERY).shape, generator=torch.Generator().manual_seed(0))
    with training_top(encoder, trained_layers, most_bytes=2**20):
        exact = run(encoder, direction)
    with training_top(encoder, trained_layers, most_bytes=2**20):  # nothing is kept from before
        with mixed_precision(encoder):
            mixed = run(encoder, direction)
        after = run(encoder, direction)  # outputs of frozen layers in bf16 are not reused in fp32
        with mixed_precision(encoder):
            again = run(encoder, direction)
    for one, other, one_again, other_again in zip(exact, mixed, after, again, strict=True):
        assert other.dtype == torch.float32
        assert not torch.equal(one, other)
        assert float((one - other).norm() / one.norm()) < 0.05
        assert torch.equal(one, one_again)
        assert torch.equal(other, other_again)
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}


@pytest.mark.usefixtures("is_safe")
def test_a_run_learns_and_resumes_bit_for_bit(base: Path, tmp_path: Path) -> None:
    def fit(folder: Path | None, epochs: int) -> TextRetriever:
        training = TextTrainingConfig(
            epochs=epochs, batch_size=5, learning_rate=0.01, schedule="constant", warmup_share=0, mixed_precision=True
        )
        recipe = make_recipe(base, training, **ONE, similarity={"kind": "cosine"})
        return TextRetriever.fit(make_data(), recipe, folder=folder, show_progress=False)

    whole = fit(None, 4)
    fit(tmp_path, 2)
    resumed = fit(tmp_path, 4)
    assert resumed.fingerprint == whole.fingerprint
    losses = [epoch.loss for epoch in whole.report.epochs if epoch.loss is not None]
    assert losses[-1] < losses[0]
    assert not whole.model.encoder.is_mixed


def test_a_cpu_that_would_kill_the_process_is_refused_before_any_work(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(base, TextTrainingConfig(epochs=1, mixed_precision=True), **ONE)
    monkeypatch.delattr("railsearch.text_retriever.retriever.build_text_model")
    for probe, remedy in ((DIE, "use fp32"), (SPARED, "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 .*")):
        monkeypatch.setattr(bf16, "MATMUL_PROBE", probe)
        with pytest.raises(InvalidInputError, match=rf"mixed_precision is on but .* on this CPU; {remedy}\."):
            TextRetriever.fit(make_data(), recipe, show_progress=False)
