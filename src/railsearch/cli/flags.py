"""Errors of the library in the words of the command line: the library names arguments, a command names flags."""

FLAGS = {
    "accept_terms=True": "--accept-terms",
    "allow_download=True": "--allow-download",
    "confidence is": "--confidence is",
    'cold_start="popular"': "--cold-start popular",
    "expected_fingerprint=...": "--model",
    "filter_viewed=False": "--keep-viewed",
    "histories=...": "--history",
    "interactions=...": "--data",
    "item_embeddings": "--items",
    "max_bad_rows=N": "--max-bad-rows",
    "metadata=...": "--metadata",
    "missing_ok=True": "--missing-ok",
    "overwrite=True": "--overwrite",
    "pad=True": "--pad",
    "path=PATH": "--data",
    "query_embeddings": "--queries",
    "sample_queries": "--queries",
    "source=PATH": "--from",
    "target_recall is": "--target-recall is",
    "test_pairs": "--test-pairs",
    "time_unit=UNIT": "--time-unit",
    "timestamp=None": "--in-order",
    'unknown_items="ignore"': "--ignore-unknown",
    "validation_pairs": "--validation-pairs",
}


def with_flags(message: str) -> str:
    """Return an error message of the library with arguments replaced by flags.

    >>> with_flags("model already exists; choose another path or pass overwrite=True.")
    'model already exists; choose another path or pass --overwrite.'
    """
    for argument, flag in FLAGS.items():
        message = message.replace(argument, flag)
    return message
