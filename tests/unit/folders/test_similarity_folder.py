"""Model folders: what is saved is what is loaded, and anything else is refused."""

import os
import shutil
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch

from railsearch import DotProduct, MixtureOfLogits, fingerprint, load_similarity, save_similarity
from railsearch.errors import FingerprintError, InvalidInputError, ModelFolderError
from railsearch.folders.similarity_folder import FORMAT
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.similarity import Similarity
from tests.support.similarities import make_similarity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_similarity(make_similarity("mixture"), tmp_path / "model")
    return tmp_path / "model"


def test_round_trip(similarity: Similarity, tmp_path: Path) -> None:
    name = save_similarity(similarity, tmp_path / "deep" / "model")
    assert sorted(file.name for file in (tmp_path / "deep" / "model").iterdir()) == ["config.json", "model.safetensors"]
    loaded = load_similarity(tmp_path / "deep" / "model", expected_fingerprint=name)
    assert fingerprint(loaded) == fingerprint(similarity) == name
    assert not loaded.training
    queries, items = torch.randn(2, 6), torch.randn(3, 6)
    expected = similarity.score(similarity.query_parts(queries), similarity.item_parts(items))
    assert torch.equal(loaded.score(loaded.query_parts(queries), loaded.item_parts(items)), expected)


def test_precision_is_kept(tmp_path: Path) -> None:
    save_similarity(MixtureOfLogits(query_dim=6, item_dim=6).double(), tmp_path / "model")
    assert load_similarity(tmp_path / "model").gate.pair.hidden.weight.dtype == torch.float64


def test_every_change_changes_the_fingerprint() -> None:
    mol = make_similarity("mixture-user")
    assert isinstance(mol, MixtureOfLogits)
    names = {fingerprint(mol)}
    for tensor in mol.state_dict().values():
        flat = tensor.view(-1)
        original = flat[0].clone()
        flat[0] = torch.nextafter(original, torch.tensor(9.0))
        names.add(fingerprint(mol))
        flat[0] = original
    assert len(names) == 1 + len(mol.state_dict())
    weights = mol.state_dict()
    for key, value in {
        "temperature": 0.06,
        "item_dropout": 0.2,
        "epsilon": 1e-5,
        "gate_activation": "identity",
    }.items():
        changed = MixtureOfLogits(**{**mol.config, key: value})
        changed.load_state_dict(weights)
        names.add(fingerprint(changed))
    assert len(names) == 5 + len(weights)
    assert fingerprint(mol.double()) not in names


def test_saving_over(folder: Path) -> None:
    other = DotProduct(dim=3)
    before = fingerprint(load_similarity(folder))
    with pytest.raises(InvalidInputError, match="already exists; choose another path or pass overwrite=True"):
        save_similarity(other, folder)
    assert fingerprint(load_similarity(folder)) == before
    save_similarity(other, folder, overwrite=True)
    assert fingerprint(load_similarity(folder)) == fingerprint(other)
    assert [file.name for file in folder.parent.iterdir()] == ["model"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    foreign = tmp_path / "bert"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    (foreign / "model.safetensors").write_text("weights")
    noted = tmp_path / "noted"
    save_similarity(DotProduct(dim=3), noted)
    (noted / "notes.txt").write_text("mine")
    for folder in (tmp_path / "photos", foreign, noted):
        before = sorted(folder.iterdir())
        with pytest.raises(InvalidInputError, match="holds other files than a railsearch similarity"):
            save_similarity(DotProduct(dim=3), folder, overwrite=True)
        assert sorted(folder.iterdir()) == before


def test_others_may_read_a_saved_model(folder: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o666 & ~mask}


def test_saving_through_a_link(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    for dim in (2, 3):
        save_similarity(DotProduct(dim=dim), link, overwrite=True)
        assert link.is_symlink()
        assert load_similarity(link).component_dim == load_similarity(folder).component_dim == dim
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model"]


def test_live_changes_are_saved(tmp_path: Path) -> None:
    dot = DotProduct(dim=2)
    before = fingerprint(dot)
    dot.temperature = 0.1
    assert fingerprint(dot) != before
    save_similarity(dot, tmp_path / "dot")
    assert load_similarity(tmp_path / "dot").temperature == 0.1


def test_expected_fingerprint(folder: Path) -> None:
    actual = fingerprint(load_similarity(folder))
    with pytest.raises(FingerprintError, match=rf"holds model {actual} but abc was expected"):
        load_similarity(folder, expected_fingerprint="abc")


def edit(folder: Path, **changes: object) -> None:
    """Change the config and seal it again, as somebody would who knows the format."""
    FORMAT.write(folder, {**FORMAT.read(folder), **changes})


def test_an_edited_config_breaks_the_seal(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"temperature": 0.05', '"temperature": 0.5'))
    with pytest.raises(ModelFolderError, match=r"config\.json was changed or damaged after saving"):
        load_similarity(folder)


def test_a_resealed_config(folder: Path) -> None:
    config = FORMAT.read(folder)["config"]
    edit(folder, config={**config, "temperature": 0.5})
    with pytest.raises(FingerprintError, match="weights or config were changed after saving"):
        load_similarity(folder)
    edit(folder, config={**config, "surprise": 1})
    with pytest.raises(ModelFolderError, match=r"does not describe a mixture_of_logits \(.*surprise.*[^.]\); restore"):
        load_similarity(folder)
    edit(folder, config={**config, "component_dim": -3})
    with pytest.raises(ModelFolderError, match="component_dim is -3"):
        load_similarity(folder)
    for huge in (10**13, 10**40):
        edit(folder, config={**config, "query_dim": huge})
        with pytest.raises(ModelFolderError, match=r"belongs to another model|does not describe"):
            load_similarity(folder)
    edit(folder, config={**config, "component_dim": 5})
    with pytest.raises(ModelFolderError, match="belongs to another model"):
        load_similarity(folder)
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelFolderError, match="cannot be read"):
        load_similarity(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "onnx"}, "is not the config of a railsearch similarity"),
        ({"format_version": 99}, "has format version 99 but this railsearch reads 2"),
        (
            {"kind": "transformer"},
            "has kind 'transformer' but only .*dot_product.* are registered; import the module",
        ),
        ({"kind": []}, r"has kind \[\]"),
        ({"fingerprint": None}, "lacks config or fingerprint"),
        ({"fingerprint": "0" * 64}, "states fingerprint 000"),
    ],
)
def test_foreign_config(folder: Path, changes: dict, message: str) -> None:
    edit(folder, **changes)
    with pytest.raises(ModelFolderError, match=message):
        load_similarity(folder)


def test_flipped_bits_are_noticed(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    generator = torch.Generator().manual_seed(0)
    for place in torch.randint(len(content), (60,), generator=generator).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ModelFolderError):
            load_similarity(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files(folder: Path, file: str, share: float) -> None:
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelFolderError, match=file):
        load_similarity(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_missing_files(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ModelFolderError, match=f"{file} does not exist"):
        load_similarity(folder)


def test_foreign_weights(folder: Path) -> None:
    content = {name: value for name, value in FORMAT.read(folder).items() if name != "files"}
    safetensors.torch.save_file({"embedding": torch.zeros(2, 2)}, folder / "model.safetensors")
    with pytest.raises(ModelFolderError, match=r"model\.safetensors was changed or damaged after saving: it has"):
        load_similarity(folder)
    FORMAT.write(folder, content)
    with pytest.raises(ModelFolderError, match="belongs to another model"):
        load_similarity(folder)
    weights = {name: tensor.long() for name, tensor in make_similarity("mixture").state_dict().items()}
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    FORMAT.write(folder, content)
    with pytest.raises(ModelFolderError, match=r"as torch\.int64"):
        load_similarity(folder)
    torch.save({"embedding": torch.zeros(2, 2)}, folder / "model.safetensors")
    FORMAT.write(folder, content)
    with pytest.raises(ModelFolderError, match="not a safetensors file"):
        load_similarity(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="does not exist; give a folder that save_similarity wrote"):
        load_similarity(tmp_path / "nowhere")


def test_unknown_similarity_cannot_be_named() -> None:
    class Mine(DotProduct):
        pass

    with pytest.raises(InvalidInputError, match="Mine cannot be named or saved"):
        fingerprint(Mine(dim=2))


def test_kill_while_writing_leaves_the_old_folder(folder: Path) -> None:
    before = fingerprint(load_similarity(folder))

    def die_while_writing() -> None:
        with new_folder(folder) as written:
            (written / "config.json").write_text("half")
            os._exit(9)

    _in_child(die_while_writing)
    assert fingerprint(load_similarity(folder)) == before


def test_kill_between_the_renames_leaves_the_old_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(load_similarity(folder))

    def die_after_first_rename() -> None:
        rename = Path.rename

        def rename_then_die(self: Path, target: Path) -> Path:
            rename(self, target)
            os._exit(9)

        monkeypatch.setattr(Path, "rename", rename_then_die)
        save_similarity(DotProduct(dim=3), folder, overwrite=True)

    _in_child(die_after_first_rename)
    assert not folder.exists()
    assert fingerprint(load_similarity(folder)) == before
    with pytest.raises(InvalidInputError, match="already exists"):
        save_similarity(DotProduct(dim=3), folder)
    # The next save settles everything.
    save_similarity(DotProduct(dim=3), folder, overwrite=True)
    assert fingerprint(load_similarity(folder)) == fingerprint(DotProduct(dim=3))
    assert settled_folder(folder) == folder


def test_error_while_writing_leaves_nothing_behind(folder: Path) -> None:
    before = fingerprint(load_similarity(folder))
    with pytest.raises(RuntimeError, match="disk"), new_folder(folder):
        raise RuntimeError("disk")
    assert fingerprint(load_similarity(folder)) == before
    assert [file.name for file in folder.parent.iterdir()] == ["model"]
    shutil.rmtree(folder)


def _in_child(action: object) -> None:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # Python 3.12: a fork beside threads
        child = os.fork()
    if child == 0:
        action()  # ends the child
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
