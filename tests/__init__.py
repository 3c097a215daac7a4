"""The environment of all tests; set before torch is imported and before pytest makes its temporary folder."""

import os
import shutil

MEMORY = "/dev/shm"  # noqa: S108  (pytest makes a private folder in it)
ENOUGH = 4 * 2**30

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # each worker has one core, and so have the processes that it starts

# Every commit is synced, and on a disk that is most of a test's time. `make faults` runs on a real disk.
is_full = os.environ.get("RAILSEARCH_FAULTS") == "full"
if not is_full and os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > ENOUGH:  # noqa: PTH112
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
