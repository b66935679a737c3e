"""A cluster that is lost while a run trains: an error line at once, and the process ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import socket, sys, threading, time
from metaroll.training.session.cluster_watch import watched

head = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{head.getsockname()[1]}"
threading.Timer(0.5, head.close).start()
with watched(lambda: address, lambda where: print("lost", where == address, flush=True), every=0.1, grace=0.5):
    time.sleep(60)
"""


def test_a_cluster_that_listens_no_more_is_said_and_ends_the_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "lost True\n"
    assert done.returncode != 0


def test_a_cluster_that_was_never_seen_and_a_run_that_ends_are_left_alone():
    code = PROGRAM.replace("head.close).start()", "print).start(); address = '127.0.0.1:1'").replace(
        "sleep(60)", "sleep(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout.strip(), done.returncode) == ("", 0)
