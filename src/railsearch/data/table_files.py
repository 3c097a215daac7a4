"""Reader of complete Parquet and Arrow files, and the suffixes of tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_file

if TYPE_CHECKING:
    from polars import DataFrame

SEPARATORS = {".csv": ",", ".tsv": "\t"}
BINARY = (".parquet", ".arrow", ".ipc", ".feather")
TABLES = (*SEPARATORS, *BINARY)


def read_table(path: str | Path) -> "DataFrame":
    """Read a complete Parquet or Arrow file."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    file = as_file(path)
    if file.suffix in SEPARATORS:
        raise InvalidInputError(
            f"{file} ends in {file.suffix}; give a Parquet or Arrow table ({', '.join(BINARY)}), which keeps types and "
            "lists."
        )
    try:
        return pl.read_parquet(file) if file.suffix == ".parquet" else pl.read_ipc(file)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error
