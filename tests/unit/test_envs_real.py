"""RealEnv on devices that tests control: the clock is theirs, so that no test depends on the speed of the machine."""

from __future__ import annotations

import copy
import os
import pickle
import pty
import re
import signal
import threading
import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box

from metaroll import (
    BayesSimEmbedding,
    DomainParamUpdate,
    RecRolloutSamplerForSBI,
    SimRolloutSamplerForSBI,
    make_slots,
    rollout,
    save_rollouts,
)
from metaroll.envs.wrappers.actions import ActNormWrapper
from metaroll.errors import DeviceError, LogError, RolloutError, ShapeError, UnknownNameError
from metaroll.lab import Packet, RealEnv, StopKey, load_log
from metaroll.lab.logs.robot_log import RobotLog, read_robot_log
from metaroll.lab.real.stopping import stop_all, stop_for_sure
from metaroll.lab.real.timing import RateControl
from metaroll.sims import PendulumEnv
from metaroll.types import EnvSpec
from metaroll.wrappers import ActDelayWrapper, typed_env


class FakeClock:
    """Time passes only in sleep."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


SPEC = EnvSpec(
    Box(-np.inf, np.inf, (2,), np.float64),
    Box(np.array([-1.0]), np.array([2.0]), dtype=np.float64),
    observation_labels=("count", "action"),
    action_labels=("force",),
)


class Device(RealEnv):
    """Shows how many actions it received, and the last one; packet k arrives ``delays[k]`` s after its action."""

    def __init__(self, delays=None, lost=(), **options):
        self.clock = FakeClock()
        options = {"watchdog": None, "clock": self.clock, "sync": False, **options}
        super().__init__(SPEC, options.pop("dt", 0.1), **options)
        self.sent, self.pending, self.delays, self.lost, self.released = [], [], delays or {}, lost, 0

    def prepare(self):
        self.count = 0
        self.emit(0.0)

    def emit(self, action):
        if self.count not in self.lost:
            due = self.clock.time + self.delays.get(self.count, 0.0)
            self.pending.append((due, Packet([self.count, action], self.count)))

    def send(self, action):
        self.sent.append(float(action[0]))
        self.count += 1
        self.emit(float(action[0]))

    def receive(self, timeout):
        due = [entry for entry in self.pending if entry[0] <= self.clock.time + timeout]
        if not due:
            self.clock.sleep(timeout)
            return None
        first = min(due, key=lambda entry: entry[0])
        self.clock.time = max(self.clock.time, first[0])
        self.pending.remove(first)
        return first[1]

    def disconnect(self):
        self.released += 1


def steps_of(env, actions):
    return [env.step([action]) for action in actions]


# ---- time ------------------------------------------------------------------------------------------------------------


def test_ticks_do_not_drift_and_overruns_are_counted():
    clock = FakeClock()
    rate = RateControl(0.1, clock)
    rate.start()
    waits = []
    for busy in (0.03, 0.0, 0.15, 0.02, 0.35, 0.01):
        clock.time += busy
        waits.append((*rate.wait(), round(clock.time - 100.0, 6)))
    late = [round(entry[0], 6) for entry in waits]
    assert late == [0.0, 0.0, 0.05, 0.0, 0.25, 0.0]
    assert [entry[1] for entry in waits] == [0, 0, 0, 0, 2, 0]
    assert [entry[2] for entry in waits] == [0.1, 0.2, 0.35, 0.4, 0.75, 0.8]  # back on the ticks of the start


def test_a_slow_policy_is_reported():
    env = Device()

    def policy(observation):
        env.clock.time += 0.25 if observation[0] == 2 else 0.01
        return np.array([0.5])

    result = rollout(env, policy, max_steps=6, no_close=True)
    assert env.timing.steps == 6 and env.timing.overruns == 1 and env.timing.skipped_ticks == 1
    assert env.timing.longest_overrun == pytest.approx(0.15)
    np.testing.assert_allclose(result.env_infos["time"], [0.1, 0.2, 0.45, 0.5, 0.6, 0.7])
    assert result.env_infos["overrun"].tolist() == pytest.approx([0, 0, 0.15, 0, 0, 0])
    assert re.search("6 steps, 1 overruns .*150 ms, 1 ticks", str(env.timing))


# ---- packets ---------------------------------------------------------------------------------------------------------


def test_late_packets_are_waited_for_and_lost_ones_bridged():
    env = Device(delays={3: 0.13, 6: 0.35}, lost=(5,), timeout=0.05, max_lost=2)
    env.reset()
    steps = steps_of(env, [0.1 * i for i in range(1, 10)])
    assert [int(step[0][0]) for step in steps] == [1, 2, 3, 4, 4, 4, 7, 8, 9]  # packet 6 came after 8
    assert [step[4]["late"] for step in steps] == [False, False, True] + [False] * 6
    assert [step[4]["repeated"] for step in steps] == [False] * 4 + [True, True, False, False, False]
    assert (env.timing.late, env.timing.lost, env.timing.stale) == (1, 2, 1)


def test_too_many_lost_packets_stop_the_device_and_keep_the_rollout(tmp_path):
    env = Device(lost=range(4, 100), max_lost=2, log_dir=tmp_path)
    env.reset()
    steps_of(env, [0.5] * 5)
    with pytest.raises(DeviceError, match=r"3 steps .*max_lost=2.*5 steps .*0000") as caught:
        env.step([0.5])
    assert env.sent == [0.5] * 6 + [0.0]
    kept = caught.value.rollout
    assert len(kept) == 5 and kept.repeated.tolist() == [False] * 3 + [True] * 2 and kept.truncated[-1]
    [logged] = load_log(caught.value.log)
    np.testing.assert_array_equal(logged.observations, kept.observations)
    assert re.search("DeviceError: .*max_lost=2", logged.rollout_info["log"]["end"])
    with pytest.raises(DeviceError, match=r"\(DeviceError: .*max_lost=2"):
        env.step([0.5])
    with pytest.raises(RolloutError, match="max_lost=2") as caught:
        rollout(env, lambda obs: np.array([0.5]), max_steps=50)
    errors, error = [], caught.value
    while error is not None:
        errors.append(error)
        error = error.__cause__
    assert [len(e.rollout) for e in errors if isinstance(e, DeviceError)] == [5]


def test_packets_without_a_valid_observation_are_skipped():
    env = Device(max_lost=1)
    env.reset()
    for wrong in ([np.nan, 0.0], "text", None):
        env.pending.append((0.0, Packet(wrong)))
    env.step([0.5])
    assert env.timing.invalid == 3 and env.timing.lost == 0
    env.pending.append((0.0, Packet([1.0, 2.0, 3.0])))
    with pytest.raises(ShapeError, match=r"observations .*must .*\(2,\), got \(3,\)"):
        env.step([0.5])
    assert env.sent[-1] == 0.0


def test_a_device_that_is_off_is_an_error():
    env = Device(lost=(0,))
    with pytest.raises(DeviceError, match="5 s after reset"):
        env.reset()
    assert env.sent == [0.0]


# ---- limits and stops ------------------------------------------------------------------------------------------------


def test_actions_are_clipped_or_refused():
    env = Device()
    env.reset()
    assert [step[4]["act_applied"].item() for step in steps_of(env, [5.0, -5.0, 1.5])] == [2.0, -1.0, 1.5]
    result = rollout(Device(), lambda obs: np.array([5.0]), max_steps=2)
    assert result.actions.tolist() == [[5.0]] * 2 and result.actions_applied.tolist() == [[2.0]] * 2
    strict = Device(on_limit="refuse", stop_action=[-0.5])
    for action, message in ((2.5, r"force .*2\.5, .*\[-1, 2\]"), (np.nan, "action must .*nan")):
        strict.reset()
        with pytest.raises(ValueError, match=message):
            strict.step([action])
        assert strict.sent[-1] == -0.5 and 2.5 not in strict.sent


def test_every_way_out_sends_the_stop_action():
    """The end, a limit, a function of stop_when, errors, Ctrl-C, reset and close."""

    class Broken(Device):
        def reward(self, observation, action, next_observation):
            if next_observation[0] == 2:
                raise self.error
            return 1.0

        def is_terminal(self, observation):
            return observation[0] == 4

    ends = []
    for options, ending, reason in (
        ({"observation_limits": {"count": (-1.0, 2.5)}}, (True, False), r"count .*3, .*\[-1, 2\.5\]"),
        ({"stop_when": [lambda obs: obs[0] > 1.5 and "too far"]}, (False, True), "^too far$"),
        ({"stop_when": [lambda obs: obs[0] > 1.5]}, (False, True), r"stop_when\[0\]"),
    ):
        env = Device(**options)
        env.reset(options={"max_steps": 5})
        while True:
            *_, terminated, truncated, info = env.step([1.0])
            if terminated or truncated:
                break
        assert (terminated, truncated) == ending and re.search(reason, env.halted_by) and info["stopped"]
        ends.append(env)
    env = Device()
    env.reset(options={"max_steps": 2})
    assert [step[3] for step in steps_of(env, [1.0, 1.0])] == [False, True]
    ends.append(env)
    for error in (RuntimeError("x"), KeyboardInterrupt(), SystemExit(1)):
        env = Broken()
        env.error = error
        env.reset()
        with pytest.raises(type(error)):
            steps_of(env, [1.0, 1.0])
        ends.append(env)
    for leave in (lambda env: env.close(), lambda env: env.reset(), lambda env: env.halt("tea")):
        env = Device()
        env.reset()
        steps_of(env, [1.0])
        leave(env)
        ends.append(env)
    with Device() as env:
        env.reset()
        steps_of(env, [1.0])
    ends.append(env)
    for env in ends:
        assert env.sent.count(0.0) == 1 and env.sent[-1] == 0.0, env.sent
        before = list(env.sent)
        env.halt()
        env.close()
        env.close()
        assert env.sent[: len(before)] == before and env.released == 1
    assert Broken().is_terminal(np.array([4.0]))


def test_stop_when_is_called_before_an_action_is_sent():
    pressed = []
    env = Device(stop_when=[lambda obs: bool(pressed)])
    env.reset()
    steps_of(env, [1.0])
    pressed.append("key")  # while the policy computes
    _, _, terminated, truncated, info = env.step([2.0])
    assert (terminated, truncated, info["act_applied"].item()) == (False, True, 0.0) and 2.0 not in env.sent


@pytest.mark.parametrize("no_close", [True, False])
def test_a_policy_that_fails_stops_the_device(no_close):
    env = Device()

    def policy(observation):
        if observation[0] == 2:
            raise KeyboardInterrupt
        return np.array([1.0])

    with pytest.raises(KeyboardInterrupt):
        rollout(env, policy, max_steps=10, no_close=no_close)
    assert env.sent == [1.0, 1.0, 0.0] and env.released == (not no_close)
    result = rollout(ActNormWrapper(Device()), lambda obs: np.array([1.0]), max_steps=3)
    assert result.truncated.tolist() == [False, False, True]
    assert result.actions_applied.tolist() == [[2.0]] * 3


def test_the_stop_action_is_tried_again():
    calls = []

    def stop(*failures):
        calls.append(1)
        if len(calls) <= len(failures):
            raise failures[len(calls) - 1]

    stop_for_sure(lambda: stop(OSError("busy")), "arm")
    assert len(calls) == 2
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        stop_for_sure(lambda: stop(KeyboardInterrupt()), "arm")
    assert len(calls) == 2  # it was sent in spite of Ctrl-C
    calls.clear()
    with pytest.raises(DeviceError, match=r"arm \(gone\).*switch it off"):
        stop_for_sure(lambda: stop(*[OSError("gone")] * 9), "arm")


def test_a_watchdog_stops_a_device_that_is_not_stepped():
    stopped = threading.Event()

    class Watched(Device):
        def stop(self):
            super().stop()
            stopped.set()

    env = Watched(watchdog=0.05)
    env.reset()
    assert stopped.wait(30.0)
    with pytest.raises(DeviceError, match=r"\(.* 0\.05 s\)"):
        for _ in range(10_000):  # the thread of the watchdog may not be done yet
            env.step([1.0])
    assert env.sent[-1] == 0.0


def test_a_key_of_the_terminal_stops():
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "rb", buffering=0) as terminal, StopKey("q", terminal) as key:
            assert key(np.zeros(2)) == ""
            os.write(master, b"xq")
            assert "'q'" in key(np.zeros(2))
            assert key(np.zeros(2)) == ""
    finally:
        os.close(master)
    with open(os.devnull) as nothing, pytest.raises(ValueError, match="StopKey"):
        StopKey(stream=nothing).__enter__()


# ---- the log ---------------------------------------------------------------------------------------------------------


def test_every_step_is_in_the_log_before_the_next(tmp_path):
    env = Device(log_dir=tmp_path / "logs", sync=True)
    env.reset()
    for steps in range(1, 5):
        env.step([0.25 * steps])
        [so_far] = load_log(env.log_path)
        assert len(so_far) == steps and so_far.rollout_info["log"]["end"] == "not finished"
    env.halt("enough")
    [loaded] = load_log(env.log_path)
    recorded = env.recorded()
    for name in ("observations", "actions", "rewards", "time", "actions_applied", "repeated", "late", "overrun"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(recorded, name))
    assert loaded.rollout_info["env_spec"] == SPEC and loaded.rollout_info["dt"] == 0.1
    assert loaded.rollout_info["log"] == {"env_name": "Device", "file": "episode_0000.jsonl", "end": "enough"}
    env.reset()
    env.step([1.0])
    env.close()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["episode_0000.jsonl", "episode_0001.jsonl"]


def test_logs_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which the child does not need
        child = os.fork()
    if child == 0:
        try:
            env = Device(log_dir=tmp_path)
            env.reset()
            steps_of(env, 0.1 * np.arange(7))
            os.write(env._record._log._file, b'{"action": [0.')
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [loaded] = load_log(tmp_path / "episode_0000.jsonl")
    assert len(loaded) == 7 and loaded.truncated[-1] and loaded.rollout_info["log"]["end"] == "not finished"
    np.testing.assert_allclose(loaded.actions[:, 0], 0.1 * np.arange(7), rtol=0)


def test_the_end_of_the_program_stops(tmp_path):
    env, idle = Device(log_dir=tmp_path), Device()
    env.reset()
    env.step([1.0])
    stop_all()  # what the interpreter calls at its end
    assert env.sent == [1.0, 0.0] and not idle.sent
    assert load_log(env.log_path)[0].rollout_info["log"]["end"] == "the program has ended"


def test_logs_of_devices_are_resampled_and_lost_observations_bridged(tmp_path):
    env = Device(log_dir=tmp_path, lost=(3,))
    env.reset()
    steps_of(env, [0.1, 0.2, 0.3, 0.4, 0.5, 5.0])
    env.close()
    with pytest.warns(UserWarning, match="row 4 are missing"):
        [fine] = load_log(env.log_path, dt=0.05)
    np.testing.assert_allclose(fine.observations[:, 0], 0.5 * np.arange(13), atol=1e-9)  # also where 3 was lost
    np.testing.assert_allclose(fine.actions[:, 0], [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3, 0.4, 0.5, 0.5, 2, 2])
    assert load_log(env.log_path, dt=0.1)[0].repeated.sum() == 1  # as it is
    mapping = {"observations": {"x": {"column": "observations[0]", "unit": "mm"}}, "actions": ["actions[0]"]}
    mapping["time"] = "time"
    with pytest.raises(LogError, match=r"row 4, column 'observations\[0\]': .*max_gap"):
        load_log(env.log_path, mapping)
    with pytest.warns(UserWarning, match="x in row 4 are missing"):
        [coarse] = load_log(env.log_path, {**mapping, "max_gap": 0.3, "dt": 0.2})
    assert coarse.rollout_info["log"]["made_up"] == []  # the gap is no longer than a step
    np.testing.assert_allclose(coarse.observations[:, 0], [0.0, 2e-3, 4e-3, 6e-3], atol=1e-12)
    lost = Device(log_dir=tmp_path, lost=(3, 4))
    lost.reset()
    steps_of(lost, [0.1] * 4)
    lost.close()
    assert [len(part) for dt in (0.1, 0.05) for part in load_log(lost.log_path, dt=dt)] == [4, 4]  # of 0.2 s


def test_a_log_whose_clock_jitters_is_resampled_and_holes_are_warned_of(tmp_path):
    times = 0.1 * np.arange(9) + np.tile([0.0, 0.03, 0.05], 3)

    def written(name, kept, overrun=0.0, at=5):
        log = RobotLog(tmp_path / name, SPEC, 0.1)
        log.first(np.zeros(2), 0.0)
        for k in kept:
            step = {"action": [0.0], "applied": [0.0], "observation": [times[k], 0.0], "reward": 0.0, "late": False}
            step |= {"terminated": False, "truncated": False, "time": times[k], "repeated": False, "overrun": 0.0}
            log.write_step({**step, "overrun": overrun if k == at else 0.0})
        log.end("done", {})
        return tmp_path / name

    path = written("all.jsonl", range(1, 9))
    assert len(load_log(path)[0]) == 8
    [even] = load_log(path, dt=0.1)
    np.testing.assert_allclose(even.time, 0.1 * np.arange(9), atol=1e-12)
    # x is the time, which interpolation does not change
    np.testing.assert_allclose(even.observations[:, 0], even.time, atol=1e-12)
    with pytest.warns(UserWarning, match=r"hole\.jsonl: .*line 6 .* 0\.1 s .*missing"):
        [filled] = load_log(written("hole.jsonl", [1, 2, 3, 5, 6, 7, 8]), dt=0.1)
    np.testing.assert_allclose(filled.observations[:, 0], 0.1 * np.arange(9), atol=1e-12)
    slow = written("slow.jsonl", [1, 2, 3, 5, 6, 7, 8], overrun=0.02)  # that step took too long
    with pytest.warns(UserWarning, match=r"slow\.jsonl: .*7 steps of 0\.1 s .* 0\.85 s: .*line 6 .*dt=0\.1"):
        load_log(slow)
    assert len(load_log(slow, dt=0.1)[0]) == 8  # without a warning
    # The wait ended late; the next step counts that.
    woken = written("woken.jsonl", [1, 2, 3, 5, 6, 7, 8], overrun=0.02, at=6)
    assert len(load_log(woken, dt=0.1)[0]) == 8
    load_log(written("end.jsonl", [1, 2, 3, 4, 5, 6, 8]))  # the last observation may just be late
    for name, kept, line in (("swapped", [1, 2, 4, 3], 6), ("twice", [1, 2, 2, 3], 5), ("reversed", [3, 2, 1], 4)):
        path = written(f"{name}.jsonl", kept)
        for dt in (None, 0.1):
            with pytest.raises(LogError, match=rf"{name}\.jsonl: line {line}: time stamps must increase"):
                load_log(path, dt=dt)
    whole = written("whole.jsonl", [1, 2, 3]).read_text().splitlines(keepends=True)
    head, start, *steps = whole
    for number, (lines, line) in enumerate(
        [([head, *steps], 2), ([head, *steps, start], 2), ([head, start, *steps[:2], start, *steps[2:]], 5)]
    ):
        path = tmp_path / f"start{number}.jsonl"
        path.write_text("".join(lines))
        with pytest.raises(LogError, match=rf"start{number}\.jsonl: line {line}: the start of an episode"):
            load_log(path)


def test_damaged_logs_are_named(tmp_path):
    log = RobotLog(tmp_path / "a.jsonl", SPEC, 0.1)
    log.first(np.zeros(2), 0.0)
    with pytest.raises(FileExistsError):
        RobotLog(tmp_path / "a.jsonl", SPEC, 0.1)
    with pytest.raises(LogError, match=r"a.jsonl: .*no step"):
        read_robot_log(tmp_path / "a.jsonl")
    log.write_step({"action": [0.0]})
    with pytest.raises(LogError, match=r"a.jsonl: line 3: .*'applied'"):
        read_robot_log(tmp_path / "a.jsonl")
    log.end("x", {})
    log.end("x", {})
    with pytest.raises(ValueError, match=r"a.jsonl .*closed"):
        log.write_step({})
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    for text, message in (
        ("\n".join([lines[0], "{", ""]), "line 2: "),
        (lines[1] + "\n", "RealEnv"),
        ("[1]\n", "line 1: .*JSON object"),
        (lines[0].replace('"version":1', '"version":9') + "\n", "version 9"),
        ("", "RealEnv"),
    ):
        (tmp_path / "b.jsonl").write_text(text)
        with pytest.raises(LogError, match=f"b.jsonl: .*{message}"):
            load_log(tmp_path / "b.jsonl")


# ---- what a device cannot do -----------------------------------------------------------------------------------------


def test_domain_parameters_are_unknown_and_states_cannot_be_set():
    env = Device()
    result = rollout(env, lambda obs: np.array([1.0]), max_steps=3)
    assert "domain_param" not in result.rollout_info and "states" not in result.data_names
    assert typed_env(ActNormWrapper(env), RealEnv) is env
    with pytest.raises(TypeError, match=r"real device .*'mass'"):
        DomainParamUpdate({"mass": 1.0})(env)
    for name in ("init_state", "domain_param"):
        with pytest.raises(ValueError, match=f"{name} of a real device"):
            Device().reset(options={name: [0.0]})
    with pytest.raises(UnknownNameError, match="option of reset 'max_step'"):
        Device().reset(options={"max_step": 3})
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"real device .*copied"):
            copied(env)
    with pytest.raises(TypeError, match=r"real device .*copied"):
        make_slots(env, 2)
    with pytest.raises(DeviceError, match=r"Device .*closed"):
        env.reset()
    with pytest.raises(DeviceError, match=r"Device .*not been reset"):
        Device().step([1.0])
    assert env.limit_act([7.0]).tolist() == [2.0] and env.curr_step == 3
    assert env.obs_space is env.observation_space and env.act_space is env.action_space


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on_limit": "ignore"}, ValueError, "on_limit must .*'ignore'"),
        ({"stop_action": [3.0]}, ValueError, "stop_action must .*3"),
        ({"stop_action": [0.0, 0.0]}, ShapeError, r"\(1,\), got \(2,\)"),
        ({"observation_limits": {"cont": (0, 1)}}, UnknownNameError, "observation_limits 'cont'"),
        ({"observation_limits": {0: (1, 1)}}, ValueError, r"observation_limits .*'count' must .*\(1, 1\)"),
        ({"dt": 0.0}, ValueError, "dt must"),
        ({"timeout": -1.0}, ValueError, "timeout must"),
        ({"max_lost": -1}, ValueError, "max_lost must"),
        ({"watchdog": 0.0}, ValueError, "watchdog must"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Device(**options)


def test_spaces_must_be_boxes_with_bounded_actions():
    class Free(Device):
        def __init__(self, spec):
            RealEnv.__init__(self, spec, 0.1)

    spec = PendulumEnv().env_spec
    unbounded = EnvSpec(spec.observation_space, Box(-np.inf, np.inf, (1,), np.float64))
    with pytest.raises(ValueError, match=r"action space .*bounded"):
        Free(unbounded)
    with pytest.raises(TypeError, match=r"observation space .*must be a Box"):
        Free(EnvSpec(Box(0, 1, (2, 2), np.float64), spec.action_space))


# ---- from a device to features ---------------------------------------------------------------------------------------


class SlowRobot(RealEnv):
    """A pendulum whose motor receives an action two steps later."""

    shown = None

    def __init__(self, **options):
        self.inside = ActDelayWrapper(PendulumEnv(domain_param={"pole_mass": 1.2}, init_space=[0.5, 0.0]), 2)
        spec = self.inside.env_spec
        super().__init__(spec, 0.02, clock=FakeClock(), watchdog=None, sync=False, **options)

    def prepare(self):
        self.shown = self.inside.reset(seed=0)[0]

    def send(self, action):
        self.shown = self.inside.step(action)[0]

    def receive(self, timeout):
        shown, self.shown = self.shown, None
        return None if shown is None else Packet(shown)


def test_a_log_tells_mass_and_delay(tmp_path):
    """From the device through its log to features: zero distance at the true parameters, larger at all others."""
    rollout(SlowRobot(log_dir=tmp_path), lambda obs: np.array([3.0 * np.sin(4.0 * obs[2] + obs[0])]), max_steps=60)
    logs = load_log(tmp_path / "episode_0000.jsonl")
    save_rollouts(logs, tmp_path / "folder")
    sim = ActDelayWrapper(PendulumEnv(), round_delay=True)
    spec = EnvSpec(sim.observation_space, sim.action_space)
    embedding, series = BayesSimEmbedding(spec, 4), {"num_segments": 1, "series": "observations"}
    recorded = RecRolloutSamplerForSBI(tmp_path / "folder", embedding, rand_init_rollout=False, **series)
    mapping = {0: "act_delay", 1: "pole_mass"}
    sampler = SimRolloutSamplerForSBI(sim, None, mapping, embedding, rollouts_real=logs, seed=0, **series)
    features = sampler(np.array([[1.8, 1.2], [2.0, 1.2], [0.0, 1.2], [3.0, 1.2], [2.0, 1.0]]))
    distances = (features - recorded()[0]).abs().sum(1).numpy()
    assert not sampler.failed and distances[:2].max() < 1e-5 < 1.0 < distances[2:].min()
