"""An environment that starts a process in a session of its own, which must not be left behind."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium


class WithHelper(gymnasium.Wrapper):
    """CartPole beside a process that sleeps for an hour."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"]
        self._helper = subprocess.Popen(command, start_new_session=True)

    def close(self) -> Any:
        """End the process, too."""
        self._helper.kill()
        self._helper.wait()
        return super().close()


def make() -> WithHelper:
    """Make the environment, by which the commands name it."""
    return WithHelper()
