"""Logs of robots: mapping files, tables, resampling, data sets of Minari, and the command that imports them."""

from __future__ import annotations

import contextlib
import json
import math

import gymnasium
import numpy as np
import pytest
import yaml

from metaroll import load_rollouts, rollout, save_rollout, save_rollouts
from metaroll.errors import LogError
from metaroll.lab import LogColumn, LogMapping, load_log
from metaroll.lab.cli.main import main
from metaroll.sims import PendulumEnv

COLUMNS = {
    "time": {"column": "t", "unit": "ms"},
    "observations": {
        "sin_theta": {"column": "angle", "unit": "deg", "function": "sin"},
        "cos_theta": {"column": "angle", "unit": "deg", "function": "cos"},
        "theta_dot": {"column": "speed", "unit": "rpm"},
    },
    "actions": {"torque": {"column": "u", "unit": "mN m"}},
}


def table(rows=30, dt_ms=10.0):
    """A log as laboratories write it: angles in degrees from 0 to 360, speed in rpm, torque in mN m."""
    t = np.arange(rows) * dt_ms
    angle = (300.0 + 5.0 * np.arange(rows)) % 360.0
    return {"t": t + 1e6, "angle": angle, "speed": np.full(rows, 30.0), "u": 100.0 * np.arange(rows)}


def write_csv(path, columns, delimiter=","):
    rows = zip(*columns.values(), strict=True)
    lines = [delimiter.join(columns), *(delimiter.join(str(cell) for cell in row) for row in rows)]
    path.write_text("# written by the robot\n" + "\n".join(lines) + "\n")
    return path


def write(path, columns):
    if path.suffix == ".csv":
        return write_csv(path, columns)
    if path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_a_log_becomes_a_rollout_of_the_simulator(tmp_path, suffix):
    env = PendulumEnv()
    columns = {name: values[::-1] if name == "?" else values for name, values in table().items()}
    [result] = load_log(write(tmp_path / f"run{suffix}", columns), COLUMNS, env_spec=env.env_spec, dt=env.dt)
    assert len(result) == 14  # 0.29 s in steps of 0.02 s
    times = 0.02 * np.arange(15)
    np.testing.assert_allclose(result.time, times, atol=1e-12)
    angle = np.radians(300.0 + 500.0 * times)  # without its jump from 360 to 0 degrees
    expected = np.stack([np.sin(angle), np.cos(angle), np.full(15, math.pi)], axis=1)
    np.testing.assert_allclose(result.observations, expected, atol=1e-12)
    np.testing.assert_allclose(result.actions[:, 0], 0.05 + 0.2 * np.arange(14), atol=1e-12)  # means of two rows
    assert result.truncated.tolist() == [False] * 13 + [True] and not result.terminated.any()
    assert result.rollout_info["dt"] == 0.02 and result.rollout_info["env_spec"] == env.env_spec
    log = result.rollout_info["log"]
    assert (log["file"], log["rows"]) == (f"run{suffix}", [1, 30])
    assert (log["timing"]["rows"], log["timing"]["gaps"]) == ("gathered", []) and log["timing"]["stamps_off"] < 1e-9


def test_observations_are_interpolated_and_actions_are_held():
    """Worked by hand: rows at 0, 1, 2.5 and 3 s become steps of 0.5 s."""
    mapping = {"time": "t", "observations": ["x"], "actions": {"u": "u"}, "rewards": "r", "dt": 0.5, "max_gap": 2.0}
    columns = {"t": [0.0, 1.0, 2.5, 3.0], "x": [0.0, 2.0, 5.0, 4.0], "u": [1.0, 2.0, 3.0, np.nan]}
    result = loaded({**columns, "r": [10.0, 20.0, 30.0, 0.0]}, mapping)
    np.testing.assert_allclose(result.observations[:, 0], [0, 1, 2, 3, 4, 5, 4], atol=1e-12)
    assert result.actions[:, 0].tolist() == [1, 1, 2, 2, 2, 3] and result.rewards.tolist() == [10, 10, 20, 20, 20, 30]
    angles = {"theta": {"column": "x", "unwrap": True}}
    turned = loaded({**columns, "x": [3.0, -3.0, -2.0, -1.0]}, {**mapping, "rewards": None, "observations": angles})
    assert (np.diff(turned.observations[:, 0]) > 0).all()


def loaded(columns, mapping):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        [result] = load_log(write(Path(folder) / "log.npz", arrays), mapping)
    return result


def test_rows_at_the_times_of_steps_keep_their_bits():
    generator = np.random.default_rng(0)
    x, u = generator.normal(size=(50, 2)), generator.normal(size=49)
    mapping = {"observations": ["x[0]", "x[1]"], "actions": {"u": "u"}, "sample_time": 0.02}
    for dt in (None, 0.02, 0.04):
        result = loaded({"x": x, "u": u}, {**mapping, "dt": dt})  # the last row has no action
        every = 1 if dt != 0.04 else 2
        np.testing.assert_array_equal(result.observations, x[::every][: len(result) + 1])
        made = u if every == 1 else u[:48].reshape(24, 2).mean(axis=1)
        np.testing.assert_allclose(result.actions[:, 0], made, rtol=0, atol=0 if every == 1 else 1e-13)
        assert len(result) == (49 if every == 1 else 24)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("kind", ["m8[ns]", "m8[us]", "M8[ms]"])
def test_time_stamps_and_durations_are_seconds(tmp_path, suffix, kind):
    seconds = np.round(1e3 * 0.02 * np.arange(30)).astype("m8[ms]")
    stamps = seconds.astype(kind) if kind[0] == "m" else (np.datetime64("2026-01-01", "ms") + seconds).astype(kind)
    path = write(tmp_path / f"run{suffix}", {**table(), "t": stamps})
    [result] = load_log(path, {**COLUMNS, "time": "t"}, dt=0.02)
    np.testing.assert_allclose(result.time, 0.02 * np.arange(30), atol=1e-12)
    with pytest.raises(LogError, match=rf"time .*'t' .*{kind[-3:-1]}"):
        load_log(path, COLUMNS)  # whose unit is ms


def test_an_angle_that_jumps_by_turns_is_warned_of(tmp_path):
    path = write(tmp_path / "run.npz", table())
    plain = {"theta": {"column": "angle", "unit": "deg"}, "theta_dot": "speed"}
    mapping = {**COLUMNS, "observations": plain}
    with pytest.warns(UserWarning, match="row 13, column 'angle': .*'theta' .*6.196 rad; .*unwrap"):
        load_log(path, mapping, dt=0.007)
    whole = {**plain, "theta": {**plain["theta"], "unwrap": True}}
    [result] = load_log(path, {**mapping, "observations": whole}, dt=0.007)  # without a warning
    np.testing.assert_allclose(np.diff(result.observations[:, 0]), np.radians(500.0) * 0.007, atol=1e-9)
    with pytest.warns(UserWarning, match="'theta' .*unwrap"):
        load_log(path, {**COLUMNS, "states": plain})


def test_time_in_another_unit_is_refused_before_steps_are_made(tmp_path):
    columns = {**table(), "t": 1e5 * np.arange(30.0)}
    with pytest.raises(LogError, match=r"100000 s .* 0.02 s; .*unit of 't'"):
        load_log(write(tmp_path / "run.npz", columns), {**COLUMNS, "time": "t"}, dt=0.02)


def test_one_log_may_hold_many_rollouts_with_states_and_endings(tmp_path):
    columns = {
        "run": ["a"] * 4 + ["b"] * 3,
        "x": np.arange(7.0),
        "u": [0.0, 1.0, 2.0, "", 4.0, 5.0, ""],
        "over": [0, 0, 1, 0, 0, 0, 0],
    }
    mapping = {"episode": "run", "sample_time": 0.1, "terminated": "over", "observations": ["x"], "actions": ["u"]}
    first, second = load_log(write_csv(tmp_path / "runs.csv", columns, ";"), {**mapping, "states": {"place": "x"}})
    assert (len(first), len(second)) == (3, 2)
    assert (first.terminated[-1], first.truncated[-1]) == (True, False) and second.truncated[-1]
    log = second.rollout_info["log"]
    assert (log["file"], log["rows"], log["episode"]) == ("runs.csv", [5, 7], "b")
    assert second.states[:, 0].tolist() == [4.0, 5.0, 6.0]
    assert second.rollout_info["env_spec"].state_labels == ("place",)
    columns["run"] = ["a", "a", "b", "b", "b", "a", "a"]
    with pytest.raises(LogError, match=r"row 6 \(line 8\), column 'run': rollout a .* row 1; sort"):
        load_log(write_csv(tmp_path / "mixed.csv", columns), mapping)
    with pytest.raises(LogError, match=r"row 3 \(line 5\), column 'over'"):
        load_log(tmp_path / "runs.csv", {**mapping, "episode": None})


def test_gaps_up_to_max_gap_are_filled():
    mapping = {"observations": ["x"], "actions": ["u"], "sample_time": 0.1, "max_gap": 0.31}
    nan = np.nan
    with pytest.warns(UserWarning, match=r"u in row 2, x in row 2 to 3 \(300 ms\) are missing"):
        result = loaded({"x": [0.0, nan, nan, 3.0, 4.0], "u": [1.0, nan, 3.0, 4.0, nan]}, mapping)
    log = result.rollout_info["log"]
    assert [one[:3] for one in log["missing"]] == [["u", 2, 2], ["x", 2, 3]]
    np.testing.assert_allclose(log["made_up"], [[0.0, 0.3]])
    np.testing.assert_allclose(result.observations[:, 0], [0, 1, 2, 3, 4])
    assert result.actions[:, 0].tolist() == [1, 1, 3, 4]
    outside = {"u": {"column": "u", "bounds": [0.0, 2.0]}}
    clipped = loaded({"x": np.arange(5.0), "u": np.arange(5.0)}, {**mapping, "actions": outside, "outside": "clip"})
    assert clipped.actions[:, 0].tolist() == [0, 1, 2, 2]


def test_degrees_that_were_forgotten_inside_a_function_are_warned_of():
    columns = {"a": np.linspace(0.0, 300.0, 20), "u": np.zeros(20)}
    for unit, is_suspicious in (("", True), ("deg", False), ("rad", False)):
        observed = {"cos_theta": {"column": "a", "function": "cos", "unit": unit}}
        mapping = {"observations": observed, "actions": ["u"], "sample_time": 0.02}
        warned = pytest.warns(UserWarning, match="'cos_theta' .* 0 to 300, .*degrees")
        with warned if is_suspicious else contextlib.nullcontext():
            loaded(columns, mapping)


PLAIN = {"time": "t", "observations": {"x": "x"}, "actions": {"u": {"column": "u", "bounds": [-1, 1]}}}
GOOD = {"t": [0.0, 0.1, 0.2, 0.3, 0.4], "x": [0.0, 1.0, 2.0, 3.0, 4.0], "u": [0.0, 0.5, 1.0, 0.5, 0.0]}


def test_booleans_of_a_csv_file_are_numbers(tmp_path):
    columns = {**GOOD, "u": ["True", "False", "true", "false", ""]}
    [log] = load_log(write_csv(tmp_path / "log.csv", columns), PLAIN)
    assert log.actions[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("dt", [0.0, -1.0, float("nan"), "0.05"])
def test_wrong_time_steps_are_refused(tmp_path, dt):
    with pytest.raises(ValueError if isinstance(dt, float) else TypeError, match="dt must"):
        load_log(write_csv(tmp_path / "log.csv", GOOD), PLAIN, dt=dt)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [0.0, 1.0, "fast", 3.0, 4.0]}, r"row 3 \(line 5\), column 'x': 'fast'"),
        ({"x": [0.0, 1.0, 5000 * "x", 3.0, 4.0]}, r"'x': 'x{11,}\.\.\.x+'"),
        ({"x": [0.0, 1.0, "2,5", 3.0, 4.0]}, "4 cells"),
        ({"t": ["2026-11-23T05:00:00", 1, 2, 3, 4]}, "row 1 .*'t': .*; write seconds"),
        ({"t": [0.0, 0.1, 0.1, 0.3, 0.4]}, r"row 3 \(line 5\), column 't': .* same .* 0.1 s; sort"),
        ({"t": [0.0, 0.1, 0.2, 0.0, 0.1]}, r"row 4 \(line 6\), column 't': .* before 0.2 s; .*episode"),
        ({"t": [0.0, 0.1, 0.3, 0.2, 0.4]}, "row 4 .* before 0.3 s; sort"),
        ({"t": [0.0, 0.1, "", 0.3, 0.4]}, "row 3 .*'t': .*missing"),
        ({"t": [0.0, 0.1, 0.2, 0.3, 9.0]}, "row 5 .* 8.7 s .*episode: .*max_gap to 8.7"),
        ({"x": [0.0, "", "nan", 3.0, 4.0]}, r"row 2 \(line 4\), column 'x': .*missing .*row 3 \(0.3 s"),
        ({"x": [0.0, "inf", 2.0, 3.0, 4.0]}, r"row 2 \(line 4\), column 'x': inf"),
        ({"x": ["", 1.0, 2.0, 3.0, 4.0]}, "row 1 .*missing, .* first row"),
        ({"x": [0.0, 1.0, 2.0, 3.0, ""]}, "row 5 .*missing, .* last row"),
        ({"u": [0.0, 0.5, 1.5, 0.5, 9.0]}, r"row 3 .*'u' .*1.5, .*\[-1, 1\] \(1 rows"),
        ({"t": [0.0], "x": [1.0], "u": [0.0]}, "two rows, got 1"),
        ({"t": [], "x": [], "u": []}, "no rows"),
    ],
)
def test_damaged_rows_are_named_by_row_and_column(tmp_path, changes, message):
    columns = {**GOOD, **changes}
    with pytest.raises(LogError, match=message):
        load_log(write_csv(tmp_path / "log.csv", columns), PLAIN)


def test_text_of_an_npz_is_shown_as_it_is(tmp_path):
    np.savez(tmp_path / "log.npz", **{**GOOD, "x": np.array(["0", "1", "a", "3", "4"])})
    with pytest.raises(LogError, match=r"row 3, column 'x': 'a' is not a number"):
        load_log(tmp_path / "log.npz", PLAIN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"t": np.arange(5) * (1 + 2j)}, "time: column 't' holds complex numbers"),
        ({"u": np.zeros(5, np.complex64)}, "actions.u: column 'u' holds complex numbers"),
        ({"t": np.array(0.1)}, "time: 't' is a single value, not a column"),
    ],
)
def test_arrays_that_are_no_columns_of_numbers(tmp_path, changes, message):
    np.savez(tmp_path / "log.npz", **{**GOOD, "gain": np.array(1j), "spectrum": np.zeros(3, complex)})
    assert len(load_log(tmp_path / "log.npz", PLAIN)[0]) == 4  # what is not mapped is not read
    np.savez(tmp_path / "log.npz", **{**GOOD, **changes})
    with pytest.raises(LogError, match=rf"^log\.npz: {message}"):
        load_log(tmp_path / "log.npz", PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": {}}, "'observation'; did you mean 'observations'"),
        ({"observations": {}}, "observations must"),
        ({"observations": {"x": "xx"}}, "observations.x: .*'xx'; did you mean 'x'"),
        ({"observations": {"x": {"column": "x", "unit": "degree"}}}, "observations.x 'degree'; did you mean 'deg'"),
        ({"observations": {"x": {"column": "x", "unit": "parsec"}}}, "observations.x 'parsec'.* Known: %, 1, A,"),
        ({"observations": {"x_dot": {"column": "x", "unit": "kg"}}}, "x_dot must .*rad/s, .* got 'kg'"),
        ({"observations": {"x": {"column": "x", "unit": "m", "function": "sin"}}}, "sin .*got 'm'"),
        ({"observations": {"alpha_dot": {"column": "x", "unit": "mm/s"}}}, "alpha_dot must .*deg/s, rpm, "),
        ({"observations": {"theta_x": {"column": "x", "unit": "m"}}}, "theta_x must .*rad, deg, rev, .*got 'm'"),
        ({"actions": {"torque": {"column": "u", "unit": "rpm"}}}, "torque must .*N m, .*got 'rpm'"),
        ({"actions": {"voltage_x": {"column": "u", "unit": "kg"}}}, "voltage_x must .*V, mV, .*got 'kg'"),
        ({"time": {"column": "t", "unit": "deg"}}, "time must .*s, ms, .*got 'deg'"),
        ({"observations": {"x": {"colum": "x"}}}, "observations.x 'colum'"),
        ({"observations": {"x": {"column": "x", "unwrap": "yes"}}}, "unwrap must"),
        ({"observations": {"x": {"column": "x", "function": "tan"}}}, "function must"),
        ({"observations": {"x": {"unit": "deg"}}}, "observations.x must"),
        ({"observations": {"x": 3}}, "observations.x must"),
        ({"actions": {"u": {"column": "u", "scale": "2"}}}, "actions.u.scale must .*number"),
        ({"actions": {"u": {"column": "u", "bounds": [1, -1]}}}, "low < high"),
        ({"actions": {"u": {"column": "u", "scale": 0}}}, "actions.u.scale must not be 0"),
        ({"sample_time": 0.1}, "time.*not both"),
        ({"time": None}, "time .*sample_time"),
        ({"time": None, "sample_time": 0.0}, r"sample_time must lie in \(0"),
        ({"dt": -1.0}, "dt must"),
        ({"outside": "ignore"}, "outside must"),
        ({"dt": 3.0}, "less .* 3 s"),
    ],
)
def test_wrong_mappings_are_refused(tmp_path, change, message):
    path = write_csv(tmp_path / "log.csv", GOOD)
    with pytest.raises(LogError, match=message):
        load_log(path, {**PLAIN, **change})
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**PLAIN, **change}))
    with pytest.raises(LogError, match=message):
        load_log(path, tmp_path / "m.yaml")


def test_files_that_are_no_logs_are_refused(tmp_path):
    write(tmp_path / "uneven.npz", {"t": np.arange(5.0), "x": np.arange(5.0), "u": np.arange(3.0)})
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    texts = {"no.npz": "x", "no.parquet": "x", "no.xls": "x", "no.csv": "\n", "bad.yaml": "a: [", "n.json": "1"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cut.csv").write_text("t,x,u\n0,0,0\n1,1,1\n2,2")
    (tmp_path / "empty.csv").write_text("t,x,u\n0,0,0\n\n1,1,1\n")
    (tmp_path / "twice.csv").write_text("t,x,x\n0,0,0\n")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    for name, message in {
        "uneven.npz": "'t' has 5 rows .*'u' has 3",
        "objects.npz": "objects.npz: .*objects",
        "no.npz": "no.npz: ",
        "no.parquet": "no.parquet: ",
        "no.xls": ".csv, .npz, .parquet",
        "no.csv": "no.csv: .*names",
        "cut.csv": r"row 3 \(line 4\) .*2 cells, .*3 columns; .*ends",
        "empty.csv": r"row 2 \(line 3\) .*remove it; .*episode",
        "twice.csv": "column 'x'",
        "bytes.csv": "UTF-8",
    }.items():
        with pytest.raises(LogError, match=message):
            load_log(tmp_path / name, {**PLAIN})
    for name, message in {"bad.yaml": "bad.yaml: line 1: ", "n.json": "JSON object"}.items():
        with pytest.raises(LogError, match=message):
            load_log(tmp_path / "cut.csv", tmp_path / name)
    for path, mapping in (("none.csv", PLAIN), ("cut.csv", tmp_path / "none.yaml")):
        with pytest.raises(FileNotFoundError, match="none"):
            load_log(tmp_path / path, mapping)
    with pytest.raises(LogError, match=r"twice\.csv .*mapping"):
        load_log(tmp_path / "twice.csv")
    with pytest.raises(LogError, match="Minari"):
        load_log(tmp_path)


def test_labels_of_the_environment_choose_and_order_columns(tmp_path):
    spec, path = PendulumEnv().env_spec, write_csv(tmp_path / "log.csv", table(5))
    turned = dict(reversed(COLUMNS["observations"].items()))
    [result] = load_log(path, {**COLUMNS, "observations": turned}, env_spec=spec)
    np.testing.assert_allclose(result.observations[0], [-math.sqrt(0.75), 0.5, math.pi])
    wrong = {"sin_theta": turned["sin_theta"], "cos_theta": turned["cos_theta"]}
    with pytest.raises(LogError, match="'theta_dot'"):
        load_log(path, {**COLUMNS, "observations": wrong}, env_spec=spec)
    with pytest.raises(LogError, match=r"'force', .*torque"):
        load_log(path, {**COLUMNS, "actions": {**COLUMNS["actions"], "force": "u"}}, env_spec=spec)
    with pytest.raises(LogError, match=r"'torque' .*4, .*\[-3.5, 3.5\]"):
        load_log(write_csv(tmp_path / "far.csv", {**table(5), "u": [4000.0] * 5}), COLUMNS, env_spec=spec)
    cart = gymnasium.make("CartPole-v1")  # no labels, and choices
    columns = {name: np.zeros(4) for name in "abcd"} | {"u": np.array([0, 1, 1, 0])}
    mapping = {"observations": list("abcd"), "actions": ["u"], "sample_time": 0.02}
    np.savez(tmp_path / "cart.npz", **columns)
    from metaroll import EnvSpec

    [result] = load_log(tmp_path / "cart.npz", mapping, env_spec=EnvSpec.from_env(cart))
    assert result.actions.tolist() == [0, 1, 1] and result.actions.dtype == np.int64
    np.savez(tmp_path / "near.npz", **{**columns, "u": np.array([0, 0.99999999, 1, 0])})
    [near] = load_log(tmp_path / "near.npz", mapping, env_spec=EnvSpec.from_env(cart))
    assert near.actions.tolist() == [0, 1, 1]
    np.savez(tmp_path / "far.npz", **{**columns, "u": np.array([0, 0.5, 1, 0])})
    with pytest.raises(LogError, match=r"'u' .*0.5, .*choices"):
        load_log(tmp_path / "far.npz", mapping, env_spec=EnvSpec.from_env(cart))
    with pytest.raises(LogError, match=r"observations .* 4, .*got 3: a, b, c"):
        load_log(tmp_path / "cart.npz", {**mapping, "observations": list("abc")}, env_spec=EnvSpec.from_env(cart))


def test_recordings_of_metaroll_are_logs(tmp_path):
    env = PendulumEnv(max_steps=20)
    made = rollout(env, lambda obs: [0.5], seed=0)
    save_rollout(made, tmp_path / "own.csv")
    [same] = load_log(tmp_path / "own.csv")
    np.testing.assert_array_equal(same.states, made.states)
    mapping = {
        "time": "time",
        "observations": {label: f"observations[{i}]" for i, label in enumerate(env.env_spec.observation_labels)},
        "actions": {"torque": "actions[0]"},
    }
    [mapped] = load_log(tmp_path / "own.csv", mapping, env_spec=env.env_spec, dt=env.dt)
    np.testing.assert_allclose(mapped.observations, made.observations, atol=1e-9)
    states = env.state_from_observation(mapped.observations[0])
    np.testing.assert_allclose(states, made.states[0], atol=1e-9)


def test_a_mapping_may_be_made_in_python():
    mapping = LogMapping({"x": LogColumn("x", scale=2.0, offset=1.0)}, {"u": LogColumn("u")}, sample_time=1.0)
    assert loaded({"x": [0.0, 1.0], "u": [0.0, 0.0]}, mapping).observations[:, 0].tolist() == [1.0, 3.0]


# ---- Minari ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["hdf5", "arrow"])
def minari_folder(tmp_path, monkeypatch, request):
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float64)
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=[np.array([float(number), float(i)]) for i in range(steps + 1)],
            actions=[np.array([0.1 * i]) for i in range(steps)],
            rewards=[1.0] * steps,
            terminations=[False] * (steps - 1) + [number == 1],
            truncations=[False] * steps,
        )
        for number, steps in enumerate((3, 5))
    ]
    minari.create_dataset_from_buffers(
        "lab/swing-v0",
        buffers,
        observation_space=space,
        action_space=gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64),
        author="nobody",
        author_email="nobody@example.com",
        code_permalink="none",
        algorithm_name="none",
        description="two swings",
        data_format=request.param,
    )
    return tmp_path / "sets" / "lab" / "swing-v0"


@pytest.mark.filterwarnings("ignore")
def test_data_sets_of_minari_are_logs(minari_folder, tmp_path):
    for name in ("minari:lab/swing-v0", minari_folder):
        first, second = load_log(name, dt=0.1)
        assert (len(first), len(second)) == (3, 5) and first.observations.shape == (4, 2)
        assert first.truncated[-1] and not first.terminated.any()
        assert second.terminated[-1] and not second.truncated.any()
        np.testing.assert_allclose(second.time, 0.1 * np.arange(6))
        assert second.rollout_info["log"] == {"file": "lab/swing-v0", "episode": "1"}
    mapping = {
        "observations": {"x": {"column": "observations[1]", "unit": "mm"}},
        "actions": {"u": "actions[0]"},
        "rewards": "rewards",
        "terminated": "terminated",
        "sample_time": 0.1,
    }
    first, second = load_log(minari_folder, mapping)
    np.testing.assert_allclose(second.observations[:, 0], 1e-3 * np.arange(6))
    assert second.terminated[-1] and second.rewards.sum() == 5.0 and not first.terminated.any()
    with pytest.raises(FileNotFoundError, match="'minari:lab/none-v0'"):
        load_log("minari:lab/none-v0")
    assert main(["import-log", "minari:lab/swing-v0", "--out", str(tmp_path / "out")]) == 0
    assert len(load_rollouts(tmp_path / "out")) == 2


def test_without_minari_the_error_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ImportError, match=r"pip install 'minari\[hdf5\]>="):
        load_log("minari:lab/swing-v0")


# ---- the command -----------------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    status = main(["import-log", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_the_command_writes_a_folder_of_rollouts(tmp_path, capsys):
    mapping, out = tmp_path / "m.yaml", tmp_path / "out"
    mapping.write_text(yaml.safe_dump(COLUMNS))
    logs = [write_csv(tmp_path / f"{name}.csv", table(rows)) for name, rows in (("one", 21), ("two", 31))]
    status, text, _ = run(capsys, *logs, "--mapping", mapping, "--out", out, "--env", "pend")
    assert status == 0 and "10 steps, 0.2 s in steps of 0.02 s, from one.csv" in text
    assert "observation sin_theta" in text and "action torque" in text
    assert [len(made) for made in load_rollouts(out)] == [10, 15]
    status, text, _ = run(capsys, logs[0], "--mapping", mapping, "--out", out, "--dt", "0.05", "--overwrite", "--json")
    document = json.loads(text)
    assert status == 0 and [one["steps"] for one in document["rollouts"]] == [4]
    assert document["ranges"]["action torque"] == pytest.approx([0.2, 1.7])
    save_rollouts(load_rollouts(out), tmp_path / "again")
    assert run(capsys, tmp_path / "again" / "rollout_0000.npz", "--out", tmp_path / "third")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the log is missing"),
        (["log.csv"], "log.csv needs a mapping"),
        (["log.csv", "--mapping", "none.yaml"], "none.yaml"),
        (["none.csv", "--mapping", "m.yaml"], "none.csv"),
        (["log.csv", "--mapping", "m.yaml", "--env", "pendd"], "pendd"),
        (["log.csv", "--mapping", "m.yaml", "--env", "qcp-su"], "'x'"),
        (["log.csv", "--mapping", "m.yaml", "--dt", "0"], "--dt must"),
        (["log.csv", "--mapping", "m.yaml", "--out", "full"], "--overwrite"),
    ],
)
def test_mistakes_have_a_status_and_a_message(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(COLUMNS))
    write_csv(tmp_path / "log.csv", table(5))
    save_rollouts(load_log("log.csv", "m.yaml"), "full")
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and message in err and "Traceback" not in err
