"""Downloads with checksums, and archives from which only named files are unpacked."""

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
    """Download a file and check that it is the expected one; after an error, no file is left.

    Args:
        address: an http or https address.
        target: the file to write.
        sha256: checksum of the complete file.
        max_bytes: stop and refuse the file if it is longer.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    if not address.startswith(("https://", "http://")):
        raise InvalidInputError(f"{address} is not an http or https address; give one.")
    try:
        found = _transfer(address, target, max_bytes, show_progress)
        if found != sha256:
            raise DownloadError(
                f"{address} has checksum {found} but {sha256} was expected, so the file is not used; look at the "
                "publisher's page, download the file by hand and pass it with source=PATH."
            )
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def unpack(archive: Path, names: Sequence[str], folder: Path, *, max_bytes: int) -> None:
    """Unpack only the named files of a zip archive, from any folder in it.

    They are written into the folder under these names; paths in the archive are ignored.
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
        raise InvalidInputError(f"{archive} cannot be unpacked ({error}); download it again.") from error


def _transfer(address: str, target: Path, max_bytes: int, show_progress: bool | None) -> str:
    """Write the response of an address to the target, and return its checksum."""
    digest, received = hashlib.sha256(), 0
    with _opened(address) as response:
        stated = response.headers.get("Content-Length")
        size = int(stated) if stated is not None and stated.isdecimal() else None
        if size is not None and size > max_bytes:
            raise DownloadError(
                f"{address} is {size:,} bytes long but at most {max_bytes:,} are expected, so the file is not used."
            )
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
        # Only http and https addresses reach this line, and the response is compared with a checksum.
        return urllib.request.urlopen(address, timeout=SECONDS_OF_SILENCE)  # type: ignore[no-any-return]  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(
            f"{address} answers {error.code} {error.reason}; find the file on the publisher's page and pass it with "
            "source=PATH."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadError(
            f"{address} cannot be downloaded ({reason}); check the network, or download the file by hand and pass it "
            "with source=PATH."
        ) from error


def _chunks(source: IO[bytes], max_bytes: int, name: str) -> Iterator[bytes]:
    """Yield the content piece by piece; refuse more than `max_bytes`."""
    size = 0
    while chunk := _read(source, name):
        size += len(chunk)
        if size > max_bytes:
            raise DownloadError(f"{name} is longer than the expected {max_bytes:,} bytes, so it is not used.")
        yield chunk


def _read(source: IO[bytes], name: str) -> bytes:
    try:
        return source.read(BYTES_PER_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{name} was interrupted ({error}); try again.") from error


def _megabytes(size: int) -> int:
    return -(-size // MEGABYTE)
