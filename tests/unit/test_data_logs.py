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
    """A log as a lab writes it: angles in degrees from 0 to 360, speed in rpm, torque in mN m."""
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
    [found] = load_log(write(tmp_path / f"run{suffix}", columns), COLUMNS, env_spec=env.env_spec, dt=env.dt)
    assert len(found) == 14  # 0.29 s in steps of 0.02 s
    times = 0.02 * np.arange(15)
    np.testing.assert_allclose(found.time, times, atol=1e-12)
    angle = np.radians(300.0 + 500.0 * times)  # without its jump from 360 to 0 degrees
    expected = np.stack([np.sin(angle), np.cos(angle), np.full(15, math.pi)], axis=1)
    np.testing.assert_allclose(found.observations, expected, atol=1e-12)
    np.testing.assert_allclose(found.actions[:, 0], 0.05 + 0.2 * np.arange(14), atol=1e-12)  # means of two rows
    assert found.truncated.tolist() == [False] * 13 + [True] and not found.terminated.any()
    assert found.rollout_info["dt"] == 0.02 and found.rollout_info["env_spec"] == env.env_spec
    log = found.rollout_info["log"]
    assert (log["file"], log["rows"]) == (f"run{suffix}", [1, 30])
    assert (log["timing"]["rows"], log["timing"]["gaps"]) == ("gathered", []) and log["timing"]["stamps_off"] < 1e-9


def test_observations_lie_on_lines_and_actions_are_held():
    """Worked by hand: rows at 0, 1, 2.5 and 3 s become steps of 0.5 s."""
    mapping = {"time": "t", "observations": ["x"], "actions": {"u": "u"}, "rewards": "r", "dt": 0.5, "max_gap": 2.0}
    columns = {"t": [0.0, 1.0, 2.5, 3.0], "x": [0.0, 2.0, 5.0, 4.0], "u": [1.0, 2.0, 3.0, np.nan]}
    found = loaded({**columns, "r": [10.0, 20.0, 30.0, 0.0]}, mapping)
    np.testing.assert_allclose(found.observations[:, 0], [0, 1, 2, 3, 4, 5, 4], atol=1e-12)
    assert found.actions[:, 0].tolist() == [1, 1, 2, 2, 2, 3] and found.rewards.tolist() == [10, 10, 20, 20, 20, 30]
    angles = {"theta": {"column": "x", "unwrap": True}}
    turned = loaded({**columns, "x": [3.0, -3.0, -2.0, -1.0]}, {**mapping, "rewards": None, "observations": angles})
    assert (np.diff(turned.observations[:, 0]) > 0).all()


def loaded(columns, mapping):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        [found] = load_log(write(Path(folder) / "log.npz", arrays), mapping)
    return found


def test_rows_at_the_times_of_steps_keep_their_bits():
    generator = np.random.default_rng(0)
    x, u = generator.normal(size=(50, 2)), generator.normal(size=49)
    mapping = {"observations": ["x[0]", "x[1]"], "actions": {"u": "u"}, "sample_time": 0.02}
    for dt in (None, 0.02, 0.04):
        found = loaded({"x": x, "u": u}, {**mapping, "dt": dt})  # the action of the last row is not there at all
        every = 1 if dt != 0.04 else 2
        np.testing.assert_array_equal(found.observations, x[::every][: len(found) + 1])
        made = u if every == 1 else u[:48].reshape(24, 2).mean(axis=1)
        np.testing.assert_allclose(found.actions[:, 0], made, rtol=0, atol=0 if every == 1 else 1e-13)
        assert len(found) == (49 if every == 1 else 24)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("kind", ["m8[ns]", "m8[us]", "M8[ms]"])
def test_time_stamps_and_durations_are_seconds(tmp_path, suffix, kind):
    seconds = np.round(1e3 * 0.02 * np.arange(30)).astype("m8[ms]")
    stamps = seconds.astype(kind) if kind[0] == "m" else (np.datetime64("2026-01-01", "ms") + seconds).astype(kind)
    path = write(tmp_path / f"run{suffix}", {**table(), "t": stamps})
    [found] = load_log(path, {**COLUMNS, "time": "t"}, dt=0.02)
    np.testing.assert_allclose(found.time, 0.02 * np.arange(30), atol=1e-12)
    with pytest.raises(LogError, match=rf"time needs no unit, since column 't' holds .*{kind[-3:-1]}"):
        load_log(path, COLUMNS)  # says that they are ms


def test_an_angle_that_jumps_by_turns_is_said(tmp_path):
    path = write(tmp_path / "run.npz", table())
    plain = {"theta": {"column": "angle", "unit": "deg"}, "theta_dot": "speed"}
    mapping = {**COLUMNS, "observations": plain}
    with pytest.warns(UserWarning, match=r"row 13, column 'angle': the angle 'theta' jumps by 6.196 rad; set unwrap"):
        load_log(path, mapping, dt=0.007)
    whole = {**plain, "theta": {**plain["theta"], "unwrap": True}}
    [found] = load_log(path, {**mapping, "observations": whole}, dt=0.007)  # without a warning
    np.testing.assert_allclose(np.diff(found.observations[:, 0]), np.radians(500.0) * 0.007, atol=1e-9)
    with pytest.warns(UserWarning, match="the angle 'theta' jumps"):
        load_log(path, {**COLUMNS, "states": plain})


def test_time_in_another_unit_is_no_million_of_steps(tmp_path):
    columns = {**table(), "t": 1e5 * np.arange(30.0)}
    with pytest.raises(LogError, match=r"rows are 100000 s apart, too many steps of 0.02 s; .*unit of 't'"):
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
    with pytest.raises(LogError, match=r"row 6 \(line 8\), column 'run': rollout a continues .* in row 1; sort"):
        load_log(write_csv(tmp_path / "mixed.csv", columns), mapping)
    with pytest.raises(LogError, match=r"row 3 \(line 5\), column 'over': the rollout has ended, but rows follow"):
        load_log(tmp_path / "runs.csv", {**mapping, "episode": None})


def test_gaps_are_filled_as_far_as_that_is_allowed():
    mapping = {"observations": ["x"], "actions": ["u"], "sample_time": 0.1, "max_gap": 0.31}
    nan = np.nan
    with pytest.warns(
        UserWarning, match=r"values are missing, of u in row 2, x in row 2 to 3 \(300 ms\): .*inference cuts recordings"
    ):
        found = loaded({"x": [0.0, nan, nan, 3.0, 4.0], "u": [1.0, nan, 3.0, 4.0, nan]}, mapping)
    log = found.rollout_info["log"]
    assert [one[:3] for one in log["missing"]] == [["u", 2, 2], ["x", 2, 3]]
    np.testing.assert_allclose(log["made_up"], [[0.0, 0.3]])
    np.testing.assert_allclose(found.observations[:, 0], [0, 1, 2, 3, 4])
    assert found.actions[:, 0].tolist() == [1, 1, 3, 4]
    outside = {"u": {"column": "u", "bounds": [0.0, 2.0]}}
    clipped = loaded({"x": np.arange(5.0), "u": np.arange(5.0)}, {**mapping, "actions": outside, "outside": "clip"})
    assert clipped.actions[:, 0].tolist() == [0, 1, 2, 2]


def test_degrees_that_were_forgotten_inside_a_function_are_asked_for():
    columns = {"a": np.linspace(0.0, 300.0, 20), "u": np.zeros(20)}
    for unit, said in (("", True), ("deg", False), ("rad", False)):
        observed = {"cos_theta": {"column": "a", "function": "cos", "unit": unit}}
        mapping = {"observations": observed, "actions": ["u"], "sample_time": 0.02}
        asked = pytest.warns(UserWarning, match="of which 'cos_theta' is the cos, goes from 0 to 300, .*in degrees")
        with asked if said else contextlib.nullcontext():
            loaded(columns, mapping)


PLAIN = {"time": "t", "observations": {"x": "x"}, "actions": {"u": {"column": "u", "bounds": [-1, 1]}}}
GOOD = {"t": [0.0, 0.1, 0.2, 0.3, 0.4], "x": [0.0, 1.0, 2.0, 3.0, 4.0], "u": [0.0, 0.5, 1.0, 0.5, 0.0]}


def test_truth_values_are_numbers_in_a_csv_file_too(tmp_path):
    columns = {**GOOD, "u": ["True", "False", "true", "false", ""]}
    [log] = load_log(write_csv(tmp_path / "log.csv", columns), PLAIN)
    assert log.actions[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("dt", [0.0, -1.0, float("nan"), "0.05"])
def test_a_time_step_that_is_none_is_refused(tmp_path, dt):
    with pytest.raises(ValueError if isinstance(dt, float) else TypeError, match="dt must"):
        load_log(write_csv(tmp_path / "log.csv", GOOD), PLAIN, dt=dt)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [0.0, 1.0, "fast", 3.0, 4.0]}, r"row 3 \(line 5\), column 'x': 'fast' is no number"),
        ({"x": [0.0, 1.0, 5000 * "x", 3.0, 4.0]}, r"'x': 'x{11,}\.\.\.x+' is no number"),
        ({"x": [0.0, 1.0, "2,5", 3.0, 4.0]}, "has 4 cells|has 3 cells"),
        ({"t": ["2026-11-23T05:00:00", 1, 2, 3, 4]}, "row 1 .* is no number; write seconds, or save time stamps in a"),
        ({"t": [0.0, 0.1, 0.1, 0.3, 0.4]}, r"row 3 \(line 5\), column 't': .* is the same as 0.1 s; sort"),
        (
            {"t": [0.0, 0.1, 0.2, 0.0, 0.1]},
            r"row 4 \(line 6\), column 't': .* is before 0.2 s; name .*episode",
        ),
        ({"t": [0.0, 0.1, 0.3, 0.2, 0.4]}, "is before 0.3 s; sort the rows"),
        ({"t": [0.0, 0.1, "", 0.3, 0.4]}, "row 3 .*the time stamp is missing"),
        (
            {"t": [0.0, 0.1, 0.2, 0.3, 9.0]},
            r"row 5 .* 8.7 s pass since the row before, usually .*episode: .* max_gap to 8.7",
        ),
        (
            {"x": [0.0, "", "nan", 3.0, 4.0]},
            r"row 2 \(line 4\), column 'x': values are missing to row 3 \(0.3 s",
        ),
        ({"x": [0.0, "inf", 2.0, 3.0, 4.0]}, r"row 2 \(line 4\), column 'x': inf is not a measured value"),
        ({"x": ["", 1.0, 2.0, 3.0, 4.0]}, "row 1 .*values are missing, up to the first row"),
        ({"x": [0.0, 1.0, 2.0, 3.0, ""]}, "row 5 .*values are missing, up to the last row"),
        ({"u": [0.0, 0.5, 1.5, 0.5, 9.0]}, r"row 3 .*'u': the action 'u' is 1.5, outside of \[-1, 1\] \(1 rows are\)"),
        ({"t": [0.0], "x": [1.0], "u": [0.0]}, "needs at least two rows, got 1"),
        ({"t": [], "x": [], "u": []}, "holds no rows"),
    ],
)
def test_what_is_wrong_is_named_with_row_and_column(tmp_path, changes, message):
    columns = {**GOOD, **changes}
    with pytest.raises(LogError, match=message):
        load_log(write_csv(tmp_path / "log.csv", columns), PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": {}}, "unknown entry of a mapping 'observation'; did you mean 'observations'"),
        ({"observations": {}}, "observations must name at least one column"),
        ({"observations": {"x": "xx"}}, r"observations.x: unknown column 'xx'; did you mean 'x'"),
        ({"observations": {"x": {"column": "x", "unit": "degree"}}}, r"observations.x 'degree'; did you mean 'deg'"),
        ({"observations": {"x_dot": {"column": "x", "unit": "kg"}}}, "x_dot must be one of rad/s, .* speed, got 'kg'"),
        ({"observations": {"x": {"column": "x", "unit": "m", "function": "sin"}}}, "the sin is of an angle, got 'm'"),
        ({"observations": {"alpha_dot": {"column": "x", "unit": "mm/s"}}}, "deg/s, rpm, since .* speed of an angle"),
        ({"observations": {"theta_x": {"column": "x", "unit": "m"}}}, "rad, deg, rev, since it is an angle, got 'm'"),
        ({"actions": {"torque": {"column": "u", "unit": "rpm"}}}, "one of .*N m, .* since it is a torque, got 'rpm'"),
        ({"actions": {"voltage_x": {"column": "u", "unit": "kg"}}}, "V, mV, since it is a voltage, got 'kg'"),
        ({"time": {"column": "t", "unit": "deg"}}, "unit of time must be one of s, ms, .*got 'deg'"),
        ({"observations": {"x": {"colum": "x"}}}, "unknown entry of observations.x 'colum'"),
        ({"observations": {"x": {"column": "x", "unwrap": "yes"}}}, "unwrap must be true or false"),
        ({"observations": {"x": {"column": "x", "function": "tan"}}}, "function must be sin or cos"),
        ({"observations": {"x": {"unit": "deg"}}}, "observations.x must name its column"),
        ({"observations": {"x": 3}}, "must be the name of a column"),
        ({"actions": {"u": {"column": "u", "scale": "2"}}}, "actions.u.scale must be a number"),
        ({"actions": {"u": {"column": "u", "bounds": [1, -1]}}}, "low < high"),
        ({"actions": {"u": {"column": "u", "scale": 0}}}, "actions.u.scale must not be 0"),
        ({"sample_time": 0.1}, "not both"),
        ({"time": None}, "either time"),
        ({"time": None, "sample_time": 0.0}, r"sample_time must lie in \(0"),
        ({"dt": -1.0}, "dt must lie in"),
        ({"outside": "ignore"}, "outside must be error or clip"),
        ({"dt": 3.0}, "are less than one step of 3 s"),
    ],
)
def test_mappings_that_make_no_sense_are_refused(tmp_path, change, message):
    path = write_csv(tmp_path / "log.csv", GOOD)
    with pytest.raises(LogError, match=message):
        load_log(path, {**PLAIN, **change})
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**PLAIN, **change}))
    with pytest.raises(LogError, match=message):
        load_log(path, tmp_path / "m.yaml")


def test_files_that_are_none(tmp_path):
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
        "uneven.npz": "columns must be equally long, 't' has 5 rows and 'u' has 3",
        "objects.npz": "save arrays of numbers, not of objects",
        "no.npz": "no.npz: it is no .npz file",
        "no.parquet": "no.parquet: it is no .parquet file",
        "no.xls": "must end in .csv, .npz, .parquet",
        "no.csv": "has no line with the names",
        "cut.csv": r"row 3 \(line 4\) has 2 cells, the first line names 3 columns; the log ends in the middle",
        "empty.csv": r"row 2 \(line 3\) is empty: remove it; where it separates rollouts, .*episode",
        "twice.csv": "column 'x' occurs twice",
        "bytes.csv": "no text in UTF-8",
    }.items():
        with pytest.raises(LogError, match=message):
            load_log(tmp_path / name, {**PLAIN})
    for name, message in {"bad.yaml": "line 1: it is not valid YAML", "n.json": "must hold names and values"}.items():
        with pytest.raises(LogError, match=message):
            load_log(tmp_path / "cut.csv", tmp_path / name)
    for path, mapping in (("none.csv", PLAIN), ("cut.csv", tmp_path / "none.yaml")):
        with pytest.raises(FileNotFoundError, match="there is no"):
            load_log(tmp_path / path, mapping)
    with pytest.raises(LogError, match=r"twice\.csv needs a mapping"):
        load_log(tmp_path / "twice.csv")
    with pytest.raises(LogError, match="is a folder, and no data set of Minari"):
        load_log(tmp_path)


def test_labels_of_the_environment_choose_and_order_columns(tmp_path):
    spec, path = PendulumEnv().env_spec, write_csv(tmp_path / "log.csv", table(5))
    turned = dict(reversed(COLUMNS["observations"].items()))
    [found] = load_log(path, {**COLUMNS, "observations": turned}, env_spec=spec)
    np.testing.assert_allclose(found.observations[0], [-math.sqrt(0.75), 0.5, math.pi])
    wrong = {"sin_theta": turned["sin_theta"], "cos_theta": turned["cos_theta"]}
    with pytest.raises(LogError, match=r"labels of the environment \(.*\); 'theta_dot' is missing"):
        load_log(path, {**COLUMNS, "observations": wrong}, env_spec=spec)
    with pytest.raises(LogError, match="the environment has no action 'force', only torque"):
        load_log(path, {**COLUMNS, "actions": {**COLUMNS["actions"], "force": "u"}}, env_spec=spec)
    with pytest.raises(LogError, match=r"action 'torque' is 4, outside of \[-3.5, 3.5\]"):
        load_log(write_csv(tmp_path / "far.csv", {**table(5), "u": [4000.0] * 5}), COLUMNS, env_spec=spec)
    cart = gymnasium.make("CartPole-v1")  # no labels, and choices
    columns = {name: np.zeros(4) for name in "abcd"} | {"u": np.array([0, 1, 1, 0])}
    mapping = {"observations": list("abcd"), "actions": ["u"], "sample_time": 0.02}
    np.savez(tmp_path / "cart.npz", **columns)
    from metaroll import EnvSpec

    [found] = load_log(tmp_path / "cart.npz", mapping, env_spec=EnvSpec.from_env(cart))
    assert found.actions.tolist() == [0, 1, 1] and found.actions.dtype == np.int64
    for shown, said in ((0.99999999, None), (0.5, "the action 'u' is 0.5, and the environment has choices, whole")):
        np.savez(tmp_path / "near.npz", **{**columns, "u": np.array([0, shown, 1, 0])})
        if said is None:
            [near] = load_log(tmp_path / "near.npz", mapping, env_spec=EnvSpec.from_env(cart))
            assert near.actions.tolist() == [0, 1, 1]
            continue
        with pytest.raises(LogError, match=said):
            load_log(tmp_path / "near.npz", mapping, env_spec=EnvSpec.from_env(cart))
    with pytest.raises(
        LogError, match=r"observations of the mapping must be 4, as the environment has .*got 3: a, b, c"
    ):
        load_log(tmp_path / "cart.npz", {**mapping, "observations": list("abc")}, env_spec=EnvSpec.from_env(cart))


def test_recordings_of_our_own_are_logs(tmp_path):
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
    with pytest.raises(FileNotFoundError, match="no data set 'minari:lab/none-v0' on this machine"):
        load_log("minari:lab/none-v0")
    assert main(["import-log", "minari:lab/swing-v0", "--out", str(tmp_path / "out")]) == 0
    assert len(load_rollouts(tmp_path / "out")) == 2


def test_without_minari_the_extra_is_named(tmp_path, monkeypatch):
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
        (["log.csv", "--mapping", "none.yaml"], "there is no mapping file"),
        (["none.csv", "--mapping", "m.yaml"], "there is no file"),
        (["log.csv", "--mapping", "m.yaml", "--env", "pendd"], "pendd"),
        (["log.csv", "--mapping", "m.yaml", "--env", "qcp-su"], "'x' is missing"),
        (["log.csv", "--mapping", "m.yaml", "--dt", "0"], "--dt must lie in"),
        (["log.csv", "--mapping", "m.yaml", "--out", "full"], "holds 1 rollouts already"),
    ],
)
def test_mistakes_have_a_status_and_a_line(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(COLUMNS))
    write_csv(tmp_path / "log.csv", table(5))
    save_rollouts(load_log("log.csv", "m.yaml"), "full")
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and message in err and "Traceback" not in err
