"""Public collections of interactions in their original files: MovieLens, Amazon ratings, sequence files."""

from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.data.interactions import Interactions, read_lines
from railsearch.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame

RATING_COLUMNS = ["user", "item", "rating", "timestamp"]


def read_movielens(folder: str | Path, *, max_bad_rows: int = 0) -> Interactions:
    """Read MovieLens-1M (ratings.dat, movies.dat) or MovieLens-20M (ratings.csv, movies.csv).

    Every movie of the movies file is a candidate, rated or not, as in the paper. The terms of use of GroupLens apply:
    https://grouplens.org/datasets/movielens/.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"{path} is no folder; give the folder that MovieLens was unpacked into.")
    is_older = (path / "ratings.dat").is_file()
    suffix, separator = ("dat", "::") if is_older else ("csv", ",")
    for name in (f"ratings.{suffix}", f"movies.{suffix}"):
        if not (path / name).is_file():
            raise InvalidInputError(
                f"{path / name} does not exist; MovieLens-1M has ratings.dat and movies.dat, MovieLens-20M ratings.csv "
                "and movies.csv."
            )
    ratings = read_lines(
        path / f"ratings.{suffix}", separator=separator, columns=RATING_COLUMNS, has_header=not is_older
    )
    movies = _first_fields(path / f"movies.{suffix}", separator, has_header=not is_older)
    return Interactions.from_frame(
        _with_whole_numbers(ratings),
        rating="rating",
        catalogue=movies,
        max_bad_rows=max_bad_rows,
        source=str(path / f"ratings.{suffix}"),
    )


def read_amazon(file: str | Path, *, max_bad_rows: int = 0) -> Interactions:
    """Read an Amazon ratings file, such as ratings_Books.csv: user,item,rating,timestamp without a header.

    Terms of use: https://jmcauley.ucsd.edu/data/amazon/.
    """
    ratings = read_lines(file, separator=",", columns=RATING_COLUMNS)
    return Interactions.from_frame(ratings, rating="rating", max_bad_rows=max_bad_rows, source=str(file))


def read_sequences(file: str | Path, *, max_bad_rows: int = 0) -> Interactions:
    """Read a sequence file: lines "user item" in order of time, or "user item item item ..." with one line a user."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    lines = read_lines(file, separator="\n", columns=["text"])
    fields = pl.col("text").str.strip_chars().str.split(" ").list.eval(pl.element().filter(pl.element() != ""))
    events = lines.select("line", user=fields.list.first(), item=fields.list.slice(1)).explode("item")
    whole = events.with_columns(pl.col("user", "item").cast(pl.Int64, strict=False))
    return Interactions.from_frame(whole, timestamp=None, max_bad_rows=max_bad_rows, source=str(file))


def _with_whole_numbers(frame: "DataFrame") -> "DataFrame":
    """Ids as whole numbers; what is none is left without, and so reported."""
    import polars as pl  # noqa: PLC0415

    return frame.with_columns(pl.col("user", "item").cast(pl.Int64, strict=False))


def _first_fields(file: Path, separator: str, *, has_header: bool) -> list[int]:
    """The number that each line begins with."""
    import polars as pl  # noqa: PLC0415

    lines = read_lines(file, separator="\n", columns=["text"], has_header=has_header)
    found = lines.select("line", id=pl.col("text").str.split(separator).list.first().cast(pl.Int64, strict=False))
    bad = found.filter(pl.col("id").is_null())
    if len(bad):
        raise InvalidInputError(f"{file} has no id in line {bad['line'][0]}; restore the original file.")
    return found["id"].to_list()
