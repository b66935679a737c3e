"""PPO and EPOpt by name: their presets, networks, and what they train in."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from metaroll.training.algorithms.description import AlgorithmDescription, BuildOptions, setup_of

if TYPE_CHECKING:
    import numpy as np

    from metaroll.learners.epopt import EPOpt
    from metaroll.learners.ppo import PPO
    from metaroll.types import EnvUpdate

__all__ = ["EPOptDescription", "PPODescription", "PPOSetup"]

# Those of Stable-Baselines3 (its defaults); observations and returns are normalized.
_PPO: dict[str, Any] = {"hidden_sizes": (64, 64), "init": "orthogonal", "epochs": 100}

_PPO_PRESETS: dict[str, dict[str, Any]] = {
    # 200,000 steps: 100 epochs of 10 episodes.
    "Pendulum-v1": {
        **_PPO,
        "steps_per_epoch": 2000,
        "learning_rate": 1e-3,
        "lr_decay_epochs": 100,
        "discount": 0.95,
        "init_std": 0.5,
    },
    # 1 million steps: 500 epochs of two episodes.
    "HalfCheetah-v5": {**_PPO, "steps_per_epoch": 2000, "batch_size": 80, "epochs": 500},
}

# 15,000 rollouts; in the last two thirds of the epochs the worst tenth alone counts.
_EPOPT: dict[str, Any] = {
    **_PPO,
    "epochs": 150,
    "warm_up_epochs": 50,
    "lr_decay_epochs": 150,
    "batch_size": 250,
    "discount": 0.98,
    "randomize": "default",
}


@dataclass(frozen=True, kw_only=True)
class PPOSetup:
    """What PPO and EPOpt are told beside the arguments of their constructors.

    Args:
        network: Policy without or with memory (mlp or gru; gru is as wide as the first of hidden_sizes).
        hidden_nonlinearity: Activation of the hidden layers.
        init_std: Standard deviation of the actions at first, where they lie in [-1, 1].
        randomize: Train in, and evaluate on, random domain parameters: the usual ones of a simulated system, or half as
            wide. A task family has draws of its own.
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH, as length=0.3:0.7 in CartPole-v1,
            or body_mass:torso=3:10 in MuJoCo; may be given several times, and takes the place of randomize.
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
        from metaroll.checks import check_number

        check_number("init_std", self.init_std, 0.0, above_low=True)


class _PPOFamily(AlgorithmDescription, ABC):
    """What PPO and EPOpt share: options of networks and tasks, and a schedule of the learning rate."""

    follows_epochs = ("lr_decay_epochs",)

    def sizes(self, env: str) -> Mapping[str, Any]:
        from metaroll.training.algorithms.building import env_sizes

        return env_sizes(env)

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
        from metaroll.training.algorithms.building import training_tasks

        setup = setup_of(PPOSetup, given.values)
        held_out = setup.num_test_tasks if num_test is None else num_test
        return training_tasks(given, setup.randomize, setup.randomize_param, setup.num_train_tasks, held_out)

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        decay = given.values["lr_decay_epochs"]
        if decay is None or epochs <= decay:
            return []
        return [
            f"the learning rate is 0 after epoch {decay} (lr_decay_epochs), and nothing is learned in the "
            f"{epochs - decay} epochs after it; train anew with --lr-decay-epochs {epochs}, or with fewer epochs"
        ]


class PPODescription(_PPOFamily):
    """PPO, in one environment, in random domains of it, or in the tasks of a family."""

    name = "ppo"
    common = _PPO
    presets = _PPO_PRESETS

    def learner(self) -> type:
        from metaroll.learners.ppo import PPO

        return PPO

    def option_sources(self) -> Sequence[tuple[type, Collection[str]]]:
        return ((PPOSetup, ()),)

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
        return _build_ppo(given, train, test)

    def amount(self, algo: PPO, values: Mapping[str, Any]) -> str:
        return f"{values['steps_per_epoch']} steps per epoch, gradients by {algo.gradients}"


class EPOptDescription(_PPOFamily):
    """EPOpt around PPO, which collects a number of rollouts per epoch rather than of steps."""

    name = "epopt"
    common = _EPOPT

    def learner(self) -> type:
        from metaroll.learners.epopt import EPOpt

        return EPOpt

    def option_sources(self) -> Sequence[tuple[type, Collection[str]]]:
        from metaroll.learners.ppo import PPO

        return ((PPO, ("steps_per_epoch", "tasks_per_epoch")), (PPOSetup, ()))

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
        from metaroll.learners.epopt import EPOpt
        from metaroll.training.algorithms.building import own_arguments

        return EPOpt(_build_ppo(given, train, test), **own_arguments(EPOpt, given.values))

    def amount(self, algo: EPOpt, values: Mapping[str, Any]) -> str:
        return f"{values['rollouts_per_epoch']} rollouts per epoch, gradients by {algo.gradients}"

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        notes, setup = super().notes(given, epochs), setup_of(PPOSetup, given.values)
        if setup.randomize == "none" and not setup.randomize_param and setup.num_test_tasks is None:
            notes.append(
                "nothing is drawn: all rollouts are of the environment as it is, of which EPOpt then prefers the "
                "unlucky ones; say what varies: --randomize-param NAME=LOW:HIGH"
            )
        return notes

    def summary_values(self, returns: np.ndarray, values: Mapping[str, Any]) -> dict[str, Any]:
        from metaroll.functional.cvar import conditional_value_at_risk

        epsilon = float(values["epsilon"])
        return {"return_cvar": conditional_value_at_risk(returns.ravel(), epsilon), "cvar_epsilon": epsilon}


def _build_ppo(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
    from metaroll.learners.ppo import PPO
    from metaroll.policies.networks import MLP
    from metaroll.policies.normalized import widened_spec
    from metaroll.training.algorithms import building

    setup, spec = setup_of(PPOSetup, given.values), building.spec_of(given.env)
    arguments = building.own_arguments(PPO, given.values)
    building.check_names(given.env, arguments["domain_params"])
    extra = len(arguments["domain_params"])
    generator, activation = building.network_generator(given), setup.hidden_nonlinearity
    seen = widened_spec(spec, extra) if arguments["privileged"] else spec
    policy = building.make_policy(seen, given, setup.network, activation, generator, init_std=setup.init_std)
    return PPO(
        spec,
        policy,
        MLP(spec.obs_dim + extra, 1, given.hidden_sizes, activation, init=given.init, generator=generator),
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
        **arguments,
    )
