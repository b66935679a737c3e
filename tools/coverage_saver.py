"""Saves the measurements of coverage.py in this process several times a second, for tools/mutants.py.

Workers of pools are killed when they are no longer needed, but coverage.py saves only at the end of a process. The
virtual environment that tools/mutants.py makes imports this module in every process that a test starts.
"""

from __future__ import annotations

import threading
import time

from coverage import Coverage

PAUSE_SECONDS = 0.2
PAUSE_SHARE = 5.0
"""Least ratio of a pause to the time of the last save."""


def _save_repeatedly(coverage: Coverage) -> None:
    pause = PAUSE_SECONDS
    while True:
        time.sleep(pause)
        began = time.monotonic()
        coverage.save()
        pause = max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - began))


if (running := Coverage.current()) is not None:
    threading.Thread(target=_save_repeatedly, args=(running,), daemon=True).start()
