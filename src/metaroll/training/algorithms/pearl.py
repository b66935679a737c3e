"""PEARL by name: its networks, training tasks and held-out ones."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast, final

from metaroll.config import parts_of
from metaroll.learners.pearl import PEARL
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLPEncoder, QFunction
from metaroll.training.algorithms.building import BuildOptions, common_arguments, family_sizes, network_generator
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["PEARLDescription"]


@final
class PEARLDescription(AlgorithmDescription):
    """PEARL, which learns in families of tasks."""

    name: ClassVar[str] = "pearl"
    learner: ClassVar[type] = PEARL
    adapts: ClassVar[bool] = True

    def sizes(self, env: str) -> Mapping[str, Any]:
        return family_sizes(env)  # also of a simulated system, which others take as it is

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        held_out = given.values["num_test_tasks"] if num_test is None else num_test
        return given.split(given.values["num_train_tasks"], held_out)

    def build(self, given: BuildOptions, train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]) -> PEARL:
        latent_dim, sizes, init = given.values["latent_dim"], given.hidden_sizes, given.init
        with contextlib.closing(train[0]()) as environment:
            spec = EnvSpec.from_env(environment)
        augmented = PEARL.augment_env_spec(spec, latent_dim)
        value_spec = cast("EnvSpec", PEARL.get_env_spec(spec, latent_dim, "vf"))
        generator = network_generator(given)
        algo = PEARL(
            train,
            parts_of(PEARLConfig, given.values),
            inner_policy=TanhGaussianMLPPolicy(augmented, hidden_sizes=sizes, init=init, generator=generator),
            qf=QFunction(augmented, hidden_sizes=sizes, init=init, generator=generator),
            vf=QFunction(value_spec, hidden_sizes=sizes, init=init, generator=generator),
            encoder_class=functools.partial(MLPEncoder, init=init),
            num_epochs=given.epochs,
            **common_arguments(given, test),
        )
        algo.to(given.device)
        return algo

    def work(self, values: Mapping[str, Any]) -> Work:
        visit = sum(values[f"num_{part}"] for part in ("steps_prior", "steps_posterior", "extra_rl_steps_posterior"))
        return Work(
            values["num_train_tasks"] * values["warmup_steps"],
            values["tasks_per_epoch"] * visit,
            values["gradient_steps"],
        )

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        return values["meta_batch_size"] * max(values["batch_size"], values["embedding_batch_size"])

    def amount(self, algo: PEARL, values: Mapping[str, Any]) -> str:
        needed = algo.memory_when_full
        size = f"{needed / 2**30:.1f} GiB" if needed >= 2**30 else f"{needed / 2**20:.0f} MiB"
        return f"estimated replay memory: at most {size}"
