"""A runner and a task without engine or environment, for tests of PEARL: rollouts are made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch

from metaroll.compat.constructors import PEARL
from metaroll.data.step_sequence import StepSequence
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import QFunction
from metaroll.types import EnvSpec, EnvUpdate

OBS_DIM, ACT_DIM, LATENT_DIM, HORIZON = 3, 2, 4, 5
SPEC = EnvSpec(
    gymnasium.spaces.Box(-1.0, 1.0, (OBS_DIM,), np.float32), gymnasium.spaces.Box(-1.0, 1.0, (ACT_DIM,), np.float32)
)


class ToyUpdate(EnvUpdate):
    """Task number as task; "builds" the spec."""

    def __init__(self, task: int) -> None:
        self.task = task

    def __call__(self, old_env: Any = None) -> Any:
        return SPEC


class ToySampler:
    """Stands for a task sampler of test tasks."""

    n_tasks: int | None = 3

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        return [ToyUpdate(100 + i) for i in range(n_tasks)]


def make_rollout(
    seed: Sequence[int], length: int = HORIZON, task: int = 0, *, terminated: bool = False, offset: float = 0.0
) -> StepSequence:
    """A rollout of random numbers; rewards depend on the task; the info ``sparse_reward`` is 10 + task."""
    generator = np.random.default_rng([*seed, 77])
    observations = generator.uniform(-1, 1, (length + 1, OBS_DIM)).astype(np.float32) + np.float32(offset)
    actions = generator.uniform(-1, 1, (length, ACT_DIM)).astype(np.float32)
    ends = np.arange(length) == length - 1
    return StepSequence(
        rewards=generator.uniform(-1, 1, length) + task,
        observations=observations,
        actions=actions,
        terminated=ends & terminated,
        truncated=ends & (not terminated),
        env_infos={"sparse_reward": np.full(length, 10.0 + task)},
        policy_infos={},
        complete=True,
    )


class FakeRunner:
    """Counts and records what PEARL asks for; rollouts depend on the call counter and the position only.

    ``lengths`` maps a task to the length of its rollouts (default: the horizon).
    """

    def __init__(
        self, num_epochs: int, *, start: int = 0, step_itr: int = 0, lengths: Mapping[int, int] | None = None
    ) -> None:
        self._epochs = range(start, num_epochs)
        self.step_itr = step_itr
        self.total_env_steps = 0
        self.lengths = dict(lengths or {})
        self.terminated = False
        self.calls: list[dict[str, Any]] = []
        self.logged: list[dict[str, float]] = []
        self.evaluations: list[Any] = []

    def step_epochs(self) -> Iterator[int]:
        yield from self._epochs

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: Any = None,
        env_update: Any = None,
        *,
        contexts: Any = None,
        num_rollouts: int | None = None,
        deterministic: bool = False,
    ) -> list[list[StepSequence]]:
        assert itr == self.step_itr
        assert (batch_size is None) != (num_rollouts is None)
        assert len(contexts) == len(env_update)
        tasks = [update.task for update in env_update]
        self.calls.append(
            {"tasks": tasks, "batch_size": batch_size, "num_rollouts": num_rollouts, "contexts": contexts}
        )
        groups = []
        for position, task in enumerate(tasks):
            length = self.lengths.get(task, HORIZON)
            count = num_rollouts if num_rollouts is not None else -(-batch_size // length)
            groups.append(
                [
                    make_rollout([self.step_itr, position, k], length, task, terminated=self.terminated)
                    for k in range(count)
                ]
            )
            self.total_env_steps += count * length
        self.step_itr += 1
        return groups

    def evaluate(self, algo: Any, task_sampler: Any) -> float:
        self.evaluations.append((algo, task_sampler))
        return float(len(self.evaluations))

    def log(self, metrics: Mapping[str, float]) -> None:
        self.logged.append(dict(metrics))


def networks(latent_dim: int = LATENT_DIM, hidden: tuple[int, ...] = (8,), seed: int = 5) -> dict[str, Any]:
    """Inner policy, qf and vf, each from a generator of its own."""

    def generator(k: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed + k)

    augmented = PEARL.augment_env_spec(SPEC, latent_dim)
    return {
        "inner_policy": TanhGaussianMLPPolicy(augmented, hidden_sizes=hidden, generator=generator(0)),
        "qf": QFunction(augmented, hidden_sizes=hidden, generator=generator(1)),
        "vf": QFunction(PEARL.get_env_spec(SPEC, latent_dim, "vf"), hidden_sizes=hidden, generator=generator(2)),
    }


def make_pearl(**changes: Any) -> PEARL:
    """A PEARL of three train tasks with tiny networks and few steps."""
    arguments: dict[str, Any] = {
        **networks(),
        "env": [ToyUpdate(i) for i in range(3)],
        "num_train_tasks": 3,
        "num_test_tasks": 2,
        "latent_dim": LATENT_DIM,
        "encoder_hidden_sizes": (8,),
        "test_env_sampler": ToySampler(),
        "meta_batch_size": 2,
        "num_steps_per_epoch": 3,
        "num_initial_steps": 8,
        "num_tasks_sample": 2,
        "num_steps_prior": 7,
        "num_steps_posterior": 0,
        "num_extra_rl_steps_posterior": 6,
        "batch_size": 6,
        "embedding_batch_size": 4,
        "embedding_mini_batch_size": 4,
        "max_path_length": HORIZON,
        "replay_buffer_size": 1000,
        "seed": 1,
    }
    return PEARL(**{**arguments, **changes})
