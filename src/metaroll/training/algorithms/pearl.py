"""PEARL by name: its presets, its networks, training tasks and held-out ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from metaroll.training.algorithms.description import AlgorithmDescription, BuildOptions

if TYPE_CHECKING:
    from metaroll.learners.pearl import PEARL
    from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["PEARLDescription"]

# What the documented constructor leaves without a default, and the sizes that the original uses in every environment.
_PEARL: dict[str, Any] = {
    "latent_dim": 5,
    "encoder_hidden_sizes": (200, 200, 200),
    "hidden_sizes": (300, 300, 300),
    "init": "oyster",
    "epochs": 500,
    "meta_batch_size": 16,
    "batch_size": 256,
    "num_steps_posterior": 0,
    "update_post_train": 1,
    "kl_lambda": 0.1,
    "discount": 0.99,
    "posterior_sampling": True,
}

_POINT_ROBOT: dict[str, Any] = {
    **_PEARL,
    "num_train_tasks": 80,
    "num_test_tasks": 20,
    "num_initial_steps": 200,
    "num_steps_prior": 200,
    "num_extra_rl_steps_posterior": 200,
    "num_steps_per_epoch": 1000,
    "num_tasks_sample": 5,
    "embedding_batch_size": 64,
    "embedding_mini_batch_size": 64,
    "max_path_length": 20,
    "reward_scale": 100.0,
    # 60 evaluation steps of 20 per episode: one episode under the prior, then two under the posterior, twice.
    "n_exploration_traj": 2,
    "num_prior_episodes": 1,
    "repetitions": 2,
}

# Robots of MuJoCo. 600 evaluation steps of 200 per episode: two under the prior, then one under the posterior.
_ROBOT: dict[str, Any] = {
    **_PEARL,
    "num_initial_steps": 2000,
    "num_steps_prior": 400,
    "num_extra_rl_steps_posterior": 600,
    "num_steps_per_epoch": 4000,
    "num_tasks_sample": 5,
    "embedding_batch_size": 256,
    "embedding_mini_batch_size": 256,
    "max_path_length": 200,
    "reward_scale": 5.0,
    "n_exploration_traj": 2,
    "num_prior_episodes": 2,
    "repetitions": 1,
}

_TWO_DIRECTIONS: dict[str, Any] = {
    **_ROBOT,
    "num_train_tasks": 2,
    "num_test_tasks": 2,
    "meta_batch_size": 4,
    "repetitions": 4,
}

# What the body is like shows in how it moves, so the context holds next observations, too.
_RANDOM_BODIES: dict[str, Any] = {
    **_ROBOT,
    "num_train_tasks": 40,
    "num_test_tasks": 10,
    "meta_batch_size": 10,
    "embedding_batch_size": 100,
    "embedding_mini_batch_size": 100,
    "use_next_obs_in_context": True,
    "repetitions": 2,
}

# Effective values of the reference configurations (Rakelly et al. 2019, arXiv:1903.08254, code "oyster").
_PRESETS: dict[str, dict[str, Any]] = {
    "point-robot": _POINT_ROBOT,
    "sparse-point-robot": {
        **_POINT_ROBOT,
        "num_steps_prior": 100,
        "num_steps_posterior": 900,
        "num_extra_rl_steps_posterior": 0,
        "num_tasks_sample": 10,
        "embedding_batch_size": 1024,
        "embedding_mini_batch_size": 1024,
        "discount": 0.9,
        "kl_lambda": 1.0,
        # The agent infers its task from the sparse reward and is scored by it; the updates see the distance.
        "context_reward_key": "sparse_reward",
        "return_reward_key": "sparse_reward",
        # 400 evaluation steps: 20 episodes, the first five under the prior.
        "n_exploration_traj": 19,
        "num_prior_episodes": 5,
    },
    "cheetah-vel": {
        **_ROBOT,
        "num_train_tasks": 100,
        "num_test_tasks": 30,
        "num_steps_per_epoch": 2000,
        "embedding_batch_size": 100,
        "embedding_mini_batch_size": 100,
    },
    "cheetah-dir": {
        **_TWO_DIRECTIONS,
        "num_steps_per_epoch": 2000,
        "num_steps_prior": 1000,
        "num_extra_rl_steps_posterior": 1000,
    },
    "ant-dir": _TWO_DIRECTIONS,
    "ant-goal": {
        **_ROBOT,
        "num_train_tasks": 150,
        "num_test_tasks": 30,
        "meta_batch_size": 10,
        "kl_lambda": 1.0,
    },
    "humanoid-dir": {**_ROBOT, "num_train_tasks": 100, "num_test_tasks": 30},
    "hopper-rand-params": _RANDOM_BODIES,
    "walker-rand-params": _RANDOM_BODIES,
}


class PEARLDescription(AlgorithmDescription):
    """PEARL, which learns in families of tasks."""

    name = "pearl"
    adapts = True
    common = _PEARL
    presets = _PRESETS

    def learner(self) -> type[PEARL]:
        from metaroll.learners.pearl import PEARL

        return PEARL

    def sizes(self, env: str) -> Mapping[str, Any]:
        from metaroll.training.algorithms.building import family_sizes

        return family_sizes(env)

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        from metaroll.training.algorithms.building import family_tasks

        return family_tasks(given, num_test)

    def build(self, given: BuildOptions, train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]) -> PEARL:
        from metaroll.learners.pearl import PEARL
        from metaroll.policies.gaussian import TanhGaussianMLPPolicy
        from metaroll.policies.networks import MLPEncoder, QFunction
        from metaroll.training.algorithms.building import common_arguments, network_generator
        from metaroll.types import EnvSpec

        latent_dim, sizes, init = given.values["latent_dim"], given.hidden_sizes, given.init
        environment = train[0]()
        try:
            spec = EnvSpec.from_env(environment)
        finally:
            environment.close()
        augmented = PEARL.augment_env_spec(spec, latent_dim)
        value_spec = cast("EnvSpec", PEARL.get_env_spec(spec, latent_dim, "vf"))
        generator = network_generator(given)
        algo = PEARL(
            env=train,
            inner_policy=TanhGaussianMLPPolicy(augmented, hidden_sizes=sizes, init=init, generator=generator),
            qf=QFunction(augmented, hidden_sizes=sizes, init=init, generator=generator),
            vf=QFunction(value_spec, hidden_sizes=sizes, init=init, generator=generator),
            encoder_class=functools.partial(MLPEncoder, init=init),
            num_epochs=given.epochs,
            **common_arguments(given, test),
            **given.values,
        )
        algo.to(given.device)
        return algo

    def amount(self, algo: PEARL, values: Mapping[str, Any]) -> str:
        needed = algo.memory_when_full
        size = f"{needed / 2**30:.1f} GiB" if needed >= 2**30 else f"{needed / 2**20:.0f} MiB"
        return f"replay data grow to at most {size}"
