"""The build backend: scikit-build-core, with two promises more.

An install never fails for want of native kernels: if they do not compile, railsearch is installed without them, and
`railsearch doctor` says so. And an editable install is a plain path, as Python knows it: PYTHONPATH stays in charge of
which copy of the source is imported, which scikit-build-core's import hooks override.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

from scikit_build_core import build as core
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

Settings = dict[str, list[str] | str]

SOURCE = Path("src").resolve()
WITHOUT_KERNELS = "cmake.define.RAILSEARCH_NATIVE"


def build_wheel(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel with native kernels, or without them if they do not compile."""
    try:
        return core.build_wheel(wheel_directory, config_settings, metadata_directory)
    except (Exception, SystemExit) as error:  # scikit-build-core exits if CMake fails
        settings = dict(config_settings or {})
        if WITHOUT_KERNELS in settings:
            raise
        print(f"railsearch: the native kernels do not compile here ({error!r}); they are left out.", file=sys.stderr)
        settings[WITHOUT_KERNELS] = "OFF"
        return core.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel and replace the package in it by the path of the sources; the compiled module stays."""
    name = build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory) / name
    with zipfile.ZipFile(path) as wheel:
        kept = {entry: wheel.read(entry) for entry in wheel.namelist() if not entry.startswith("railsearch/")}
    record = next(entry for entry in kept if entry.endswith(".dist-info/RECORD"))
    del kept[record]
    kept["_railsearch_editable.pth"] = f"{SOURCE}\n".encode()
    kept[record] = "".join(_line(entry, data) for entry, data in kept.items()).encode() + f"{record},,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for entry, data in kept.items():
            wheel.writestr(entry, data)
    return name


def _line(entry: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{entry},sha256={digest},{len(data)}\n"
