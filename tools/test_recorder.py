"""A pytest plugin for tools/mutants.py: runs chosen tests, and records how each ends and which lines it executes.

It is configured by environment variables, which processes that tests start inherit:

- ``TEST_RECORDER_REPORT``: a JSONL file to which events are appended: ``{"start": id}``, ``{"failed": id, "when": ...,
  "error": ...}``, ``{"end": id, "outcome": ..., "seconds": ...}``, ``{"collected": number of tests}``.
- ``TEST_RECORDER_TESTS``: a JSON file with the ids of the tests to run, in this order. Other tests are deselected, and
  ids that no longer exist are ignored.
- If coverage.py has been started (``COVERAGE_PROCESS_START``), its context is the id of the test, or the path of the
  test file in fixtures that several tests share. In other processes it is the path of the test file that was running
  when they started (``TEST_RECORDER_CONTEXT``, which the settings of coverage.py name as its context). For this,
  workers that test files share are ended after each file.
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
"""Attribute of a conftest.py with workers that outlive a test file; it has a method ``end()``."""

SAVED_SECONDS = 0.6
"""Time before workers are ended, in which the measurements of coverage.py in them are saved."""

_seconds: dict[str, float] = {}
_outcomes: dict[str, str] = {}


def _write(**line: Any) -> None:
    if path := os.environ.get(REPORT):
        with open(path, "a", encoding="utf-8") as file:  # opened anew: a test may have closed all descriptors
            file.write(json.dumps(line) + "\n")


def _switch(context: str) -> bool:
    """Change the context of coverage.py for what is executed from now on; returns whether anything is measured."""
    running = None if Coverage is None else Coverage.current()
    if running is not None:
        running.switch_context(context)
    return running is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the chosen tests, in the given order."""
    if path := os.environ.get(TESTS):
        places = {name: place for place, name in enumerate(json.loads(Path(path).read_text(encoding="utf-8")))}
        others = [item for item in items if item.nodeid not in places]
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
        config.hook.pytest_deselected(items=others)
    _write(collected=len(items))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a test file that cannot be imported."""
    if report.failed:
        _write(failed=report.nodeid, when="import", error=_last_line(report))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Set the context of a test, in this process and for those that it starts."""
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
    """Count the lines that a shared fixture executes for all tests of the file."""
    if fixturedef.scope == "function":
        return (yield)
    item = request._pyfuncitem  # the first test that needs the fixture
    _switch(_file_of(item))
    try:
        return (yield)
    finally:
        _switch(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the end of a test, and a failure at once."""
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
    """The error in one line."""
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or report.longreprtext
    lines = [line for line in message.splitlines() if line.strip()] or ["no text"]
    return (lines[0] if getattr(report.longrepr, "reprcrash", None) else lines[-1]).strip()[:200]
