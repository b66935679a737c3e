"""specs/sampling.md 13: evaluation of a policy over domains and initial states on a pool."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_envs import NOMINAL, Deaf, Oscillator, Started

from metaroll.data.compare import first_difference
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.errors import DataError, RolloutError, ShapeError
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.samplers.evaluation import (
    eval_domain_params,
    eval_domain_params_with_segmentwise_reset,
    eval_nominal_domain,
    eval_randomized_domain,
)
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import EnvSpec

PARAMS = [{"mass": 0.5}, {"mass": 2.0, "stiffness": 1.0}, {"mass": 4.0}]
STATES = [np.array([1.0, 0.0]), np.array([0.0, 2.0])]


def push(obs):
    return np.tanh(obs[:1])


def heavy():
    return DomainRandomizer(UniformDomainParam("mass", 9.0, 1.0), generator=0)


@pytest.fixture(scope="module")
def pool():
    with SamplerPool(1) as running:
        yield running


def seeds_of(rollouts):
    return [found.rollout_info["plan"]["seed"] for found in rollouts]


def test_one_rollout_per_set_of_domain_parameters(pool):
    """specs/sampling.md 13, 22 no. 13: in order, from exactly the given state, seeds (seed, 0, i), evaluation mode."""
    rollouts = eval_domain_params(pool, Oscillator, push, PARAMS, np.array([0.3, -0.2]), seed=5)
    assert [r.rollout_info["domain_param"] for r in rollouts] == [{**NOMINAL, **params} for params in PARAMS]
    assert all(r.states[0].tolist() == [0.3, -0.2] and r.rollout_info["plan"]["eval"] for r in rollouts)
    assert seeds_of(rollouts) == [(5, 0, 0), (5, 0, 1), (5, 0, 2)]
    assert isinstance(rollouts[0].rollout_info["env_spec"], EnvSpec)
    for i, params in enumerate(PARAMS):
        start = {"init_state": [0.3, -0.2], "domain_param": params}
        alone = rollout(Oscillator(), push, eval=True, reset_kwargs=start, seed=5, sub_seed=0, sub_sub_seed=i)
        assert np.array_equal(alone.observations, rollouts[i].observations)
    drawn = eval_domain_params(pool, Oscillator, push, PARAMS, seed=5)
    assert len({tuple(r.states[0]) for r in drawn}) == 3


def test_the_nominal_domain_is_that_of_the_environment(pool):
    """specs/sampling.md 13: one rollout per state with the environment's present parameters; it is left alone."""
    env = Started()
    env.domain_param = {"mass": 3.0}
    rollouts = eval_nominal_domain(pool, env, push, [*STATES, None], seed=5)
    assert [r.rollout_info["domain_param"]["mass"] for r in rollouts] == [3.0] * 3
    assert [r.states[0].tolist() for r in rollouts[:2]] == [[1.0, 0.0], [0.0, 2.0]]
    assert seeds_of(rollouts) == [(5, 0, 0), (5, 0, 1), (5, 0, 2)] and env.resets == 0
    wrapped = DomainRandWrapperLive(Started(), heavy(), in_evaluation=True)
    rollouts = eval_nominal_domain(pool, wrapped, push, np.stack(STATES), seed=5)
    assert [r.rollout_info["domain_param"]["mass"] for r in rollouts] == [1.0, 1.0]


def test_randomized_domains_are_drawn_from_the_seed(pool):
    """specs/sampling.md 13: another domain for each state, told in rollout_info; upstream raises a TypeError."""
    wrapped = DomainRandWrapperLive(Started(), DomainRandomizer(UniformDomainParam("mass", 1.0, 0.1), generator=0))
    first, second, other = (
        eval_randomized_domain(pool, wrapped, heavy(), push, STATES * 2, seed=seed) for seed in (5, 5, 6)
    )
    masses = [r.rollout_info["domain_param"]["mass"] for r in first]
    assert len(set(masses)) == 4 and all(8.0 <= mass <= 10.0 for mass in masses)
    assert [r.states[0].tolist() for r in first] == [[1.0, 0.0], [0.0, 2.0]] * 2
    assert all(first_difference(a, b) is None for a, b in zip(first, second, strict=True))
    assert masses != [r.rollout_info["domain_param"]["mass"] for r in other]


# -- segments ------------------------------------------------------------------------------------------------------


def recorded(steps=20, **params):
    """A rollout of a real system, here another mass on a spring, and its segments of 8, 8, 4 steps."""
    start = {"domain_param": params} if params else None
    whole = rollout(Oscillator(steps), push, eval=True, reset_kwargs=start, seed=3)
    return whole, [whole[begin : begin + 8] for begin in range(0, len(whole), 8)]


def test_segments_start_in_the_recorded_states(pool):
    """specs/sampling.md 13: [rollout][segment][domain], as long as recorded; the true parameters give the recording."""
    (first, segments), (_, others) = recorded(mass=2.0), recorded(10)
    result = eval_domain_params_with_segmentwise_reset(
        pool, Oscillator, push, [segments, others], [[{"mass": 2.0}, {"mass": 0.5}], [{"mass": 1.0}]], True, False, 5
    )
    assert [[len(domains) for domains in parts] for parts in result] == [[2, 2, 2], [1, 1]]
    assert [[len(r) for r in part] for part in result[0]] == [[8, 8], [8, 8], [4, 4]]
    assert [[len(r) for r in part] for part in result[1]] == [[8], [2]]
    for place, segment in enumerate(segments):
        true, wrong = result[0][place]
        assert np.array_equal(true.states, segment.states) and np.array_equal(true.rewards, segment.rewards)
        assert np.array_equal(wrong.states[0], segment.states[0])
        assert not np.allclose(wrong.states[-1], segment.states[-1])
        assert wrong.rollout_info["domain_param"]["mass"] == 0.5
    assert len(first) == 20


class Ends(Oscillator):
    """Ends where the mass has gone below -0.5 (of a true system that goes further)."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, bool(observation[0] < -0.5), truncated, info


def test_segments_that_end_early_are_filled_up_with_zeros(pool):
    """specs/sampling.md 13: zeros up to the recorded length with stop_on_done, otherwise they go on."""
    start = {"init_state": [1.0, -1.0]}
    whole = rollout(Oscillator(), push, eval=True, reset_kwargs=start, seed=3)
    segments = [whole[:12], whole[12:]]
    stopped, gone_on = (
        eval_domain_params_with_segmentwise_reset(pool, Ends, push, [segments], [[{"mass": 1.0}]], stop, False, 5)
        for stop in (True, False)
    )
    cut = int(np.argmax(whole.states[1:13, 0] < -0.5)) + 1
    first = stopped[0][0][0]
    assert 0 < cut < 12 and len(first) == 12
    assert first.padded.tolist() == [False] * cut + [True] * (12 - cut)
    assert np.array_equal(first.rewards[:cut], whole.rewards[:cut]) and not first.rewards[cut:].any()
    assert np.array_equal(gone_on[0][0][0].rewards, whole.rewards[:12])
    assert not gone_on[0][0][0].padded.any()


def test_recorded_actions_are_played_back(pool):
    """specs/sampling.md 13: with use_rec every segment plays its part of its recording."""
    wholes, segments = zip(*[recorded(mass=2.0), recorded(14, mass=0.7)], strict=True)
    policy = PlaybackPolicy(EnvSpec.from_env(Oscillator()), [whole.actions for whole in wholes], no_reset=True)
    params = [[{"mass": 2.0}, {"mass": 1.0}], [{"mass": 5.0}]]
    call = (pool, Oscillator, policy, segments, params, False, True)
    result = eval_domain_params_with_segmentwise_reset(*call, seed=5)
    for parts, simulated in zip(segments, result, strict=True):
        for segment, domains in zip(parts, simulated, strict=True):
            for found in domains:
                np.testing.assert_allclose(found.actions, segment.actions, rtol=1e-6)
                assert np.array_equal(found.states[0], segment.states[0])
    np.testing.assert_allclose(result[0][1][0].states, segments[0][1].states, rtol=1e-6)
    mixed = PlaybackPolicy(policy.env_spec, [wholes[0].actions[::-1], wholes[1].actions])
    with pytest.raises(ValueError, match="segment 0 of rollout 0 must play back the recorded actions"):
        eval_domain_params_with_segmentwise_reset(pool, Oscillator, mixed, *call[3:], seed=5)
    for recordings, text in [
        ([wholes[0].actions], "got 1 recordings"),
        ([wholes[0].actions, wholes[1].actions[:5]], r"recording 1 .*\(14 steps together\), got 5"),
    ]:
        with pytest.raises(ShapeError, match=text):
            eval_domain_params_with_segmentwise_reset(
                pool, Oscillator, PlaybackPolicy(policy.env_spec, recordings), *call[3:], seed=5
            )


# -- wrong input ---------------------------------------------------------------------------------------------------


def test_wrong_input_is_refused_and_the_pool_stays_usable(pool):
    """specs/sampling.md 13: clear errors, nothing run."""
    _, segments = recorded()
    bare = StepSequence(rewards=np.zeros(2), observations=np.zeros((3, 2)), actions=np.zeros((2, 1)))
    by_segments = eval_domain_params_with_segmentwise_reset
    for call, error, text in [
        (lambda: eval_domain_params(pool, Oscillator, push, []), ValueError, "params must hold at least one dict"),
        (
            lambda: eval_domain_params(pool, Oscillator, push, {"mass": 1.0}),
            TypeError,
            "params must be a list of dicts",
        ),
        (lambda: eval_domain_params(pool, Oscillator, push, [3]), TypeError, "must be a dict"),
        (lambda: eval_domain_params(pool, Oscillator, push, PARAMS, np.zeros((2, 2))), ShapeError, r"shape \(2, 2\)"),
        (lambda: eval_domain_params(pool, Oscillator, push, PARAMS, seed=1.5), TypeError, "seed must be an integer"),
        (lambda: eval_domain_params(4, Oscillator, push, PARAMS), TypeError, "pool must be a SamplerPool, got int"),
        (lambda: eval_nominal_domain(pool, Oscillator, push, []), ValueError, "init_states must hold at least one"),
        (lambda: eval_nominal_domain(pool, Oscillator, push, 1.0), TypeError, "init_states must be a list of states"),
        (lambda: eval_randomized_domain(pool, Oscillator, PARAMS, push, STATES), TypeError, "DomainRandomizer"),
        (lambda: by_segments(pool, Oscillator, push, [], [], True, False), ValueError, "segments_real_all must hold"),
        (lambda: by_segments(pool, Oscillator, push, segments, [PARAMS], True, False), TypeError, "put it into a list"),
        (lambda: by_segments(pool, Oscillator, push, [[]], [PARAMS], True, False), ValueError, "at least one segment"),
        (lambda: by_segments(pool, Oscillator, push, [segments], [[]], True, False), ValueError, "at least one dict"),
        (lambda: by_segments(pool, Oscillator, push, [segments], [PARAMS] * 2, True, False), ShapeError, "got 2"),
        (lambda: by_segments(pool, Oscillator, push, [[bare]], [PARAMS], True, False), DataError, "field 'states'"),
        (lambda: by_segments(pool, Oscillator, push, [segments], [PARAMS], True, True), TypeError, "PlaybackPolicy"),
        (lambda: by_segments(pool, Oscillator, push, [segments], [PARAMS], 1, False), TypeError, "stop_on_done"),
    ]:
        with pytest.raises(error, match=text):
            call()
    for call, text in [
        (lambda: eval_domain_params(pool, Oscillator, push, [{"mas": 1.0}]), "did you mean 'mass'"),
        (lambda: eval_nominal_domain(pool, Oscillator, push, [np.zeros(3)]), r"\(3,\)"),
        (lambda: eval_nominal_domain(pool, Deaf, push, STATES), "ignores reset"),
    ]:
        with pytest.raises(RolloutError, match=text):
            call()
    assert len(eval_domain_params(pool, Oscillator, push, PARAMS)) == 3
