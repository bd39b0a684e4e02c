"""What the process of a leg holds after a step (S-31): cheap to read, and of no influence on it."""

import gc
import os
import resource
import threading
from pathlib import Path
from typing import Any

PROCESS = Path("/proc/self")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_resources() -> dict[str, Any]:
    """Resident bytes, open files, threads of the process; runs of each generation of the collector.

    Where there is no /proc the resident bytes are those of the peak, and threads those of Python.
    """
    collections = [generation["collections"] for generation in gc.get_stats()]
    try:
        with open(PROCESS / "statm", "rb") as file:
            resident_bytes = int(file.read().split()[1]) * PAGE_BYTES
        with open(PROCESS / "stat", "rb") as file:
            threads = int(file.read().rpartition(b")")[2].split()[17])  # field 20: the name is 2
        open_files = len(os.listdir(PROCESS / "fd")) - 1  # not that of the listing itself
    except OSError:
        resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        threads, open_files = threading.active_count(), len(os.listdir("/dev/fd")) - 1
    return {
        "resident_bytes": resident_bytes,
        "open_files": open_files,
        "threads": threads,
        "collections": collections,
    }
