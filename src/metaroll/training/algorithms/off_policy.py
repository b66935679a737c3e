"""Rows of off-policy learners: their networks and replay buffers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from metaroll.checks import described
from metaroll.config import parts_of
from metaroll.configs.algorithms import Domains, GoalReplay, ReluNetworks, Replay
from metaroll.configs.table import CONFIGS
from metaroll.data.replay.replay_buffer import ReplayBuffer
from metaroll.data.replay.streams import check_observations
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import option_name
from metaroll.learners.off_policy.base import OffPolicyLearner
from metaroll.learners.off_policy.choosing import DQN
from metaroll.learners.off_policy.configs import OffPolicyConfig, PrioritiesConfig
from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.soft import SAC
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.encoders import encoders_of, holds_images, holds_small_images
from metaroll.policies.gaussian import CategoricalMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.networks import Critics
from metaroll.tasks.updates import layer_with
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.plugin_lookup import load_row
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS", "Networks", "actor_and_critics", "network_options", "off_policy_row"]

Networks = tuple[ActingPolicy | None, torch.nn.Module | None]
"""A policy and its Q function; with ``None`` the learner makes its own, or raises an error about the spaces."""
MakesNetworks = Callable[[EnvSpec, BuildOptions], Networks]
Kind = type[OffPolicyLearner[Any]]


def _build(
    learner: Kind,
    networks: MakesNetworks,
    choosing: str,
    given: BuildOptions,
    train: Any,
    test: Sequence[EnvUpdate],
) -> OffPolicyLearner[Any]:
    spec = given.env.spec
    if choosing and building.is_discrete(spec):
        return load_row(choosing).build(given, train, test)
    check_observations(spec.observation_space)
    config = parts_of(learner.config_class, given.values)
    made = networks(spec, given)
    if not (isinstance(made, tuple) and len(made) == 2):
        raise TypeError(f"networks must return a policy and a Q function, e.g. (None, None), got {described(made)}")
    policy, qf = made
    return learner(
        spec,
        config,
        policy=policy,
        qf=qf,
        replay_buffer=_buffer(given, spec, config),
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
    )


def _buffer(given: BuildOptions, spec: EnvSpec, config: OffPolicyConfig) -> ReplayBuffer:
    """The replay buffer; if the length of training is known, not larger than it will be filled."""
    hindsight = given.values.get("hindsight_ratio", 0.0)
    reward, ends = _goal_functions(given.env) if hindsight else (None, None)
    planned = None if given.epochs is None else given.epochs * _work(given.values).epoch_steps
    return ReplayBuffer(
        spec.observation_space,
        spec.action_space,
        config.replay_size,
        num_slots=config.num_envs,
        planned_steps=planned,
        memory_limit=parts_of(Replay, given.values).memory_limit,
        priority_exponent=config.priority_exponent if isinstance(config, PrioritiesConfig) else None,
        compute_reward=reward,
        hindsight_ratio=hindsight,
        compute_terminated=ends,
    )


def _work(values: Values) -> Work:
    updates = values["cycles_per_epoch"] * values["gradient_steps"]
    return Work(0, max(1, round(updates / values["update_to_data"])), updates)


def _batch_size(values: Values) -> int:
    return values["batch_size"]


def _amount(algo: OffPolicyLearner[Any], values: Values) -> str:
    return f"updates from step {algo.config.warmup_steps:,} on"


def network_options(given: BuildOptions) -> tuple[tuple[int, ...], str, dict[str, Any]]:
    """Hidden layers of networks, their activation, and the arguments for their initial weights."""
    activation = parts_of(ReluNetworks, given.values).hidden_nonlinearity
    return given.hidden_sizes, activation, {"init": given.init, "generator": building.network_generator(given)}


def actor_and_critics(
    policy: type[DeterministicMLPPolicy | TanhGaussianMLPPolicy | CategoricalMLPPolicy],
    num_critics: int,
    spec: EnvSpec,
    given: BuildOptions,
    num_atoms: int | None = None,
) -> Networks:
    """A policy and critics according to the options; ``None`` for both if ``policy`` does not fit the action space.

    Args:
        policy: Class of the policy.
        num_critics: Number of critics.
        spec: The spaces.
        given: Hidden layers, their activation and initialization.
        num_atoms: Number of outputs of each critic; ``None`` means one value.
    """
    if not (building.is_discrete(spec) if policy is CategoricalMLPPolicy else building.is_continuous(spec)):
        return None, None  # the learner raises the error
    sizes, activation, options = network_options(given)
    body = building.own_body(spec, given, options["generator"])
    if body is not None and holds_small_images(spec.observation_space):
        critics_see, policy_sees = building.own_body(spec, given, options["generator"]), body
    else:
        critics_see, policy_sees = encoders_of(spec, None, options["generator"])
    widths = sizes if body is None else ()
    acting = policy(spec, widths, activation, encoder=policy_sees if body is None else body, **options)
    critics = Critics(spec, num_critics, sizes, activation, num_atoms=num_atoms, encoder=critics_see, **options)
    return acting, critics


def _goal_functions(env: EnvSource) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """The goal functions of an environment: rewards and, if it has them (as Gymnasium-Robotics), endings."""
    with contextlib.closing(env.make()) as made:
        layer, ends = layer_with(made, "compute_reward"), layer_with(made, "compute_terminated")
    if layer is None:
        raise ValueError(
            f"{option_name('hindsight_ratio')} is for environments with compute_reward(achieved_goal, desired_goal, "
            f"info), which {env} has not: leave it out"
        )
    return layer.compute_reward, None if ends is None else ends.compute_terminated


def _deterministic(num_critics: int, spec: EnvSpec, given: BuildOptions) -> Networks:
    return actor_and_critics(DeterministicMLPPolicy, num_critics, spec, given)


def _soft(spec: EnvSpec, given: BuildOptions) -> Networks:
    return actor_and_critics(TanhGaussianMLPPolicy, 2, spec, given)


def _greedy(spec: EnvSpec, given: BuildOptions) -> Networks:
    if not building.is_discrete(spec):
        return None, None
    sizes, activation, options = network_options(given)
    body = building.own_body(spec, given, options["generator"])
    if body is None and holds_images(spec.observation_space):
        return None, None
    widths = sizes if body is None else ()
    return GreedyQPolicy(spec, widths, activation, dueling=given.values["dueling"], encoder=body, **options), None


def off_policy_row(
    name: str,
    learner: Kind,
    networks: MakesNetworks,
    choosing: str = "",
    **more: Any,
) -> Algorithm:
    """The row of an off-policy learner, with the collection and replay of the built-in ones.

    Args:
        name: Its name.
        learner: Class of the learner; its ``config_class`` has its options, besides those of networks, replay and
            domains.
        networks: Makes the policy and the Q function from spaces and options; ``None`` for those of the learner.
        choosing: Name of the plug-in that learns instead in discrete action spaces.
        more: Other attributes of the row.

    Raises:
        TypeError: ``learner`` is not a class of off-policy learners, or ``networks`` is not a function.
    """
    if not (isinstance(learner, type) and issubclass(learner, OffPolicyLearner)):
        raise TypeError(f"learner must be a subclass of OffPolicyLearner, got {described(learner)}")
    if not callable(networks):
        raise TypeError(f"networks must be a function of EnvSpec and BuildOptions, got {described(networks)}")
    configs = CONFIGS.get(name, (learner.config_class, ReluNetworks, Domains, GoalReplay))
    defaults = {"work": _work, "amount": _amount, "largest_batch": _batch_size}
    build = functools.partial(_build, learner, networks, choosing)
    return Algorithm(**{"name": name, "configs": configs, "learner": learner, "build": build, **defaults, **more})


ROWS = {
    row.name: row
    for row in (
        off_policy_row("dqn", DQN, _greedy),
        off_policy_row("ddpg", DDPG, functools.partial(_deterministic, 1)),
        off_policy_row("td3", TD3, functools.partial(_deterministic, 2)),
        off_policy_row("sac", SAC, _soft, "discrete-sac"),
    )
}
"""The algorithms by name."""
