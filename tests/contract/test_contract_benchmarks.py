"""All benchmarks report in one schema, and committed results conform to it."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metaroll
from metaroll.configs.inference import LoopOptions
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.inference.posterior import Posterior
from metaroll.lab.inferring import sim2real
from metaroll.lab.results.inference_result import Inference
from metaroll.lab.runs.run_reports import read_run

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


@pytest.mark.parametrize("name", sorted(path.stem for path in (BENCHMARKS / "results").glob("*.jsonl")))
def test_committed_results_keep_to_the_schema(name, reporting):
    assert name in SCRIPTS
    lines = (BENCHMARKS / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            reporting.check_line(line)
        except ValueError as error:
            pytest.fail(f"line {number}: {error}")
        assert line["what"] == name, number


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_reports_and_has_a_quick_form(script):
    text = (BENCHMARKS / f"{script}.py").read_text(encoding="utf-8")
    assert "from _reporting import" in text
    assert '"--quick"' in text
    assert f"`{script}.py`" in (BENCHMARKS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", SCRIPTS)
def test_names_that_a_benchmark_imports_exist(script):
    """Imports inside functions are included, because they would fail only when a benchmark runs."""
    tree = ast.parse((BENCHMARKS / f"{script}.py").read_text(encoding="utf-8"))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module]
    for node in taken:
        if node.module.split(".")[0] == "metaroll":
            module = importlib.import_module(node.module)
            for name in [alias.name for alias in node.names if not hasattr(module, alias.name)]:
                importlib.import_module(f"{node.module}.{name}")


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
    line = {**LINE, "machine": reporting.machine()}  # without which a figure of speed says little
    assert line["machine"]["processor"] and "blas" in line["machine"]
    assert reporting.read_results("rollout_throughput") == [line, {**line, "value": 1.0}]
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [line, line, {**line, "value": 1.0}]


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


def script_of(name, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module(name)


def test_summaries_take_lines_of_their_own_settings_alone(reporting):
    config = {"name": "promp", "seed": 0, "hidden_sizes": (64, 64)}
    for value, settings in ((1.0, config), (2.0, config), (3.0, {**config, "epochs": 2}), (4.0, {"name": "promp"})):
        reporting.report("demo", False, **{**MEASURED, "value": value, "config": settings})
    found = reporting.newest_of("demo", MEASURED["metric"], config)
    assert found is not None and found["value"] == 2.0
    assert reporting.newest_of("demo", "another", config) is None
    assert reporting.newest_of("demo", MEASURED["metric"], {**config, "seed": 1}) is None


def test_summaries_of_meta_learning_do_not_mix_settings(reporting, monkeypatch):
    for name, which in (("maml_point_mass", ("promp",)), ("rl2_tabular", ())):
        script, told = script_of(name, monkeypatch), []
        monkeypatch.setattr(script, "newest_of", reporting.newest_of)
        monkeypatch.setattr(script, "report", lambda *_, told=told, **line: told.append(line))
        if name == "maml_point_mass":
            config = script.config_of("promp", 0, script.SETTINGS["promp"], script.EPISODES)
            more = {"metric": "return_after_1", "returns": [-17.0, -2.0, -1.0, -1.0], "seconds": 1.0}
            values, seeds = [-2.0, -99.0], (0, 1)
        else:
            setup = script.SETUPS["bandit-10"]
            settings = script.settings_of(setup, 0, setup.options["epochs"])
            config = {"setup": "bandit-10", "trials": setup.trials, **settings}
            more = {"metric": "gain_on_greedy", "ci_low": 0.05}
            values, seeds = [0.08, -99.0], (0, 1)
        for value, other in zip(values, ({}, {"learning_rate": 9.0}), strict=True):
            for seed in seeds:
                line = {**MEASURED, **more, "value": value, "config": {**config, "seed": seed, **other}}
                if "returns" in more:
                    line["returns"] = [-17.0, value, -1.0, -1.0]
                reporting.report(name, False, **line)
        script.summarize(*which)
        assert [line["config"]["seeds"] for line in told] == [[0, 1]]
        assert told[0]["value"] == values[0]


def test_both_meta_gradients_are_of_the_same_rollouts(monkeypatch):
    script, collected = script_of("dice_variance", monkeypatch), []
    run = script.RolloutEngine.run_groups

    def counted(engine, request):
        groups = run(engine, request)
        collected.append(request.sub_seed)
        return groups

    monkeypatch.setattr(script.RolloutEngine, "run_groups", counted)
    sizes = {"env": "point-navigation", "tasks": 2, "rollouts": 3, "steps": 5, "repeats": 2}
    args = argparse.Namespace(**sizes, alpha=0.1, discount=0.99, unit="rewards", seed=0)
    dice, ratios, first = script.gradients(args, (script.DICE, script.RATIOS, script.FIRST_ORDER), 0)
    assert collected == [0, 1] * 2  # once for all
    again = script.gradients(args, (script.DICE, script.DICE), 0)
    assert np.array_equal(again[0], dice) and np.array_equal(again[1], dice)
    assert not np.allclose(dice, ratios) and not np.allclose(dice, first)
    args.alpha = 1e-6  # steps of no size: the second-order term, in which alone they differ, is gone
    short = script.gradients(args, (script.DICE, script.RATIOS, script.FIRST_ORDER), 0)
    np.testing.assert_allclose(short[0], short[2], atol=1e-4 * np.abs(short[2]).max())
    np.testing.assert_allclose(short[1], short[2], atol=1e-4 * np.abs(short[2]).max())


def test_noise_is_not_taken_for_a_mean_gradient(monkeypatch):
    script, rng = script_of("dice_variance", monkeypatch), np.random.default_rng(0)
    variances, norms = script.deviations(np.array([[3.0], [1.0], [2.0]]), np.array([[1, 1, 1], [2, 1, 0]]))
    np.testing.assert_allclose(norms, [(3 + 6 + 2) / 3, 3.0])  # of 3, 3 and 1 those pairs count that are not the same
    np.testing.assert_allclose(variances, [1.0, 19 / 3 - 3.0])
    noise = rng.normal(size=(20, 50))
    told = script.comparison(noise, 2.0 + noise)
    assert told["dice"] is told["value"] is told["low"] is None
    assert told["ratios"] == pytest.approx(0.5, rel=0.1)  # each entry deviates by 1 from 2
    told = script.comparison(2.0 + 2.0 * noise, 2.0 + noise)
    assert told["low"] < told["value"] < told["high"] and told["value"] == pytest.approx(2.0, rel=0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU times of other processes are read from /proc")
def test_a_budget_of_cpu_time_counts_child_processes(monkeypatch):
    script = script_of("maml_cheetah_dir", monkeypatch)
    budget = script.Budget(None, 0.2)
    assert not budget.is_over and budget.cpu_used < 0.2
    code = "import time; print(flush=True)\nwhile time.process_time() < 0.4: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        child.stdout.readline()
        assert budget.is_over  # although this process has only waited
        child.stdin.write("\n")
    assert budget.cpu_used >= 0.35  # of processes that have ended, too
    assert script.Budget(0.0, None).is_over and not script.Budget(60.0, None).is_over
    assert script.ENDLESS > 10**6


def test_digests_name_the_epoch_and_entry_of_the_first_difference(monkeypatch):
    script = script_of("digests", monkeypatch)
    before = {"entries": {"return": [1.0, 2.0, 3.0], "loss": [0.5, 0.25, "nan"], "weights": ["ab"]}}
    assert script.compared(before, before) == {"status": "equal", "differing": 0, "added": []}
    assert script.compared(None, before)["status"] == "missing"
    more = {"entries": {**before["entries"], "entropy": [1.0]}}
    assert script.compared(before, more) == {"status": "equal", "differing": 0, "added": ["entropy"]}
    after = {"entries": {"return": [1.0, 2.0, 4.0], "loss": [0.5, 0.5, "nan"]}}
    result = script.compared(before, after)
    assert (result["status"], result["differing"]) == ("differs", 3)
    assert [(first["epoch"], first["entry"], first["after"]) for first in result["first"]] == [
        *((1, "weights", "missing"), (2, "loss", 0.5), (3, "return", 4.0))
    ]
    failed = {"entries": {"failed": ["ValueError: no"]}}
    assert script.compared(failed, failed)["status"] == "failed"  # although both fail alike
    assert script.compared(before, failed)["first"] == {"after": "ValueError: no"}


def test_digests_are_of_values_whatever_their_width_order_and_names(monkeypatch):
    parts = script_of("_digest_parts", monkeypatch)
    values = np.array([[0.1, -2.0], [3.0, np.nan]], dtype=np.float32)
    assert parts.digest_of(values) == parts.digest_of(values.astype(np.float64))
    assert parts.digest_of({"a": 1, "b": "x"}) == parts.digest_of({"b": "x", "a": np.int8(1)})
    flipped = values.copy()
    flipped.view(np.uint32)[0, 0] ^= 1
    others = (flipped, values.T, values.ravel())
    assert len({parts.digest_of(other) for other in (values, *others)}) == 4
    weights = [values.T.ravel(), np.ones(2)]
    assert np.array_equal(parts.sorted_values(weights), parts.sorted_values([np.ones(2), values]), equal_nan=True)
    assert not np.array_equal(parts.sorted_values(weights), parts.sorted_values([values, flipped[0]]), equal_nan=True)
    with pytest.raises(TypeError, match="object"):
        parts.digest_of(object())


def test_a_case_that_raises_is_recorded(monkeypatch):
    script = script_of("digests", monkeypatch)

    def case(parts, folder):
        parts.add("before the error", 1.0)
        raise ValueError(f"no file in {folder}")

    assert script.run_case(case) == {"entries": {"failed": ["ValueError: no file in FOLDER"]}, "digest": "failed"}
    assert script.run_case(lambda parts, folder: parts.add("x", 2))["entries"] == {"x": [2.0]}


def test_committed_digests_replace_those_of_their_case_and_machine(monkeypatch, tmp_path):
    script = script_of("digests", monkeypatch)
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    monkeypatch.setattr(sys.modules["_reporting"], "RESULTS", tmp_path)
    keys = [{"processor": name, "versions": {"python": "3.11.7"}} for name in ("a", "b")]
    script.write([script.make_line(case, key, metric="entries", value=1) for case in ("x", "y") for key in keys])
    script.write([script.make_line("x", keys[0], metric="entries", value=2)])
    lines = script.read_results("digests")
    assert sorted((line["config"]["case"], line["machine"]["processor"], line["value"]) for line in lines) == [
        *(("x", "a", 2), ("x", "b", 1), ("y", "a", 1), ("y", "b", 1))
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["digests.jsonl"]


def test_simopt_moves_to_the_parameters_of_the_recordings(monkeypatch):
    sim_opt = script_of("_randomization_baselines", monkeypatch).sim_opt

    def simulate(thetas):
        features = np.stack([thetas[:, 0] + thetas[:, 1], thetas[:, 0] * thetas[:, 1]], axis=1)
        features[thetas[:, 0] > 0.95] = np.nan
        return features

    prior = {"a": (0.0, 1.0), "b": (0.5, 1.0)}
    draws = sim_opt(simulate, np.array([1.1, 0.28]), prior, iterations=8, seed=1)
    assert draws.shape == (10_000, 2)
    np.testing.assert_allclose(draws.mean(axis=0), [0.4, 0.7], atol=0.03)
    again = sim_opt(simulate, np.array([1.1, 0.28]), prior, iterations=8, seed=1)
    np.testing.assert_array_equal(draws, again)

    def turned(thetas):
        return simulate(thetas[:, ::-1])

    turned.names = ("b", "a")
    by_name = sim_opt(turned, np.array([1.1, 0.28]), prior, iterations=8, seed=1)
    np.testing.assert_array_equal(draws, by_name)


class _Runner:
    """What the callback sees of a runner."""

    def __init__(self):
        self.algo = self
        self.task_sampler = metaroll.DomainRandomizer(metaroll.UniformDomainParam("pole_mass", 1.0, 1e-3))
        self.policy = metaroll.policies.IdlePolicy(metaroll.EnvSpec.from_env(PendulumEnv()))


def test_ranges_grow_where_the_policy_copes_and_shrink_where_not(monkeypatch):
    script = script_of("_randomization_baselines", monkeypatch)
    limits = {"pole_mass": (0.5, 1.5)}
    options = {"num_episodes": 1, "max_steps": 5, "seed": 0}
    easy = script.AutomaticRandomization("pend", {"pole_mass": 1.0}, limits, low=-1.0, high=0.0, **options)
    runner = _Runner()
    for epoch in range(40):
        easy.on_epoch_end(runner, epoch, {})
    assert easy.ranges["pole_mass"] == pytest.approx((0.5, 1.5))
    learned_in = [param["pole_mass"] for param in runner.task_sampler.draw(50, 0)]
    assert min(learned_in) < 0.6 and max(learned_in) > 1.4
    assert {param["pole_mass"] for param in easy.randomizer.draw(50, 0)} - {1.0}
    easy._low, easy._high = 1e9, 1e9
    for epoch in range(80):
        easy.on_epoch_end(_Runner(), epoch, {})
    low, high = easy.ranges["pole_mass"]
    assert 0.999 < low < 1.0 < high < 1.001


def test_both_baselines_train_on_logs_of_a_robot(monkeypatch, tmp_path):
    script = script_of("_randomization_baselines", monkeypatch)
    few = {"steps_per_epoch": 500, "num_passes": 1, "num_episodes": 1}
    monkeypatch.setattr(script, "TRAINING", {**script.TRAINING, **few})
    prior, log = sim2real.unknown_prior(), sim2real.log_robot(sim2real.draw_robot(0), 2, 0)
    options = LoopOptions(epochs=2, simulations=80)
    told = Posterior(prior, draws=prior.sample(20, 0), description={"num_simulations": [50, 30], "num_failed": 4})
    nominal = {name: sim2real.swing_up().model.nominal[name] for name in prior.names}
    found = Inference("sim", told, nominal, [], 0, sim2real.inference_options(options, 0, False), tmp_path)
    tasks = Posterior.load(script.sim_opt_tasks(log, found, tmp_path / "simopt-tasks"))
    assert tasks.names == prior.names and (tasks.draws.std(axis=0) < prior.std).all()
    run = read_run(script.train_adr(nominal, prior, options, tmp_path / "adr", 0))
    assert (run.state, run.epochs_done) == ("finished", 2)
