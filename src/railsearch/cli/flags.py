"""Errors of the library in the words of the command line: the library names arguments, a command names flags."""

import re
from collections.abc import Iterable

PHRASES = {
    "Index.open(path, version=...)": "--version",
    "accept_terms=True": "--accept-terms",
    "allow_download=True": "--allow-download",
    "Recommender.save": "`railsearch train`",
    "TextRetriever.save": "`railsearch train`",
    "allow it with behind='allow'": "allow it with behind=allow in --engine",
    "bring it up to date with sync_engine": "bring it up to date with `railsearch engine sync`",
    "use column='halfvec'": "use column=halfvec in --engine",
    "build an index with build_index of the model": "build an index with `railsearch index build --model`",
    'cold_start="popular"': "--cold-start popular",
    'call recommend with cold_start="popular"': "pass --cold-start popular",
    "call add_items again with the same table": "run the same command again",
    "call add_items with them again": "add them again with `railsearch items add`",
    "load it again with Recommender.load and call add_items again": "run the same command again",
    "build it with Index.build(..., path=...)": "build it with `railsearch index build`",
    "exactly one of users and histories": "exactly one of --users and --history",
    "filter_viewed=False": "--keep-viewed",
    "give allow as a mask or a list of ids": "omit --allow",
    "histories=...": "--history",
    "give the folder of the model": "give the folder of the model with --model",
    "hold some out with split_questions": "set data.test_share in the recipe",
    "give max_per or diversity": "give --max-per or --diversity",
    "interactions=...": "--data",
    "load the model with Recommender.load(path, interactions=...)": "give --data",
    "max_bad_rows=N": "--max-bad-rows",
    "metadata=...": "--metadata",
    "later than since": "later than --since",
    "missing_ok=True": "--missing-ok",
    "omit ids and metadata": "omit --ids and --metadata",
    "open it with Index.open": "add items with `railsearch index add`",
    "open it with open_index": "add items with `railsearch index add`",
    "overwrite=True": "--overwrite",
    "pad=True": "--pad",
    "path=PATH": "--data",
    "raise max_per": "raise --max-per",
    "precision='fp32'": "--precision fp32",
    "search it with embeddings": "search it with `railsearch search --queries`",
    "or omit since": "or omit --since",
    "source=PATH": "--from",
    "time_unit=UNIT": "--time-unit",
    "timestamp=None": "--in-order",
    'unknown_items="ignore"': "--ignore-unknown",
    "use upsert": "use --upsert",
}
"""Advice of the library, and the advice for the command line."""
SUBJECTS = {
    "allow": "--allow",
    "confidence": "--confidence",
    "depth": "--depth",
    "diversity": "--diversity",
    "epochs": "--epochs",
    "exclude": "--exclude",
    "histories": "--history",
    "ids": "--ids",
    "item_embeddings": "--items",
    "items": "--items",
    "max_bad_rows": "--max-bad-rows",
    "max_per": "--max-per",
    "metadata": "--metadata",
    "min_count": "--min-count",
    "num_items": "--items",
    "num_queries": "--num-queries",
    "output": "--output",
    "pairs": "--pairs",
    "pool": "--pool",
    "popular": "--popular",
    "queries": "--queries",
    "query_embeddings": "--queries",
    "rows_per_part": "--rows-per-part",
    "sample_queries": "--queries",
    "seed": "--seed",
    "shape": "workload",
    "sharpness": "--sharpness",
    "since": "--since",
    "target_recall": "--target-recall",
    "test_pairs": "--test-pairs",
    "texts": "--text",
    "users": "--users",
    "validation_pairs": "--validation-pairs",
    "verify": "--verify",
}
"""Arguments that an error is about, and the flags or arguments of a command."""
_NAMES = "|".join(SUBJECTS)
_IDENTIFIERS = "|".join(name for name in SUBJECTS if "_" in name)
_PLACES = re.compile(
    rf"(?:^|(?<=: ))(?P<subject>{_NAMES})(?=(?:\[\d+\])? (?:is|has|have|holds|was|cannot)\b)"
    rf"|(?<=ask for )(?P<wish>{_NAMES})(?= [<>]=)"
    rf"|(?<![\w./-])(?P<identifier>{_IDENTIFIERS})(?![\w/=-]|\.\w)"
)
"""Places where a word is an argument: what the error is about, what it asks for, and identifiers anywhere."""


def with_flags(message: str, arguments: Iterable[str] = ()) -> str:
    """Return an error message of the library with arguments replaced by flags.

    Args:
        message: the message of the library.
        arguments: the arguments of the command. The subject of an error is replaced only if its flag is among them:
            ids are those of --ids only if the user gave that flag, and otherwise a column of a table, say.

    >>> with_flags("model already exists; choose another path or pass overwrite=True.")
    'model already exists; choose another path or pass --overwrite.'
    >>> with_flags("min_count is -1; ask for min_count >= 0.", ["--min-count=-1"])
    '--min-count is -1; ask for --min-count >= 0.'
    """
    given = {argument.partition("=")[0] for argument in arguments}

    def named(found: re.Match[str]) -> str:
        flag = SUBJECTS[found[0]]
        return flag if flag in given or not flag.startswith("-") else found[0]

    for advice in sorted(PHRASES, key=len, reverse=True):  # some are parts of others
        message = message.replace(advice, PHRASES[advice])
    return _PLACES.sub(named, message)
