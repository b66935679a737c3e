"""What learners of this folder are built from: checked spaces and networks, a buffer, a device."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from metaroll.checks import check_unit_interval
from metaroll.data.replay.replay_buffer import ReplayBuffer
from metaroll.errors import ShapeError
from metaroll.learners.off_policy.base import CollectionOptions
from metaroll.learners.off_policy.networks import Critics
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.encoders import FixedEncoder, ObservationEncoder, holds_images
from metaroll.types import EnvSpec

__all__ = ["buffer_for", "check_policy", "device_of", "encoders_of", "require_box", "require_choices", "weighing"]


def require_box(env_spec: Any, learner: str, choosing: str) -> EnvSpec:
    """The spec, if its actions are a Box.

    Args:
        env_spec: Environment or spec.
        learner: Name of the learner, for the error.
        choosing: What learns choices instead.

    Raises:
        TypeError: They are choices.
    """
    spec = EnvSpec.from_env(env_spec)
    space = spec.action_space
    if not isinstance(space, gymnasium.spaces.Box):
        several = isinstance(space, gymnasium.spaces.MultiDiscrete)
        others = "ppo learns several choices" if several else "a wrapper can turn them into one"
        cure = choosing if isinstance(space, gymnasium.spaces.Discrete) else others
        raise TypeError(f"{learner} learns actions that are a Box of numbers, got {space}: {cure}")
    return spec


def require_choices(env_spec: Any, learner: str, others: str) -> EnvSpec:
    """The spec, if its actions are Discrete.

    Args:
        env_spec: Environment or spec.
        learner: Name of the learner, for the error.
        others: What learns other actions.

    Raises:
        TypeError: They are something else.
    """
    spec = EnvSpec.from_env(env_spec)
    if not isinstance(spec.action_space, gymnasium.spaces.Discrete):
        raise TypeError(f"{learner} learns values of Discrete actions, got {spec.action_space}: {others}")
    return spec


def check_policy(policy: Any, kind: type[ActingPolicy], spec: EnvSpec) -> None:
    """Raise unless ``policy`` is of ``kind``, for the spaces of ``spec``.

    Raises:
        ShapeError: It is for other spaces.
        TypeError: It is of another kind.
    """
    if not isinstance(policy, kind):
        raise TypeError(f"policy must be a {kind.__name__}, got {type(policy).__name__}")
    if (policy.obs_dim, policy.act_dim) != (spec.obs_dim, spec.act_dim):
        raise ShapeError(
            f"policy must be built for the spaces of env_spec ({spec.obs_dim} observations, {spec.act_dim} actions), "
            f"got {policy.obs_dim} and {policy.act_dim}"
        )


def encoders_of(spec: EnvSpec, qf: Any, generator: torch.Generator) -> tuple[nn.Module | None, FixedEncoder | None]:
    """What critics see images through, and what a policy does: the same, which no gradient reaches from there.

    Args:
        spec: Spaces.
        qf: What was given; ``Critics`` have an encoder of their own, or none.
        generator: Source of the initial weights; without images, nothing is drawn.

    Returns:
        Two encoders; ``None``, where observations are taken as they are.
    """
    encoder = qf.encoder if isinstance(qf, Critics) else None
    if qf is None and holds_images(spec.observation_space):
        encoder = ObservationEncoder(spec.observation_space, generator=generator)
    return encoder, None if encoder is None else FixedEncoder(encoder)


def buffer_for(
    spec: EnvSpec,
    given: Any,
    replay_size: int,
    collection: CollectionOptions,
    priority_exponent: float | None = None,
) -> Any:
    """``given``, or a ``ReplayBuffer`` for the rollouts that go on side by side.

    Raises:
        ValueError: Observations are of a kind that no buffer holds.
    """
    if given is not None:
        return given
    num_slots = collection.get("rollout_batch_size", 1)
    options: dict[str, Any] = {"num_slots": num_slots, "priority_exponent": priority_exponent}
    return ReplayBuffer(spec.observation_space, spec.action_space, replay_size, **options)


def weighing(priority_exponent: float | None, importance_exponent: float) -> float | None:
    """``OffPolicyRLAlgorithm.weight_exponent`` of a learner with these arguments.

    Raises:
        ValueError: ``importance_exponent`` lies outside [0, 1].
    """
    check_unit_interval("importance_exponent", importance_exponent)
    return None if priority_exponent is None else importance_exponent


def device_of(device: str | torch.device | None) -> torch.device:
    """``device``; ``None`` means the CPU."""
    return torch.device("cpu" if device is None else device)
