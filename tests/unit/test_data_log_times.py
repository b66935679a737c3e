"""Time in logs: stamps in all units, noise, clocks, late commands, gaps, and what is said of them."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import yaml

from metaroll import EnvSpec
from metaroll.lab import load_log
from metaroll.lab.cli.main import main
from metaroll.lab.logs.robot_log import RobotLog
from metaroll.lab.logs.tables import read_table
from metaroll.lab.logs.timing import Timing, gaps_text, timing_text

DT, ROWS = 0.02, 801
MAPPING = {"time": "t", "observations": ["x"], "actions": ["u"]}
EPOCH = 1_764_000_000


def commands(seed=0, rows=ROWS):
    return np.random.default_rng(seed).normal(size=rows)


def written(folder, stamps, u, suffix=".npz"):
    """A log of a cart that goes 1 m in a second."""
    x = DT * np.arange(len(u))
    path = folder / f"log{suffix}"
    if suffix == ".npz":
        np.savez(path, t=stamps, x=x, u=u)
    elif suffix == ".csv":
        rows = zip(stamps, x, u, strict=True)
        path.write_text("t,x,u\n" + "".join(f"{t},{float(a)!r},{float(b)!r}\n" for t, a, b in rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"t": stamps, "x": x, "u": u}), path)
    return path


def gain(imported, truth):
    return float((imported * truth).sum() / (truth * truth).sum())


NOISE = np.random.default_rng(7).normal(size=ROWS)
STAMPS = {
    "exact": DT * np.arange(ROWS),
    "noise of 0.1 ms": 3.0 + DT * np.arange(ROWS) + 1e-4 * NOISE,
    "noise of 1 ms": 3.0 + DT * np.arange(ROWS) + 1e-3 * NOISE,
    "first 50 us early": np.append(-5e-5, DT * np.arange(1, ROWS)),
    "slow": DT * np.arange(ROWS) * (1 - 1e-5),
    "fast by 0.5 %": DT * np.arange(ROWS) * 1.005,
    "late always": DT * np.arange(ROWS) + 6e-4 * np.random.default_rng(8).exponential(size=ROWS),
}


@pytest.mark.filterwarnings("ignore:.*clock is")
@pytest.mark.parametrize("name", STAMPS)
@pytest.mark.parametrize("dt", [DT, None])
def test_rows_are_steps_whatever_single_stamps_say(tmp_path, name, dt):
    u = commands()
    [found] = load_log(written(tmp_path, STAMPS[name], u), MAPPING, dt=dt)
    np.testing.assert_array_equal(found.actions[:, 0], u[:-1])
    np.testing.assert_array_equal(found.observations[:, 0], DT * np.arange(ROWS))
    assert found.rollout_info["dt"] == pytest.approx(DT, rel=2e-5 if name != "fast by 0.5 %" or dt else 6e-3)
    assert np.ptp(np.diff(found.time)) < 1e-9
    json.dumps(found.rollout_info["log"])


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_epochs_in_any_unit_give_the_same_bits(tmp_path, suffix, unit):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counts = np.array([0, 1, 2, 4, 6, 7]) if unit == "s" else np.array([0, 7, 23, 31, 53, 60]) * (per_second // 1000)
    path = written(tmp_path, EPOCH * per_second + counts, commands(rows=6), suffix)
    mapping = {**MAPPING, "time": {"column": "t", "unit": unit}, "dt": 0.007}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gaps
        [found] = load_log(path, mapping if unit != "s" else {**mapping, "dt": 1.0})
    np.testing.assert_array_equal(read_table(path).since_first("t", 0, 6), counts)
    np.testing.assert_array_equal(read_table(path).since_first("t", 2, 6), counts[2:] - counts[2])
    x = DT * np.interp(found.time, counts / per_second, np.arange(6.0))  # stamps are taken as they are
    np.testing.assert_allclose(found.observations[:, 0], x, rtol=0, atol=1e-12)


def test_decimals_and_wide_integers_are_subtracted_by_their_digits(tmp_path):
    texts = [f"{EPOCH}.{20000000 * k + 10**6 * (5 * (k % 2)):09d}" for k in range(40)]
    table = read_table(written(tmp_path, texts, commands(rows=40), ".csv"))
    np.testing.assert_array_equal(table.since_first("t", 0, 40), [float(f"0{text[10:]}") for text in texts])
    table = read_table(written(tmp_path, ["17.0e2", " 1700.25", "nan", "-"], commands(rows=4), ".csv"))
    np.testing.assert_array_equal(table.since_first("t", 0, 4), [0.0, 0.25, np.nan, np.nan])
    big = np.uint64(2**63 - 500) + np.arange(40, dtype=np.uint64) * np.uint64(20)  # beyond int64 from row 26 on
    mapping = {**MAPPING, "time": {"column": "t", "unit": "ms"}}
    [found] = load_log(written(tmp_path, big, commands(rows=40)), mapping, dt=DT)
    np.testing.assert_allclose(found.time, DT * np.arange(40), atol=1e-12)
    with pytest.raises(ValueError, match="is before"):
        load_log(written(tmp_path, big[::-1].copy(), commands(rows=40)), mapping)
    stamps = np.datetime64(EPOCH, "s") + (20_000_001 * np.arange(40)).astype("m8[ns]")
    [found] = load_log(written(tmp_path, stamps, commands(rows=40)), MAPPING)
    assert found.time[-1] == pytest.approx(39 * 0.020000001, abs=1e-12)


@pytest.mark.parametrize("noise", [0.0, 1e-4, 9e-4])
def test_fast_logs_are_gathered_into_steps(tmp_path, noise):
    u = commands(rows=2001)
    stamps = 0.002 * np.arange(2001) + np.random.default_rng(3).uniform(-noise, noise, size=2001)
    [found] = load_log(written(tmp_path, stamps, u), MAPPING, dt=DT)
    np.testing.assert_allclose(found.actions[:, 0], u[:-1].reshape(200, 10).mean(axis=1), atol=1e-12)
    np.testing.assert_array_equal(found.observations[:, 0], DT * np.arange(2001)[::10])
    assert found.rollout_info["log"]["timing"]["rows"] == "gathered"


def test_slow_logs_hold_for_several_steps_and_other_rates_are_means(tmp_path):
    u = commands(rows=101)
    path = written(tmp_path, DT * np.arange(101) + 1e-3 * np.random.default_rng(0).normal(size=101), u)
    [found] = load_log(path, MAPPING, dt=DT / 4)
    np.testing.assert_array_equal(found.actions[:, 0], np.repeat(u[:-1], 4))
    assert found.rollout_info["log"]["timing"]["rows"] == "repeated"
    [found] = load_log(written(tmp_path, DT * np.arange(101), u), MAPPING, dt=0.03)
    # Steps of one and a half rows: the first holds two thirds of row 0 and a third of row 1.
    expected = np.stack([(2 * u[0:99:3] + u[1:99:3]) / 3, (u[1:99:3] + 2 * u[2:99:3]) / 3], axis=1).reshape(-1)
    np.testing.assert_allclose(found.actions[:66, 0], expected, atol=1e-9)
    assert found.rollout_info["log"]["timing"]["rows"] == "means"


def test_uneven_commands_are_weighted_by_time(tmp_path):
    generator = np.random.default_rng(5)
    times = np.cumsum(generator.uniform(0.01, 0.03, size=400))
    times -= times[0]
    u = commands(rows=400)
    [found] = load_log(written(tmp_path, times, u), MAPPING, dt=DT)
    fine = np.arange(len(found) * 2000) * (DT / 2000) + DT / 4000
    truth = u[np.searchsorted(times, fine, side="right") - 1].reshape(-1, 2000).mean(axis=1)
    np.testing.assert_allclose(found.actions[:, 0], truth, atol=5e-3)
    choices = {**MAPPING, "observations": list("abcd")}
    import gymnasium

    columns = dict.fromkeys("abcd", np.zeros(4)) | {"t": [0.0, 0.012, 0.029, 0.06], "u": [0, 1, 0, 0]}
    np.savez(tmp_path / "cart.npz", **columns)
    spec = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
    [found] = load_log(tmp_path / "cart.npz", choices, env_spec=spec, dt=DT)
    assert found.actions.tolist() == [0, 0, 0]  # 12 of 20 ms, 11 of 20, all


def test_rows_that_are_far_off_keep_their_stamps(tmp_path):
    u, stamps = commands(rows=200), DT * np.arange(200) + 1e-4 * NOISE[:200]
    stamps[50] += 0.008  # really late: the command before acts for 8 of 20 ms more
    stamps[120] += 0.0301  # later than the row after it, almost
    stamps[121] += 0.0102
    [found] = load_log(written(tmp_path, stamps, u), MAPPING, dt=DT)
    timing = found.rollout_info["log"]["timing"]
    assert timing["rows_far_off"] == 3 and timing["stamps_off"] < 4e-4
    assert found.actions[50, 0] == pytest.approx(0.6 * u[50] + 0.4 * u[49], abs=0.05)
    assert found.actions[121, 0] == pytest.approx(0.5 * u[121] + 0.5 * u[119], abs=0.05)
    same = np.delete(np.arange(199), [50, 120, 121])
    np.testing.assert_array_equal(found.actions[same, 0], u[same])
    text = timing_text(timing, DT)
    assert "but for 3 rows that are farther off: there, stamps count and actions are means" in text


@pytest.mark.parametrize("late", [True, False])
def test_rows_that_really_are_late_are_told_from_noise_by_what_is_observed(tmp_path, late):
    """A cart whose speed is the command: in ``late`` rows are made when stamps say, otherwise stamps are noisy."""
    u, delays = commands(rows=600), np.random.default_rng(4).uniform(0.0, 1e-3, size=600)
    stamps = DT * np.arange(600) + delays
    x = np.append(0.0, np.cumsum(u[:-1] * (np.diff(stamps) if late else DT)))
    np.savez(tmp_path / "log.npz", t=stamps, x=x, u=u)
    [found] = load_log(tmp_path / "log.npz", MAPPING, dt=DT)
    text = timing_text(found.rollout_info["log"]["timing"], DT)
    if not late:
        np.testing.assert_array_equal(found.actions[:, 0], u[:-1])
        return
    assert "which rows really were, to 100 %, as observations tell" in text
    speed = np.diff(np.interp(stamps[0] + DT * np.arange(len(found) + 1), stamps, x)) / DT  # what acted, on average
    np.testing.assert_allclose(found.actions[:, 0], speed, atol=0.03)  # snapped: 0.15
    np.testing.assert_allclose(np.diff(found.observations[:, 0]) / DT, speed, atol=0.03)  # snapped: 0.15


def test_gaps_are_listed_and_never_bridged_unsaid(tmp_path):
    u = commands(rows=60)
    stamps = DT * np.arange(60)
    stamps[20:] += 0.07  # a pause of 90 ms before row 21
    stamps[40:] += 0.02
    path = written(tmp_path, stamps, u)
    with pytest.warns(UserWarning, match=r"log.npz: 2 gaps before row 21 \(90 ms\), row 41 \(40 ms\): ") as caught:
        [found] = load_log(path, MAPPING, dt=DT)
    assert len(caught) == 1
    gaps = found.rollout_info["log"]["timing"]["gaps"]
    assert [row for row, _ in gaps] == [21, 41]
    np.testing.assert_allclose([seconds for _, seconds in gaps], [0.09, 0.04])
    np.testing.assert_array_equal(found.actions[:19, 0], u[:19])
    np.testing.assert_array_equal(found.actions[19:23, 0], np.full(4, u[19]))  # until 0.46 of 0.47 s
    assert found.actions[23, 0] == pytest.approx((u[19] + u[20]) / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_log(path, {**MAPPING, "max_gap": 0.1}, dt=DT)  # who allows it is not warned
    noisy = stamps + 1e-3 * np.random.default_rng(0).normal(size=60)
    [found] = load_log(written(tmp_path, noisy, u), {**MAPPING, "max_gap": 0.1}, dt=DT)
    np.testing.assert_array_equal(found.actions[:19, 0], u[:19])  # rows around gaps are on the grid
    assert found.rollout_info["log"]["timing"]["clock_error"] == 0.0  # 20 rows do not show it
    with pytest.raises(ValueError, match=r"2\.02 s have passed since the previous row"):
        load_log(written(tmp_path, np.where(np.arange(60) < 30, 0.0, 2.0) + DT * np.arange(60), u), MAPPING, dt=DT)


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        ([-1e308, 0.0, 1e308], "row 3, column 't': the time stamp is missing"),
        ([0.0, 1e-320, 2e-320], "less than one step"),
    ],
)
def test_stamps_beyond_all_measure_are_errors(tmp_path, stamps, message):
    with pytest.raises(ValueError, match=message):
        load_log(written(tmp_path, np.array(stamps), commands(rows=3)), MAPPING, dt=DT)


def test_a_clock_that_is_far_off_is_said(tmp_path):
    path = written(tmp_path, 1.005 * DT * np.arange(100), commands(rows=100))
    with pytest.warns(UserWarning, match=r"log.npz: rows were taken as steps of 20 ms \(the clock is 0.5 % fast\)"):
        [found] = load_log(path, MAPPING, dt=DT)
    assert found.rollout_info["log"]["timing"]["clock_error"] == pytest.approx(5e-3)


def test_logs_of_devices_keep_their_actions_when_they_are_resampled(tmp_path):
    from gymnasium.spaces import Box

    spec = EnvSpec(Box(-np.inf, np.inf, (1,), np.float64), Box(-9.0, 9.0, (1,), np.float64))
    u, generator = np.clip(commands(rows=300), -3, 3), np.random.default_rng(1)
    log = RobotLog(tmp_path / "device.jsonl", spec, DT, sync=False)
    log.first(np.zeros(1), 0.0)
    for k in range(300):
        time = DT * (k + 1) + generator.exponential(5e-4)  # a sleep ends late, always
        step = {"action": [u[k]], "applied": [u[k]], "observation": [DT * (k + 1)], "reward": 0.0, "time": time}
        log.write_step(
            {**step, **dict.fromkeys(("terminated", "truncated", "repeated", "late"), False), "overrun": 0.0}
        )
    log.end("done", {})
    [found] = load_log(tmp_path / "device.jsonl", dt=DT)
    np.testing.assert_array_equal(found.actions[:, 0], u)
    [fine] = load_log(tmp_path / "device.jsonl", dt=DT / 2)
    np.testing.assert_array_equal(fine.actions[:, 0], np.repeat(u, 2))


def test_what_was_done_is_said_in_words():
    def text(*given, **more):
        return timing_text(Timing(*given, **more).to_info(), given[1])

    assert text("rows", 0.02, 0.0199998, off=1.1e-3, clock=-1e-5) == (
        "rows were taken as steps of 20 ms (stamps off by at most 1.1 ms; the clock is 10 ppm slow)"
    )
    assert text("rows", 0.02, 0.02, off=0.0) == "rows were taken as steps of 20 ms"
    assert "rows, 2 ms apart, were gathered into steps of 20 ms: actions are means" in text("gathered", 0.02, 0.002)
    means = Timing("means", 0.02, 0.013).to_info()
    assert "actions are those that held for most of a step, obs" in timing_text(means, 0.02, choices=True)
    assert "(stamps are uneven, and taken as they are)" in text("means", 0.02, 0.013)
    assert "several steps of 500 us each" in text("repeated", 5e-4, 2.0, off=0.0)
    assert gaps_text([]) == "" and "1 gap before row 3 (1.5 s)" in gaps_text([[3, 1.5]])
    assert "row 5 (1 s) and 2 more" in gaps_text([[k, 1.0] for k in range(1, 8)])


def test_the_command_says_what_was_done(tmp_path, capsys):
    stamps = STAMPS["noise of 1 ms"].copy()
    stamps[400:] += 0.07
    path = written(tmp_path, stamps, commands())
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**MAPPING, "dt": DT, "max_gap": 0.1}))
    assert main(["import-log", str(path), "--mapping", str(tmp_path / "m.yaml"), "--out", str(tmp_path / "out")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "rows were taken as steps of 20 ms (stamps off by at most" in text and "1 gap before row 401 (9" in text
