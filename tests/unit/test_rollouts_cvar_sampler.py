"""specs/sampling.md 2: the worst epsilon-fraction of rollouts, and the sampler that keeps them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler_envs import Oscillator

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import RolloutError
from metaroll.functional.cvar import cvar_count
from metaroll.rollouts.samplers.cvar import CVaRSampler, select_cvar
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.samplers.sampler import SamplerBase


def made(*rewards):
    count = len(rewards)
    return StepSequence(
        rewards=np.array(rewards, float), observations=np.zeros((count + 1, 1)), actions=np.zeros((count, 1))
    )


class Listed(SamplerBase):
    """Hands out rollouts of given lengths and returns in turn, as few as are asked for."""

    def __init__(self, lengths=(1,), **bounds):
        self.lengths, self.number, self.calls, self.reinits = lengths, 0, [], []
        super().__init__(**bounds)

    def reinit(self, env=None, policy=None):
        self.reinits.append((env, policy))

    def sample(self, *args, **kwargs):
        self.calls.append((self.min_rollouts, self.min_steps, args, kwargs))
        rollouts = []
        while len(rollouts) < (self.min_rollouts or 0) or sum(map(len, rollouts)) < (self.min_steps or 0):
            length = self.lengths[self.number % len(self.lengths)]
            rollouts.append(made(*[float(self.number % 10)] * length))
            self.number += 1
        return rollouts


def push(obs):
    return np.tanh(obs[:1])


def broken(obs):
    raise ArithmeticError("no action today")


@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize("epsilon", [1.0, 0.5, 0.1])
def test_select_cvar_keeps_the_worst(count, epsilon):
    """specs/sampling.md 2.1 (e): of rollouts with rewards 0, 1, ... the first ones; the list stays as it is."""
    rollouts = [made(float(i)) for i in np.random.default_rng(0).permutation(count)]
    before = list(rollouts)
    kept = select_cvar(rollouts, epsilon)
    assert all(a is b for a, b in zip(rollouts, before, strict=True))
    assert [float(r.rewards[0]) for r in kept] == list(range(int(count * epsilon)))
    assert np.mean([r.undiscounted_return() for r in kept]) == np.mean(range(int(count * epsilon)))


def test_select_cvar_rounds_up_discounts_and_is_stable():
    """specs/sampling.md 2.1: ceil(n epsilon); 10 * 0.25 -> 3, 2 * 0.25 -> 1, 10 * 0.3 -> 3."""
    rollouts = [made(float(i)) for i in range(10)]
    assert len(select_cvar(rollouts, 0.25)) == 3
    assert len(select_cvar(rollouts[:2], 0.25)) == 1
    assert len(select_cvar(rollouts, 0.3)) == 3
    early, late = made(2.0, 0.0), made(0.0, 3.0)  # returns 2 and 3; discounted with 0.5: 2 and 1.5
    assert select_cvar([late, early], 0.5)[0] is early
    assert select_cvar([late, early], 0.5, 0.5)[0] is late
    equal = [made(1.0) for _ in range(4)]
    kept = select_cvar(equal, 0.5)
    assert kept[0] is equal[0] and kept[1] is equal[1]
    tensor = StepSequence(rewards=torch.ones(2), observations=torch.zeros(3, 1), actions=torch.zeros(2, 1))
    assert select_cvar([tensor], 1.0) == [tensor]


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 1.0001, float("nan")])
def test_epsilon_outside_of_its_range_is_refused(epsilon):
    """specs/sampling.md 2: epsilon in (0, 1]."""
    sampler = CVaRSampler(Listed(min_rollouts=1), 0.5, min_rollouts=2)
    for call in (lambda: select_cvar([made(1.0)], epsilon), lambda: CVaRSampler(Listed(min_rollouts=1), epsilon)):
        with pytest.raises(ValueError, match=r"epsilon must lie in \(0, 1\]"):
            call()
    with pytest.raises(ValueError, match="epsilon"):
        sampler.epsilon = epsilon
    assert sampler.epsilon == 0.5
    assert len(sampler.sample()) == 2


def test_bad_rollouts_and_samplers_are_refused():
    """specs/sampling.md 2.1: single continuous rollouts, at least one."""
    with pytest.raises(ValueError, match="at least one rollout, got none"):
        select_cvar([], 0.5)
    with pytest.raises(TypeError, match="rollouts must be a list of StepSequences, got None"):
        select_cvar(None, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 2 rollouts at position 1"):
        select_cvar([made(1.0), StepSequence.concat([made(1.0), made(2.0)])], 0.5)
    with pytest.raises(TypeError, match=r"got list .* at position 0"):
        select_cvar([[1.0]], 0.5)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\], got 1.5"):
        select_cvar([made(1.0)], 0.5, 1.5)
    with pytest.raises(TypeError, match="epsilon must be a number"):
        select_cvar([made(1.0)], "half")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wrapped_sampler must be a sampler"):
        CVaRSampler(push, 0.5, min_rollouts=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give min_rollouts or min_steps"):
        CVaRSampler(Listed(min_rollouts=1), 0.5)
    with pytest.raises(TypeError, match="log must be callable"):
        CVaRSampler(Listed(min_rollouts=1), 0.5, min_rollouts=1, log=3)  # type: ignore[arg-type]


def test_at_least_min_rollouts_are_kept():
    """specs/sampling.md 2.2, 22 no. 5: for every epsilon in .05, .10, ..., 1; up to 60 rollouts."""
    inner = Listed(min_rollouts=1)
    sampler = CVaRSampler(inner, 1.0, min_rollouts=1)
    for epsilon in np.arange(1, 21) / 20:
        sampler.epsilon = epsilon
        for least in (1, 2, 3, 7, 19, 20, 21, 33, 60):
            sampler.set_min_count(min_rollouts=least)
            kept = sampler.sample()
            assert len(kept) >= least
            assert len(kept) == cvar_count(inner.calls[-1][0], epsilon)


def test_changing_epsilon_changes_how_many_are_sampled():
    """specs/sampling.md 2.2 (d): upstream keeps sampling the old number, which EPOpt trips over."""
    inner = Listed(min_rollouts=1)
    sampler = CVaRSampler(inner, 1.0, min_rollouts=10)
    sampler.sample()
    sampler.epsilon = 0.2
    assert len(sampler.sample()) == 10
    assert [call[0] for call in inner.calls] == [10, 50]
    sampler.set_min_count(min_rollouts=4)
    assert (sampler.min_rollouts, inner.min_rollouts) == (4, 20)


def test_arguments_and_reinit_are_handed_on():
    """specs/sampling.md 2.2: *args and **kwargs reach the wrapped sampler."""
    inner = Listed(min_rollouts=1)
    sampler = CVaRSampler(inner, 0.5, min_rollouts=1)
    sampler.sample([1], eval=True)
    assert inner.calls == [(2, None, ([1],), {"eval": True})]
    sampler.reinit("env", "policy")
    assert inner.reinits == [("env", "policy")] and sampler.wrapped_sampler is inner


def test_enough_steps_are_kept_although_the_worst_rollouts_are_short():
    """specs/sampling.md 2.2: min_steps holds for what is kept; both bounds are kept together."""
    inner = Listed(lengths=(1, 9), min_rollouts=1)  # the return of a short one is smaller, too
    sampler = CVaRSampler(inner, 0.3, min_steps=12)
    kept = sampler.sample()
    assert sum(map(len, kept)) >= 12
    assert len(kept) == cvar_count(inner.number, 0.3)
    assert inner.calls[0][:2] == (None, 40) and all(call[1] is None for call in inner.calls[1:])
    assert (inner.min_rollouts, inner.min_steps) == (None, 40)  # as before
    assert sampler.full_metrics["full avg rollout len"] == pytest.approx(5.0, abs=0.3)
    sampler.set_min_count(min_rollouts=8, min_steps=3)
    kept = sampler.sample()
    assert len(kept) >= 8 and sum(map(len, kept)) >= 3


def test_measures_of_all_rollouts_are_logged():
    """specs/sampling.md 2.2: undiscounted returns of the full set, under the documented names."""
    logged = []
    sampler = CVaRSampler(Listed(lengths=(1, 3), min_rollouts=1), 0.5, 0.1, min_rollouts=2, log=logged.append)
    sampler.sample()  # returns 0, 3, 2, 9
    assert logged == [
        {
            "full avg rollout len": 2.0,
            "full avg return": 3.5,
            "full median return": 2.5,
            "full std return": pytest.approx(np.std([0.0, 3.0, 2.0, 9.0])),
        }
    ]
    assert sampler.full_metrics == logged[0]


def test_a_failing_call_keeps_what_there_is_and_the_bounds():
    """specs/sampling.md 2.2: the wrapped sampler's error arrives, the sampler stays usable."""
    inner = ParallelRolloutSampler(Oscillator, push, 1, min_rollouts=1, show_progress_bar=False, seed=0)
    with CVaRSampler(inner, 0.5, min_rollouts=2) as sampler:
        sampler.reinit(policy=broken)
        with pytest.raises(RolloutError, match="no action today"):
            sampler.sample()
        sampler.reinit(policy=push)
        kept = sampler.sample(init_states=[np.array([0.1, 0.0]), np.array([1.0, 0.0])], eval=True)
        assert [r.states[0].tolist() for r in kept] == [[1.0, 0.0], [1.0, 0.0]]
    with pytest.raises(RuntimeError, match="closed"):
        sampler.sample()
