"""The row of PPO: its networks and domains."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from metaroll.config import parts_of
from metaroll.configs.algorithms import PolicyNetworks
from metaroll.configs.table import CONFIGS
from metaroll.errors import about_option, counted, option_name, option_text
from metaroll.learners.on_policy.configs import PPOConfig
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
"""Options of PPO, and of learners that use it, that follow the epochs of a run."""
Works = Callable[[Values], Work]


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> PPO:
    networks, spec = parts_of(PolicyNetworks, given.values), given.env.spec
    config = parts_of(PPOConfig, given.values)
    names = config.domain_params
    if names and not given.env.is_varied:
        with contextlib.closing(given.env.make()) as made, about_option("domain_params"):
            check_param_names(made, names)
    if names and train is None:
        random = f"{option_text('randomize', 'default', 'domain_params')}, or {option_name('randomize_param')}"
        raise ValueError(
            f"{option_text('domain_params', list(names))} needs random domains, as otherwise they are the same in "
            f"every rollout: {random}"
        )
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
    """The work of a run whose epochs have ``steps`` environment steps."""
    return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))


def ppo_batch(work: Works, values: Values) -> int:
    """Number of rows of a gradient step in a run with this amount of work."""
    return min(values["batch_size"], work(values).epoch_steps)


def ppo_notes(work: Works, given: BuildOptions, epochs: int) -> list[str]:
    """Notes for the user on the batches, and on the schedule of the learning rate."""
    decay, batch, steps = given.values["lr_decay_epochs"], given.values["batch_size"], 0
    notes = []
    with contextlib.suppress(TypeError):  # the length of episodes is unknown
        steps = work(given.values).epoch_steps
    if 0 < steps < batch:
        notes.append(
            f"batch_size {batch:,} is more than the {steps:,} steps of an epoch: each gradient step takes them all"
        )
    if decay is None or epochs <= decay:
        return notes
    longer = option_text("lr_decay_epochs", epochs)
    return [
        *notes,
        f"the learning rate is 0 after epoch {decay} (lr_decay_epochs), and nothing is learned in the "
        f"{counted(epochs - decay, 'epoch')} after it; train again with {longer}, or with fewer epochs",
    ]


def _work(values: Values) -> Work:
    return ppo_work(values, values["steps_per_epoch"])


def _amount(algo: PPO, values: Values) -> str:
    return f"gradients by {algo.gradients}"


ROWS = {
    "ppo": Algorithm(
        name="ppo",
        configs=CONFIGS["ppo"],
        learner=PPO,
        build=_build,
        work=_work,
        amount=_amount,
        follows_epochs=FOLLOWS,
        largest_batch=functools.partial(ppo_batch, _work),
        notes=functools.partial(ppo_notes, _work),
    )
}
"""The algorithm by name."""
