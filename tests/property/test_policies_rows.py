"""A row of a policy's result has the same bits among any other rows, at any place."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.functional.linear import block_rows, matmul_rows
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.exploration import OrnsteinUhlenbeckPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

MAX_ROWS = 40


def _spec(obs_dim: int, act_dim: int) -> EnvSpec:
    box = gymnasium.spaces.Box
    return EnvSpec(box(-1, 1, (obs_dim,)), box(-1, 1, (act_dim,)))


def _context_policy(inner: Any, latent_dim: int) -> ContextConditionedPolicy:
    return ContextConditionedPolicy(latent_dim, MLPEncoder(3, 2 * latent_dim, (4,)), inner, True, False, seed=0)


GEN = torch_generator(7)
DISCRETE = EnvSpec(gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(5))
POLICIES: dict[str, Any] = {
    "gaussian": GaussianMLPPolicy(_spec(11, 3), generator=GEN),
    "gaussian, one action": GaussianMLPPolicy(_spec(3, 1), (20,), generator=GEN),
    "gaussian, wide": GaussianMLPPolicy(_spec(700, 17), (120, 300), "elu", "tanh", generator=GEN),
    "tanh": TanhGaussianMLPPolicy(_spec(20, 6), (300, 300), generator=GEN),
    "tanh, one action": TanhGaussianMLPPolicy(_spec(7, 1), (33, 20), generator=GEN),
    "categorical": CategoricalMLPPolicy(DISCRETE, generator=GEN),
    "gru": GRUGaussianPolicy(_spec(5, 2), 17, generator=GEN),
    "categorical gru": CategoricalGRUPolicy(DISCRETE, 17, generator=GEN),
    "ornstein-uhlenbeck": OrnsteinUhlenbeckPolicy(GaussianMLPPolicy(_spec(11, 3), generator=GEN)),
    "context": _context_policy(TanhGaussianMLPPolicy(_spec(9, 2), (50, 50), generator=GEN), 5),
    "context, gru": _context_policy(GRUGaussianPolicy(_spec(6, 2), 12, generator=GEN), 4),
}


def _inputs(policy: Any, name: str) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(name))
    obs_dim = getattr(policy, "obs_dim", 0)
    noise = rng.random if policy.noise_kind == "uniform" else rng.standard_normal
    state = policy.initial_state([None] * MAX_ROWS, [rng] * MAX_ROWS)
    state = {key: value + rng.random(value.shape, dtype=np.float32) for key, value in state.items()}
    flags = rng.random(MAX_ROWS) < 0.3
    flat = policy.acting_parameters()
    stack = flat + rng.standard_normal((MAX_ROWS, len(flat)), dtype=np.float32) * np.float32(0.1)
    return rng.standard_normal((MAX_ROWS, obs_dim)), state, noise((MAX_ROWS, policy.noise_dim)), flags, stack


INPUTS = {name: _inputs(policy, name) for name, policy in POLICIES.items()}


def _act(name: str, rows: np.ndarray, stacked: bool, own: bool = True) -> list[np.ndarray]:
    policy = POLICIES[name]
    obs, state, noise, flags, stack = INPUTS[name]
    chosen = {key: value[rows] for key, value in state.items()}
    parameters = stack[rows] if stacked else None if own else policy.acting_parameters()
    action, next_state, info = policy.act(obs[rows], chosen, noise[rows], flags[rows], parameters)
    results = [action, *(next_state[key] for key in sorted(next_state)), *(info[key] for key in sorted(info))]
    assert all(len(result) == len(rows) for result in results)
    return results


@pytest.mark.parametrize("stacked", [False, True], ids=["shared", "stacked"])
@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=12)
@given(data=st.data())
def test_rows_are_independent_of_their_number_and_place(name: str, stacked: bool, data: st.DataObject):
    num_rows = data.draw(st.integers(1, MAX_ROWS))
    rows = np.array(data.draw(st.permutations(range(MAX_ROWS)))[:num_rows])
    everything = _act(name, np.arange(MAX_ROWS), stacked)
    for part, whole in zip(_act(name, rows, stacked), everything, strict=True):
        np.testing.assert_array_equal(part, whole[rows])


@pytest.mark.parametrize("name", list(POLICIES))
def test_flat_parameters_give_the_bits_of_the_live_module(name: str):
    rows = np.arange(13)
    for flat, live in zip(_act(name, rows, False, own=False), _act(name, rows, False), strict=True):
        np.testing.assert_array_equal(flat, live)


@pytest.mark.parametrize("name", list(POLICIES))
def test_equal_stacked_parameters_agree_with_shared_ones(name: str):
    policy = POLICIES[name]
    obs, state, noise, _, _ = INPUTS[name]
    flat = policy.acting_parameters()
    shared = policy.act(obs, state, noise, True, flat)
    stacked = policy.act(obs, state, noise, True, np.stack([flat] * MAX_ROWS))
    np.testing.assert_allclose(stacked[0], shared[0], rtol=1e-4, atol=1e-5)


@given(
    num_in=st.integers(1, 40),
    num_out=st.integers(1, 40),
    num_rows=st.integers(1, 20),
    stacked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_product_of_one_row_is_the_row_of_the_product(
    num_in: int, num_out: int, num_rows: int, stacked: bool, seed: int
):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, num_in), dtype=np.float32)
    leading = (num_rows,) if stacked else ()
    weight = rng.standard_normal((*leading, num_out, num_in), dtype=np.float32)

    def product(rows: slice) -> np.ndarray:
        if stacked:
            return matmul_rows(x[rows, None], weight[rows].swapaxes(1, 2))[:, 0]
        return matmul_rows(block_rows(x[rows]), weight.T).reshape(-1, num_out)

    whole = product(slice(None))
    for n in range(num_rows):
        np.testing.assert_array_equal(product(slice(n, n + 1))[0], whole[n])
