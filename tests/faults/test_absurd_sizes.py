"""Model folders whose config states absurd sizes are refused by name, before they take memory."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch

from railsearch import MixtureOfLogits, Recommender, load_similarity, save_similarity
from railsearch.encoders import TextEncoder
from railsearch.encoders.text import folder as text_folder
from railsearch.encoders.text.settings import TextEncoderConfig
from railsearch.folders import FolderFormat, similarity_folder
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.recommender import Recipe
from railsearch.recommender import folder as recommender_folder
from tests.support.tiny_text import make_base
from tests.support.training_worlds import random_walks, small_recipe

MEGABYTES_ALLOWED = 400


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert taken < MEGABYTES_ALLOWED


def restate(kind: FolderFormat, folder: Path, section: str, **changes: object) -> None:
    """Seal a folder again with other settings, as somebody who knows the checksum rule can."""
    config = kind.read(folder)
    kind.write(folder, {**config, section: {**config[section], **changes}})


@pytest.mark.parametrize("name", ["query_dim", "component_dim", "projection_dim", "gate_dim", "user_table_size"])
@pytest.mark.parametrize("size", [10**7, 10**12, 10**30])
def test_similarities(tmp_path: Path, name: str, size: int) -> None:
    save_similarity(MixtureOfLogits(query_dim=8, item_dim=8, seed=0), tmp_path / "model")
    restate(similarity_folder.FORMAT, tmp_path / "model", "config", **{name: size})
    with pytest.raises(ModelFolderError):
        load_similarity(tmp_path / "model")


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(random_walks(num_users=12), small_recipe("sasrec", epochs=1), show_progress=False)


@pytest.mark.parametrize(
    ("name", "size"),
    [("dim", 10**6), ("dim", 10**7), ("max_length", 10**6), ("num_blocks", 10**6), ("num_blocks", 1000)],
)
def test_recommenders(recommender: Recommender, tmp_path: Path, name: str, size: int) -> None:
    recommender.save(tmp_path / "model")
    config = recommender_folder.FORMAT.read(tmp_path / "model")
    encoder = {**config["recipe"]["encoder"], name: size}
    restate(recommender_folder.FORMAT, tmp_path / "model", "recipe", encoder=encoder)
    with pytest.raises(ModelFolderError, match=r"is inconsistent|belongs to another model"):
        Recommender.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("vocab_size", 10**8),
        ("hidden_size", 2 * 10**6),
        ("intermediate_size", 10**9),
        ("intermediate_size", 10**30),
        ("num_hidden_layers", 10**6),
        ("max_position_embeddings", 10**9),
    ],
)
def test_text_encoders(tmp_path: Path, name: str, size: int) -> None:
    base = make_base(tmp_path / "base")
    settings = TextEncoderConfig(base=str(base), max_query_length=8, max_passage_length=8)
    encoder = TextEncoder.from_pretrained(settings)
    encoder.save(tmp_path / "model")
    restate(text_folder.FORMAT, tmp_path / "model", "backbone", **{name: size})
    with pytest.raises(ModelFolderError, match=r"config of the model|is inconsistent"):
        TextEncoder.load(tmp_path / "model")
    text = (base / "config.json").read_text()
    current = f'"{name}": {encoder.backbone.config.to_dict()[name]}'
    assert current in text
    (base / "config.json").write_text(text.replace(current, f'"{name}": {size}'))
    with pytest.raises(ModelFolderError):
        TextEncoder.from_pretrained(settings)


def test_settings() -> None:
    for section in (
        {"encoder": {"kind": "sasrec", "dim": 10**12}},
        {"encoder": {"kind": "hstu", "num_blocks": 10**6}},
        {"similarity": {"kind": "mixture_of_logits", "gate_dim": 10**12}},
    ):
        with pytest.raises(InvalidInputError, match=r"is 10{6,12}: input should be less than or equal to"):
            Recipe(**section)


def test_weights_are_not_trusted_either(tmp_path: Path) -> None:
    """A header that states more values than the file holds is refused by safetensors itself."""
    header = b'{"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    save_similarity(MixtureOfLogits(query_dim=8, item_dim=8, seed=0), tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    similarity_folder.FORMAT.write(
        tmp_path / "model", {k: v for k, v in similarity_folder.FORMAT.read(tmp_path / "model").items() if k != "files"}
    )
    with pytest.raises(ModelFolderError, match="not a safetensors file"):
        load_similarity(tmp_path / "model")
    with pytest.raises(safetensors.SafetensorError):
        safetensors.torch.load_file(file)
