"""Times to build, save and open an index folder, and times of FAISS to save and read the same vectors.

python benchmarks/index_folder.py                  100,000 items, 8 x 8 components of 32 (the Books shape)
python benchmarks/index_folder.py --items 674044

The same run writes a FAISS flat index of the same item components with `faiss.write_index`. FAISS neither syncs to
disk nor keeps a checksum; the columns say what each does. Read figures as ratios within one run.
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np
import torch
from torch import Tensor

from railsearch import Index, ItemBatch, MixtureOfLogits
from railsearch.kernels import compute_item_parts

EMBEDDING_DIM, NUM_COMPONENTS, COMPONENT_DIM = 64, 8, 32
ROWS_PER_BATCH = 8192


def timed(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of the work."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        measure(folder, options.items, options.repeats)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, num_items: int, repeats: int) -> None:
    similarity = MixtureOfLogits(
        query_dim=EMBEDDING_DIM, item_dim=EMBEDDING_DIM, num_query_components=8, num_item_components=NUM_COMPONENTS,
        component_dim=COMPONENT_DIM, seed=0,
    ).eval()  # fmt: skip

    def embeddings() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for first in range(0, num_items, ROWS_PER_BATCH):
            yield torch.randn(min(ROWS_PER_BATCH, num_items - first), EMBEDDING_DIM, generator=generator)

    path = folder / "index"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    index = Index.build(similarity, map(ItemBatch, embeddings()), path=path)
    build_seconds = time.perf_counter() - started
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    parts = compute_item_parts(similarity, torch.cat(list(embeddings())))
    index.close()
    flat = faiss.IndexFlatIP(NUM_COMPONENTS * COMPONENT_DIM)
    flat.add(np.ascontiguousarray(parts.components.flatten(1).numpy()))
    file = folder / "vectors.faiss"

    def write_faiss_synced() -> None:
        faiss.write_index(flat, str(file))
        with file.open("rb") as written:
            os.fsync(written.fileno())

    def save_parts() -> None:
        Index.build(similarity, parts, path=folder / "again").close()
        shutil.rmtree(folder / "again")

    def open_and_search() -> None:
        Index.open(path).search(query, 10)

    query = torch.randn(1, EMBEDDING_DIM)
    rows = [
        ("railsearch: build, checksum and sync", build_seconds, num_bytes),
        ("railsearch: the same from ready parts", timed(save_parts, repeats), num_bytes),
        ("faiss.write_index of the components", timed(lambda: faiss.write_index(flat, str(file)), repeats), None),
        ("faiss.write_index, and a sync", timed(write_faiss_synced, repeats), None),
        ("railsearch: open, every byte checked", timed(lambda: Index.open(path).close(), repeats), num_bytes),
        ("faiss.read_index, nothing checked", timed(lambda: faiss.read_index(str(file)), repeats), None),
        (
            "railsearch: open and search one query",
            timed(open_and_search, repeats),
            num_bytes,
        ),
        ("railsearch: compact", timed(lambda: Index.open(path).compact(), 1), num_bytes),
        ("railsearch: add 1 item", timed(lambda: Index.open(path).add(query), repeats), None),
    ]
    print(f"{num_items} items, {NUM_COMPONENTS} x {COMPONENT_DIM}, {num_bytes / 2**20:.0f} MiB on disk "
          f"(faiss {file.stat().st_size / 2**20:.0f} MiB), {torch.get_num_threads()} threads; "
          f"built at {num_items / build_seconds:,.0f} items/s, peak memory {peak:.0f} MiB above the start")  # fmt: skip
    for name, seconds, size in rows:
        rate = "" if size is None else f"{size / seconds / 2**20:>8.0f} MiB/s"
        print(f"{name:<42} {seconds * 1e3:>9.1f} ms {rate}")


if __name__ == "__main__":
    main()
