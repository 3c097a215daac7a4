"""A tiny language model as a folder, and questions that it can memorise."""

from pathlib import Path

import torch

from railsearch import TextRetriever
from railsearch.data import QuestionPassages
from railsearch.recipes import TextRecipe, TextTrainingConfig

WORDS = [f"w{number}" for number in range(40)]
PAIRS = [(f"who w{n} w{(7 * n) % 40}", f"it is w{(n + 20) % 40} w{(3 * n + 1) % 40} end") for n in range(20)]


def make_base(
    folder: Path, *, kind: str = "bert", dropout: float = 0.0, num_layers: int = 1, positions: int = 32
) -> Path:
    """Write a randomly initialised BERT or T5 encoder with a tokenizer of a few words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: row for row, word in enumerate([*special, "who", "it", "is", "end", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["[CLS]", "$A", "[SEP]"], special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "t5":
            model = transformers.T5EncoderModel(
                transformers.T5Config(
                    vocab_size=len(vocabulary),
                    d_model=16,
                    num_layers=num_layers,
                    num_heads=2,
                    d_kv=8,
                    d_ff=32,
                    dropout_rate=dropout,
                )
            )
        else:
            model = transformers.BertModel(
                transformers.BertConfig(
                    vocab_size=len(vocabulary),
                    hidden_size=16,
                    num_hidden_layers=num_layers,
                    num_attention_heads=2,
                    intermediate_size=32,
                    max_position_embeddings=positions,
                    initializer_range=0.3,  # so that what a token says reaches the others
                    hidden_dropout_prob=dropout,
                    attention_probs_dropout_prob=dropout,
                ),
                add_pooling_layer=False,
            )
    model.save_pretrained(folder)
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


def make_data() -> QuestionPassages:
    """Return twenty questions, each with its own passage."""
    return QuestionPassages.from_pairs(PAIRS)


def make_recipe(base: Path, training: TextTrainingConfig | None = None, **options: object) -> TextRecipe:
    """Return a recipe for short texts; `similarity` and settings of the encoder are options."""
    settings = {"max_query_length": 12, "max_passage_length": 12, "num_query_components": 2, "num_item_components": 3}
    if (options.get("num_query_components"), options.get("num_item_components")) != (1, 1):
        settings["pooling"] = "tokens"
    similarity = options.pop("similarity", None) or {"kind": "mixture_of_logits"}
    return TextRecipe(
        encoder={"kind": "text", "base": str(base), **settings, **options},
        similarity=similarity,
        training=training or TextTrainingConfig(),
    )


def make_retriever(base: Path, **options: object) -> TextRetriever:
    """Return an untrained retriever of short texts."""
    return TextRetriever(make_recipe(base, **options))
