"""PPO and EPOpt by name: their networks, and what they train in."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np

from metaroll.checks import check_number
from metaroll.envs.base.constructors import make_env
from metaroll.envs.lookup.registry import is_varied
from metaroll.errors import option_text
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.learners.on_policy.epopt import EPOpt
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import widened_spec
from metaroll.tasks.domain_access import check_param_names
from metaroll.training.algorithms import building
from metaroll.training.algorithms.building import BuildOptions, setup_of
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvUpdate

__all__ = ["EPOptDescription", "PPODescription", "PPOFamily", "PPOSetup", "ppo_work"]


@dataclass(frozen=True, kw_only=True)
class PPOSetup:
    """What PPO and EPOpt take beside the arguments of their constructors.

    Args:
        network: Policy without or with memory (mlp or gru; gru is as wide as the first of hidden_sizes).
        hidden_nonlinearity: Activation of the hidden layers.
        init_std: Standard deviation of the actions at first, where they lie in [-1, 1].
        randomize: Train in, and evaluate on, random domain parameters: the usual ones of a simulated system, or half as
            wide. A task family has draws of its own.
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH, as length=0.3:0.7 in CartPole-v1,
            or body_mass:torso=3:10 in MuJoCo; may be given several times, and replaces randomize.
        num_train_tasks: Number of training tasks of a task family.
        num_test_tasks: Number of held-out tasks, or of held-out sets of domain parameters (null: 20 of them).
    """

    network: Literal["mlp", "gru"] = "mlp"
    hidden_nonlinearity: Literal["tanh", "relu"] = "tanh"
    init_std: float = 1.0
    randomize: Literal["none", "default", "conservative"] = "none"
    randomize_param: Sequence[str] = ()
    num_train_tasks: int | None = None
    num_test_tasks: int | None = None

    def __post_init__(self) -> None:
        check_number("init_std", self.init_std, 0.0, above_low=True)


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
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = ((PPOSetup, ()),)

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
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = (
        (PPO, ("steps_per_epoch", "tasks_per_epoch")),
        (PPOSetup, ()),
    )

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
        return EPOpt(_build_ppo(given, train, test), **building.own_arguments(EPOpt, given.values))

    def work(self, values: Mapping[str, Any]) -> Work:
        return replace(ppo_work(values, values["rollouts_per_epoch"] * values["max_path_length"]), at_most=True)

    def amount(self, algo: EPOpt, values: Mapping[str, Any]) -> str:
        return f"{values['rollouts_per_epoch']} rollouts per epoch, gradients by {algo.gradients}"

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        notes, setup = super().notes(given, epochs), setup_of(PPOSetup, given.values)
        if setup.randomize == "none" and not setup.randomize_param and setup.num_test_tasks is None:
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
    setup, spec = setup_of(PPOSetup, given.values), building.spec_of(given.env)
    arguments = building.own_arguments(PPO, given.values)
    names = arguments["domain_params"]
    if names and not is_varied(given.env):
        with contextlib.closing(make_env(given.env)) as made:
            check_param_names(made, names)
    generator, activation = building.network_generator(given), setup.hidden_nonlinearity
    seen = widened_spec(spec, len(names)) if arguments["privileged"] else spec
    policy = building.make_policy(seen, given, setup.network, activation, generator, init_std=setup.init_std)
    return PPO(
        spec,
        policy,
        MLP(spec.obs_dim + len(names), 1, given.hidden_sizes, activation, init=given.init, generator=generator),
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
        **arguments,
    )
