"""Inference in simulators of others: Gymnasium's by themselves, one's own by two methods; and what is refused."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll import DomainParamUpdate, RolloutEngine, RolloutPlan
from metaroll.configs.inference import InferenceOptions
from metaroll.data.recordings import save_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import declared_state
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError, RolloutError, ShapeError
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import as_prior
from metaroll.lab.cli.main import main
from metaroll.lab.inferring import inferring
from metaroll.lab.inferring.compared import Compared
from metaroll.lab.inferring.following import Followed
from metaroll.lab.inferring.inferring import infer, segment_sampler
from metaroll.lab.inferring.log_checks import doubts_about
from metaroll.lab.inferring.probing import probe
from metaroll.lab.report.inference_page import write_inference_page
from metaroll.policies import DummyPolicy

pytestmark = pytest.mark.usefixtures("lent_pools")


class Knows:
    """In place of NPDR: a posterior next to the middle of the prior, for which a few simulations are made."""

    made: ClassVar[list[Any]] = []

    def __init__(self, prior, **kept) -> None:
        self.prior, self.description = prior, {"simulator": kept["simulator"], "num_failed": 0, "num_reused": 0}
        self.description["num_foreign_parts"] = 0

    def infer(self, simulate, observed, num_simulations, enough) -> Posterior:
        middle = 0.5 * (self.prior.low + self.prior.high)
        self.made.append(simulate(middle[None]).numpy())
        near = np.random.default_rng(0).normal(middle, 1e-6, (20, len(middle)))
        return Posterior(self.prior, observed, draws=near, description=self.description)


def logged(env, params, count=2, steps=20, states=False) -> list[StepSequence]:
    """What somebody has logged of a robot: observations and actions, and perhaps states."""
    plans = [RolloutPlan(i, (3, 0, i), DomainParamUpdate(params), max_steps=steps) for i in range(count)]
    with RolloutEngine(env, DummyPolicy(EnvSource.of(env).spec), record_extras=True) as engine:
        made = list(engine.run(plans))
    logs = []
    for one in made:
        kept = {"states": states_of(env, one)} if states else {}
        fields = {"rewards": one.rewards, "observations": one.observations, "actions": one.actions, **kept}
        logs.append(StepSequence(**fields))
    return logs


def states_of(env, rollout):
    place = np.zeros((len(rollout) + 1, 1))
    return np.concatenate([place, np.asarray(rollout.observations)], axis=1) if env == "Hopper-v5" else rollout.states


GYMNASIUM = [
    ("Pendulum-v1", {"m": (0.5, 1.5)}, {"m": 1.0}, False),
    ("Pendulum-v1", {"m": (0.5, 1.5)}, {"m": 1.0}, True),
    ("CartPole-v1", {"length": (0.2, 1.0)}, {"length": 0.6}, False),
    ("Hopper-v5", {"body_mass:torso": (1.5, 6.5)}, {"body_mass:torso": 4.0}, False),
    ("Hopper-v5", {"body_mass:torso": (1.5, 6.5)}, {"body_mass:torso": 4.0}, True),
    ("Ant-v5", {"body_mass:torso": (0.2, 0.6)}, {"body_mass:torso": 0.4}, False),
]


@pytest.mark.parametrize(("env", "prior", "truth", "states"), GYMNASIUM)
def test_gymnasiums_environments_are_inferred_by_themselves(env, prior, truth, states, tmp_path, monkeypatch) -> None:
    """The posterior sits at the truth here, so that predictions must follow the log."""
    monkeypatch.setattr(inferring, "NPDR", Knows)
    if env == "Ant-v5" or (env == "Hopper-v5" and states):  # pairs of many channels would be compared
        monkeypatch.setattr(inferring, "doubts_about", lambda source, rollouts: [])
    log = logged(env, truth, steps=8, states=states)
    options = InferenceOptions(segment_length=4, checks=False)
    result = infer(env, log, prior, tmp_path, options)
    assert Knows.made[-1].shape[0] == 1 and np.isfinite(Knows.made[-1]).all()
    assert re.match("sensor noise: none, estimated .*assumed: ", result.noise["text"])
    assert not any(result.noise["found"].values()) and all(result.noise["std"].values())
    assert result.errors()["posterior"] < 2e-3
    width = 27 if env == "Ant-v5" else log[0].observations.shape[1]
    assert result.traces[0].recorded.shape[1] == width  # forces of contacts are not compared


def test_noise_of_sensors_is_part_of_the_result_and_another_one_is_another_posterior(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "NPDR", Knows)
    monkeypatch.setattr(inferring, "doubts_about", lambda source, rollouts: [])
    log, times = logged("Pendulum-v1", {"m": 1.0}, count=2, steps=8), []
    for noise in ("none", "none", "2=0.1", "2=0.2", {"2": 0.2}):
        options = InferenceOptions(segment_length=4, checks=False, noise=noise)  # type: ignore[arg-type]
        result = infer("Pendulum-v1", log, {"m": (0.5, 1.5)}, tmp_path, options)
        times.append((tmp_path / "posterior" / "posterior.json").stat().st_mtime_ns)
    assert [a == b for a, b in zip(times[1:], times, strict=False)] == [True, False, False, True]
    written = json.loads((tmp_path / "inference.json").read_text())["noise"]
    assert written["std"] == {"0": 0.0, "1": 0.0, "2": 0.2} and written["how"] == "as was given"
    assert re.match(r"sensor noise: entry 2 0\.2, as was given; .* 1 and 2 steps$", written["text"])
    assert written["text"] == result.noise["text"]
    prior = {"m": (0.5, 1.5), "noise.2": (0.0, 0.3)}
    result = infer("Pendulum-v1", log, prior, tmp_path, options)
    assert result.nominal["noise.2"] == 0.2
    assert re.search("none, as was given; inferred: 2; .* 1 and 2 steps$", result.noise["text"])
    with pytest.raises(ValueError, match="noise must"):
        InferenceOptions(noise="loud")


def test_an_environment_without_names_has_those_of_the_log(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "NPDR", Knows)
    labels = metaroll.EnvSpec(Cart.observation_space, Cart.action_space, observation_labels=("place", "speed"))
    log = []
    for one in logged(Cart, {"mass": 1.0}, steps=8):
        fields = {name: one.get_data_values(name) for name in ("rewards", "observations", "actions")}
        log.append(StepSequence(**fields, time=0.1 * np.arange(9.0), rollout_info={"env_spec": labels}))
    options = InferenceOptions(segment_length=4, checks=False, noise="speed=0.1")
    log[0] = log[0][:6]
    prior = {"mass": (0.5, 1.5), "noise.place": (0.0, 0.1)}
    with pytest.warns(UserWarning, match=r"time step .*0\.1 s"):
        result = infer(Cart, log, prior, tmp_path, options)
    assert result.noise["text"] == "sensor noise: speed 0.1, as was given; inferred: place"
    pieces = "recordings: 1 of 6 steps, .*held out; 2 rollouts .*2 pieces of 6 steps; 2 of 14 steps "
    assert re.match(pieces, result.recordings)
    assert [trace.labels for trace in result.traces] == [("place", "speed")] * 2


def followed(env, log, prior, options, initial_state=None) -> Followed:
    return Followed.of(Compared.of(EnvSource.of(env), log, as_prior(prior), options, initial_state), log, options)


def probed(env, log, prior, noise="estimate", segment_length=4) -> None:
    options = InferenceOptions(hold_out=0, segment_length=segment_length, noise=noise)
    probe(followed(env, log, prior, options), as_prior(prior), options)


class Cart(gymnasium.Env):
    """A cart on a rail that is pushed: the two methods that infer asks for."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self) -> None:
        self.mass, self.color = 1.0, 3.0
        self.state = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        state = (options or {}).get("init_state")
        self.state = self.np_random.uniform(-1, 1, 2) if state is None else np.array(state, dtype=float)
        return self.state.astype(np.float32), {}

    def state_from_observation(self, observations):
        return np.asarray(observations, dtype=float)

    def step(self, action):
        place, speed = self.state
        speed = speed + 0.1 * float(action[0]) / self.mass
        self.state = np.array([place + 0.1 * speed, speed])
        return self.state.astype(np.float32), 0.0, False, False, {}


class Tired(Cart):
    """Its episode ends in the third step."""

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.steps += 1
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 3, truncated, info


class Blind(Cart):
    state_from_observation = None


class Deaf(Cart):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class Backwards(Cart):
    def state_from_observation(self, observations):
        return -np.asarray(observations, dtype=float)


class Numb(gymnasium.Env):
    """It reads options, and starts at rest; nothing else tells its state."""

    observation_space, action_space = Cart.observation_space, Cart.action_space

    def __init__(self) -> None:
        self.mass, self._cart = 1.0, Cart()

    def reset(self, *, seed=None, options=None):
        return self._cart.reset(seed=seed, options={"init_state": np.zeros(2)})

    def state_from_observation(self, observations):
        return np.asarray(observations, dtype=float)

    def step(self, action):
        self._cart.mass = self.mass
        return self._cart.step(action)


class Broken(Cart):
    def step(self, action):
        raise RuntimeError("the belt is off")


PUSHED = {"mass": (0.5, 1.5)}


@pytest.mark.parametrize(
    ("env", "prior", "error", "message"),
    [
        (Blind, PUSHED, DataError, "Blind .*options.*your_simulator"),
        (Deaf, PUSHED, RolloutError, r"(?s)first recorded rollout.*reset\(options.*your_simulator"),
        (Backwards, PUSHED, DataError, "first row, '[01]' is .*state_from_observation"),
        (Broken, PUSHED, RolloutError, r"(?s)state \[.*the belt is off.*your_simulator"),
        (Cart, {"color": (1.0, 2.0)}, DataError, "parameters must .*color.*your_simulator"),
    ],
)
def test_a_simulator_that_cannot_follow_is_detected_by_one_simulation(env, prior, error, message) -> None:
    with pytest.raises(error, match=message):
        probed(env, logged(Cart, {}, count=1, steps=8), prior)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_simulator_that_starts_as_the_log_does_by_chance_is_detected_by_other_rows(noise) -> None:
    at_rest = Cart()
    at_rest.reset(options={"init_state": [0.0, 0.0]})
    generator = np.random.default_rng(0)
    rows, pushes = [np.zeros(2)], generator.uniform(0.2, 1.0, (60, 1))
    rows += [at_rest.step(push)[0] for push in pushes]
    shown = np.array(rows) + noise * generator.normal(size=(61, 2)) * [1.0, 2.0]
    log = [StepSequence(rewards=np.zeros(60), observations=shown, actions=pushes)]
    probed(Cart, log, PUSHED, segment_length=20)
    with pytest.raises(DataError, match=r"row [24]0 .*first rollout, '[01]' is .*init_state"):
        probed(Numb, log, PUSHED, segment_length=20)


def test_a_simulator_that_ignores_its_start_is_detected_by_one_entry_alone() -> None:
    """The cart has come to rest wherever a segment starts, as the simulator begins: only its place is another one."""
    cart, pushes = Cart(), np.tile(np.repeat([[0.5], [-0.5]], 10, axis=0), (3, 1))
    rows = [cart.reset(options={"init_state": [0.0, 0.0]})[0], *(cart.step(push)[0] for push in pushes)]
    shown = np.round(np.array(rows), 6)  # a log has few digits, and 0 for what rests
    assert shown[[0, 20, 40]].tolist() == [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]]
    log = [StepSequence(rewards=np.zeros(60), observations=shown, actions=pushes)]
    with pytest.raises(DataError, match=r"row [24]0 .*first rollout, '0' is .* 0 in the simulator.*init_state"):
        probed(Numb, log, PUSHED, noise="none", segment_length=20)


def test_a_log_that_hardly_moves_and_is_off_is_not_taken_for_a_simulator_that_ignores_its_start() -> None:
    shown = np.ones((60, 2)) + 1e-3 * np.random.default_rng(0).normal(size=(60, 2))
    log = [
        StepSequence(rewards=np.zeros(60), observations=np.append(shown, [[1.0, 1.0]], axis=0), actions=shown[:, :1])
    ]
    with pytest.raises(DataError, match=r"first row, .*state_from_observation"):
        probed(Backwards, log, PUSHED, segment_length=20)


class Leaks(Cart):
    """Each episode leaves something behind that the next one shows."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.float32(1e-4 * self.episodes), *rest


def test_a_simulator_that_does_not_repeat_its_results_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"different results .*from row 1"):
        probed(Leaks, logged(Cart, {}, count=1, steps=8), PUSHED, noise="none")


def test_a_simulator_that_cannot_be_stepped_is_not_tried_a_thousand_times(monkeypatch) -> None:
    tried = []

    class Raises(Broken):
        def step(self, action):
            tried.append(1)
            return super().step(action)

    with pytest.raises(RolloutError, match="the belt is off"):
        probed(Raises, logged(Cart, {}, count=4, steps=60), PUSHED)
    assert len(tried) < 30


class Remembers(Cart):
    """It shows its last command, which no state contains."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))

    def shown(self, last: float) -> np.ndarray:
        return np.append(self.state, last).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed, options=options)
        return self.shown(0.0), info

    def state_from_observation(self, observations):
        return np.asarray(observations, dtype=float)[..., :2]

    def step(self, action):
        _, *rest = super().step(action)
        return self.shown(float(action[0])), *rest


def test_entries_that_a_state_does_not_contain_are_warned_of_and_not_refused() -> None:
    pushes = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 1))
    cart = Remembers()
    rows = [cart.reset(options={"init_state": [1.0, 0.0]})[0], *(cart.step(push)[0] for push in pushes)]
    rows[0][2] = np.nan  # which is unknown
    rows[0][:2] = [1.0, 0.0]
    log = StepSequence(rewards=np.zeros(60), observations=np.array(rows), actions=pushes)
    with pytest.warns(UserWarning, match=r"differs in 2 \(in row [24]0"):
        probed(Remembers, [log], PUSHED, noise="none", segment_length=20)


def test_a_simulator_of_ones_own_follows_and_parameters_without_effect_are_warned_of() -> None:
    log = logged(Cart, {"mass": 0.8}, count=1, steps=8)
    probed(Cart, log, PUSHED)
    with pytest.warns(UserWarning, match=r"^color .*first recorded rollout.* may not identify it$"):
        probed(Cart, log, {**PUSHED, "color": (1.0, 2.0)})


@pytest.mark.parametrize(
    ("observed", "acted", "message"),
    [
        (100.0, 1.0, "entry 1 .*71.4 times more"),
        (1.0, -1.0, "entry 1 .*other way"),
    ],
)
def test_motion_that_no_parameter_explains_is_warned_of(observed, acted, message) -> None:
    at_rest = [DomainParamUpdate({"mass": 1.4})(Cart())]
    at_rest[0].reset(options={"init_state": [0.0, 0.0]})
    rows, pushes = [np.zeros(2)], np.full((8, 1), 0.5)
    rows += [at_rest[0].step(push)[0] for push in pushes]
    log = StepSequence(rewards=np.zeros(8), observations=observed * np.array(rows), actions=acted * pushes)
    with pytest.warns(UserWarning, match=message):
        probed(Cart, [log], PUSHED)


def test_gaps_that_cannot_be_left_out_are_doubts_about_a_log() -> None:
    log = logged(Cart, {"mass": 0.8}, count=2, steps=8)
    assert doubts_about(EnvSource.of(Cart), log) == []
    info = {"log": {"timing": {"gaps": [[493, 0.2195]]}}}
    fields = {"rewards": log[1].rewards, "observations": log[1].observations, "actions": log[1].actions}
    [text] = doubts_about(EnvSource.of(Cart), [log[0], StepSequence(**fields, rollout_info=info)])
    assert re.match(r"rollout 1 .*row 493 \(219\.5 ms\)", text)
    info["log"]["made_up"] = [[0.3, 0.5]]
    assert doubts_about(EnvSource.of(Cart), [StepSequence(**fields, rollout_info=info)]) == []


class Wide(Cart):
    """It shows a third entry."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return np.append(observation, np.float32(0.0)), info

    def step(self, action):
        observation, *rest = super().step(action)
        return np.append(observation, np.float32(0.0)), *rest


class Limited(Cart):
    """Its mass is 1.2 at most, whatever it is set to."""

    def __setattr__(self, name, value):
        super().__setattr__(name, min(value, 1.2) if name == "mass" else value)


class Careless(Cart):
    """Its inverse works in what it is given."""

    def state_from_observation(self, observations):
        observations *= 1.0 + 1e-3
        return observations


class Frail(Cart):
    """It fails where it is heavier than the nominal one."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation * (np.nan if self.mass > 1.0 else 1.0), *rest


@pytest.mark.parametrize("noise", ["none", "estimate"])
def test_a_log_of_another_robot_is_refused_before_noise_is_estimated(noise) -> None:
    log = logged(Cart, {"mass": 0.8}, count=1, steps=60)
    with pytest.raises(ShapeError, match=r"must .*3 observations .*got 2"):
        probed(Wide, log, PUSHED, noise)
    log[0].actions = np.repeat(log[0].actions, 2, axis=1)
    with pytest.raises(ShapeError, match=r"must .*1 actions .*got 2"):
        probed(Cart, log, PUSHED, noise)


def test_parameters_that_a_simulator_clamps_are_warned_of() -> None:
    log = logged(Cart, {"mass": 0.8}, count=1, steps=8)
    with pytest.warns(UserWarning, match=r"mass is 1\.2 .*1\.5, .*1\.25"):
        probed(Limited, log, PUSHED)


class Rounds(Cart):
    """Its mass is one of 0.5, 0.75, 1 ..., from the next reset on."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 1.0

    @property
    def domain_param(self):
        return {"mass": self.mass}

    @domain_param.setter
    def domain_param(self, values):
        self.wanted = values["mass"]

    def reset(self, *, seed=None, options=None):
        self.mass = round(4.0 * self.wanted) / 4.0
        return super().reset(seed=seed, options=options)


def test_what_is_rounded_or_set_later_is_not_limited() -> None:
    probed(Rounds, logged(Cart, {"mass": 0.8}, count=1, steps=8), {"mass": (0.4, 1.6)})


def test_functions_of_the_user_may_change_what_they_are_given() -> None:
    rows = np.ones((3, 2))
    declared_state(Careless(), rows)
    np.testing.assert_array_equal(rows, np.ones((3, 2)))
    [log] = logged(Cart, {"mass": 0.8}, count=1, steps=60)
    before = log.observations.copy()

    def begin(segment):
        segment.observations *= 3.0
        return segment.observations[0] / 3.0

    followed(Cart, [log], PUSHED, InferenceOptions(hold_out=0, segment_length=20, noise="none"), begin)
    np.testing.assert_array_equal(log.observations, before)


def test_impossible_noise_is_refused_and_large_noise_is_warned_of() -> None:
    log = logged(Cart, {"mass": 0.8}, count=1, steps=60)
    with pytest.raises(ValueError, match=r"noise\.1 must .*got .*-1"):
        probed(Cart, log, {**PUSHED, "noise.1": (-1.0, 1.0)})
    with pytest.warns(UserWarning, match=r"larger .*: 1 50 \(.*0\.\d+"):
        probed(Cart, log, PUSHED, "1=50")


@pytest.mark.usefixtures("empty_charts")
def test_a_posterior_of_simulations_that_fail_has_a_page_and_a_verdict(tmp_path, monkeypatch) -> None:
    """It ended in an error about unpacking, or in one that lost the posterior."""

    class Heavy(Knows):
        """Next to what the simulator cannot simulate."""

        def infer(self, simulate, observed, num_simulations, enough):
            near = np.random.default_rng(0).normal(1.5, 1e-6, (400, 1))
            posterior = Posterior(self.prior, observed, draws=near, description=dict(self.description, rounds=1))
            enough(posterior)
            return posterior

    monkeypatch.setattr(inferring, "NPDR", Heavy)
    log = logged(Cart, {"mass": 1.4}, steps=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all simulations of the checks fail
        result = infer(Frail, log, PUSHED, tmp_path, InferenceOptions(segment_length=10, noise="none"))
    assert not result.trusted and re.match("Do not train .*mass: 1 of 1 tests", result.checks["text"])
    [line] = result.checks["lines"]
    assert line.startswith("failed simulations: ")
    assert result.error_text().startswith("predictions: none, ")
    page = write_inference_page(result, tmp_path / "report.html").read_text("utf-8")
    assert "Predictions: none, " in page
    assert Posterior.load(tmp_path).names == ("mass",)


def test_an_unknown_time_step_and_a_lag_are_doubts() -> None:
    logs = logged("Pendulum-v1", {}, steps=190)
    for log in logs:
        log.actions[2:] = log.actions[:-2].copy()  # commands stand two rows late
    late, *_, unknown = doubts_about(EnvSource.of("Pendulum-v1"), logs)
    assert re.match("lag of commands: -2 steps, .*2 rows", late)
    assert re.search(r"no time step.* 0\.05 s$", unknown)
    for log in logs:
        log.rollout_info = {"dt": 0.05}
    assert unknown not in doubts_about(EnvSource.of("Pendulum-v1"), logs)


def test_a_simulator_that_ends_where_the_robot_continues_is_stepped_on() -> None:
    """Segments that ended early were filled up with zeros: a posterior of what the simulator takes for a fall."""
    log = logged(Cart, {"mass": 0.8}, count=1, steps=8)
    probed(Tired, log, PUSHED)
    options = InferenceOptions(segment_length=4, hold_out=0, noise="none")
    simulated = []
    for env in (Cart, Tired):
        with segment_sampler(env, log, as_prior(PUSHED), options) as sampler:
            simulated.append(sampler(np.array([[0.8] * len(PUSHED), [1.2] * len(PUSHED)])).numpy())
    np.testing.assert_array_equal(*simulated)


@pytest.mark.parametrize(
    ("robot", "env", "message"),
    [
        ("Acrobot-v1", "CartPole-v1", "rollout 0 .*must .*4 observations .*got 6"),
        ("pend", "qbb", r"must .*\d observations .*\(.*\).*got 3"),
        ("MountainCarContinuous-v0", "MountainCar-v0", "must .*choices 0 to 2"),
        ("MountainCar-v0", "Swimmer-v5", "must .*8 observations"),
    ],
)
def test_a_log_of_another_robot_is_refused(robot, env, message, monkeypatch) -> None:
    prior = {"CartPole-v1": "length", "MountainCar-v0": "gravity", "Swimmer-v5": "opt_viscosity"}
    with pytest.raises(ShapeError, match=message):
        probed(env, logged(robot, {}, count=1, steps=8), {prior.get(env, "ball_mass"): (0.1, 1.0)}, noise="none")


def test_nothing_is_simulated_for_a_log_that_cannot_be_followed(tmp_path) -> None:
    with pytest.raises(DataError, match="first row, "):
        infer(Backwards, logged(Cart, {}, steps=8), PUSHED, tmp_path / "run", InferenceOptions(segment_length=4))
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("empty_charts")
def test_the_command_says_the_noise_and_how_a_file_becomes_a_folder(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "NPDR", Knows)
    save_rollouts(logged("Pendulum-v1", {"m": 1.0}, steps=8), tmp_path / "log")
    command = ["infer", "Pendulum-v1", "--out", str(tmp_path / "run"), "--param", "m=0.5:1.5", "--segment-length", "4"]
    command += ["--no-checks", "--data"]
    assert main([*command, str(tmp_path / "log"), "--noise", "2=0.1"]) == 0
    assert "sensor noise: entry 2 0.1, as was given" in capsys.readouterr().out
    (tmp_path / "robot.csv").write_text("t,angle\n0,1\n")
    assert main([*command, str(tmp_path / "robot.csv")]) == 2
    assert re.search(r"must .*robot\.csv.*metaroll import-log", " ".join(capsys.readouterr().err.split()))


def test_segments_of_a_clipped_log_move_in_predictions_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "NPDR", Knows)
    log = logged("Hopper-v5", {"body_mass:torso": 4.0}, count=1, steps=12)
    shown = np.array(log[0].observations)
    shown[6, 7] = -10.0
    log[0].observations[:] = shown
    options = InferenceOptions(segment_length=6, checks=False, hold_out=0, noise="none")
    with pytest.warns(UserWarning, match=r"rows \[5\] .*\[6\]"):
        result = infer("Hopper-v5", log, {"body_mass:torso": (1.5, 6.5)}, tmp_path, options)
    [trace] = result.traces
    np.testing.assert_allclose(trace.simulated[0, 5], shown[5], atol=1e-6)
    with (
        pytest.warns(UserWarning, match=r"rows \[5\] .*\[6\]"),
        segment_sampler("Hopper-v5", log, result.posterior.prior, options) as sampler,
    ):
        assert sampler._target.segments == (5, 7)
    assert metaroll.EnvSpec.from_env(gymnasium.make("Hopper-v5")).state_space is None
