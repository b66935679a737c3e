"""specs/sampling.md 11: the parallel rollout sampler, and the determinism contract of 0.4."""

from __future__ import annotations

import copy
import gc
import os
import threading
import time

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from pool_functions import pids
from sampler_envs import NOMINAL, Controller, Explorer, Nan, Oscillator, ending, push

from metaroll.data.compare import first_difference
from metaroll.errors import InvalidValueError, NotPicklableError, RolloutError, ShapeError, UnknownNameError
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.single.replay import replay
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvSpec, RolloutPlan


def gaussian():
    spec = EnvSpec.from_env(Oscillator())
    return GaussianMLPPolicy(spec, hidden_sizes=(4,), generator=torch.Generator().manual_seed(0))


def quiet(env, policy, workers=1, **options):
    return ParallelRolloutSampler(env, policy, workers, **{"show_progress_bar": False, "seed": 7, **options})


@pytest.fixture(scope="module")
def pools(shared_pools):
    return {1: SamplerPool(1), 2: shared_pools[2]}


def same(left, right):
    differences = [first_difference(a, b) for a, b in zip(left, right, strict=True)]
    return differences == [None] * len(differences)


# -- determinism ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [{"min_rollouts": 6}, {"min_steps": 90}, {"min_steps": 30, "min_rollouts": 9}])
def test_samples_are_the_shortest_prefix_that_is_enough(bounds):
    """specs/sampling.md 11 (e): different rollouts, no more than are needed."""
    with quiet(ending, gaussian(), **bounds) as sampler:
        first, second = sampler.sample(), sampler.sample()
    assert len({tuple(r.rewards.tolist()) for r in (*first, *second)}) == len(first) + len(second)
    for rollouts in (first, second):
        lengths = [len(r) for r in rollouts]
        need, least = bounds.get("min_steps", 0), bounds.get("min_rollouts", 0)
        assert sum(lengths) >= need and len(lengths) >= least
        assert sum(lengths[:-1]) < need or len(lengths) == least


def test_states_and_parameters_reach_their_rollouts(pools):
    """specs/sampling.md 11: domain_params are used in the step mode, too (upstream ignores them)."""
    states, params = [np.array([1.0, 0.0]), np.array([0.0, 1.0])], [{"mass": 0.5}, {"mass": np.array(2.0)}]
    for bounds in ({"min_rollouts": 5}, {"min_steps": 70}):
        with quiet(ending, gaussian(), 2, pool=pools[2], **bounds) as sampler:
            rollouts = sampler.sample(states, params, eval=True)
        told = [(r.states[0].tolist(), r.rollout_info["domain_param"]["mass"]) for r in rollouts]
        order = [([1.0, 0.0], 0.5), ([1.0, 0.0], 2.0), ([0.0, 1.0], 0.5), ([0.0, 1.0], 2.0)]
        assert told == [order[i % 4] for i in range(len(told))]
        assert len(told) == 8 if "min_rollouts" in bounds else len(told) >= 4


@pytest.mark.parametrize("eval", [False, True])
def test_rollout_i_of_the_first_call_equals_rollout(eval, pools):
    """specs/sampling.md 8.1 (e), 11: rollout(..., seed, sub_seed=0, sub_sub_seed=i) is item i, bitwise identical."""
    for policy in (gaussian(), Explorer(push), push):
        with quiet(ending, policy, 2, pool=pools[2], min_rollouts=3) as sampler:
            first, second = sampler.sample(eval=eval), sampler.sample(eval=eval)
        for k, rollouts in enumerate((first, second)):
            for i, expected in enumerate(rollouts):
                alone = rollout(ending(), policy, eval=eval, seed=7, sub_seed=k, sub_sub_seed=i)
                assert first_difference(alone, expected) is None
            assert first_difference(replay(rollouts[1], ending, policy), rollouts[1]) is None


def test_numbering_of_seeds():
    """specs/sampling.md 0.4: sub_sub_seed counts from 0, in the step mode from 1; a failed call takes a number."""
    with quiet(Oscillator, push, min_rollouts=2) as sampler:
        seeds = [r.rollout_info["plan"]["seed"] for r in (*sampler.sample(), *sampler.sample())]
        assert seeds == [(7, 0, 0), (7, 0, 1), (7, 1, 0), (7, 1, 1)]
        with pytest.raises(RolloutError):
            sampler.sample(init_states=[np.ones(3)])  # fails in the environment
        with pytest.raises(ValueError, match="at least one state"):
            sampler.sample(init_states=[])  # does not begin
        sampler.set_min_count(min_steps=25)
        assert [r.rollout_info["plan"]["seed"] for r in sampler.sample()] == [(7, 3, 1), (7, 3, 2)]


def test_repetition_of_given_states_and_parameters():
    """specs/sampling.md 11: with min_rollouts=3, 2 states give 4 rollouts, 2 states and 4 parameter sets 8."""
    states, params = np.array([[1.0, 0.0], [0.0, 1.0]]), [{"mass": m} for m in (1.0, 2.0, 3.0, 4.0)]
    with quiet(Oscillator, push, min_rollouts=3) as sampler:
        assert len(sampler.sample()) == 3
        starts = [r.observations[0].tolist() for r in sampler.sample(init_states=states)]
        assert starts == [[1.0, 0.0], [0.0, 1.0]] * 2
        assert [r.rollout_info["domain_param"]["mass"] for r in sampler.sample(domain_params=params)] == [1, 2, 3, 4]
        assert len(sampler.sample(states, params)) == 8
        assert len(sampler.sample(iter(states), iter(params))) == 8
        nominal = sampler.sample(domain_params=[{}])
        assert [r.rollout_info["domain_param"] for r in nominal] == [NOMINAL] * 3


def test_recorded_extras():
    with quiet(Oscillator, push, min_rollouts=1) as sampler:
        (result,) = sampler.sample()
    assert result.states.shape == (21, 2) and np.array_equal(result.states, result.observations)
    np.testing.assert_allclose(result.time, 0.1 * np.arange(21))
    np.testing.assert_allclose(result.actions_applied[:, 0], 0.5 * result.actions[:, 0], rtol=1e-6)
    info = result.rollout_info
    assert info["env_name"] == "Oscillator" and info["env_spec"].obs_dim == 2 and info["domain_param"] == NOMINAL


# -- seeds ---------------------------------------------------------------------------------------------------------


# -- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_changed_environments_need_reinit_and_changed_parameters_do_not(workers, pools):
    """specs/sampling.md 0.6, 9, 11: max_steps changed after construction holds in all workers after reinit."""
    env, policy = Oscillator(), gaussian()
    with quiet(env, policy, workers, pool=pools[workers], min_rollouts=2) as sampler:
        before = sampler.sample()
        assert [len(r) for r in before] == [20, 20] and env.resets == 0  # the instance itself is not used
        env.max_steps = 5
        assert [len(r) for r in sampler.sample()] == [20, 20]
        sampler.reinit()
        assert [len(r) for r in sampler.sample()] == [5, 5]
        policy.set_param_values(policy.get_param_values() + 1.0)
        (changed, _), k = sampler.sample(), 3
        np.testing.assert_array_equal(changed.actions, rollout(env, policy, seed=7, sub_seed=k, sub_sub_seed=0).actions)
        sampler.reinit(env=ending, policy=push)
        assert sampler.sample()[0].rollout_info["plan"]["seed"] == (7, 4, 0)
        assert sampler.env is ending and sampler.policy is push


def test_a_reinit_that_fails_changes_nothing(pools):
    with quiet(Oscillator, push, 2, pool=pools[2], min_rollouts=2) as sampler:
        with pytest.raises(TypeError, match="policy must"):
            sampler.reinit(env=lambda: Oscillator(max_steps=3), policy=3)
        env = Oscillator()
        env.lock = threading.Lock()
        with pytest.raises((NotPicklableError, TypeError), match="pass a function"):
            sampler.reinit(env=env)
        with pytest.raises(UnknownNameError, match="unknown environment 'nonsense'"):
            sampler.reinit(env="nonsense")
        with pytest.raises(ShapeError, match=r"observation_space like the present one.*give a policy"):
            sampler.reinit(env="CartPole-v1")
        assert [len(r) for r in sampler.sample()] == [20, 20] and sampler.env is Oscillator


def test_torch_modules_act_in_the_mode_that_eval_asks_for(pools):
    """The documented eval: "Forwarded to PyTorch Module"; the module itself stays as it was."""

    class Told(torch.nn.Module):
        def forward(self, obs):
            return torch.full((1, 1), float(self.training))

    module = Told()
    for count in (1, 2):
        with quiet(Oscillator, module, count, pool=pools[count], min_rollouts=1) as sampler:
            for training, eval in ((True, True), (True, False), (False, True), (False, False)):
                module.train(training)
                assert {a.item() for r in sampler.sample(eval=eval) for a in r.actions} == {float(not eval)}
                assert module.training is training


@pytest.mark.slow
def test_a_pickled_sampler_goes_on_with_workers_of_its_own():
    """specs/sampling.md 0.6: what was configured after construction survives."""
    env = Oscillator()
    env.max_steps = 4
    with quiet(env, gaussian(), 2, min_rollouts=2) as sampler:
        sampler.sample()
        sampler.set_min_count(min_rollouts=3)
        with cloudpickle.loads(cloudpickle.dumps(sampler)) as other:
            assert same(other.sample(), sampler.sample())
            assert other._engine.pool is not sampler._engine.pool and not other.show_progress_bar
        with copy.deepcopy(sampler) as other:
            results = other.sample()
            assert same(results, sampler.sample()) and [len(r) for r in results] == [4, 4, 4]


# -- trouble -------------------------------------------------------------------------------------------------------


def test_workers_that_hang_are_replaced_after_the_timeout(tmp_path):
    class HangsOnce(Oscillator):
        def step(self, action):
            if not os.path.exists(marker):
                open(marker, "w").close()
                time.sleep(600)
            return super().step(action)

    marker = str(tmp_path / "hung")
    options = {"transport": "process", "timeouts": PoolTimeouts(step_s=1.0)}
    with quiet(HangsOnce, push, min_rollouts=4, **options) as sampler:
        rollouts = sampler.sample()
    assert os.path.exists(marker)
    with quiet(HangsOnce, push, min_rollouts=4) as serial:
        assert same(rollouts, serial.sample())


def test_dropped_rollouts_are_replaced_by_the_next():
    def make():
        return Nan(always=False)

    with quiet(make, push, min_rollouts=5, on_invalid="drop") as sampler:
        rollouts = sampler.sample()
        numbers = [r.rollout_info["plan"]["index"] for r in rollouts]
        assert len(rollouts) >= 5 and numbers != list(range(5)) and numbers == sorted(numbers)
        assert all(r.observations[0, 0] <= 0 for r in rollouts)
        sampler.set_min_count(min_steps=23)
        assert [len(r) for r in sampler.sample()] == [5] * 5


@pytest.mark.parametrize(
    ("options", "error", "argument"),
    [
        ({"min_rollouts": None}, ValueError, "give min_rollouts or min_steps"),
        ({"min_rollouts": 0}, ValueError, "min_rollouts"),
        ({"num_workers": 0}, ValueError, "num_workers"),
        ({"num_workers": 1.5}, TypeError, "num_workers"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": "x"}, TypeError, "seed"),
        ({"env": 3}, TypeError, "env"),
        ({"env": "nonsense"}, UnknownNameError, "environment 'nonsense'"),
        ({"policy": 3}, TypeError, "policy"),
    ],
)
def test_bad_arguments_are_refused(options, error, argument):
    required = {"env": Oscillator, "policy": push, "num_workers": 1, "min_rollouts": 1}
    with pytest.raises(error, match=argument):
        ParallelRolloutSampler(**{**required, **options})


@pytest.mark.parametrize(
    ("arguments", "error", "argument"),
    [
        ({"init_states": []}, ValueError, "init_states"),
        ({"init_states": 3}, TypeError, "init_states"),
        ({"init_states": np.ones(2)}, ValueError, "init_states"),
        ({"domain_params": ()}, ValueError, "domain_params"),
        ({"domain_params": {"mass": 1.0}}, TypeError, "domain_params"),
        ({"domain_params": ["mass"]}, TypeError, "params"),
        ({"domain_params": [{"mass": "heavy"}]}, TypeError, "mass"),
        ({"domain_params": [{"weight": 1.0}]}, RolloutError, "Known: mass, stiffness"),
        ({"eval": 1}, TypeError, "eval"),
    ],
)
def test_bad_calls_are_refused(arguments, error, argument):
    with quiet(Oscillator, push, min_rollouts=1) as sampler:
        with pytest.raises(error, match=argument):
            sampler.sample(**arguments)
        assert len(sampler.sample()) == 1


def test_a_shared_pool_is_not_stopped():
    with SamplerPool(1, transport="process") as pool:  # of its own: those of the tests are never stopped
        workers = pool.invoke_all(pids)
        quiet(Oscillator, push, pool=pool, min_rollouts=1).close()
        assert pool.invoke_all(pids) == workers  # a stopped pool would start others


def test_max_steps_ends_rollouts_of_environments_without_a_limit():
    endless = Oscillator(max_steps=10**9)
    sampler = quiet(endless, push, min_rollouts=2, max_steps=7, seed=3)
    assert [len(r) for r in sampler.sample()] == [7, 7]
    assert same(
        sampler.sample(), [rollout(endless, push, max_steps=7, seed=3, sub_seed=1, sub_sub_seed=i) for i in (0, 1)]
    )
    again = cloudpickle.loads(cloudpickle.dumps(sampler))
    assert [r.truncated[-1] for r in again.sample()] == [True, True] and again.max_steps == 7
    assert [len(r) for r in quiet(endless, push, min_steps=20, max_steps=7, seed=3).sample()] == [7, 7, 7]


def test_policies_that_want_them_are_told_the_domain_parameters_of_each_rollout(pools):
    """specs/sampling.md 8.1, step 6: of the innermost environment, also where it is wrapped."""
    env = gymnasium.wrappers.TimeLimit(Oscillator(), 3)
    params = [{"mass": 2.0}, {"mass": 4.0}]
    found = [quiet(env, Controller(), n, min_rollouts=4, seed=5, pool=pools[n]).sample(None, params) for n in (1, 2)]
    assert same(*found)
    assert [float(r.actions[0, 0]) for r in found[0]] == pytest.approx([0.2, 0.4, 0.2, 0.4])
    alone = rollout(env, Controller(), reset_kwargs={"domain_param": params[1]}, seed=5, sub_seed=0, sub_sub_seed=1)
    assert first_difference(alone, found[0][1]) is None
    with RolloutEngine(Oscillator, Controller()) as engine:  # records no extras
        plans = [
            RolloutPlan(seed=(0, 0, 0), env_update=DomainParamUpdate(entry), max_steps=3) for entry in (*params, {})
        ]
        assert [float(r.actions[0, 0]) for r in engine.run(plans)] == pytest.approx([0.2, 0.4, 0.1])


def test_policies_learn_the_parameters_that_a_reset_has_drawn():
    result = rollout(Drawing(), Controller(), max_steps=2, seed=0)
    assert result.rollout_info["domain_param"]["mass"] != NOMINAL["mass"]
    assert float(result.actions[0, 0]) == pytest.approx(result.rollout_info["domain_param"]["mass"] / 10)


class Drawing(Oscillator):
    """Draws its mass at every reset."""

    def reset(self, *, seed=None, options=None):
        out = super().reset(seed=seed, options=options)
        self._params["mass"] = float(self.np_random.uniform(2.0, 3.0))
        return out


def test_environments_without_any_valid_rollout_end_in_an_error():
    with quiet(Nan, push, on_invalid="drop", min_rollouts=3) as sampler:
        with pytest.raises(InvalidValueError, match=r"all \d+ rollouts were dropped"):
            sampler.sample()


def test_a_closed_sampler_says_so():
    sampler = quiet(Oscillator(), push, min_rollouts=1)
    sampler.close()
    for call in (sampler.sample, sampler.reinit):
        with pytest.raises(RuntimeError, match="this ParallelRolloutSampler has been closed"):
            call()


def test_samplers_that_were_collected_leave_no_process():
    sampler = quiet(Oscillator, push, min_rollouts=1, transport="process")
    sampler.sample()
    workers = [status.pid for status in sampler._engine.pool.describe_workers()]
    del sampler
    gc.collect()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


@pytest.mark.parametrize(("bounds", "unit"), [({"min_rollouts": 2}, "rollouts"), ({"min_steps": 30}, "steps")])
def test_the_bar_is_on_the_standard_output_and_only_if_asked_for(bounds, unit, capfd):
    """specs/sampling.md 11: tqdm on stdout with the unit, gone afterwards; nothing without show_progress_bar."""
    with quiet(Oscillator, push, show_progress_bar=True, **bounds) as sampler:
        sampler.sample()
    out, err = capfd.readouterr()
    assert unit in out and not err
    with quiet(Oscillator, push, **bounds) as sampler:
        sampler.sample()
    assert capfd.readouterr() == ("", "")
