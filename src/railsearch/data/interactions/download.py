"""Downloads that are checked before anything is made of them, and archives from which only named files are taken."""

import hashlib
import http.client
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from railsearch.foundation.errors import DownloadError, InvalidInputError
from railsearch.foundation.progress import counting

BYTES_PER_CHUNK = 2**18
SECONDS_OF_SILENCE = 60
MEGABYTE = 10**6


def download(address: str, target: Path, *, sha256: str, max_bytes: int, show_progress: bool | None = None) -> None:
    """Download a file and check that it is the one that was expected; after an error, there is none.

    Args:
        address: where it is, http or https.
        target: what to write it to.
        sha256: of the whole file.
        max_bytes: where to stop, whatever the server says.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    if not address.startswith(("https://", "http://")):
        raise InvalidInputError(f"{address} is no http or https address; give one.")
    try:
        found = _transfer(address, target, max_bytes, show_progress)
        if found != sha256:
            raise DownloadError(
                f"{address} has checksum {found} but {sha256} was expected: the file was changed on the way or by its "
                "publisher, and is not used. Look at the publisher's page, download it by hand and pass it with --from."
            )
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def unpack(archive: Path, names: Sequence[str], folder: Path, *, max_bytes: int) -> None:
    """Take files out of a zip archive by their names, wherever in it they are, and nothing else.

    They are written into the folder under these names, so that no path of the archive counts.
    """
    try:
        with zipfile.ZipFile(archive) as content:
            for name in names:
                entries = [entry for entry in content.namelist() if entry.rpartition("/")[2] == name]
                if len(entries) != 1:
                    raise InvalidInputError(
                        f"{archive} holds {len(entries)} files called {name} but one is needed; give the original "
                        "archive."
                    )
                with content.open(entries[0]) as packed, (folder / name).open("wb") as file:
                    file.writelines(_chunks(packed, max_bytes, f"{name} in {archive}"))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInputError(f"{archive} cannot be unpacked ({error}); download it anew.") from error


def _transfer(address: str, target: Path, max_bytes: int, show_progress: bool | None) -> str:
    """Write what the address sends to the target, and give its checksum."""
    digest, received = hashlib.sha256(), 0
    with _opened(address) as response:
        stated = response.headers.get("Content-Length")
        size = int(stated) if stated is not None and stated.isdecimal() else None
        if size is not None and size > max_bytes:
            raise DownloadError(f"{address} is {size:,} bytes long but at most {max_bytes:,} are expected.")
        total = None if size is None else _megabytes(size)
        name = address.rpartition("/")[2]
        with target.open("wb") as file, counting(f"downloading {name} (MB)", total, is_shown=show_progress) as count:
            for chunk in _chunks(response, max_bytes, address):
                file.write(chunk)
                digest.update(chunk)
                count(_megabytes(received + len(chunk)) - _megabytes(received))
                received += len(chunk)
    if size is not None and received < size:
        raise DownloadError(f"{address} ended after {received:,} of {size:,} bytes; try again.")
    return digest.hexdigest()


def _opened(address: str) -> http.client.HTTPResponse:
    try:
        # Only http and https come here, and what comes back is compared with a checksum.
        return urllib.request.urlopen(address, timeout=SECONDS_OF_SILENCE)  # type: ignore[no-any-return]  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(
            f"{address} answers {error.code} {error.reason}. Look for it there, and pass what you find with --from."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadError(
            f"{address} cannot be downloaded ({reason}). Is there a network? Download it by hand and pass it with "
            "--from."
        ) from error


def _chunks(source: IO[bytes], max_bytes: int, name: str) -> Iterator[bytes]:
    """What there is to read, piece by piece; refuse more than there may be."""
    size = 0
    while chunk := _read(source, name):
        size += len(chunk)
        if size > max_bytes:
            raise DownloadError(f"{name} is longer than the {max_bytes:,} bytes that are expected, and is not used.")
        yield chunk


def _read(source: IO[bytes], name: str) -> bytes:
    try:
        return source.read(BYTES_PER_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{name} broke off ({error}); try again.") from error


def _megabytes(size: int) -> int:
    return -(-size // MEGABYTE)
