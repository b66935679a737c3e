"""Every benchmark reports in one schema, and what is committed of their results keeps to it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))
LINE = {
    "what": "rollout_throughput",
    "subject": "metaroll",
    "peer": "stable-baselines3",
    "metric": "env_steps_per_second",
    "value": 40_000.0,
    "unit": "environment steps/s",
    "ratio": 4.5,
    "slots": 16,
    "config": {"env": "HalfCheetah-v5"},
    "versions": {"python": "3.11.7"},
}
MEASURED = {key: value for key, value in LINE.items() if key not in ("what", "subject")}


def load_reporting():
    spec = importlib.util.spec_from_file_location("_reporting", BENCHMARKS / "_reporting.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reporting(tmp_path, monkeypatch):
    module = load_reporting()
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def committed():
    for path in sorted((BENCHMARKS / "results").glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            yield pytest.param(path.stem, line, id=f"{path.stem}-{number}")


@pytest.mark.parametrize(("name", "text"), list(committed()))
def test_committed_results_keep_to_the_schema(name, text):
    line = json.loads(text)
    load_reporting().check_line(line)
    assert line["what"] == name
    assert name in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_reports_and_has_a_quick_form(script):
    text = (BENCHMARKS / f"{script}.py").read_text(encoding="utf-8")
    assert "from _reporting import" in text
    assert '"--quick"' in text
    assert f"`{script}.py`" in (BENCHMARKS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [{}, {"ratio": None, "slots": None}, {"value": 0, "more": [1]}, {"peer": "floor"}])
def test_a_measurement_is_accepted(reporting, change):
    reporting.check_line({**LINE, **change})


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"value": None}, "value"),
        ({"value": "fast"}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": True}, "value"),
        ({"ratio": "4.5"}, "ratio"),
        ({"ratio": float("inf")}, "ratio"),
        ({"ratio": -1.0}, "ratio"),
        ({"slots": 16.0}, "slots"),
        ({"slots": 0}, "slots"),
        ({"peer": "Stable-Baselines3"}, "peer"),
        ({"peer": "x35f/meta_rl"}, "peer"),
        ({"metric": ""}, "metric"),
        ({"unit": None}, "unit"),
        ({"config": "16 slots"}, "config"),
        ({"versions": {}}, "versions"),
        ({"versions": {"python": 3}}, "versions"),
        ({"missing": "not installed"}, "missing"),
        ({"missing": "", "value": None}, "missing"),
    ],
)
def test_a_wrong_measurement_is_refused(reporting, change, about):
    with pytest.raises(ValueError, match=about):
        reporting.check_line({**LINE, **change})


@pytest.mark.parametrize("key", LINE)
def test_no_key_may_be_absent(reporting, key):
    with pytest.raises(ValueError, match=key):
        reporting.check_line({name: value for name, value in LINE.items() if name != key})


def test_full_runs_are_appended_and_quick_ones_only_printed(reporting, capsys):
    reporting.report("rollout_throughput", True, **MEASURED)
    assert reporting.read_results("rollout_throughput") == []
    reporting.report("rollout_throughput", False, **MEASURED)
    reporting.report("rollout_throughput", False, **{**MEASURED, "value": 1.0})
    assert reporting.read_results("rollout_throughput") == [LINE, {**LINE, "value": 1.0}]
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [LINE, LINE, {**LINE, "value": 1.0}]


def test_a_wrong_measurement_is_not_written(reporting):
    with pytest.raises(ValueError, match="value"):
        reporting.report("rollout_throughput", False, **{**MEASURED, "value": float("nan")})
    assert reporting.read_results("rollout_throughput") == []


def test_a_missing_peer_is_reported(reporting):
    known = {key: MEASURED[key] for key in ("metric", "unit", "config", "versions", "slots")}
    line = reporting.report_missing("rollout_throughput", True, peer="envpool", reason="not installed", **known)
    assert (line["value"], line["ratio"], line["missing"]) == (None, None, "not installed")


def test_versions_leave_out_what_is_not_installed(reporting):
    assert set(reporting.versions("numpy", "no-such-package-of-ours")) == {"python", "numpy"}
