"""PPO and EPOpt by name: their networks, and what they train in."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.config import parts_of
from metaroll.configs.algorithms import Domains, PolicyNetworks
from metaroll.envs.base.constructors import make_env
from metaroll.envs.lookup.registry import is_varied
from metaroll.errors import about_option, option_text
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.learners.on_policy.configs import EPOptConfig, PPOConfig
from metaroll.learners.on_policy.epopt import EPOpt
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import widened_spec
from metaroll.tasks.domain_access import check_param_names
from metaroll.training.algorithms import building
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvUpdate

__all__ = ["EPOptDescription", "PPODescription", "PPOFamily", "ppo_work"]


class PPOFamily(AlgorithmDescription, ABC):
    """What PPO and the learners around it share: a schedule of the learning rate."""

    follows_epochs: ClassVar[tuple[str, ...]] = ("lr_decay_epochs",)

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        return min(values["batch_size"], self.work(values).epoch_steps)

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        decay, batch, steps = given.values["lr_decay_epochs"], given.values["batch_size"], 0
        notes = []
        with contextlib.suppress(TypeError):  # no length of episodes is known
            steps = self.work(given.values).epoch_steps
        if 0 < steps < batch:
            notes.append(
                f"batch_size {batch:,} is more than the {steps:,} steps of an epoch: each gradient step takes them all"
            )
        if decay is None or epochs <= decay:
            return notes
        anew = option_text("lr_decay_epochs", epochs)
        return [
            *notes,
            f"the learning rate is 0 after epoch {decay} (lr_decay_epochs), and nothing is learned in the "
            f"{epochs - decay} epochs after it; train anew with {anew}, or with fewer epochs",
        ]


@final
class PPODescription(PPOFamily):
    """PPO, in one environment, in random domains of it, or in the tasks of a family."""

    name: ClassVar[str] = "ppo"
    learner: ClassVar[type] = PPO

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
        return _build_ppo(given, train, test)

    def work(self, values: Mapping[str, Any]) -> Work:
        return ppo_work(values, values["steps_per_epoch"])

    def amount(self, algo: PPO, values: Mapping[str, Any]) -> str:
        return f"{values['steps_per_epoch']} steps per epoch, gradients by {algo.gradients}"


@final
class EPOptDescription(PPOFamily):
    """EPOpt around PPO, which collects a number of rollouts per epoch rather than of steps."""

    name: ClassVar[str] = "epopt"
    learner: ClassVar[type] = EPOpt

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
        return EPOpt(_build_ppo(given, train, test), parts_of(EPOptConfig, given.values))

    def work(self, values: Mapping[str, Any]) -> Work:
        return replace(ppo_work(values, values["rollouts_per_epoch"] * values["max_steps"]), at_most=True)

    def amount(self, algo: EPOpt, values: Mapping[str, Any]) -> str:
        return f"{values['rollouts_per_epoch']} rollouts per epoch, gradients by {algo.gradients}"

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        notes, domains = super().notes(given, epochs), parts_of(Domains, given.values)
        if domains.randomize == "none" and not domains.randomize_param and domains.num_test_tasks is None:
            notes.append(
                "nothing is drawn: all rollouts are of the nominal environment, of which EPOpt then prefers the "
                f"unlucky ones; say what varies: {option_text('randomize_param', ['NAME=LOW:HIGH'])}"
            )
        return notes

    def summary_values(self, returns: np.ndarray, values: Mapping[str, Any]) -> dict[str, Any]:
        epsilon = float(values["epsilon"])
        return {"return_cvar": conditional_value_at_risk(returns.ravel(), epsilon), "cvar_epsilon": epsilon}


def ppo_work(values: Mapping[str, Any], steps: int) -> Work:
    """What a run does whose epochs have ``steps`` environment steps."""
    return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))


def _build_ppo(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
    networks, spec = parts_of(PolicyNetworks, given.values), building.spec_of(given.env)
    config = parts_of(PPOConfig, given.values)
    names = config.domain_params
    if names and not is_varied(given.env):
        with contextlib.closing(make_env(given.env)) as made, about_option("domain_params"):
            check_param_names(made, names)
    generator, activation = building.network_generator(given), networks.hidden_nonlinearity
    seen = widened_spec(spec, len(names)) if config.privileged else spec
    policy = building.make_policy(seen, given, networks.network, activation, generator, init_std=networks.init_std)
    inputs = spec.obs_dim + len(names)
    return PPO(
        spec,
        config,
        policy=policy,
        critic=MLP(inputs, 1, given.hidden_sizes, activation, init=given.init, generator=generator),
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
    )
