"""Tensors as files: safetensors reads ours, and we read those of safetensors."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from railsearch.index.storage.tensor_files import DTYPES, describe, map_tensors, write_tensors


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """Tensors of every type, of odd sizes, without values, and not contiguous."""
    generator = torch.Generator().manual_seed(0)
    tensors = {name: (100 * torch.randn(3, 5, 7, generator=generator)).to(dtype) for name, dtype in DTYPES.items()}
    return tensors | {
        "empty": torch.zeros(0, 4),
        "single": torch.tensor([7]),
        "columns": torch.arange(12.0).view(3, 4).T,
    }


def test_safetensors_reads_what_is_written(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    entry = write_tensors(tmp_path / "tensors.safetensors", tensors)
    assert entry == describe(tmp_path / "tensors.safetensors")
    path = tmp_path / "tensors.safetensors"
    for found in (safetensors.torch.load_file(path), map_tensors(tmp_path, path.name)):
        assert set(found) == set(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)


def test_what_safetensors_writes_is_read(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    written = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(written, tmp_path / "tensors.safetensors", metadata={"by": "safetensors"})
    found = map_tensors(tmp_path, "tensors.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert set(found) == set(tensors)


def test_a_mapped_file_cannot_be_written_to(tmp_path: Path) -> None:
    entry = write_tensors(tmp_path / "tensors.safetensors", {"ids": torch.arange(9)})
    map_tensors(tmp_path, "tensors.safetensors")["ids"].zero_()
    assert describe(tmp_path / "tensors.safetensors") == entry


def test_the_file_is_as_readable_as_others(tmp_path: Path) -> None:
    write_tensors(tmp_path / "tensors.safetensors", {"ids": torch.arange(9)})
    (tmp_path / "other").write_text("other")
    assert (tmp_path / "tensors.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
