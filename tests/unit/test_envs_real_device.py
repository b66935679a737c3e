"""SocketEnv on a device in another process, whose packets are late or get lost."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest

from metaroll import rollout
from metaroll.errors import DeviceError, UnknownNameError
from metaroll.lab import PacketFaults, SimulatedDevice, SocketEnv, load_log
from metaroll.sims import PendulumEnv

DT = 0.01


def policy(observation):
    return np.array([2.0 * observation[0]])


@pytest.fixture
def device():
    with SimulatedDevice("pend", dt=DT, domain_param={"pole_mass": 1.3}, init_state=[0.3, -0.2]) as process:
        yield process


@pytest.mark.filterwarnings("ignore:.*some were longer, and everything is late")  # a busy machine is not a failure
def test_a_device_in_another_process(device, tmp_path):
    env = SocketEnv(device.connection, device.env_spec, DT, watchdog=None, max_lost=100, log_dir=tmp_path, sync=False)
    with env:
        env._packets._timeout = 5.0  # a slow packet must not count as lost
        device.worsen(PacketFaults(), paced=False)
        for _ in range(2):
            check_answers(env)
        [logged] = load_log(tmp_path / "episode_0000.jsonl")
        np.testing.assert_array_equal(logged.observations, env.recorded().observations)
        env._packets._timeout = 0.2 * DT
        faults = PacketFaults(jitter=0.4 * DT, late=0.2, late_by=2.5 * DT, lost=0.1, lost_numbers=(3, 4, 5), seed=1)
        device.worsen(faults)
        check_accounts(env)
    assert [len(load_log(path)[0]) for path in sorted(tmp_path.iterdir())] == [25, 25, 40]


def check_answers(env):
    """Without a clock of its own the device answers each action with a packet: the bits of the simulation."""
    result = rollout(env, policy, max_steps=25, no_close=True)
    assert env.timing.lost == 0 and not result.env_infos["repeated"].any()
    sim = PendulumEnv(dt=DT, domain_param={"pole_mass": 1.3}, init_space=[0.3, -0.2])
    actions = iter(result.actions)
    expected = rollout(sim, lambda obs: next(actions), max_steps=25)
    np.testing.assert_array_equal(result.observations, expected.observations)


def check_accounts(env):
    """On its own clock: the number of late packets depends on the machine, but each one is counted."""
    result = rollout(env, policy, max_steps=40, no_close=True)
    timing, repeated, late = env.timing, result.env_infos["repeated"], result.env_infos["late"]
    assert timing.steps == len(result) == 40 and result.truncated[-1]
    assert (timing.lost, timing.late) == (repeated.sum(), late.sum()) and not (repeated & late).any()
    assert timing.lost + timing.stale + timing.overruns > 0
    steps = np.flatnonzero(repeated)
    np.testing.assert_array_equal(result.observations[steps + 1], result.observations[steps])
    time = result.env_infos["time"]
    assert (time >= DT * np.arange(1, 41) - 1e-6).all() and (np.diff(time) > 0).all()
    assert timing.overruns == (result.env_infos["overrun"] > 0).sum()
    np.testing.assert_allclose(np.hypot(result.observations[:, 0], result.observations[:, 1]), 1.0)


def connected():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return SocketEnv(ours, PendulumEnv().env_spec, DT, watchdog=None, max_lost=0, timeout=0.001), theirs


def test_messages_are_small_json(monkeypatch):
    env, device = connected()
    with device:
        for text in (b"old", b"{", b'{"episode": 7, "observation": [0, 0, 0]}', b'{"number": 1}'):
            device.send(text)

        def answer():
            device.send(json.dumps({"observation": [9, 9, 9], "number": 8, "episode": 0}).encode())
            device.send(json.dumps({"observation": [0, 1, 2], "number": 0, "episode": 1}).encode())

        prepare = env.prepare
        monkeypatch.setattr(env, "prepare", lambda: (prepare(), answer()))
        assert env.reset()[0].tolist() == [0.0, 1.0, 2.0]
        assert json.loads(device.recv(999)) == {"reset": 1}
        device.send(b'{"observation": [0, 1, 3], "number": 1, "episode": 1}')
        assert env.step([1.5])[0].tolist() == [0.0, 1.0, 3.0]
        assert json.loads(device.recv(999)) == {"action": [1.5], "episode": 1}
        with pytest.raises(DeviceError, match=r"1 steps .*max_lost=0"):
            env.step([0.5])
        sent = [json.loads(device.recv(999))["action"] for _ in range(4)]
        assert sent == [[0.5], [0.0], [0.0], [0.0]]
        env.close()


def test_wrong_connections_and_simulators_are_refused():
    env, device = connected()
    device.close()
    with pytest.raises((OSError, DeviceError)):
        env.reset()
    env.close()
    with socket.socket() as stream, pytest.raises(ValueError, match="connection must"):
        SocketEnv(stream, PendulumEnv().env_spec, DT)
    with pytest.raises(UnknownNameError, match="simulator 'pendel'"):
        SimulatedDevice("pendel")
    with pytest.raises(KeyError, match="'pole_mas'"):
        SimulatedDevice("pend", domain_param={"pole_mas": 1.0})


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("jitter", -1.0, ValueError),
        ("late", "x", TypeError),
        ("late", 1.5, ValueError),
        ("late_by", float("inf"), ValueError),
        ("lost", float("nan"), ValueError),
        ("lost", 2.0, ValueError),
        ("lost_numbers", 3, TypeError),
        ("lost_numbers", (1, -2), ValueError),
        ("seed", 0.5, TypeError),
        ("seed", -1, ValueError),
    ],
)
def test_faults_that_no_network_has_are_refused(name, value, error):
    with pytest.raises(error, match=rf"^(each of )?{name} must "):
        PacketFaults(**{name: value})


def test_faults_reach_the_device_as_plain_numbers():
    assert PacketFaults(lost=np.float32(0.5), lost_numbers=[np.int64(3)], seed=np.int64(2)) == PacketFaults(
        lost=0.5, lost_numbers=(3,), seed=2
    )
    for wrong in ({"faults": 3}, {"paced": "no"}):
        with pytest.raises(TypeError, match=f"^{next(iter(wrong))} must be "):
            SimulatedDevice("pend", **wrong)
