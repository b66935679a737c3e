"""A pytest plugin for tools/mutants.py: runs chosen tests only, and records how each ends and which lines it executes.

What it does is set by environment variables, so that processes that tests start inherit it:

- ``TEST_RECORDER_REPORT``: a JSONL file to which it appends, as it happens: ``{"start": id}``, ``{"failed": id, "when":
  ..., "error": ...}``, ``{"end": id, "outcome": ..., "seconds": ...}``, ``{"collected": number of tests}``.
- ``TEST_RECORDER_TESTS``: a JSON file with the ids of the tests to run, in this order; others are left out. An id that
  no longer exists is left out too.
- coverage.py, where it has been started (``COVERAGE_PROCESS_START``), gets the id of a test as its context, or the path
  of the file of tests for fixtures that several tests share. What runs in other processes has the path of the file that
  was running when they started (``TEST_RECORDER_CONTEXT``, which the settings of coverage.py name as its context).
  Workers that files of tests share end with each file, so that this is so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

try:
    from coverage import Coverage
except ImportError:  # mutants run without it
    Coverage = None

REPORT = "TEST_RECORDER_REPORT"
TESTS = "TEST_RECORDER_TESTS"
CONTEXT = "TEST_RECORDER_CONTEXT"
SHARED = "SHARED_POOLS"
"""The name under which a conftest.py keeps workers that live longer than a file of tests; they have ``end()``."""

SAVED_SECONDS = 0.6
"""How long workers wait before they are ended, so that what coverage.py has measured in them is saved."""

_seconds: dict[str, float] = {}
_outcomes: dict[str, str] = {}


def _write(**line: Any) -> None:
    if path := os.environ.get(REPORT):
        with open(path, "a", encoding="utf-8") as file:  # opened anew: a test may have closed all descriptors
            file.write(json.dumps(line) + "\n")


def _switch(context: str) -> bool:
    """Whether anything is measured; what is executed from now on counts for ``context``."""
    running = None if Coverage is None else Coverage.current()
    if running is not None:
        running.switch_context(context)
    return running is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the chosen tests, in the order that was asked for."""
    if path := os.environ.get(TESTS):
        places = {name: place for place, name in enumerate(json.loads(Path(path).read_text(encoding="utf-8")))}
        others = [item for item in items if item.nodeid not in places]
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
        config.hook.pytest_deselected(items=others)
    _write(collected=len(items))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Records a file of tests that cannot be imported."""
    if report.failed:
        _write(failed=report.nodeid, when="import", error=_last_line(report))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Names the context of a test, in this process and for those that it starts."""
    name = _file_of(item)
    os.environ[CONTEXT] = name
    _write(start=item.nodeid)
    _switch(item.nodeid)
    try:
        return (yield)
    finally:
        if _switch(name) and (nextitem is None or _file_of(nextitem) != name):
            for plugin in item.config.pluginmanager.get_plugins():
                if hasattr(plugin, SHARED):
                    time.sleep(SAVED_SECONDS)
                    getattr(plugin, SHARED).end()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, Any, Any]:
    """What a shared fixture executes counts for all tests of the file."""
    if fixturedef.scope == "function":
        return (yield)
    item = request._pyfuncitem  # the test that is the first to need it
    _switch(_file_of(item))
    try:
        return (yield)
    finally:
        _switch(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Records the end of a test, and its failure at once."""
    name = report.nodeid
    _seconds[name] = _seconds.get(name, 0.0) + report.duration
    if report.failed:
        _write(failed=name, when=report.when, error=_last_line(report))
    if report.failed or (report.skipped and name not in _outcomes):
        _outcomes[name] = report.outcome
    if report.when == "teardown":
        _write(end=name, outcome=_outcomes.pop(name, "passed"), seconds=round(_seconds.pop(name), 4))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _last_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    """What went wrong, in one line."""
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or report.longreprtext
    lines = [line for line in message.splitlines() if line.strip()] or ["no text"]
    return (lines[0] if getattr(report.longrepr, "reprcrash", None) else lines[-1]).strip()[:200]
