"""Saves what coverage.py has measured in this process several times a second, for tools/mutants.py.

Workers of pools are killed when they are no longer needed, and coverage.py saves at the end of a process only. The
environment that tools/mutants.py makes imports this module in every process that a test starts.
"""

from __future__ import annotations

import threading
import time

from coverage import Coverage

PAUSE_SECONDS = 0.2
PAUSE_SHARE = 5.0
"""Pauses take at least so many times as long as saving did."""


def _save_again_and_again(measured: Coverage) -> None:
    pause = PAUSE_SECONDS
    while True:
        time.sleep(pause)
        began = time.monotonic()
        measured.save()
        pause = max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - began))


if (running := Coverage.current()) is not None:
    threading.Thread(target=_save_again_and_again, args=(running,), daemon=True).start()
