"""The lock of a store: who waits to be alone is not kept out by those who share without a gap."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from oracle.store.lock import Lock


def test_who_waits_to_be_alone_gets_in_between_those_who_share(tmp_path: Path) -> None:
    lock, stop, held = Lock(path=tmp_path / "lock"), threading.Event(), threading.Barrier(4)

    def share(delay: float) -> None:
        first = True
        while not stop.is_set():
            with lock.shared():
                if first:
                    held.wait()  # from here on somebody always holds it
                    time.sleep(delay)
                    first = False
                time.sleep(0.06)

    threads = [threading.Thread(target=share, args=(0.02 * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    held.wait()
    try:
        with lock.alone(), lock.alone_now() as free:
            assert not free  # nobody else gets it meanwhile
    finally:
        stop.set()
        for thread in threads:
            thread.join()
