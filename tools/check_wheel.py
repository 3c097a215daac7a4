"""Check an installed wheel: compiled kernels, the command, and the suite's tests of kernels and contracts.

python tools/check_wheel.py tests

Run it with the Python of an environment that has the wheel with its extras faiss and text, pytest, pytest-randomly and
hypothesis. The sources beside the tests are not used.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SUITES = ("contract", "unit/kernels", "unit/similarity", "properties/test_native_bits.py")


def main() -> None:
    """Copy the tests away from the sources and run them."""
    tests = Path(sys.argv[1]).resolve()
    run(["-c", "from railsearch.kernels import native; assert native.is_available(), native.why_missing()"])
    run(["-m", "railsearch", "doctor"])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(tests, Path(folder) / "tests")
        shutil.copy(tests.parent / "pyproject.toml", folder)
        suites = [f"tests/{suite}" for suite in SUITES]
        run(["-m", "pytest", "-p", "no:cacheprovider", *suites], cwd=folder)


def run(arguments: list[str], cwd: str | None = None) -> None:
    """Run this Python, and end with its status if it fails."""
    status = subprocess.run([sys.executable, "-P", *arguments], cwd=cwd, check=False).returncode  # noqa: S603
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    main()
