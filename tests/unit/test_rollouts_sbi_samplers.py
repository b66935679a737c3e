"""specs/sampling.md 15 and 19.6: rollouts as simulators for simulation-based inference."""

from __future__ import annotations

import copy
import importlib
import itertools
import weakref

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from sampler_envs import Deaf, Oscillator, Started
from series_embeddings import Distance, Flat, Moments, Wrong

import metaroll
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import make_env
from metaroll.envs.wrappers.actions import ActDelayWrapper
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.envs.wrappers.transforms import DomainParamTransformWrapper
from metaroll.errors import DataError, RecordingError, ShapeError
from metaroll.inference.parameter_names import named
from metaroll.policies.playback import DummyPolicy, IdlePolicy, TimePolicy
from metaroll.rollouts.samplers.param_sets import check_domain_params
from metaroll.rollouts.samplers.sbi import (
    RealRolloutSamplerForSBI,
    RecRolloutSamplerForSBI,
    RolloutSamplerForSBI,
    SimRolloutSamplerForSBI,
)
from metaroll.rollouts.samplers.series_features import SeriesFeatures
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import isolated_rng
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer

MAPPING = {1: "pole_length", 0: "pole_mass"}  # columns are sorted by number
THETA = np.array([[1.0, 1.0], [0.8, 1.1], [1.3, 0.9]])
STEPS = 12


def pendulum(max_steps: int = STEPS):
    env = make_env("metaroll/Pendulum-v0")
    env.unwrapped.max_steps = max_steps
    return env


def idle(env):
    return IdlePolicy(metaroll.EnvSpec.from_env(env))


def recorded(env, number: int = 2, steps: int = STEPS) -> list[StepSequence]:
    return [
        rollout(env, DummyPolicy(env.env_spec), max_steps=steps, seed=7, sub_seed=i, no_close=True)
        for i in range(number)
    ]


@pytest.fixture(scope="module")
def env():
    return pendulum()


@pytest.fixture(scope="module")
def real(env):
    return recorded(env)


def sampler(env, embedding=None, real=None, **options):
    if not {"num_segments", "len_segments"} & options.keys():
        options["num_segments"] = 1
    embedding = Moments(2, 1) if embedding is None else embedding
    options = {"seed": 3, "rollouts_real": real, **options}
    return SimRolloutSamplerForSBI(env, idle(env), MAPPING, embedding, **options)


def by_hand(row, recordings, edges) -> np.ndarray:
    """Series of one set of parameters, ``(R, T, 3)``, simulated alone, segment by segment, by ``rollout``."""
    series = []
    for source in recordings:
        parts = []
        for begin, end in itertools.pairwise(edges):
            own = pendulum(10_000)
            actions = iter(source.actions_applied[begin:end])
            params = {"pole_mass": row[0], "pole_length": row[1]}
            found = rollout(
                own,
                lambda obs, actions=actions: next(actions),
                max_steps=end - begin,
                reset_kwargs={"init_state": source.states[begin], "domain_param": params},
                stop_on_done=False,
                seed=0,
            )
            parts.append(np.concatenate([found.states[:-1], found.actions_applied], axis=1))
        series.append(np.concatenate(parts))
    return np.stack(series)


# -- simulations of recordings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "edges"),
    [
        ({"num_segments": 1}, [0, 12]),
        ({"num_segments": 5}, [0, 3, 6, 8, 10, 12]),
        ({"len_segments": 5}, [0, 5, 10, 12]),
        ({"len_segments": 50}, [0, 12]),
    ],
)
def test_segments_are_simulated_from_recorded_states_and_features_are_of_whole_rollouts(env, real, options, edges):
    """specs/sampling.md 15.2, case A."""
    found = sampler(env, Flat(2, 1, STEPS), real, stop_on_done=False, **options)(THETA)
    assert found.dtype == torch.float32 and found.shape == (3, 2 * 3 * STEPS)
    for row, features in zip(THETA, found.numpy(), strict=True):
        np.testing.assert_array_equal(features.reshape(2, STEPS, 3), by_hand(row, real, edges).astype(np.float32))


@pytest.mark.parametrize("options", [{"len_segments": 1}, {"num_segments": STEPS}])
def test_segments_of_one_step_say_nothing_of_parameters(env, real, options):
    with pytest.raises(ValueError, match="segments must have at least 2 steps, got 1"):
        sampler(env, Flat(2, 1, STEPS), real, **options)


def test_columns_are_of_the_parameters_it_names(env, real):
    found = sampler(env, Flat(2, 1, STEPS), real)
    assert found.names == tuple(MAPPING[number] for number in sorted(MAPPING))
    other = {number: name for number, name in enumerate(reversed(found.names))}
    turned = SimRolloutSamplerForSBI(env, idle(env), other, Flat(2, 1, STEPS), 1, rollouts_real=real, seed=3)
    torch.testing.assert_close(named(turned, found.names)(np.asarray(THETA)), found(THETA))


def test_features_of_segments(env, real):
    whole = sampler(env, Flat(2, 1, STEPS), real, num_segments=3)(THETA)
    pieces = sampler(env, Flat(2, 1, STEPS // 3), real, num_segments=3, features_of="segments")(THETA)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=0)  # of all steps, so they are the same numbers
    moments = sampler(env, Moments(2, 1), real, num_segments=3, features_of="segments")(THETA)
    first = Moments(2, 1)(whole.reshape(3, 2 * 3, -1))
    torch.testing.assert_close(moments, first)
    with pytest.raises(ValueError, match=r"segments of one length, got lengths \[2, 5\]; choose .* divides 12 steps"):
        sampler(env, real=real, len_segments=5, features_of="segments")


def test_true_parameters_give_the_recorded_series_and_no_distance_from_it(env, real):
    nominal = np.array([[1.0, 1.0], [1.5, 1.0]])
    distance = sampler(env, Distance(2, 1, STEPS), real, num_segments=2)(nominal)
    assert distance.shape == (2, 2 * 2)
    assert (distance[0] == 0).all() and (distance[1] > 0).any()
    plain = sampler(env, real=real)
    torch.testing.assert_close(plain.target_features(), plain(nominal)[:1], rtol=0, atol=0)
    with pytest.raises(ValueError, match="target_features needs rollouts_real, got none"):
        sampler(env).target_features()
    free = sampler(env, Distance(2, 1, STEPS))(nominal)
    assert free.shape == (2, 2) and (free == 0).all()  # its own target
    with pytest.raises(ValueError, match=r"embedding must return features \(B, R \* dim_output\), here"):
        sampler(env, Wrong(2, 1), real)(nominal)


def test_policy_in_the_loop_starts_anew_with_every_segment(env, real):
    steps = TimePolicy(env.env_spec, lambda t: [np.round(t / 0.02)], 0.02)
    found = SimRolloutSamplerForSBI(
        env, steps, MAPPING, Flat(2, 1, STEPS), num_segments=3, rollouts_real=real, use_rec_act=False, seed=0
    )(THETA)
    actions = found.reshape(3, 2, STEPS, 3)[..., 2]
    assert (actions == torch.tensor([0.0, 1, 2, 3] * 3)).all()
    starts = found.reshape(3, 2, 3, 4, 3)[0, :, :, 0, :2].numpy()
    for r, source in enumerate(real):
        np.testing.assert_array_equal(starts[r], source.states[[0, 4, 8]].astype(np.float32))


def test_free_rollouts_are_filled_up(env):
    spinning = make_env("metaroll/Pendulum-v0")
    spinning.unwrapped.max_steps = 200
    push = TimePolicy(spinning.env_spec, lambda t: [3.5], 0.02)
    theta = np.array([[0.05, 1.0], [1.0, 1.0]])  # the light one is soon too fast, and ends
    series = {
        mode: SimRolloutSamplerForSBI(
            spinning, push, {0: "pole_mass", 1: "pole_length"}, Flat(2, 1, 200), num_segments=1, pad_mode=mode, seed=0
        )(theta).reshape(2, 200, 3)
        for mode in ("zeros", "last")
    }
    ended = int((series["zeros"][0, :, 2] != 0).sum())
    assert 3 < ended < 100 and (series["zeros"][1, :, 2] == 3.5).all()
    assert (series["zeros"][0, ended + 1 :] == 0).all()
    assert abs(series["zeros"][0, ended, 1]) > 4 * np.pi  # where it ended, after its last step
    assert (series["last"][0, ended:] == series["last"][0, ended]).all()
    going_on = SimRolloutSamplerForSBI(
        spinning, push, {0: "pole_mass", 1: "pole_length"}, Flat(2, 1, 200), 1, stop_on_done=False, seed=0
    )(theta).reshape(2, 200, 3)
    assert (going_on[..., 2] == 3.5).all()
    torch.testing.assert_close(going_on[0, :ended], series["zeros"][0, :ended], rtol=0, atol=0)


def test_observations_instead_of_states(env):
    """specs/sampling.md 15.1: numbers per time step."""
    found = SimRolloutSamplerForSBI(
        env, idle(env), MAPPING, Flat(3, 1, STEPS), num_segments=1, series="observations", seed=0
    )(THETA[:1])
    assert torch.allclose(found.reshape(STEPS, 4)[:, :2].square().sum(1), torch.ones(STEPS))
    assert RolloutSamplerForSBI.get_dim_data(env.env_spec) == 3
    assert RolloutSamplerForSBI.get_dim_data(metaroll.EnvSpec.from_env(Oscillator())) == 3  # observations
    choices = gymnasium.make("CartPole-v1")
    assert RolloutSamplerForSBI.get_dim_data(metaroll.EnvSpec.from_env(choices)) == 5
    choices.close()


def test_features_of_every_embedding(env, real):
    inference = importlib.import_module("metaroll.inference.embeddings")
    spec, dim = env.env_spec, RolloutSamplerForSBI.get_dim_data(env.env_spec)
    made = [
        inference.LastStepEmbedding(spec, dim),
        inference.AllStepsEmbedding(spec, dim, STEPS, 2),
        inference.DeltaStepsEmbedding(spec, dim, STEPS, state_mask_labels=["theta"]),
        inference.BayesSimEmbedding(spec, dim, 3),
        inference.RNNEmbedding(spec, dim, 4, 1, 2, len_rollouts=STEPS, generator=0),
        inference.DynamicTimeWarpingEmbedding(spec, dim),
    ]
    series = np.stack([by_hand(row, real, [0, 6, 12]) for row in THETA]).astype(np.float32)
    target = np.broadcast_to(by_hand([1.0, 1.0], real, [0, 12]).astype(np.float32), series.shape)
    for embedding in made:
        found = sampler(env, embedding, real, num_segments=2)(THETA)
        data = np.concatenate([series, target], axis=3) if embedding.requires_target_domain_data else series
        with torch.no_grad():
            expected = embedding(embedding.pack(torch.from_numpy(data)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        alone = sampler(env, embedding, real, num_segments=2)(THETA[1:2])
        torch.testing.assert_close(alone[0], found[1], rtol=0, atol=0)


def test_batched_mujoco():
    env = gymnasium.make("InvertedPendulum-v5", max_episode_steps=6)
    real = [rollout(env, lambda obs: [0.3], seed=0, sub_seed=i, no_close=True) for i in range(2)]
    first = lambda segment: segment.observations[0]  # noqa: E731
    options = {"num_segments": 2, "rollouts_real": real, "stop_on_done": False, "seed": 0, "initial_state": first}
    mapping, theta = {0: "body_mass:pole"}, np.array([1.0, 4.89, 9.0, -1.0])
    embedding = Flat(4, 1, 6)
    found = SimRolloutSamplerForSBI("InvertedPendulum-v5", lambda obs: [0.0], mapping, embedding, **options)
    assert found._source.kind() == "physics"
    features = found(theta)
    assert features[3].isnan().all() and "mass" in found.failed[0].message
    for row, mass in zip(features, theta[:3], strict=False):
        for series, source in zip(row.reshape(2, 2, 3, 5).numpy(), real, strict=True):
            for part, begin in zip(series, (0, 3), strict=True):
                started = {"init_state": source.observations[begin], "domain_param": {"body_mass:pole": mass}}
                alone = rollout(env, lambda obs: [0.3], max_steps=3, reset_kwargs=started, seed=9, no_close=True)
                np.testing.assert_array_equal(part[:, :4], alone.observations[:3].astype(np.float32))
    env.close()
    wrapped = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("InvertedPendulum-v5"))
    listed = SimRolloutSamplerForSBI(wrapped, lambda obs: [0.0], mapping, embedding, **options)
    torch.testing.assert_close(listed(theta), features, rtol=0, atol=0, equal_nan=True)
    wrapped.close()


# -- exactness ---------------------------------------------------------------------------------------------------------


def test_rows_do_not_depend_on_slots_or_neighbors(env, real):
    theta = np.random.default_rng(0).uniform(0.7, 1.3, (70, 2))
    one = sampler(env, real=real, num_segments=3)
    expected = one(theta)
    narrow = sampler(env, real=real, num_segments=3, slots_per_unit=5)
    torch.testing.assert_close(narrow(theta), expected, rtol=0, atol=0)
    torch.testing.assert_close(one(theta[:3]), expected[:3], rtol=0, atol=0)
    assert one(theta[:0]).shape == (0, 12)


def test_batched_and_single_simulations_agree_to_the_bit(real):
    from gymnasium.wrappers import RecordEpisodeStatistics

    alone = sampler(RecordEpisodeStatistics(pendulum()), Flat(2, 1, STEPS), real, series="states", num_segments=2)
    batched = sampler(pendulum(), Flat(2, 1, STEPS), real, num_segments=2)
    assert alone._source.kind() == "list" and batched._source.kind() == "batched"
    torch.testing.assert_close(alone(THETA), batched(THETA), rtol=0, atol=0)


class Limited(Started):
    @property
    def env_spec(self):
        return metaroll.EnvSpec(self.observation_space, self.action_space, 8, Box(-9.0, 9.0, (2,)))


def test_calls_are_numbered_and_seeded():
    env = Limited()  # its first state is random
    options = {"num_segments": 1, "seed": 5}
    policy = IdlePolicy(env.env_spec)

    def made(**changes):
        return SimRolloutSamplerForSBI(env, policy, {0: "mass"}, Flat(2, 1, 8), **(options | changes))

    one, same = made(), made()
    first, second = one([1.0, 1.0]), one([1.0, 1.0])
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert torch.equal(first, same([1.0, 1.0]))
    copied = cloudpickle.loads(cloudpickle.dumps(same))
    assert torch.equal(copied([1.0, 1.0]), second)  # goes on counting
    assert not torch.equal(made(seed=6)([1.0, 1.0]), first)
    assert not torch.equal(made(seed=None)([1.0]), made(seed=None)([1.0]))
    assert not torch.equal(made()([1.0, 2.0])[0], made()([1.5, 2.0])[0])  # numbers of their own for other parameters


def test_environment_and_recordings_stay_as_they_are(real):
    env = pendulum()
    env.reset(seed=0)
    before = (env.unwrapped.state.copy(), dict(env.unwrapped.domain_param), env.unwrapped.max_steps)
    kept = copy.deepcopy(real)
    found = sampler(env, real=real, num_segments=4)
    found(THETA)
    after = (env.unwrapped.state, dict(env.unwrapped.domain_param), env.unwrapped.max_steps)
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1:] == after[1:]
    for old, new in zip(kept, real, strict=True):
        assert old.data_format == new.data_format and np.array_equal(old.states, new.states)


def test_many_rollouts_hold_one_unit_of_trajectories(monkeypatch):
    env = pendulum(3)
    real = recorded(env, 4, 3)
    alive, seen = [], []
    whole = SeriesFeatures.__call__

    def watched(self, columns, bounds):
        seen.append((len(bounds) - 1, sum(ref() is not None for ref in alive)))
        alive.extend(weakref.ref(values) for values in columns.values())
        assert columns.keys() == {"states", "actions_applied"}  # nothing else is recorded
        return whole(self, columns, bounds)

    monkeypatch.setattr(SeriesFeatures, "__call__", watched)
    found = sampler(env, real=real)(np.random.default_rng(0).uniform(0.9, 1.1, (10_000, 2)))
    assert found.shape == (10_000, 24) and bool(found.isfinite().all())
    assert sum(count for count, _ in seen if count > 4) == 40_000
    assert max(count for count, _ in seen) <= 4096 and max(others for _, others in seen) <= 2


# -- failures ----------------------------------------------------------------------------------------------------------


class Fragile(Started):
    """Raises above a mass of 5, diverges below one of 0.1."""

    def step(self, action):
        mass = self._params["mass"]
        if mass > 5 and self._t == 2:
            raise ArithmeticError("the spring is broken")
        observation, *rest = super().step(action)
        return (observation * np.nan if mass < 0.1 else observation, *rest)


def test_simulations_that_raise_or_diverge_are_rows_of_nan():
    env = Fragile()
    real = recorded_list(env)
    found = SimRolloutSamplerForSBI(
        env, lambda obs: [0.0], {0: "mass"}, Moments(2, 1), len_segments=4, rollouts_real=real, seed=0
    )
    features = found(torch.tensor([1.0, 9.0, 0.05, np.nan, 2.0]))
    assert features.isnan().all(1).tolist() == [False, True, True, True, False]
    assert features[[0, 4]].isfinite().all()
    by_row = {failed.row: failed for failed in found.failed}
    assert "the spring is broken" in by_row[1].message and by_row[1].domain_param == {"mass": 9.0}
    assert by_row[1].step == 2 and (by_row[1].rollout, by_row[1].segment) != (-1, -1)
    assert "not finite at step 0" in by_row[2].message
    assert "mass" in by_row[3].message and by_row[3].rollout == -1 and by_row[3].call == 0
    assert len([failed for failed in found.failed if failed.row == 1]) == 4  # two rollouts of two segments
    with pytest.warns(UserWarning, match="all 1 simulations failed, the first: .* the spring is broken"):
        assert found([9.0]).isnan().all()
    assert found.failed[-1].call == 1


def recorded_list(env, steps: int = 8) -> list[StepSequence]:
    return [rollout(env, lambda obs: [0.5], max_steps=steps, seed=1, sub_seed=i, no_close=True) for i in range(2)]


def test_many_wrong_parameters_of_a_batched_simulator(env, real):
    theta = np.tile(THETA, (20, 1))
    theta[::2, 0] *= -1  # no mass is negative
    found = sampler(env, real=real)
    features = found(theta)
    assert features.isnan().all(1).tolist() == [True, False] * 30
    assert len(found.failed) == 30 * 2 and "'pole_mass' of the pendulum must be positive" in found.failed[0].message
    torch.testing.assert_close(features[1], sampler(env, real=real)(theta[[0, 1]])[1], rtol=0, atol=0)
    with pytest.warns(UserWarning, match="all 3 simulations failed"):
        assert sampler(env, real=real)(-THETA).isnan().all()


def test_an_environment_that_takes_nothing_over_is_found_out():
    real = recorded_list(Started())
    with pytest.warns(UserWarning, match=r"all 1 simulations failed, the first: .* it ignores reset\(options="):
        SimRolloutSamplerForSBI(Deaf(), lambda obs: [0.0], {0: "mass"}, Moments(2, 1), 1, rollouts_real=real, seed=0)(
            [1.0]
        )

    class Stubborn(Started):
        @property
        def domain_param(self):
            return {"mass": 1.0}

        @domain_param.setter
        def domain_param(self, params):
            pass

    with pytest.raises(ValueError, match=r"must run with mass = 2.0, as commanded, but ran with 1.0"):
        SimRolloutSamplerForSBI(
            Stubborn(), lambda obs: [0.0], {0: "mass"}, Moments(2, 1), 1, rollouts_real=real, seed=0
        )([2.0])


def test_a_wrapper_that_says_that_it_rounds_may_and_a_simulator_that_clamps_may_not(env, real):
    class Clamped(Started):
        @property
        def domain_param(self):
            return dict(self._params)

        @domain_param.setter
        def domain_param(self, params):
            self._params.update(params, mass=min(params["mass"], 1.5))

    def rows(simulation, name, values, recordings):
        mapping = {0: "act_delay", 1: name}
        given = SimRolloutSamplerForSBI(
            simulation, idle(simulation), mapping, Moments(2, 1), 1, rollouts_real=recordings, seed=0
        )
        return given(np.array(values))

    delayed = ActDelayWrapper(pendulum(), round_delay=True)
    found = rows(delayed, "pole_mass", [[2.3, 1.2], [2.0, 1.2], [2.6, 1.2]], real)  # sbi draws real numbers
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert found.isfinite().all() and not torch.equal(found[0], found[2])
    scaled = DomainParamTransformWrapper(delayed, {"act_delay": "sqrt"})
    torch.testing.assert_close(rows(scaled, "pole_mass", [[2.3**0.5, 1.2]], real), found[:1], rtol=0, atol=0)
    clamped = ActDelayWrapper(Clamped(), round_delay=True)
    with pytest.raises(ValueError, match=r"must run with mass = 2.0, as commanded, but ran with 1.5"):
        rows(clamped, "mass", [[2.3, 2.0]], recorded_list(Started()))


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_bad_options(env, real):
    """specs/sampling.md 15.1."""
    with pytest.raises(ValueError, match=r"give either num_segments or len_segments, got neither"):
        SimRolloutSamplerForSBI(env, idle(env), MAPPING, Moments(2, 1))
    with pytest.raises(ValueError, match=r"got num_segments=2 and len_segments=3"):
        sampler(env, real=real, num_segments=2, len_segments=3)
    with pytest.raises(ValueError, match="num_segments must be an integer of at least 1"):
        sampler(env, real=real, num_segments=0)
    with pytest.raises(ValueError, match="num_segments must be at most the number of steps, 12, got 13"):
        sampler(env, real=real, num_segments=13)
    with pytest.raises(TypeError, match="embedding must be an Embedding"):
        sampler(env, embedding=lambda x: x)
    with pytest.raises(ValueError, match="env must have a limit of steps for free rollouts"):
        SimRolloutSamplerForSBI(Oscillator(), lambda obs: [0.0], {0: "mass"}, Moments(2, 1), 1)
    with pytest.raises(TypeError, match=r"env must not be randomized.*remove_all_dr_wrappers\(env\)"):
        sampler(DomainRandWrapperLive(pendulum(), DomainRandomizer(UniformDomainParam("pole_mass", 1.0, 0.1))))


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        (["pole_mass"], TypeError, "dp_mapping must be a dict from numbers to names"),
        ({}, ValueError, "at least one domain parameter"),
        ({"0": "pole_mass"}, TypeError, "a number in dp_mapping"),
        ({0: 1}, TypeError, "must map to names, got 1 for 0"),
        ({0: "pole_mass", 1: "pole_mass"}, ValueError, "each domain parameter once"),
        ({0: "pole_mas"}, DataError, "pole_mass"),
    ],
)
def test_bad_mapping(env, mapping, error, message):
    with pytest.raises(error, match=message):
        SimRolloutSamplerForSBI(env, idle(env), mapping, Moments(2, 1), 1)


def test_bad_parameters(env):
    found = sampler(env)
    for values in (np.zeros((2, 3)), np.zeros(3), np.zeros((1, 2, 2))):
        with pytest.raises(ShapeError, match=r"dp_values must have shape \(B, 2\) for pole_mass, pole_length"):
            found(values)
    with pytest.raises(TypeError, match="dp_values"):
        found("heavy")


def test_bad_recordings(env, real):
    short = recorded(env, 1, 9)[0]
    with pytest.raises(ShapeError, match=r"recorded rollouts must have one length, got steps 0: 12, 1: 9; cut them"):
        sampler(env, real=[real[0], short])
    for wrong in (real[0], [1], ["states"]):
        with pytest.raises(TypeError, match="StepSequence"):
            sampler(env, real=wrong)
    with pytest.raises(ValueError, match="at least one rollout, got none"):
        sampler(env, real=[])
    with pytest.raises(ShapeError, match="must be one rollout, got 2 in one"):
        sampler(env, real=[StepSequence.concat(real)])

    fields = {"rewards": real[0].rewards, "observations": real[0].observations}
    bare = StepSequence(actions=real[0].actions_applied, **fields)
    with pytest.raises(DataError, match=r"rollouts_real\[0\] must have a field 'states'"):
        sampler(env, real=[bare])
    told = sampler(env, Flat(3, 1, STEPS), [bare], series="observations", num_segments=2)  # by the pendulum itself
    expected = np.concatenate([real[0].observations[:-1], real[0].actions_applied], axis=1)
    np.testing.assert_allclose(told(THETA[:1]).numpy().reshape(STEPS, 4), expected, atol=1e-6)
    mine = sampler(env, Flat(3, 1, STEPS), [bare], series="observations", num_segments=2, initial_state=state_of_first)
    torch.testing.assert_close(mine(THETA), told(THETA), rtol=1e-5, atol=1e-6)
    spring = recorded_list(Started())[0]
    spring = StepSequence(rewards=spring.rewards, observations=spring.observations, actions=spring.actions)
    with pytest.raises(DataError, match=r"Started .* pass initial_state, a function from a segment"):
        SimRolloutSamplerForSBI(Started(), None, {0: "mass"}, Moments(2, 1), 1, rollouts_real=[spring])

    strong = StepSequence(actions=4.0 + 0 * real[0].actions, states=real[0].states, **fields)
    with pytest.raises(ValueError, match=r"actions of rollouts_real\[0\] must lie within .* at step 0; record what"):
        sampler(env, real=[strong])
    clipped = sampler(env, Flat(2, 1, STEPS), [strong], clip_actions=True)(THETA[:1]).reshape(STEPS, 3)
    assert (clipped[:, 2] == 4.0).all()  # as recorded, where rollouts do not tell what was applied
    broken = StepSequence(actions=real[0].actions * np.nan, states=real[0].states, **fields)
    with pytest.raises(ValueError, match=r"actions of rollouts_real\[0\] must be finite, got \[nan\] at step 0"):
        sampler(env, real=[broken])
    wide = StepSequence(actions=np.zeros((12, 2)), states=real[0].states, **fields)
    with pytest.raises(ShapeError, match=r"must have 3 numbers per step \(states and actions\), got 4"):
        sampler(env, real=[wide])


def state_of_first(segment: StepSequence) -> np.ndarray:
    sin, cos, speed = segment.observations[0]
    return np.array([np.arctan2(sin, cos), speed])


# -- the target domain -------------------------------------------------------------------------------------------------


def test_real_rollouts_have_the_form_of_simulations(env):
    """specs/sampling.md 15.3."""
    policy = TimePolicy(env.env_spec, lambda t: [np.sin(20 * t)], 0.02)
    real = RealRolloutSamplerForSBI(env, policy, Flat(2, 1, STEPS), num_segments=3, seed=2)
    features, found = real()
    assert features.shape == (1, 3 * STEPS) and features.dtype == torch.float32
    assert found.data_format == "torch" and len(found) == STEPS
    sim = SimRolloutSamplerForSBI(
        env, policy, MAPPING, Flat(2, 1, STEPS), num_segments=1, rollouts_real=[found], seed=0
    )
    torch.testing.assert_close(sim([[1.0, 1.0]]), features, rtol=0, atol=1e-6)
    pieces = RealRolloutSamplerForSBI(env, policy, Moments(2, 1), 3, features_of="segments", seed=2)()[0]
    torch.testing.assert_close(pieces, Moments(2, 1)(features.reshape(1, 3, -1)))
    assert torch.equal(real(np.zeros(2))[0], features)  # parameters are ignored; this pendulum starts in rest
    with pytest.raises(ValueError, match="env must have a limit of steps for rollouts"):
        RealRolloutSamplerForSBI(Oscillator(), policy, Moments(2, 1), 1)


def test_real_rollouts_that_are_not_accepted_are_repeated_and_wrappers_randomize(env):
    asked = []

    def accept(found):
        asked.append(found.rollout_info["domain_param"]["pole_mass"])
        return len(asked) == 3

    target = DomainRandWrapperLive(pendulum(), DomainRandomizer(UniformDomainParam("pole_mass", 1.0, 0.5)))
    real = RealRolloutSamplerForSBI(target, idle(env), Moments(2, 1), 1, seed=2, accept=accept)
    assert real()[1].rollout_info["domain_param"]["pole_mass"] == asked[-1]
    assert len(set(asked)) == 3  # each in a domain of its own
    with pytest.raises(TypeError, match="accept must be a function"):
        RealRolloutSamplerForSBI(env, idle(env), Moments(2, 1), 1, accept=True)


def test_real_rollouts_that_end_early_are_filled_up():
    spinning = pendulum(200)
    spinning.unwrapped.domain_param = {"pole_mass": 0.05}
    push = TimePolicy(spinning.env_spec, lambda t: [3.5], 0.02)
    found = RealRolloutSamplerForSBI(spinning, push, Flat(2, 1, 200), 1, seed=0)
    features, whole = found()
    assert len(whole) == 200 and bool(whole.padded[-1])
    simulated = SimRolloutSamplerForSBI(spinning, push, {0: "pole_mass"}, Flat(2, 1, 200), 1, seed=0)([0.05])
    torch.testing.assert_close(features, simulated, rtol=0, atol=0)  # filled up alike


def test_recorded_rollouts_come_in_turns(tmp_path, env, real):
    """specs/sampling.md 15.4."""
    metaroll.save_rollouts(real, tmp_path)
    metaroll.save_rollout(real[0], tmp_path / "rollout_10.npz")
    metaroll.save_rollout(recorded(env, 1, 5)[0], tmp_path / "other.npz")  # of another name
    found = RecRolloutSamplerForSBI(str(tmp_path), Flat(2, 1, STEPS), num_segments=2, rand_init_rollout=False)
    assert found.num_rollouts == 3 and found.ring_idx == 0
    first, second, last, again = (found() for _ in range(4))
    expected = np.concatenate([real[1].states[:-1], real[1].actions_applied], axis=1).astype(np.float32)
    np.testing.assert_array_equal(second[0].numpy().reshape(STEPS, 3), expected)
    assert torch.equal(first[0], last[0]) and torch.equal(first[0], again[0])  # sorted by number
    assert first[1].data_format == "torch" and found.ring_idx == 1
    found.ring_idx = 2
    assert torch.equal(found()[0], last[0]) and found.ring_idx == 0
    for idx, error in ((3, ValueError), (-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="ring_idx"):
            found.ring_idx = idx
    begins = {RecRolloutSamplerForSBI(tmp_path, Moments(2, 1), 1, seed=seed).ring_idx for seed in range(20)}
    assert begins == {0, 1, 2}
    same = [RecRolloutSamplerForSBI(tmp_path, Moments(2, 1), 1, seed=4).ring_idx for _ in range(2)]
    assert same[0] == same[1]


def test_bad_folders_of_recordings(tmp_path, env, real):
    with pytest.raises(FileNotFoundError, match="rollouts_dir must be a folder"):
        RecRolloutSamplerForSBI(tmp_path / "none", Moments(2, 1), 1)
    with pytest.raises(RecordingError, match="files that begin with 'rollout', there are none"):
        RecRolloutSamplerForSBI(tmp_path, Moments(2, 1), 1)
    metaroll.save_rollout(real[0], tmp_path / "rollout_a.npz")
    metaroll.save_rollout(recorded(env, 1, 5)[0], tmp_path / "rollout_b.npz")
    with pytest.raises(ShapeError, match=r"one length, got steps rollout_a.npz: 12, rollout_b.npz: 5"):
        RecRolloutSamplerForSBI(tmp_path, Moments(2, 1), 1)
    with pytest.raises(TypeError, match="rand_init_rollout must be True or False"):
        RecRolloutSamplerForSBI(tmp_path, Moments(2, 1), 1, rand_init_rollout=1)


# -- the check of domain parameters ------------------------------------------------------------------------------------


def test_check_domain_params(env):
    """specs/sampling.md 15.5."""
    params = {"pole_mass": 9e-7, "pole_length": 1.1}
    found = rollout(env, idle(env), max_steps=2, reset_kwargs={"domain_param": params}, seed=0, no_close=True)
    check_domain_params(found, np.array([9e-7, 1.1]), ["pole_mass", "pole_length"])
    check_domain_params([found, found], torch.tensor([1.1, 9e-7]), {0: "pole_length", 1: "pole_mass"}.values())
    check_domain_params(found, 1.1, "pole_length")
    with pytest.raises(ValueError, match="rollout 0 must run with pole_mass = 1e-09, as commanded, but ran with 9e-07"):
        check_domain_params([found], [1e-9], ["pole_mass"])
    with pytest.raises(DataError, match="mass"):
        check_domain_params([found], [1.0], ["mass"])
    with pytest.raises(ShapeError, match="a value for each of"):
        check_domain_params([found], [1.0, 2.0], ["pole_mass"])


# -- sbi ---------------------------------------------------------------------------------------------------------------


def test_calling_conventions_of_sbi(env, real):
    user_input = importlib.import_module("sbi.utils.user_input_checks")
    import joblib
    from sbi.inference import simulate_for_sbi
    from sbi.utils import BoxUniform

    ours = sampler(env, real=real, num_segments=2)
    with isolated_rng(0):
        prior, _, numbers = user_input.process_prior(BoxUniform(torch.tensor([0.7, 0.7]), torch.tensor([1.3, 1.3])))
        simulator = user_input.process_simulator(ours, prior, numbers)
        user_input.check_sbi_inputs(simulator, prior)
        for count in (1, 2, 3):
            assert simulator(prior.sample((count,))).shape == (count, 12)
        theta, x = simulate_for_sbi(simulator, prior, 10, simulation_batch_size=None, seed=0, show_progress_bar=False)
        torch.testing.assert_close(ours(theta), x, rtol=0, atol=0)
        # As its workers get it; starting two of them, which takes a minute, gives the same (tried by hand).
        simulator = cloudpickle.loads(cloudpickle.dumps(simulator))
        with joblib.parallel_config(backend="sequential"):
            theta, x = simulate_for_sbi(
                simulator, prior, 10, num_workers=2, simulation_batch_size=4, seed=1, show_progress_bar=False
            )
    assert x.dtype == torch.float32
    torch.testing.assert_close(ours(theta.numpy()), x, rtol=0, atol=0)


@pytest.mark.parametrize("values", [torch.tensor([0.9, 1.1]), np.array([0.9, 1.1]), [[0.9], [1.1]]])
def test_one_parameter(env, values):
    found = SimRolloutSamplerForSBI(env, idle(env), {0: "pole_mass"}, Flat(2, 1, STEPS), 1, seed=0)
    assert found(values).shape == (2, 3 * STEPS)
    assert found(1.2).shape == found(torch.tensor([[1.2]])).shape == (1, 3 * STEPS)
    assert sampler(env)(np.array([1.0, 1.0])).shape == (1, 6)
