"""Published data sets: publisher, terms of use, address and checksum."""

from collections.abc import Callable
from dataclasses import dataclass

from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.public_files import (
    AMAZON_BOOKS,
    NEWER_FILES,
    OLDER_FILES,
    read_amazon,
    read_movielens,
)

MOVIELENS_TERMS = "research only, no redistribution, no commercial use without permission, to be acknowledged"


@dataclass(frozen=True, slots=True)
class Published:
    """A data set that can be downloaded from its publisher, or read from its original files."""

    title: str
    terms: str
    """Address of the terms of use."""
    gist: str
    """Summary of the terms."""
    address: str
    sha256: str
    max_bytes: int
    """Limit of the download, and of each unpacked file."""
    files: tuple[str, ...]
    """Names of the files that are needed."""
    num_events: int
    read: Callable[..., Interactions]
    """Reader for the folder of the files, or for the only file."""
    min_count: int = 0
    """Users and items with fewer events are dropped in the paper."""


# The checksums are those of the publishers' files: GroupLens states md5 c4d9eecfca2ab87c1945afe126590906 and
# cd245b17a1ae2cc31bb14903e1204af3 beside its archives; several public projects pin the same sha256 as here.
PUBLISHED = {
    "ml-1m": Published(
        title="MovieLens 1M, by GroupLens",
        terms="https://files.grouplens.org/datasets/movielens/ml-1m-README.txt",
        gist=MOVIELENS_TERMS,
        address="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        max_bytes=64 * 10**6,
        files=OLDER_FILES,
        num_events=1_000_209,
        read=read_movielens,
    ),
    "ml-20m": Published(
        title="MovieLens 20M, by GroupLens",
        terms="https://files.grouplens.org/datasets/movielens/ml-20m-README.html",
        gist=MOVIELENS_TERMS,
        address="https://files.grouplens.org/datasets/movielens/ml-20m.zip",
        sha256="96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
        max_bytes=1_000 * 10**6,
        files=NEWER_FILES,
        num_events=20_000_263,
        read=read_movielens,
    ),
    "books": Published(
        title="Amazon product data 2014, ratings of books, by J. McAuley, UCSD",
        terms="https://jmcauley.ucsd.edu/data/amazon/",
        gist="its authors ask to be cited; read the page before you use it",
        address="https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/ratings_Books.csv",
        sha256="87d923ddac2aacf40c1d0e0e056dbf4bf69c9c7d41852c6b434e781e759c0707",
        max_bytes=2_000 * 10**6,
        files=(AMAZON_BOOKS,),
        num_events=22_507_155,
        read=read_amazon,
        min_count=5,
    ),
}
