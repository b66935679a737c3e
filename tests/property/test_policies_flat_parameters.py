"""Flat vectors and modules are two forms of one thing."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaroll.functional.distributions import product_of_gaussians
from metaroll.policies.networks import MLP
from metaroll.policies.parameters import ParameterLayout
from metaroll.seeding import torch_generator


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_set_then_get_is_the_identity(sizes: list[int], seed: int):
    module = MLP(sizes[0], sizes[-1], sizes[1:-1], generator=torch_generator(0))
    flat = np.random.default_rng(seed).standard_normal(len(module.get_param_values())).astype(np.float32)
    module.set_param_values(flat)
    np.testing.assert_array_equal(module.get_param_values(), flat)


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4), num=st.integers(1, 3))
def test_numpy_and_torch_views_hold_the_same_numbers(sizes: list[int], num: int):
    layout = ParameterLayout.of(MLP(sizes[0], sizes[-1], sizes[1:-1], generator=torch_generator(0)))
    stack = np.arange(num * layout.size, dtype=np.float32).reshape(num, -1)
    torch_views = layout.torch_views(torch.from_numpy(stack))
    for name, view in zip(layout.names, layout.numpy_views(stack), strict=True):
        assert np.shares_memory(view, stack)
        np.testing.assert_array_equal(view, torch_views[name].numpy())


@given(order=st.permutations(range(6)), seed=st.integers(0, 99))
def test_the_posterior_does_not_depend_on_the_order_of_the_context(order: list[int], seed: int):
    """specs/meta.md 4.3"""
    generator = torch_generator(seed)
    mean, var = torch.randn(6, 3, generator=generator), torch.rand(6, 3, generator=generator)
    for shuffled, plain in zip(
        product_of_gaussians(mean[order], var[order]), product_of_gaussians(mean, var), strict=True
    ):
        torch.testing.assert_close(shuffled, plain)
