"""Initialization, shapes and re-initialization of networks; flat parameters."""

import copy
import math

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.policies.networks import MLP, ContinuousMLPQFunction, MLPEncoder, QFunction, activation_name
from metaroll.policies.parameters import ParameterLayout
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec, InOutSpec

BOX = gymnasium.spaces.Box
SPEC = EnvSpec(BOX(-1, 1, (4,)), BOX(-1, 1, (2,)))


def test_xavier_uniform_bounds_and_zero_bias():
    net = MLP(30, 4, (50,), output_heads=2, generator=torch_generator(0))
    # sqrt(6 / (30 + 50)) = 0.2739; the output layer has two heads of 2: sqrt(6 / (50 + 2)) = 0.3397.
    for layer, bound in zip(net.layers, (math.sqrt(6 / 80), math.sqrt(6 / 52)), strict=True):
        largest = layer.weight.abs().max().item()
        assert 0.9 * bound < largest <= bound
        assert not layer.bias.any()


def test_oyster_initialization():
    """specs/meta.md 6.2: hidden bias 0.1, last layer within 3e-3; hidden weights within 1 / sqrt(50) = 0.1414."""
    net = MLP(30, 4, (50,), init="oyster", generator=torch_generator(0))
    hidden, last = net.layers
    assert 0.9 / math.sqrt(50) < hidden.weight.abs().max().item() <= 1 / math.sqrt(50)
    assert (hidden.bias == 0.1).all()
    assert 2e-3 < last.weight.abs().max().item() <= 3e-3
    assert 0 < last.bias.abs().max().item() <= 3e-3


def test_reinitialize_draws_new_weights_in_place():
    """specs/meta.md Q-33: a copied Q function must get weights of its own."""
    first = QFunction(SPEC, (16,), generator=torch_generator(0))
    second = copy.deepcopy(first)
    owned = list(second.parameters())
    second.reinitialize(torch_generator(1))
    assert all(a is b for a, b in zip(second.parameters(), owned, strict=True))
    assert all(not torch.equal(a.weight, b.weight) for a, b in zip(first.layers, second.layers, strict=True))
    second.reinitialize(torch_generator(0))
    np.testing.assert_array_equal(second.get_param_values(), first.get_param_values())


def test_q_function_concatenates():
    """specs/meta.md 4.2: qf(cat(obs, act), z) and qf(obs, act) read the same order."""
    qf = ContinuousMLPQFunction(SPEC, hidden_sizes=(16,), generator=torch_generator(0))
    obs, act = torch.randn(5, 4, generator=torch_generator(1)), torch.randn(5, 2, generator=torch_generator(2))
    assert qf(obs, act).shape == (5, 1)
    torch.testing.assert_close(qf(torch.cat((obs[:, :3],), 1), torch.cat((obs[:, 3:], act), 1)), qf(obs, act))
    with pytest.raises(ShapeError, match="6 numbers"):
        qf(obs, obs)


def test_encoder_takes_widths_or_a_spec():
    encoder = MLPEncoder(input_dim=7, output_dim=10, hidden_sizes=(8,), generator=torch_generator(0))
    from_spec = MLPEncoder(
        InOutSpec(BOX(-1, 1, (7,)), BOX(-1, 1, (10,))), hidden_sizes=(8,), generator=torch_generator(0)
    )
    assert (from_spec.input_dim, from_spec.output_dim) == (encoder.input_dim, encoder.output_dim) == (7, 10)
    np.testing.assert_array_equal(from_spec.get_param_values(), encoder.get_param_values())
    before = encoder.get_param_values()
    encoder.reset()
    np.testing.assert_array_equal(encoder.get_param_values(), before)
    with pytest.raises(TypeError, match="output_dim"):
        MLPEncoder(7)


def test_activations_are_known_by_name_function_or_class():
    assert activation_name(torch.tanh) == activation_name(torch.nn.Tanh) == activation_name("Tanh") == "tanh"
    assert activation_name(torch.nn.ReLU()) == activation_name(torch.nn.functional.relu) == "relu"
    assert activation_name(None) == "identity"
    with pytest.raises(UnknownNameError, match="did you mean 'tanh'"):
        MLP(2, 2, hidden_nonlinearity="tanhh")


def test_bad_sizes_and_inits_are_named():
    with pytest.raises(ValueError, match="at least 1"):
        MLP(2, 2, (0,))
    with pytest.raises(UnknownNameError, match="xavier_uniform"):
        MLP(2, 2, init="xavier")


def test_flat_order_is_that_of_named_parameters():
    net = MLP(2, 1, (), generator=torch_generator(0))
    net.set_param_values(np.array([1.0, 2.0, 3.0]))
    # One layer: weight (1, 2), then bias (1,). 1 * 10 + 2 * 100 + 3 = 213.
    assert net(torch.tensor([10.0, 100.0])).item() == 213.0
    layout = ParameterLayout.of(net, ["layers.0.bias"])
    np.testing.assert_array_equal(layout.flatten(net), [3.0])
    layout.assign(net, np.array([0.0]))
    assert net(torch.tensor([10.0, 100.0])).item() == 210.0
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        net.set_param_values(np.zeros(4))
    with pytest.raises(ValueError, match=r"layers\.1\.bias"):
        ParameterLayout.of(net, ["layers.1.bias"])
