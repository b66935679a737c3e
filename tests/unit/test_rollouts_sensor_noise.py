"""Noise of sensors in simulations of recorded segments, and states in which these start."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from series_embeddings import Changing, Flat

from metaroll import DomainParamUpdate, RolloutEngine, RolloutPlan
from metaroll.configs.inference import InferenceOptions, parsed_noise
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import determined_entries, state_from_observation
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError, ShapeError
from metaroll.functional.philox import normals, stream_keys
from metaroll.inference.priors import as_prior
from metaroll.lab.inferring.inferring import noise_of_sensors, segment_sampler
from metaroll.policies import DummyPolicy, IdlePolicy
from metaroll.rollouts.samplers.one_step import OneStep
from metaroll.rollouts.samplers.param_sets import seed_of_values
from metaroll.rollouts.samplers.sbi import SimRolloutSamplerForSBI
from metaroll.rollouts.samplers.segment_starts import SegmentStarts
from metaroll.rollouts.samplers.sensor_noise import estimated_noise, given_noise
from metaroll.rollouts.samplers.series_features import SeriesFeatures
from metaroll.sims import PendulumEnv
from metaroll.tasks.plan_table import SENSOR_NOISE
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler

STEPS = 12


STD = np.array([0.05, 0.3])


def recorded(env, params, count=2, steps=STEPS, states=True, noise=None):
    """Rollouts of ``env`` with other parameters; without states, with what noisy sensors show."""
    plans = [RolloutPlan(i, (3, 0, i), DomainParamUpdate(params), max_steps=steps) for i in range(count)]
    with RolloutEngine(env, DummyPolicy(EnvSource.of(env).spec), record_extras=True) as engine:
        made = list(engine.run(plans))
    found = []
    generator = np.random.default_rng(5)
    for one in made:
        shown = np.asarray(one.observations, dtype=np.float64)
        shown = shown if noise is None else shown + noise * generator.standard_normal(shown.shape)
        kept = {"states": one.states} if states else {}
        found.append(StepSequence(rewards=one.rewards, observations=shown, actions=one.actions, **kept))
    return found


def pend_sampler(names=("pole_mass",), noise=STD, **options):
    real = recorded("pend", {"pole_mass": 0.8})
    spec = EnvSource.of("pend").spec
    given = {"rollouts_real": real, "len_segments": 6, "seed": 0, "noise": {"states": noise}, **options}
    return SimRolloutSamplerForSBI(
        "pend", IdlePolicy(spec), dict(enumerate(names)), Changing(2, 1, STEPS), **given
    ), real


def test_noise_is_added_to_what_is_measured_and_not_to_what_moves(monkeypatch):
    monkeypatch.setattr(SegmentStarts, "are_drawn", property(lambda starts: False))
    theta = np.array([[1.0], [0.7], [1.3]])
    (quiet, real), (noisy, _) = pend_sampler(noise=np.zeros(2)), pend_sampler()
    quiet._target = noisy._target  # the same smoothed starts
    plain, found = (one(theta).numpy().reshape(3, 2, 2, 6, 3) for one in (quiet, noisy))
    difference = (found - plain).astype(np.float64)
    for row, value in enumerate(theta):
        for place, (rollout, segment) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
            keys = stream_keys(np.array([[seed_of_values(0, value), 0, row * 4 + place]], dtype=np.uint64))
            drawn = normals(keys, SENSOR_NOISE, 0, 14).reshape(7, 2)[:6] * STD
            np.testing.assert_allclose(difference[row, rollout, segment, 1:, :2], drawn[1:], atol=1e-5)
            # What was measured at the start is what was recorded there.
            np.testing.assert_allclose(
                found[row, rollout, segment, 0, :2], real[rollout].states[6 * segment], rtol=1e-6
            )
    np.testing.assert_array_equal(difference[..., 2], 0.0)  # actions
    quiet.close(), noisy.close()


@pytest.mark.parametrize("lengths", [(6, 6), (5, 5, 2)])
def test_segments_that_are_chained_change_as_they_do_by_themselves(lengths):
    theta = np.array([[1.0], [0.7]])
    (plain, _), (chained, _) = (
        pend_sampler(noise=0.0 * STD, len_segments=lengths[0], chained=c, stop_on_done=False) for c in (False, True)
    )
    apart, joined = (one(theta).numpy().reshape(2, 2, STEPS, 3) for one in (plain, chained))
    np.testing.assert_array_equal(joined[..., 2], apart[..., 2])
    starts = np.cumsum((0, *lengths))
    for begin, end in itertools.pairwise(starts):
        changes = [np.diff(series[:, :, begin:end, :2], axis=2) for series in (joined, apart)]
        np.testing.assert_allclose(*changes, atol=1e-5)
    # From the last row of a segment on it goes as the simulation did: where it went, not where the next one starts.
    longer, _ = pend_sampler(noise=0.0 * STD, len_segments=STEPS)
    at = lengths[0]
    whole = longer(theta).numpy().reshape(2, 2, STEPS, 3)
    np.testing.assert_allclose(joined[:, :, : at + 1, :2], whole[:, :, : at + 1, :2], atol=1e-5)
    assert not np.allclose(apart[:, :, at, :2], whole[:, :, at, :2], atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chained": 1}, "chained must be True or False, got 1"),
        ({"embedding": Flat(2, 1, STEPS)}, "depend on where states are, .* as those of Flat do"),
        ({"rollouts_real": None}, "without rollouts_real"),
        ({"stop_on_done": True}, "filled up with zeros, .* pad_mode='last'"),
    ],
)
def test_series_that_are_no_motion_are_not_chained(options, message):
    spec = EnvSource.of("pend").spec
    given = {"embedding": Changing(2, 1, STEPS), "rollouts_real": recorded("pend", {}), "stop_on_done": False}
    given |= {"len_segments": 6, "chained": True, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        SimRolloutSamplerForSBI("pend", IdlePolicy(spec), {0: "pole_mass"}, **given)


@pytest.mark.parametrize("chained", [False, True])
def test_a_series_is_the_same_beside_one_that_has_ended_early(chained):
    features = SeriesFeatures(Flat(2, 1, 6), 1, (4, 2), "states", "actions", chained=chained)
    states = 1e3 + np.random.default_rng(0).standard_normal((8, 2))
    columns, bounds = {"states": states, "actions": np.zeros((6, 1))}, np.array([0, 4, 6])
    whole = features._whole(columns)
    filled = features._filled_up(columns, bounds, np.array([4, 2]))
    assert whole.shape == (1, 1, 6, 3) and whole.tobytes() == filled.tobytes()


def test_noise_of_starts_is_no_change_of_simulations():
    """With the true parameters, changes of simulations vary as those that noisy sensors show."""
    truth, prior, noise = {"m": 0.8, "l": 1.2}, {"m": (0.5, 1.5), "l": (0.5, 1.5)}, np.array([0.04, 0.04, 0.3])
    log = recorded("Pendulum-v1", truth, count=30, steps=100, states=False, noise=noise)
    options = InferenceOptions(hold_out=0, noise="0=0.04,1=0.04,2=0.3")
    with segment_sampler("Pendulum-v1", log, as_prior(prior), options) as sampler:
        assert sampler.embedding.spans == (1, 2, 4, 8)
        shown = sampler.target_features().numpy().reshape(30, 36)
        drawn = sampler(np.tile([0.8, 1.2], (100, 1))).numpy().reshape(100, 30, 36)
    deviations = (shown - drawn.mean(axis=0)) / drawn.std(axis=0)
    assert (np.abs(deviations.mean(axis=0)) < 3.5 / np.sqrt(30)).all()  # over 16 of 20 steps -0.7 were seen
    assert abs(deviations[:, 6:8].mean()) < 0.35  # of cosine and sine: -0.5 with jumps between segments


def test_rollouts_have_noise_of_their_own(monkeypatch):
    monkeypatch.setattr(SegmentStarts, "are_drawn", property(lambda starts: False))
    each, theta = np.stack([STD, 3.0 * STD]), np.array([[1.0], [0.7]])
    one, _ = pend_sampler()
    two, _ = pend_sampler(noise=each)
    quiet, _ = pend_sampler(noise=np.zeros(2))
    quiet._target = one._target = two._target
    plain, common, own = (s(theta).numpy().astype(float).reshape(2, 2, 2, 6, 3) for s in (quiet, one, two))
    added, expected = (own - plain)[..., 1:, :2], (common - plain)[..., 1:, :2]
    np.testing.assert_allclose(added, expected * np.array([1.0, 3.0])[:, None, None, None], atol=2e-5)
    starts = pend_sampler(noise=np.stack([0.0 * STD, 1e-3 * STD]))[0]._target.starts.stds.reshape(2, 2, 2)
    assert not starts[0].any() and (starts[1] > 0).all()  # those without noise start where they were recorded
    named, _ = pend_sampler(("pole_mass", "noise.theta_dot"), noise=each)
    table = named._noise.by_set(np.array([[1.0, 0.25]]))
    np.testing.assert_array_equal(table, [[[STD[0], 0.25], [3.0 * STD[0], 0.25]]])
    for wrong in ({"noise": np.tile(STD, (3, 1))}, {"noise": STD[None]}, {"assumed_noise": np.ones((1, 2, 2))}):
        with pytest.raises(ShapeError, match=r"noise.* of each of 2 rollouts_real, \(2, n\), got shape \("):
            pend_sampler(**wrong)
    # What is assumed beside it: of each rollout.
    (bare, _), (noisy, _) = pend_sampler(noise=0.0 * each), pend_sampler(noise=0.0 * each, assumed_noise=each)
    shown = (noisy._target.series - bare._target.series)[..., :2]
    assert (np.abs(shown[1]).mean(axis=0) > np.abs(shown[0]).mean(axis=0)).all()
    np.testing.assert_array_equal(noisy._noise.by_set(theta)[0], each)


def test_noise_of_single_rollouts_is_told():
    clean = recorded("pend", {"pole_mass": 0.8}, count=3, steps=120, states=False)
    log = []
    for factor, one in zip((1.0, 1.0, 6.0), clean, strict=True):
        noise = factor * 0.01 * np.random.default_rng(0).standard_normal(one.observations.shape)
        log.append(
            StepSequence(rewards=one.rewards, observations=np.asarray(one.observations) + noise, actions=one.actions)
        )
    source = EnvSource.of("pend")
    steps_of = OneStep.of(source, log, "observations", "actions", lambda shown: shown * np.nan, 60, 0)
    found = estimated_noise(log, "observations", "actions", None, {}, {})
    assert found.each.shape == found.rows.shape == (3, found.noise.size) and (found.rows > 110).all()
    ratio = found.each / found.each[0]
    assert (ratio[1] < 1.3).all() and (ratio[2] > 4.0).all() and (found.noise > found.each[0]).all()
    none = np.zeros(found.noise.size)
    np.testing.assert_array_equal(found.by_rollout(none), found.each)
    np.testing.assert_array_equal(found.by_rollout(none + 1.0), found.noise)  # less than what is assumed
    assert np.bincount(steps_of.rollouts).tolist() == [20, 20, 20]
    alike = estimated_noise(log[:2], "observations", "actions", None, {}, {})
    np.testing.assert_array_equal(alike.by_rollout(none), alike.noise)


@pytest.mark.parametrize("steps", [60, 100])
def test_short_rollouts_that_are_equally_noisy_do_not_differ(steps):
    """All together have rows enough for a regression on products, one alone has not: each is judged by the same one."""
    generator, log = np.random.default_rng(4), []
    for _ in range(4):
        state, shown, commands = generator.uniform(-1, 1, 4), [], generator.uniform(-1, 1, (steps, 1))
        for command in commands:
            shown.append(state)
            state = 0.9 * np.roll(state, 1) + 0.5 * state * np.roll(state, 2) * command + 0.3 * command
        rows = np.array([*shown, state]) + 0.002 * generator.standard_normal((steps + 1, 4))
        log.append(StepSequence(rewards=np.zeros(steps), observations=rows, actions=commands))
    found = estimated_noise(log, "observations", "actions", None, {}, {})
    assert found.by_rollout(np.zeros(4)).shape == (4,), found


def test_rows_do_not_depend_on_workers_slots_neighbors_or_copies(shared_pools):
    theta = np.linspace(0.7, 1.3, 9)[:, None]
    sampler, _ = pend_sampler()
    copied = pickle.loads(pickle.dumps(sampler))
    expected = sampler(theta)
    assert expected.isfinite().all() and len(torch.unique(expected[:, 3])) == 9
    for other in (copied, pend_sampler(pool=shared_pools[2])[0], pend_sampler(slots_per_unit=3)[0]):
        torch.testing.assert_close(other(theta), expected, rtol=0, atol=0)
    assert not torch.equal(sampler(theta), expected)  # another call, other noise


def test_simulations_start_as_far_off_as_sensors_are(monkeypatch):
    sampler, real = pend_sampler(noise=np.array([1e-3, 1e-2]))
    seen = []
    drawn = SegmentStarts.drawn
    monkeypatch.setattr(SegmentStarts, "drawn", lambda self, z: seen.append(drawn(self, z)) or seen[-1])
    sampler(np.ones((200, 1)))
    [starts] = seen
    off = np.array(starts).reshape(200, 4, 2) - np.stack([one.states[row] for one in real for row in (0, 6)])
    stds = sampler._target.starts.stds
    assert ((stds > 0) & (stds <= [1e-3, 1e-2])).all()
    centers = sampler._target.starts.measured - np.stack([one.states[row] for one in real for row in (0, 6)])
    np.testing.assert_allclose((off - centers).std(axis=0), stds, rtol=0.25)
    sampler.close()


def test_where_starts_are_known_first_rows_are_as_noisy_as_others():
    """A posterior that was to be asked of many logs had learned the noise of the first one's first row: intervals of
    90 % held 73 % of the truths."""
    start = np.array([0.3, -0.2])
    given = {"len_segments": STEPS, "initial_state": lambda segment: start}
    known, real = pend_sampler(exact_starts=True, **given)
    measured, _ = pend_sampler(**given)
    shown = [one(np.ones((400, 1))).numpy().reshape(400, 2, STEPS, 3)[:, :, 0, :2] for one in (known, measured)]
    np.testing.assert_allclose(shown[0].mean(axis=0), np.tile(start, (2, 1)), atol=4 * STD.max() / 20)
    np.testing.assert_allclose(shown[0].std(axis=0), np.tile(STD, (2, 1)), rtol=0.15)
    assert abs(np.corrcoef(shown[0][:, 0, 0], shown[0][:, 1, 0])[0, 1]) < 0.2
    np.testing.assert_allclose(shown[1], np.tile([one.states[0] for one in real], (400, 1, 1)), atol=1e-6)
    copied = pickle.loads(pickle.dumps(known))
    torch.testing.assert_close(copied(np.ones((3, 1))), known(np.ones((3, 1))), rtol=0, atol=0)
    with pytest.raises(ValueError, match="exact_starts must be False without initial_state"):
        pend_sampler(exact_starts=True)
    with pytest.raises(TypeError, match="exact_starts must be True or False, got 1"):
        pend_sampler(exact_starts=1, **given)


def test_one_sampler_simulates_what_other_noisy_logs_of_the_same_start_show():
    start, noise, names = np.array([1.0, 0.2]), np.array([0.02, 0.02, 0.1]), as_prior({"m": (0.5, 1.5)})
    options = InferenceOptions(hold_out=0, segment_length=40)
    plan = [RolloutPlan(0, (3, 0, 0), init_state=start, max_steps=40)]
    with RolloutEngine("Pendulum-v1", DummyPolicy(EnvSource.of("Pendulum-v1").spec)) as engine:
        [clean] = engine.run(plan)
    recorded = []
    for number in range(60):
        shown = clean.observations + noise * np.random.default_rng(number).standard_normal(clean.observations.shape)
        recorded.append(StepSequence(rewards=clean.rewards, observations=shown, actions=clean.actions))
    known = dataclasses.replace(options, noise="0=0.02,1=0.02,2=0.1")
    told = noise_of_sensors("Pendulum-v1", recorded[:1], names, known, lambda _: start)
    samplers = [
        segment_sampler("Pendulum-v1", [log], names, options, noise=told, true_start=lambda _: start)
        for log in recorded
    ]
    logs = np.concatenate([sampler.target_features().numpy() for sampler in samplers])
    made = samplers[0](np.ones((300, 1))).numpy()
    off = (logs.mean(axis=0) - made.mean(axis=0)) / (made.std(axis=0) + 1e-9) * np.sqrt(60)
    assert np.abs(off).max() < 4.0  # from what the first log has measured: 4.7
    np.testing.assert_allclose(logs.std(axis=0), made.std(axis=0), rtol=0.45)
    with pytest.raises(ValueError, match=r"segment_length must be at least 40, .* true_start .* got 20"):
        segment_sampler(
            *("Pendulum-v1", recorded[:1], names, dataclasses.replace(options, segment_length=20)),
            true_start=lambda _: start,
        )


def test_noise_as_a_parameter():
    sampler, _ = pend_sampler(("pole_mass", "noise.theta_dot"), noise=np.zeros(2))
    features = sampler(np.array([[1.0, 0.0], [1.0, 0.5], [1.0, -0.1]])).numpy().reshape(3, 4, 6, 3)
    assert np.isnan(features[2]).all() and "noise.theta_dot must lie in" in sampler.failed[0].message
    off = (features[1] - features[0])[:, 1:]
    assert np.abs(off[..., 0]).max() < 1e-6 < 0.2 < off[..., 1].std() < 0.8
    with pytest.raises(DataError, match=r"unknown noise of a channel 'noise.thet_dot'.*noise.theta_dot"):
        pend_sampler(("noise.thet_dot",))
    draws = np.random.default_rng(0).uniform(0.5, 1.5, (20, 2))
    tasks = PosteriorTaskSampler((("pole_mass", "noise.theta_dot"), draws), generator=0)
    assert list(tasks.names) == ["pole_mass"] and tuple(tasks.sample(1)[0].task) == ("pole_mass",)


def test_entries_that_a_state_does_not_tell_do_not_count():
    real = recorded("pend", {}, count=1, states=False)
    kept = np.array([True, False, True])
    spec = EnvSource.of("pend").spec
    options = {"rollouts_real": real, "len_segments": 6, "seed": 0, "series": "observations"}
    whole = SimRolloutSamplerForSBI("pend", IdlePolicy(spec), {0: "pole_mass"}, Flat(3, 1, STEPS), **options)
    some = SimRolloutSamplerForSBI(
        "pend", IdlePolicy(spec), {0: "pole_mass"}, Flat(2, 1, STEPS), entries=kept, **options
    )
    columns = [0, 2, 3]
    for call in (lambda one: one([[0.9]]), lambda one: one.target_features()):
        expected = call(whole).reshape(STEPS, 4)[:, columns]
        torch.testing.assert_close(call(some).reshape(STEPS, 3), expected, rtol=0, atol=0)


def clipped_log(rows, count=2):
    """Logs of a hopper whose first speed is shown clipped at some rows."""
    made = recorded("Hopper-v5", {}, count=count, steps=10, states=False)
    for one in made:
        shown = np.array(one.observations)
        shown[list(rows), 5] = 10.0
        one.observations[:] = shown
    return made


def hopper_starts(log, segments, noise=None):
    made = gymnasium.make("Hopper-v5")
    names = [f"rollout {i}" for i in range(len(log))]
    stds = {} if noise is None else {"observations": noise}
    return SegmentStarts.of(log, names, segments, None, lambda shown: state_from_observation(made, shown), stds)


def test_segments_start_where_observations_tell_the_state():
    log = clipped_log(())
    assert hopper_starts(log, (6, 4)).segments == (6, 4)
    clipped = clipped_log((6, 7))
    with pytest.warns(UserWarning, match=r"segments start at rows \[5\] instead of \[6\]"):
        found = hopper_starts(clipped, (6, 4))
    assert found.segments == (5, 5) and len(found.states) == 4
    np.testing.assert_array_equal(found.states[1][1:], np.asarray(clipped[0].observations)[5])
    for rows, message in (((0,), r"row 0 .* cut what lies before"), (range(3, 9), "row 6 .* another segment_length")):
        with pytest.raises(ValueError, match=rf"rollout 0 must show the state .*{message}"):
            hopper_starts(clipped_log(rows), (6, 4))


def test_a_clipped_speed_with_noise_looks_as_if_it_told_the_state():
    log = clipped_log(())
    log[1].observations[6, 5] = 9.9
    noise = np.zeros(11)
    assert hopper_starts(log, (6, 4), noise).segments == (6, 4)
    noise[5] = 0.05
    with pytest.warns(UserWarning, match=r"segments start at rows \[5\] instead of \[6\]"):
        assert hopper_starts(log, (6, 4), noise).segments == (5, 5)
    log[1].observations[3:9, 5] = -9.9
    assert hopper_starts(log, (6, 4), noise).segments == (6, 4)  # none near by tells it surely


class GoesOn(gymnasium.Wrapper):
    """Falls and goes on."""

    def step(self, action):
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, False, truncated, info


def double_pendulum():
    """A step takes 20 ms."""
    return GoesOn(gymnasium.make("InvertedDoublePendulum-v5", frame_skip=2))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("estimate", "estimate"), ("none", "none"), ("0.01", 0.01), ("a=0.5, b=1", {"a": 0.5, "b": 1.0})],
)
def test_noise_that_is_given_in_words(text, parsed):
    assert parsed_noise(text) == parsed
    if not isinstance(parsed, str):
        expected = [0.5, 1.0, 0.0] if isinstance(parsed, dict) else [0.01] * 3
        assert given_noise(parsed, ("a", "b", "c")).tolist() == expected


@pytest.mark.parametrize("text", ["", "much", "-1", "nan", "a=", "=1", "a=1,a=2", "a=1,2", "a=-1"])
def test_noise_that_is_none(text):
    with pytest.raises(ValueError, match="noise must be 'estimate', 'none', a deviation"):
        parsed_noise(text)
    with pytest.raises(DataError, match=r"unknown channel of noise .thet.*theta"):
        given_noise({"thet": 1.0}, ("theta", "theta_dot"))


def shares_found(env, truth, ranges, steps, shares, most=40):
    """Noise that is found, as a share of each channel's range, where some was put in."""
    made = gymnasium.make(env) if isinstance(env, str) else env()
    source, state_of = EnvSource.of(env), lambda shown: state_from_observation(made, shown)
    clean = recorded(env, truth, count=4, steps=steps, states=False)
    width = np.ptp(np.concatenate([one.observations for one in clean]), axis=0)
    nominal = {name: 0.5 * sum(ends) for name, ends in ranges.items()}
    found = []
    for share in shares:
        log = clean if not share else recorded(env, truth, 4, steps, states=False, noise=share * width)
        steps_of = OneStep.of(source, log, "observations", "actions", state_of, most, 0)
        told = determined_entries(made)
        found.append(estimated_noise(log, "observations", "actions", steps_of, ranges, nominal, told).noise / width)
    return found


@pytest.mark.parametrize(
    ("env", "truth", "ranges", "shares"),
    [
        ("Pendulum-v1", {"m": 0.8, "l": 1.2}, {"m": (0.5, 1.5), "l": (0.5, 1.5)}, (0.005, 0.02)),
        ("Swimmer-v5", {"opt_viscosity": 0.08}, {"opt_viscosity": (0.05, 0.2)}, (0.01,)),
    ],
)
def test_noise_that_was_put_in_is_found(env, truth, ranges, shares):
    none, *noisy = shares_found(env, truth, ranges, 60, (0.0, *shares))
    assert (none < 1e-3).all()
    for found, share in zip(noisy, shares, strict=True):
        assert (found < 1.5 * share).all() and (found > share / 1.5).all()


def test_what_is_predicted_from_a_clipped_speed_is_no_noise():
    """Speeds of up to 15 are shown as 10; with noise some of them look as if they were told."""
    ranges = {"body_mass:pole2": (2.0, 7.0)}
    [found] = shares_found(double_pendulum, {"body_mass:pole2": 3.0}, ranges, 100, (0.005,), most=150)
    assert (found[:8] < 1.4 * 0.005).all() and (found[:8] > 0.005 / 1.4).all()  # 1.66 where all rows count


def test_what_a_simulator_explains_is_no_noise():
    """A hopper hits the ground with other masses and damping than those that the search begins with."""
    truth = {"body_mass:torso": 2.5, "dof_damping:*": 0.5}
    ranges = {"body_mass:torso": (1.5, 6.5), "dof_damping:*": (0.2, 2.0)}
    [found] = shares_found("Hopper-v5", truth, ranges, 20, (0.0,))
    assert (found < 1e-3).all()
    [alone] = [
        estimated_noise(
            recorded("Hopper-v5", truth, 4, 20, states=False), "observations", "actions", None, {}, {}
        ).noise
    ]
    assert (alone > 1e-2).any()


def test_a_simulator_that_cannot_predict_leaves_what_rows_say():
    log = recorded("pend", {}, states=False, noise=0.1)
    refuses = lambda shown: (_ for _ in ()).throw(NotImplementedError("no"))  # noqa: E731
    steps_of = OneStep.of(EnvSource.of("pend"), log, "observations", "actions", refuses, 20, 0)
    ranges = {"pole_mass": (0.5, 1.5)}
    found = [
        estimated_noise(log, "observations", "actions", one, ranges, {"pole_mass": 1.0}).noise
        for one in (steps_of, None)
    ]
    np.testing.assert_array_equal(*found)
    assert PendulumEnv().env_spec.observation_labels is not None and (found[0] > 0).all()
