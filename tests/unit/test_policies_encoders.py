"""Encoders of images and Dict observations, and policies that act through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces

from metaroll import RolloutEngine, RolloutPlan
from metaroll.data.space_batches import flatten_batch
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.errors import ShapeError
from metaroll.policies.encoders import ImageEncoder, ObservationEncoder, is_image
from metaroll.policies.exploration import GaussianNoisePolicy, OrnsteinUhlenbeckPolicy, UniformFirstPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

IMAGE = spaces.Box(0, 255, (64, 64, 3), np.uint8)
PLANE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
POLICIES = (DeterministicMLPPolicy, TanhGaussianMLPPolicy)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(count, 64, 64, 3), dtype=np.uint8)


def policy_of(kind: Any, space: spaces.Space = IMAGE, seed: int = 0) -> Any:
    generator = torch_generator(seed)
    encoder = ObservationEncoder(space, 16, (4, 8, 8), generator=generator)
    spec = EnvSpec(space, spaces.Box(-2.0, 2.0, (2,), np.float32))
    return kind(spec, (8,), encoder=encoder, generator=generator)


def test_convolutions_are_those_of_torch_on_scaled_pixels() -> None:
    encoder = ImageEncoder(IMAGE, 5, (2, 3, 4), generator=torch_generator(1))
    seen = images(3)
    x = torch.from_numpy(seen).permute(0, 3, 1, 2).float() / 255 - 0.5
    for layer, stride in zip(encoder.convolutions, (4, 2, 1), strict=True):
        x = F.relu(F.conv2d(x, layer.weight, layer.bias, stride))
    assert x.shape == (3, 4, 4, 4)
    x = x.flatten(1) @ encoder.layer.weight.T + encoder.layer.bias
    expected = torch.tanh((x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, correction=0) + 1e-5))
    flat = torch.from_numpy(seen.reshape(3, -1))
    torch.testing.assert_close(encoder(flat), expected)
    torch.testing.assert_close(encoder(flat.float().reshape(3, 1, -1)), expected[:, None])
    first = spaces.Box(0, 255, (3, 64, 64), np.uint8)
    other = ImageEncoder(first, 5, (2, 3, 4), generator=torch_generator(1))
    torch.testing.assert_close(other(torch.from_numpy(seen.transpose(0, 3, 1, 2).reshape(3, -1).copy())), expected)
    gray = ImageEncoder(spaces.Box(0, 255, (40, 36), np.uint8), 5, generator=torch_generator(1))
    assert gray(torch.zeros(2, 1440)).shape == (2, 5)


def test_weights_come_from_the_generator() -> None:
    flat = [
        torch.cat([p.detach().reshape(-1) for p in ImageEncoder(IMAGE, generator=torch_generator(seed)).parameters()])
        for seed in (0, 0, 1)
    ]
    assert torch.equal(flat[0], flat[1]) and not torch.equal(flat[0], flat[2])
    weight = ImageEncoder(IMAGE, 8, (4, 4, 4), generator=torch_generator(0)).convolutions[0].weight.detach().flatten(1)
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(4))  # orthogonal, of length sqrt(2)


def test_parts_of_a_dict_are_put_side_by_side() -> None:
    space = spaces.Dict({"a": PLANE, "b": IMAGE, "c": spaces.Tuple([spaces.Discrete(3), PLANE])})
    encoder = ObservationEncoder(space, 6, generator=torch_generator(0))
    assert (encoder.input_dim, encoder.output_dim) == (2 + 64 * 64 * 3 + 3 + 2, 2 + 6 + 3 + 2)
    a, b, c = np.float32([[1, 2], [3, 4]]), images(2), (np.array([0, 2]), np.float32([[5, 6], [7, 8]]))
    rows = torch.from_numpy(flatten_batch(space, {"a": a, "b": b, "c": c}))
    features = encoder(rows)
    assert features[:, :2].tolist() == a.tolist()
    torch.testing.assert_close(features[:, 2:8], encoder.images["1"](torch.from_numpy(b.reshape(2, -1))))
    assert features[:, 8:].tolist() == [[1, 0, 0, 5, 6], [0, 0, 1, 7, 8]]
    plain = ObservationEncoder(spaces.Dict({"x": PLANE, "y": PLANE}))
    assert plain.output_dim == 4 and list(plain.parameters()) == []
    assert plain(torch.arange(8.0).reshape(2, 4)).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_bad_input() -> None:
    assert is_image(IMAGE) and not is_image(PLANE) and not is_image(spaces.Box(0, 1, (64, 64, 3), np.float32))
    with pytest.raises(ValueError, match="space must"):
        ImageEncoder(PLANE)
    with pytest.raises(ValueError, match="at least 36 pixels along each side, got shape"):
        ImageEncoder(spaces.Box(0, 255, (64, 32, 3), np.uint8))
    with pytest.raises(ValueError, match="filters must"):
        ImageEncoder(IMAGE, filters=(3, 3))
    with pytest.raises(ValueError, match="space must"):
        ObservationEncoder(spaces.Text(3))
    with pytest.raises(ShapeError, match="observations must"):
        ObservationEncoder(spaces.Dict({"x": PLANE, "y": PLANE}))(torch.zeros(2, 3))


@pytest.mark.parametrize("kind", POLICIES)
def test_policies_act_as_their_modules_say(kind: Any) -> None:
    policy, other = policy_of(kind), policy_of(kind, seed=1)
    seen = images(9).reshape(9, -1)
    noise = np.zeros((9, policy.noise_dim), np.float32)
    for one, parameters in ((policy, None), (other, policy.acting_parameters())):
        actions, _, _ = one.act(seen, {}, noise, True, parameters)
        with torch.no_grad():
            out = policy.net(policy.encoder(torch.from_numpy(seen)))[:, :2]
        np.testing.assert_allclose(actions, 2 * (torch.tanh(out) if kind is POLICIES[1] else out), atol=1e-6)
    assert not (policy.info.width_independent or policy.width_independent)
    assert policy.acting_parameters().size == policy.get_param_values().size
    sets = [one.acting_parameters() for one in (policy, other)]
    by_set = [policy.act(seen, {}, noise, True, flat)[0] for flat in sets]
    which = np.arange(9) % 3 == 0
    stacked = policy.act(seen, {}, noise, True, np.where(which[:, None], *sets))[0]
    np.testing.assert_allclose(stacked, np.where(which[:, None], *by_set), atol=1e-6)
    # The flat vector is followed when it is changed in place, encoder included.
    flat = policy.acting_parameters()
    before = policy.act(seen, {}, noise, True, flat)[0]
    flat[:100] += 1.0
    assert not np.array_equal(before, policy.act(seen, {}, noise, True, flat)[0])
    policy.act_on_torch(torch.from_numpy(seen), {}, torch.from_numpy(noise), True)


def test_choices_are_those_of_the_features() -> None:
    spec, encoder = EnvSpec(IMAGE, spaces.Discrete(3)), ObservationEncoder(IMAGE, 16, (4, 8, 8))
    policy = CategoricalMLPPolicy(spec, (8,), encoder=encoder, generator=torch_generator(0))
    rows = images(5).reshape(5, -1)
    seen = torch.from_numpy(rows)
    with torch.no_grad():
        expected = torch.log_softmax(policy.net(encoder(seen)), dim=-1)
    torch.testing.assert_close(policy(seen).detach(), expected)
    _, _, infos = policy.act(rows, {}, np.full((5, 1), 0.5), False, policy.acting_parameters())
    np.testing.assert_allclose(infos["prob"], expected.exp().numpy(), atol=1e-6)
    _, _, infos = policy.act_on_torch(seen, {}, torch.full((5, 1), 0.5))
    torch.testing.assert_close(infos["prob"].detach(), expected.exp())
    views = policy.parameter_layout().torch_views(torch.from_numpy(policy.acting_parameters()))
    torch.testing.assert_close(policy.action_distribution(views, seen).log_probs, expected)


def test_the_density_is_that_of_the_features() -> None:
    policy, seen = policy_of(TanhGaussianMLPPolicy), torch.from_numpy(images(3).reshape(3, -1))
    flat = torch.from_numpy(policy.acting_parameters())
    found = policy.action_distribution(policy.parameter_layout().torch_views(flat), seen)
    actions = policy(seen, noise=torch.ones(3, 2)).action.detach()
    torch.testing.assert_close(found.log_prob(actions), policy.log_prob(seen, actions))


def test_rollouts_do_not_show_how_many_ran_together() -> None:
    policy = policy_of(DeterministicMLPPolicy)
    spec = EnvSpec.from_env(PointRobotPixelsEnv())
    acting = UniformFirstPolicy(GaussianNoisePolicy(policy_of(TanhGaussianMLPPolicy)))
    assert not acting.info.width_independent and not OrnsteinUhlenbeckPolicy(policy).info.width_independent
    policy = GaussianNoisePolicy(
        DeterministicMLPPolicy(spec, (8,), encoder=ObservationEncoder(IMAGE, 16, generator=torch_generator(0)))
    )
    plans = [RolloutPlan(i, (3, 0, i), max_steps=4) for i in range(11)]
    with RolloutEngine("point-robot-pixels", policy) as engine:
        together, alone = engine.run(plans), [engine.run([plan])[0] for plan in plans]
    for a, b in zip(together, alone, strict=True):
        assert a.actions.tobytes() == b.actions.tobytes() and a.observations.tobytes() == b.observations.tobytes()
