"""PPO and EPOpt by name: their networks, and what they train in."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metaroll.config import parts_of
from metaroll.configs.algorithms import Domains, PolicyNetworks
from metaroll.configs.table import CONFIGS
from metaroll.errors import about_option, option_text
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.learners.on_policy.configs import EPOptConfig, PPOConfig
from metaroll.learners.on_policy.epopt import EPOpt
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import widened_spec
from metaroll.tasks.domain_access import check_param_names
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.types import EnvUpdate

__all__ = ["FOLLOWS", "ROWS", "ppo_batch", "ppo_notes", "ppo_work"]


FOLLOWS = ("lr_decay_epochs",)
"""Options of PPO, and of learners around it, that follow the epochs of a run."""
Works = Callable[[Values], Work]


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
    networks, spec = parts_of(PolicyNetworks, given.values), given.env.spec
    config = parts_of(PPOConfig, given.values)
    names = config.domain_params
    if names and not given.env.is_varied:
        with contextlib.closing(given.env.make()) as made, about_option("domain_params"):
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


def ppo_work(values: Values, steps: int) -> Work:
    """What a run does whose epochs have ``steps`` environment steps."""
    return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))


def ppo_batch(work: Works, values: Values) -> int:
    """Rows of a gradient step of a run that does ``work``."""
    return min(values["batch_size"], work(values).epoch_steps)


def ppo_notes(work: Works, given: BuildOptions, epochs: int) -> list[str]:
    """What a user should know of the batches, and of the schedule of the learning rate."""
    decay, batch, steps = given.values["lr_decay_epochs"], given.values["batch_size"], 0
    notes = []
    with contextlib.suppress(TypeError):  # no length of episodes is known
        steps = work(given.values).epoch_steps
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


def _work(values: Values) -> Work:
    return ppo_work(values, values["steps_per_epoch"])


def _amount(algo: PPO, values: Values) -> str:
    return f"{values['steps_per_epoch']} steps per epoch, gradients by {algo.gradients}"


def _build_epopt(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
    return EPOpt(_build(given, train, test), parts_of(EPOptConfig, given.values))


def _epopt_work(values: Values) -> Work:
    return replace(ppo_work(values, values["rollouts_per_epoch"] * values["max_steps"]), at_most=True)


def _epopt_amount(algo: EPOpt, values: Values) -> str:
    return f"{values['rollouts_per_epoch']} rollouts per epoch, gradients by {algo.gradients}"


def _epopt_notes(given: BuildOptions, epochs: int) -> list[str]:
    notes, domains = ppo_notes(_epopt_work, given, epochs), parts_of(Domains, given.values)
    if domains.randomize == "none" and not domains.randomize_param and domains.num_test_tasks is None:
        notes.append(
            "nothing is drawn: all rollouts are of the nominal environment, of which EPOpt then prefers the "
            f"unlucky ones; say what varies: {option_text('randomize_param', ['NAME=LOW:HIGH'])}"
        )
    return notes


def _cvar(returns: np.ndarray, values: Values) -> dict[str, Any]:
    epsilon = float(values["epsilon"])
    return {"return_cvar": conditional_value_at_risk(returns.ravel(), epsilon), "cvar_epsilon": epsilon}


ROWS = {
    row.name: row
    for row in (
        Algorithm(
            name="ppo",
            configs=CONFIGS["ppo"],
            learner=PPO,
            build=_build,
            work=_work,
            amount=_amount,
            follows_epochs=FOLLOWS,
            largest_batch=functools.partial(ppo_batch, _work),
            notes=functools.partial(ppo_notes, _work),
        ),
        Algorithm(
            name="epopt",
            configs=CONFIGS["epopt"],
            learner=EPOpt,
            build=_build_epopt,
            work=_epopt_work,
            amount=_epopt_amount,
            follows_epochs=FOLLOWS,
            largest_batch=functools.partial(ppo_batch, _epopt_work),
            notes=_epopt_notes,
            summary_values=_cvar,
        ),
    )
}
"""The algorithms by name."""
