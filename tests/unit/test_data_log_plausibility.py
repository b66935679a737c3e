"""What import-log says of columns that cannot be what they are taken for."""

from __future__ import annotations

import json
import re

import gymnasium
import numpy as np
import pytest
import yaml

from metaroll import EnvSpec, StepSequence, load_rollouts, rollout
from metaroll.lab import check_log, load_log, log_lag
from metaroll.lab.cli.main import main
from metaroll.sims import PendulumEnv

DT = 0.05


def random_rollouts(name, seed, episodes=2, steps=100):
    env = gymnasium.make(name)
    env.action_space.seed(seed)
    made = [rollout(env, lambda _: env.action_space.sample(), seed=seed + i, max_steps=steps) for i in range(episodes)]
    for one in made:
        one.rollout_info["dt"] = DT if name == "Pendulum-v1" else 0.008
    return made


def changed(rollouts, change):
    """Copies with other observations."""
    copies = []
    for one in rollouts:
        copy = one.copy() if hasattr(one, "copy") else one
        copy.observations[:] = change(np.array(one.observations))
        copies.append(copy)
    return copies


def kinds(findings):
    return [finding.kind for finding in findings]


def columns_of(made, path, order=(0, 1, 2), scale=(1.0, 1.0, 1.0)):
    obs = np.array(made.observations)
    arrays = {f"c{i}": obs[:, j] * s for i, (j, s) in enumerate(zip(order, scale, strict=True))}
    np.savez(path, **arrays, u=np.append(made.actions[:, 0], np.nan), t=DT * np.arange(len(obs)))
    return path


MAPPING = {"time": "t", "observations": ["c0", "c1", "c2"], "actions": ["u"]}


@pytest.mark.parametrize(
    ("order", "scale", "message"),
    [
        ((0, 1, 2), (1, 1, 1), None),
        ((1, 0, 2), (1, 1, 1), "sine and cosine are swapped"),
        ((0, 1, 2), (1, 1, -1), "or one has another sign"),
        ((0, 1, 2), (1, 1, 57.2958), "one of them is in degrees"),
        ((0, 1, 2), (1, 1, 9.5493), r"one of them is in turns per minute \(rpm\)"),
        ((0, 2, 1), (1, 1, 1), "c1 and c0 are not the sine and cosine of an angle"),
    ],
)
def test_columns_of_gymnasiums_pendulum_are_compared_with_it(tmp_path, order, scale, message):
    [simulated], [made] = random_rollouts("Pendulum-v1", 0, 1), random_rollouts("Pendulum-v1", 5, 1)
    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
    logs = load_log(columns_of(made, tmp_path / "log.npz", order, scale), MAPPING, env_spec=spec, dt=DT)
    assert logs[0].rollout_info["env_spec"].observation_labels == ("c0", "c1", "c2")  # the environment has none
    findings = [one for one in check_log(logs, [simulated]) if one.kind in ("speed", "circle")]
    assert len(findings) == (0 if message is None else 1)
    if message is not None:
        assert re.search(message, " ".join(one.text for one in findings))


def test_labels_tell_which_speed_belongs_to_which_position(tmp_path):
    env = PendulumEnv(init_space=[1.0, 0.0])
    made = rollout(env, lambda obs: [np.sin(3 * obs[2])], max_steps=200)
    angle, speed = np.array(made.states).T
    arrays = {"angle": np.degrees(angle), "speed": np.degrees(speed), "u": np.append(made.actions[:, 0], np.nan)}
    np.savez(tmp_path / "log.npz", **arrays)
    base = {"actions": {"torque": "u"}, "sample_time": 0.02}

    def found(**observations):
        return check_log(load_log(tmp_path / "log.npz", {**base, "observations": observations}))

    right = {"column": "angle", "unit": "deg"}
    assert found(theta=right, theta_dot={"column": "speed", "unit": "deg/s"}) == []
    [finding] = found(theta=right, theta_dot="speed")
    assert finding.columns == ("theta", "theta_dot") and "times what theta_dot says: one of them is in degrees" in (
        finding.text
    )
    assert "changes by 0.0174" in finding.text  # pi / 180
    both = {"sin_theta": {**right, "function": "sin"}, "cos_theta": {**right, "function": "cos"}}
    assert found(**both, theta_dot={"column": "speed", "unit": "deg/s"}) == []
    swapped = {"sin_theta": both["cos_theta"], "cos_theta": both["sin_theta"]}
    [finding] = found(**swapped, theta_dot={"column": "speed", "unit": "deg/s"})
    assert "-1" in finding.text and "sine and cosine are swapped" in finding.text
    assert kinds(found(**{"hip angle": right, "hip velocity": "speed"})) == ["speed"]
    # Without labels the log itself says what is plain.
    assert "in degrees" in found(a=right, b="speed")[0].text
    assert found(a=right, b={"column": "speed", "unit": "deg/s"}) == []


@pytest.mark.filterwarnings("ignore:.*the angle .* jumps")
def test_degrees_are_asked_for_where_everything_is_in_degrees(tmp_path):
    """Speeds fit then, and a simulator that starts with them goes as far."""
    env = PendulumEnv(init_space=[1.0, 0.0])
    made = rollout(env, lambda obs: [np.sin(3 * obs[2])], max_steps=200)
    angle, speed = np.degrees(np.array(made.states)).T
    np.savez(tmp_path / "log.npz", a=angle, s=speed, u=np.append(made.actions[:, 0], np.nan))
    for label in ("arm_angle_2", "Pitch", "joint angle", "yaw_left", "psi", "Theta1"):
        mapping = {"observations": {label: "a", "rate": "s"}, "actions": ["u"], "sample_time": 0.02}
        [finding] = check_log(load_log(tmp_path / "log.npz", mapping))
        assert finding.kind == "degrees" and finding.text.endswith("in degrees? Then write unit: deg in the mapping")
    others = ("place", "angle_speed", "mangled", "Yaw Rate", "theta1dot", "yaw_acceleration", "roll_torque", "tank_psi")
    for label in others:
        mapping["observations"] = {label: "a", "rate": "s"}
        assert check_log(load_log(tmp_path / "log.npz", mapping)) == []


def test_single_columns_are_checked(tmp_path):
    generator = np.random.default_rng(0)
    x = np.sin(0.03 * np.arange(600)) + 0.002 * generator.normal(size=600)
    spiked, clipped = x.copy(), np.clip(1.9 * x, None, 1.5)
    spiked[77] = 5.0
    np.savez(tmp_path / "log.npz", a=spiked, b=np.full(600, 0.3), c=clipped, u=np.zeros(600))
    [log] = load_log(tmp_path / "log.npz", {"observations": ["a", "b", "c"], "actions": ["u"], "sample_time": 0.01})
    constant, outlier, stuck, still = check_log([log])
    assert still.columns == ("action u",) and still.text == "the action u is always 0"
    assert constant.columns == ("b",) and constant.text == "always the same: b (0.3)"
    assert (outlier.kind, outlier.columns, outlier.steps) == ("outlier", ("a",), ((0, 77),))
    assert "in step 77: " in outlier.text
    assert (stuck.kind, stuck.columns, len(stuck.steps)) == ("stuck", ("c",), np.count_nonzero(clipped == 1.5))
    spec = EnvSpec(gymnasium.spaces.Box(-2.0, 2.0, (3,), np.float64), log.rollout_info["env_spec"].action_space)
    log.rollout_info["env_spec"] = spec
    [outside] = [one for one in check_log([log]) if one.kind == "outside"]
    assert outside.columns == ("observation 0",) and outside.steps == ((0, 77),)
    assert "leaves the observation space [-2, 2] in step 77, up to 5" in outside.text


def test_what_is_clipped_is_no_other_unit():
    t = 0.02 * np.arange(400)
    speed = 6.0 * np.cos(3.0 * t)
    spaces = (gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Discrete(2))
    info = {"env_spec": EnvSpec(*spaces, observation_labels=("theta", "theta_dot")), "dt": 0.02}
    clipped = np.stack([2.0 * np.sin(3.0 * t), np.clip(speed, -2.0, 2.0)], axis=1)  # factor 1.7 over all rows
    log = StepSequence(rewards=np.zeros(399), observations=clipped, actions=np.arange(399) % 2, rollout_info=info)
    assert kinds(check_log([log])) == ["stuck", "stuck"]
    log.observations[:, 1] *= 57.3
    assert kinds(check_log([log])) == ["speed", "stuck", "stuck"]
    log.actions[:] = 1
    assert check_log([log])[-1].text == "the action 0 is always 1"


def in_one(name, count, steps, noise=0.0):
    """Rollouts of a loop that goes on after a reset, with stamps that go on, too; and where they begin."""
    made = random_rollouts(name, 3, count, steps)
    observations = np.concatenate([one.observations[:-1] for one in made])
    observations = observations + noise * np.ptp(observations, axis=0) * normal(observations.shape)
    actions = np.concatenate([one.actions for one in made])[:-1]
    dt = {"CartPole-v1": 0.02, "Pendulum-v1": DT}[name]
    fields = {"observations": observations, "actions": actions, "rollout_info": {"dt": dt}}
    seams = [(0, int(row)) for row in np.cumsum([len(one) for one in made])[:-1]]
    return StepSequence(rewards=np.zeros(len(actions)), **fields), made, dt, seams


def normal(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("name", "count", "steps"), [("Pendulum-v1", 4, 60), ("CartPole-v1", 9, 100)])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_rollouts_in_one_are_said_where_they_begin(name, count, steps, noise):
    log, made, dt, seams = in_one(name, count, steps, noise)
    jump = check_log([log], made, dt)[0]
    assert jump.kind == "jump" and set(jump.steps) <= set(seams) and len(jump.steps) >= len(seams) // 2
    assert "does a new rollout begin there" in jump.text
    assert f"jumps in step {jump.steps[0][1]}" in jump.text
    alone = [StepSequence(rewards=one.rewards, observations=one.observations, actions=one.actions) for one in made]
    assert "jump" not in kinds(check_log(alone, made, dt))


def turning(wrap=False, turn=2.0 * np.pi):
    """An angle that turns, and its speed, 600 steps of 20 ms."""
    t = 0.02 * np.arange(601)
    angle, speed = 4.0 * t + 0.5 * np.sin(2.0 * t), 4.0 + np.cos(2.0 * t)
    angle = (angle + np.pi) % (2.0 * np.pi) - np.pi if wrap else angle
    spaces = (gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Box(-1.0, 1.0, (1,)))
    info = {"env_spec": EnvSpec(*spaces, observation_labels=("theta", "theta_dot")), "dt": 0.02}
    seen = np.stack([angle, speed], axis=1) * turn / (2.0 * np.pi)
    return StepSequence(
        rewards=np.zeros(600), observations=seen, actions=normal((600, 1)).clip(-1, 1), rollout_info=info
    )


@pytest.mark.parametrize("turn", [2.0 * np.pi, 360.0])
def test_an_angle_that_is_cut_off_at_full_turns_is_no_new_rollout(turn):
    assert check_log([turning(turn=turn)]) == []
    [found] = check_log([turning(True, turn)])
    assert found.kind == "speed" and "unwrap" in found.text


def test_what_is_no_new_rollout_is_not_said_to_be_one():
    for rows in ([0], [-1], [300, 301]):  # outliers at an end, or of two rows
        log = turning()
        log.observations[rows, 0] += 3.0
        assert "jump" not in kinds(check_log([log]))
    simulated = turning()
    simulated.observations[200:, 0] += 1.0
    log = turning()
    log.observations[300:, 0] += 1.0
    assert kinds(check_log([log])) == ["jump"]
    assert check_log([log], [simulated]) == []  # the simulator jumps, too
    joints = elastic_joint(0, 0.0)
    joints.observations[150:, 1] += 0.5  # one of two joints, as a contact does
    assert "jump" not in kinds(check_log([joints]))
    joints.observations[150:, 0] += 0.5
    assert kinds(check_log([joints])) == ["jump"]


def test_noise_that_hides_a_position_is_no_other_column():
    t = 0.02 * np.arange(601)
    for size, said in ((0.001, False), (1.0, True)):
        log = turning()
        log.observations[:, 0] = size * np.sin(0.3 * t) + 0.01 * normal(601)
        assert ("speed" in kinds(check_log([log]))) is said


def test_few_rows_tell_nothing_of_a_speed():
    log = turning()
    log.observations[:, 1] *= -1.0
    assert kinds(check_log([log])) == ["speed"]
    assert check_log([log[:4]]) == []


def test_speeds_that_the_simulator_clips_are_left_out_with_their_noise():
    log = turning()
    log.observations[:, 1] = np.clip(log.observations[:, 1], None, 3.1) + 0.01 * normal(601)
    simulated = turning()
    simulated.observations[:, 1] = np.clip(simulated.observations[:, 1], None, 3.1)
    assert kinds(check_log([log])) == ["speed"]
    assert check_log([log], [simulated]) == []


def test_jumps_are_large_and_rare():
    t = 0.02 * np.arange(601)
    slow = turning()
    slow.observations[:] = 0.05 * np.stack([np.sin(t), np.cos(t)], axis=1)
    slow.observations[300:, 0] += 1.0
    assert kinds(check_log([slow])) == ["jump"]  # the speed is that of the position but for this step
    for rows, size in (([300], 0.01), (range(5, 600, 5), 1.0)):  # small beside a step, or often
        log = turning()
        for row in rows:
            log.observations[row:, 0] += size
        assert "jump" not in kinds(check_log([log]))
    bounce = turning()  # between two rows, a little after the first one
    bounce.observations[300:] = 2.0 * bounce.observations[299] - bounce.observations[300:]
    bounce.observations[300:, 1] -= 2.0 * bounce.observations[299, 1]
    bounce.observations[300:, 0] += 0.15
    assert "jump" not in kinds(check_log([bounce]))


def test_commands_in_a_far_larger_unit_are_said():
    log = elastic_joint(0)
    assert check_log([log]) == []
    log.actions[:] *= 1e-3
    [small] = check_log([log])
    assert small.kind == "small" and small.columns == ("action 0",)
    assert re.fullmatch(
        r"the action 0 goes from -0.00\d+ to 0.00\d+, and its bounds from -9 to 9: .*scale, .*", small.text
    )


def test_what_is_no_list_of_rollouts_is_refused():
    log = elastic_joint(0)
    for check in (check_log, log_lag):
        with pytest.raises(TypeError, match=r"must be a list of StepSequences, got a single one; pass \[rollout\]"):
            check(log)
        with pytest.raises(TypeError, match=r"got 'log.csv' .*load_log and load_rollouts return one"):
            check("log.csv")
        with pytest.raises(TypeError, match=r"must be a list of StepSequences, got .* at position 1"):
            check([log, 3])


def test_outliers_of_the_simulator_are_none_of_the_log():
    made = [elastic_joint(seed, 0.0) for seed in range(2)]
    for one in made:
        one.observations[[50, 120], 1] += 3.0
    assert kinds(check_log(made[:1], [elastic_joint(3)], 0.02)) == ["outlier"]
    assert check_log(made[:1], made[1:], 0.02) == []


def test_a_noisy_sensor_may_show_a_little_more_than_the_space_holds(tmp_path):
    turns = 0.05 * np.arange(600)
    noise = np.random.default_rng(0).normal(size=600)
    for factor, std, said in ((1.0, 0.005, False), (1.0, 0.02, False), (1.3, 0.005, True)):
        np.savez(tmp_path / "log.npz", a=factor * np.cos(turns) + std * noise, u=np.zeros(600))
        [log] = load_log(tmp_path / "log.npz", {"observations": ["a"], "actions": ["u"], "sample_time": 0.02})
        space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
        log.rollout_info["env_spec"] = EnvSpec(space, log.rollout_info["env_spec"].action_space)
        assert any(finding.kind == "outside" for finding in check_log([log])) is said, (factor, std)


def test_degrees_in_both_columns_are_asked_for(tmp_path):
    """A speed agrees with its angle then, and only names and sizes tell."""
    t = DT * np.arange(300)
    angle, u = np.degrees(1.2 * np.sin(3.0 * t)), np.zeros(300)
    np.savez(tmp_path / "log.npz", t=t, u=u, angle_deg=angle, speed=np.gradient(angle, DT))
    observations = {"theta": {"column": "angle_deg"}, "theta_dot": {"column": "speed"}}
    mapping = {"time": "t", "observations": observations, "actions": ["u"]}
    with pytest.warns(
        UserWarning, match=r"jumps by .* goes from -68.75 to 68.75, so it is not .* Then write unit: deg"
    ):
        log = load_log(tmp_path / "log.npz", mapping)
    [found] = [one for one in check_log(log) if one.kind == "degrees"]
    assert found.text.startswith("theta (column 'angle_deg') has no unit, and goes from -68.75 to 68.75: in degrees?")
    observations["theta"]["unit"] = observations["theta_dot"]["unit"] = "deg"
    observations["theta_dot"]["unit"] = "deg/s"
    assert not [one for one in check_log(load_log(tmp_path / "log.npz", mapping)) if one.kind == "degrees"]


def test_a_simulator_that_shows_degrees_wants_degrees(tmp_path):
    made = elastic_joint(0, 0.0)
    degrees = [StepSequence(rewards=made.rewards, observations=60.0 * made.observations, actions=made.actions)]
    columns = {"observations": [(label, f"{label}_deg", "") for label in LABELS]}
    info = {**made.rollout_info, "log": {"columns": columns}}
    fields = {"rewards": made.rewards, "observations": degrees[0].observations, "actions": made.actions}
    log = [StepSequence(**fields, rollout_info=info)]
    assert kinds(check_log(log)) == ["degrees"] * 4
    assert check_log(log, degrees, 0.02) == []
    assert kinds(check_log(log, [made], 0.02)) == ["degrees"] * 4


def test_random_logs_of_gymnasiums_robots_have_no_findings_but_stops():
    for name in ("Pendulum-v1", "Hopper-v5"):
        simulated, logs = random_rollouts(name, 0, 3), random_rollouts(name, 50, 3)
        assert set(kinds(check_log(logs, simulated))) <= {"stuck"}
    hopper = random_rollouts("Hopper-v5", 0, 3)
    hopper[0].observations[5:12, 6] = 10.0
    stuck = [one for one in check_log(hopper) if one.kind == "stuck"]
    assert [one.columns for one in stuck] == [("observation 6",)] and "exactly 10, its largest" in stuck[0].text
    with pytest.raises(ValueError, match="rollouts must hold at least one rollout, got none"):
        check_log([])


def test_the_command_prints_label_column_unit_range_and_findings(tmp_path, capsys):
    [made] = random_rollouts("Pendulum-v1", 5, 1)
    path = columns_of(made, tmp_path / "log.npz", (1, 0, 2))
    observations = {"sin": "c0", "cos": "c1", "speed": {"column": "c2", "unit": "rad/s"}}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**MAPPING, "observations": observations}, sort_keys=False))
    arguments = ["import-log", str(path), "--mapping", str(tmp_path / "m.yaml"), "--env", "Pendulum-v1", "--out"]
    assert main([*arguments, str(tmp_path / "out")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "observation sin" in text and "c2 [rad/s]" in text and "action u" in text
    assert "check: the angle of cos and sin changes by -1.004 times what speed says: sine and cosine" in text
    assert "lag of commands: not identifiable from this log" in text  # 100 steps are too few
    [kept] = load_rollouts(tmp_path / "out")
    assert kept.rollout_info["env_spec"].observation_labels == ("sin", "cos", "speed")
    assert main([*arguments, str(tmp_path / "two"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in document["findings"]] == ["speed"]


LABELS = ("motor_angle", "link_angle", "motor_speed", "link_speed")


def elastic_joint(seed, noise=0.01, of_one=1.0, order=(0, 1, 2, 3)):
    """A motor and a link with a spring between them, which move nearly alike; columns in some order."""
    generator = np.random.default_rng(seed)
    q, v, dt, rows, actions = np.zeros(2), np.zeros(2), 0.02, [], []
    for k in range(300):
        rows.append([*q, *v])
        actions.append([2.0 * np.sin(0.05 * k) + generator.normal()])
        for _ in range(10):
            spring = 20.0 * (q[0] - q[1]) + 0.2 * (v[0] - v[1])
            v = v + 0.1 * dt * np.array([actions[-1][0] - spring - 0.1 * v[0], (spring - 3.0 * np.sin(q[1])) / 0.5])
            q = q + 0.1 * dt * v
    seen = np.array([*rows, [*q, *v]])
    sizes = noise * np.ptp(seen, axis=0) * np.array([1.0, of_one, 1.0, 1.0])
    seen = (seen + sizes * generator.normal(size=seen.shape))[:, list(order)]
    spaces = (gymnasium.spaces.Box(-np.inf, np.inf, (4,)), gymnasium.spaces.Box(-9.0, 9.0, (1,)))
    spec = EnvSpec(*spaces, observation_labels=LABELS)
    info = {"env_spec": spec, "dt": dt}
    return StepSequence(rewards=np.zeros(300), observations=seen, actions=np.array(actions), rollout_info=info)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_swapped_columns_of_two_joints_are_said(noise):
    for seed in range(3):
        assert check_log([elastic_joint(seed, noise)]) == []
        for order in ((0, 1, 3, 2), (1, 0, 2, 3)):
            found = check_log([elastic_joint(seed, noise, order=order)])
            assert kinds(found) == ["speed", "speed"]
            assert [one.columns[-1] for one in found] == ["motor_speed", "link_speed"]
            assert found[0].text.startswith("motor_speed fits link_angle (")
            assert "better than motor_angle (" in found[0].text and "of speeds swapped?" in found[0].text


def test_a_noisy_position_whose_neighbor_moves_alike_is_not_taken_for_a_swap():
    for seed in range(20):
        assert check_log([elastic_joint(seed, 0.03)]) == []
        assert "swapped" not in str(check_log([elastic_joint(seed, of_one=20.0)]))
