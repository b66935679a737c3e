"""Plans with policy parameters of their own: same bits as with shared parameters, whatever shares the batch."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.data.compare import first_difference
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import ShapeError
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.parameter_blocks import ParameterBlocks
from metaroll.types import EnvSpec, RolloutPlan

SPEC = EnvSpec.from_env(PointRobotEnv())
CHOICES = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
POLICIES = {
    "gaussian": lambda: GaussianMLPPolicy(SPEC, (12,), generator=torch.Generator().manual_seed(0)),
    "small": lambda: GaussianMLPPolicy(SPEC, (4,), generator=torch.Generator().manual_seed(0)),
    "linear": lambda: CategoricalMLPPolicy(CHOICES, (), generator=torch.Generator().manual_seed(0)),
    "normalized": lambda: NormalizedPolicy(GaussianMLPPolicy(SPEC, (), generator=torch.Generator().manual_seed(0))),
    "tanh": lambda: TanhGaussianMLPPolicy(SPEC, (12,), generator=torch.Generator().manual_seed(0)),
    "gru": lambda: GRUGaussianPolicy(SPEC, 6, generator=torch.Generator().manual_seed(0)),
    "categorical gru": lambda: CategoricalGRUPolicy(CHOICES, 6, generator=torch.Generator().manual_seed(0)),
}


@pytest.mark.parametrize("slots", [None, 3, 8])
@pytest.mark.parametrize("name", POLICIES)
def test_own_parameters_give_the_bits_of_shared_ones(name, slots):
    policy = POLICIES[name]()
    flat = policy.acting_parameters()
    noise = np.random.default_rng(0).normal(size=(7, flat.size)).astype(np.float32)
    sets = list(flat + np.float32(0.1) * noise)
    # 1 to 10 plans per set, of different lengths, so that slots are refilled and blocks sorted anew
    which = [0] * 10 + [1] * 8 + [2] * 3 + [3, 4, 5, 6, 3]
    plans = [RolloutPlan(i, (0, 0, i), parameters=sets[k], max_steps=3 + 5 * i % 11) for i, k in enumerate(which)]
    env = PointRobotEnv if policy.env_spec == SPEC else "CartPole-v1"
    with RolloutEngine(env, policy, slots_per_unit=slots) as engine:
        together = engine.run(plans)
        for plan, found in zip(plans, together, strict=True):
            alone = engine.run([plan.with_(parameters=None)], plan.parameters)[0]
            assert first_difference(found, alone) is None


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", POLICIES)
def test_rewards_alone_are_those_of_whole_rollouts(name, deterministic):
    policy = POLICIES[name]()
    flat = policy.acting_parameters()
    sets = list(flat + np.random.default_rng(0).normal(size=(3, flat.size)).astype(np.float32))
    plans = [
        RolloutPlan(i, (0, 0, i), parameters=sets[i % 3], deterministic=deterministic, max_steps=20 + i)
        for i in range(40)
    ]
    env = PointRobotEnv if policy.env_spec == SPEC else "CartPole-v1"
    with RolloutEngine(env, policy, record_extras=True) as engine:
        whole, lean = engine.run(plans), engine.run(plans, fields=("rewards",))
    np.testing.assert_array_equal(lean.rewards, whole.rewards)
    np.testing.assert_array_equal(lean.lengths, whole.lengths)
    np.testing.assert_array_equal(lean.returns, whole.returns)
    assert set(lean.parts[0].fields) == {"rewards"} and len(set(whole.lengths)) > 1
    with pytest.raises(KeyError, match="observations"):
        lean.column("observations")


def test_an_act_of_ones_own_is_what_acts_without_infos():
    class Backwards(CategoricalMLPPolicy):
        def act(self, obs, state, noise, deterministic=False, parameters=None):
            action, state, infos = super().act(obs, state, noise, deterministic, parameters)
            return 1 - action, state, infos

    policy = Backwards(CHOICES, (), generator=torch.Generator().manual_seed(0))
    plans = [RolloutPlan(i, (0, 0, i), deterministic=True) for i in range(4)]
    with RolloutEngine("CartPole-v1", policy) as engine:
        np.testing.assert_array_equal(engine.run(plans, fields=("rewards",)).lengths, engine.run(plans).lengths)


def test_rows_are_sorted_into_blocks_of_one_set():
    blocks = ParameterBlocks(16)
    first, second = np.zeros(2, np.float32), np.ones(2, np.float32)
    blocks.start(range(11), [second if slot % 2 else first for slot in range(11)])
    active = np.arange(16) < 11
    blocks.arrange(active)
    assert blocks.sets.tolist() == [[0, 0], [1, 1]]
    assert blocks.source is not None and blocks.source.tolist() == [0, 2, 4, 6, 8, 10, 0, 0, 1, 3, 5, 7, 9, 1, 1, 1]
    assert blocks.place[:11].tolist() == [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5]
    blocks.arrange(np.arange(16) == 3)  # when half have come to their end, they are left out
    assert blocks.sets.tolist() == [[1, 1]] and blocks.source.tolist() == [3] * 8
    full = ParameterBlocks(16)
    full.start(range(16), [first if slot < 8 else second for slot in range(16)])
    full.arrange(np.ones(16, dtype=bool))
    assert full.source is None  # nothing to be sorted


def test_parameters_of_the_wrong_shape_are_refused():
    policy = POLICIES["gaussian"]()
    flat = policy.acting_parameters()
    with RolloutEngine(PointRobotEnv, policy) as engine:
        for wrong, text in [(flat[:-1], r"got \(\d+,\)"), (flat[None], r"got \(1, \d+\)")]:
            with pytest.raises(ShapeError, match=r"parameters of plan 0 must be flat \(P,\), here .*" + text):
                engine.run([RolloutPlan(parameters=wrong)])
