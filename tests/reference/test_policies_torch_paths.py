"""The NumPy acting path against the torch modules, and the GRU against torch.nn.GRUCell."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.functional.linear import block_rows, matmul_rows
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUCell, GRUGaussianPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

BOX = gymnasium.spaces.Box
SPEC = EnvSpec(BOX(-1, 1, (5,)), BOX(-1, 1, (3,)))
CLOSE: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-6}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "sigmoid"])
@pytest.mark.parametrize("policy_class", [GaussianMLPPolicy, TanhGaussianMLPPolicy])
def test_numpy_acting_equals_torch_forward(policy_class: Any, activation: str, rng: np.random.Generator):
    policy = policy_class(SPEC, (32, 16), activation, generator=torch_generator(1))
    obs = rng.standard_normal((11, 5)).astype(np.float32)
    noise = rng.standard_normal((11, 3)).astype(np.float32)
    action, _, info = policy.act(obs, {}, noise)
    sample = policy(torch.from_numpy(obs), noise=torch.from_numpy(noise))
    np.testing.assert_allclose(action, sample.action.detach().numpy(), **CLOSE)
    np.testing.assert_allclose(info["log_std"], sample.log_std.detach().numpy(), **CLOSE)


def test_categorical_probabilities_equal_torch(rng: np.random.Generator):
    spec = EnvSpec(BOX(-1, 1, (5,)), gymnasium.spaces.Discrete(4))
    policy = CategoricalMLPPolicy(spec, generator=torch_generator(1))
    obs = rng.standard_normal((11, 5)).astype(np.float32)
    _, _, info = policy.act(obs, {}, rng.random((11, 1)))
    np.testing.assert_allclose(info["prob"], policy(torch.from_numpy(obs)).exp().detach().numpy(), **CLOSE)


def test_gru_cell_equals_torch(rng: np.random.Generator):
    own = GRUCell(5, 7, init="xavier_uniform", generator=torch_generator(0))
    reference = torch.nn.utils.skip_init(torch.nn.GRUCell, 5, 7)
    with torch.no_grad():
        own.hidden_map.bias += 0.3  # it acts within the reset gate, so it must not be lumped with the other bias
        reference.weight_ih.copy_(own.input_map.weight)
        reference.weight_hh.copy_(own.hidden_map.weight)
        reference.bias_ih.copy_(own.input_map.bias)
        reference.bias_hh.copy_(own.hidden_map.bias)
    x = torch.from_numpy(rng.standard_normal((4, 5)).astype(np.float32))
    h = torch.from_numpy(rng.standard_normal((4, 7)).astype(np.float32))
    torch.testing.assert_close(own(x, h), reference(x, h))


def test_gru_policy_acts_as_its_torch_forward_over_a_sequence(rng: np.random.Generator):
    policy = GRUGaussianPolicy(SPEC, hidden_size=9, generator=torch_generator(2))
    obs = rng.standard_normal((3, 6, 5)).astype(np.float32)
    out = policy(torch.from_numpy(obs))
    state = policy.initial_state([None] * 3, [rng] * 3)
    for t in range(6):
        action, state, _ = policy.act(obs[:, t], state, np.zeros((3, 3)), True)
        np.testing.assert_allclose(action, out.mean[:, t].detach().numpy(), **CLOSE)
    np.testing.assert_allclose(state["hidden"], out.hidden.detach().numpy(), **CLOSE)


def test_categorical_gru_acts_as_its_torch_forward_over_a_sequence(rng: np.random.Generator):
    spec = EnvSpec(gymnasium.spaces.Box(-1, 1, (5,)), gymnasium.spaces.Discrete(4))
    policy = CategoricalGRUPolicy(spec, hidden_size=9, generator=torch_generator(2))
    obs = rng.standard_normal((3, 6, 5)).astype(np.float32)
    out = policy(torch.from_numpy(obs))
    state = policy.initial_state([None] * 3, [rng] * 3)
    for t in range(6):
        action, state, info = policy.act(obs[:, t], state, np.zeros((3, 1)), True)
        np.testing.assert_allclose(info["prob"], out.log_probs[:, t].detach().exp().numpy(), **CLOSE)
        np.testing.assert_array_equal(action, out.log_probs[:, t].argmax(dim=-1).numpy())
    np.testing.assert_allclose(state["hidden"], out.hidden.detach().numpy(), **CLOSE)


def test_stacked_parameters_under_vmap_equal_one_by_one_and_numpy(rng: np.random.Generator):
    """The same stack (N, P) drives torch.func.vmap and the NumPy path."""
    policy = GRUGaussianPolicy(SPEC, hidden_size=9, generator=torch_generator(2))
    layout = policy.parameter_layout()
    stack = policy.acting_parameters() + 0.1 * rng.standard_normal((4, layout.size)).astype(np.float32)
    obs = rng.standard_normal((4, 6, 5)).astype(np.float32)

    def mean_of(parameters: dict[str, torch.Tensor], sequence: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(policy, parameters, (sequence,)).mean

    views = layout.torch_views(torch.from_numpy(stack))
    together = torch.func.vmap(mean_of)(views, torch.from_numpy(obs))
    for n in range(4):
        single = mean_of(layout.torch_views(torch.from_numpy(stack[n])), torch.from_numpy(obs[n]))
        torch.testing.assert_close(together[n], single)
    state = policy.initial_state([None] * 4, [rng] * 4)
    for t in range(6):
        action, state, _ = policy.act(obs[:, t], state, np.zeros((4, 3)), True, stack)
        np.testing.assert_allclose(action, together[:, t].detach().numpy(), **CLOSE)


def test_context_policy_acts_as_the_inner_policy_on_obs_and_z(rng: np.random.Generator):
    inner = TanhGaussianMLPPolicy(SPEC, (16,), generator=torch_generator(0))
    policy = ContextConditionedPolicy(2, MLPEncoder(7, 4, (8,)), inner, True, False, seed=0)
    obs, z = rng.standard_normal((4, 3)), rng.standard_normal((4, 2)).astype(np.float32)
    noise = rng.standard_normal((4, 3)).astype(np.float32)
    action, _, _ = policy.act(obs, {"z": z}, noise)
    rows = torch.from_numpy(np.concatenate([obs.astype(np.float32), z], axis=1))
    expected = inner(rows, noise=torch.from_numpy(noise)).action.detach().numpy()
    np.testing.assert_allclose(action, expected, **CLOSE)


@pytest.mark.parametrize("shape", [(3, 2), (300, 300), (700, 130), (5, 1), (400, 1)])
def test_products_of_rows_equal_float64(shape: tuple[int, int], rng: np.random.Generator):
    num_in, num_out = shape
    x, weight, bias = rng.standard_normal((13, num_in)), rng.standard_normal((num_out, num_in)), rng.random(num_out)
    expected = x @ weight.T + bias
    shared = matmul_rows(block_rows(x), weight.T).reshape(-1, num_out)[:13]
    np.testing.assert_allclose(shared + bias, expected, atol=1e-10)
    stacked = matmul_rows(x[:, None], np.stack([weight.T] * 13))[:, 0]
    np.testing.assert_allclose(stacked + bias, expected, atol=1e-10)
