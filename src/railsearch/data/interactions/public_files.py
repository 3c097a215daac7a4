"""Readers of public data sets in their original files: MovieLens, Amazon ratings, sequence files."""

from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.data.interactions.columns import read_ids
from railsearch.data.interactions.interactions import Interactions, assemble
from railsearch.data.text_files import TextTable, read_csv, read_lines
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame

RATING_COLUMNS = ["user", "item", "rating", "timestamp"]
MOVIE_COLUMNS = ["item", "title", "genres"]
OLDER_FILES = ("ratings.dat", "movies.dat")
NEWER_FILES = ("ratings.csv", "movies.csv")
NEWER_HEADER = "userId,movieId,rating,timestamp"
AMAZON_BOOKS = "ratings_Books.csv"


def read_movielens(folder: str | Path, *, max_bad_rows: int = 0, show_progress: bool | None = None) -> Interactions:
    """Read MovieLens-1M (ratings.dat, movies.dat) or MovieLens-20M (ratings.csv, movies.csv).

    Every movie of the movies file is a candidate, rated or not, as in the paper; titles and genres become
    `item_columns`. The terms of use of GroupLens apply: https://grouplens.org/datasets/movielens/.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not a folder; give the folder that MovieLens was unpacked into.")
    is_older = (path / OLDER_FILES[0]).is_file()
    ratings_file, movies_file = (path / name for name in (OLDER_FILES if is_older else NEWER_FILES))
    for file in (ratings_file, movies_file):
        if not file.is_file():
            raise InvalidInputError(
                f"{file} does not exist; MovieLens-1M has ratings.dat and movies.dat, MovieLens-20M ratings.csv and "
                "movies.csv."
            )
    if is_older:
        movies = read_lines(movies_file, separator="::", columns=MOVIE_COLUMNS, encoding="latin-1", show_progress=False)
    else:
        movies = read_csv(movies_file, show_progress=False)
    ratings = read_lines(
        ratings_file,
        separator="::" if is_older else ",",
        columns=RATING_COLUMNS,
        header=None if is_older else NEWER_HEADER,
        show_progress=show_progress,
    )
    return assemble(
        ratings.as_given(**{name: name for name in RATING_COLUMNS}),
        catalogue=_movies(movies, movies_file),
        are_whole_ids=True,
        max_bad_rows=max_bad_rows,
        source=str(ratings_file),
    )


def read_amazon(file: str | Path, *, max_bad_rows: int = 0, show_progress: bool | None = None) -> Interactions:
    """Read an Amazon ratings file, such as ratings_Books.csv: user,item,rating,timestamp without a header.

    Terms of use: https://jmcauley.ucsd.edu/data/amazon/.
    """
    ratings = read_lines(file, separator=",", columns=RATING_COLUMNS, show_progress=show_progress)
    return assemble(
        ratings.as_given(**{name: name for name in RATING_COLUMNS}), max_bad_rows=max_bad_rows, source=str(file)
    )


def read_sequences(file: str | Path, *, max_bad_rows: int = 0, show_progress: bool | None = None) -> Interactions:
    """Read a sequence file: lines "user item" in order of time, or one line "user item item ..." for each user.

    Fields are whole numbers between spaces or tabs.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    table = read_lines(file, separator="\n", columns=["text"], show_progress=show_progress)
    fields = pl.col("text").str.extract_all(r"\S+")
    items = fields.list.slice(1)
    none = pl.lit([None], dtype=pl.List(pl.String))  # a line without items becomes a bad row instead of none
    lines = table.as_given(text="text").select(
        "line", user=fields.list.first(), item=pl.when(items.list.len() > 0).then(items).otherwise(none)
    )
    _check_one_line_a_user(lines, Path(file))
    return assemble(lines.explode("item"), are_whole_ids=True, max_bad_rows=max_bad_rows, source=str(file))


def _check_one_line_a_user(lines: "DataFrame", file: Path) -> None:
    """Refuse other tables, such as ratings, whose columns would be read as items."""
    import polars as pl  # noqa: PLC0415

    longer = lines.filter(pl.col("item").list.len() > 1)
    if not len(longer):
        return
    repeated = lines.filter(pl.col("user").is_duplicated() & pl.col("user").is_in(longer["user"].implode()))
    if len(repeated):
        user = repeated["user"][0]
        places = repeated.filter(pl.col("user") == user)["line"]
        raise InvalidInputError(
            f"{file} has user {user} in lines {places[0]} and {places[1]}, with more than one item; give lines "
            '"user item", or one line for each user. A table with other columns is read by read_interactions.'
        )


def _movies(movies: TextTable, file: Path) -> "DataFrame":
    """Return the id of every movie with its title and genres."""
    import polars as pl  # noqa: PLC0415

    names = MOVIE_COLUMNS
    if movies.frame.width != len(names):
        raise InvalidInputError(
            f"{file} has the columns {', '.join(movies.frame.columns)}; movieId, title and genres are needed: restore "
            "the original file."
        )
    frame = movies.frame.rename(dict(zip(movies.frame.columns, names, strict=True)))
    ids = read_ids(frame["item"], are_whole=True)
    if ids.null_count():
        line = movies.lines.filter(ids.is_null())[0]
        raise InvalidInputError(f"{file} has no id in line {line}, or not three fields; restore the original file.")
    return frame.with_columns(pl.Series("item", ids))
