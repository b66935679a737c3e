"""The row of PEARL: its networks and tasks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import cast

from metaroll.config import parts_of
from metaroll.configs.table import CONFIGS
from metaroll.learners.pearl import PEARL
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLPEncoder, QFunction
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS"]


def _build(given: BuildOptions, train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]) -> PEARL:
    latent_dim, sizes, init = given.values["latent_dim"], given.hidden_sizes, given.init
    with contextlib.closing(train[0]()) as environment:
        spec = EnvSpec.from_env(environment)
    augmented = PEARL.augment_env_spec(spec, latent_dim)
    value_spec = cast("EnvSpec", PEARL.get_env_spec(spec, latent_dim, "vf"))
    generator = building.network_generator(given)
    body = building.own_body(augmented, given, generator)
    widths = sizes if body is None else ()
    algo = PEARL(
        train,
        parts_of(PEARLConfig, given.values),
        inner_policy=TanhGaussianMLPPolicy(augmented, widths, init=init, encoder=body, generator=generator),
        qf=QFunction(augmented, hidden_sizes=sizes, init=init, generator=generator),
        vf=QFunction(value_spec, hidden_sizes=sizes, init=init, generator=generator),
        encoder_class=functools.partial(MLPEncoder, init=init),
        num_epochs=given.epochs,
        **building.common_arguments(given, test),
    )
    algo.to(given.device)
    return algo


def _work(values: Values) -> Work:
    visit = sum(values[f"num_{part}"] for part in ("steps_prior", "steps_posterior", "extra_rl_steps_posterior"))
    return Work(
        values["num_train_tasks"] * values["warmup_steps"],
        values["tasks_per_epoch"] * visit,
        values["gradient_steps"],
    )


def _batch(values: Values) -> int:
    return values["meta_batch_size"] * max(values["batch_size"], values["embedding_batch_size"])


def _amount(algo: PEARL, values: Values) -> str:
    needed = algo.memory_when_full
    size = f"{needed / 2**30:.1f} GiB" if needed >= 2**30 else f"{needed / 2**20:.0f} MiB"
    return f"estimated replay memory: at most {size}"


ROWS = {
    "pearl": Algorithm(
        name="pearl",
        configs=CONFIGS["pearl"],
        learner=PEARL,
        adapts=True,
        build=_build,
        work=_work,
        amount=_amount,
        sizes=building.family_sizes,  # a simulated system counts as a family here; for others it is one environment
        tasks=building.family_tasks,
        largest_batch=_batch,
    )
}
"""The algorithm by name."""
