"""An agent in one task: it explores the task, adapts to it, acts in it, and can continue to adapt."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from metaroll.checks import check_whole
from metaroll.data.paths import TrajectoryBatch
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource, is_env_instance
from metaroll.errors import ShapeError, counted
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.policies.actor import Actor
from metaroll.policies.adapters import as_policy
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.training.algorithms.algorithm import Algorithm
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.session.same_spaces import check_episode, check_spaces
from metaroll.types import EnvSpec, EnvUpdate, Policy

__all__ = ["AdaptedAgent", "TaskProtocol"]


@final
@dataclass(frozen=True)
class TaskProtocol:
    """Exploration of a task and adaptation to it by the agent of a run, as in the evaluations of the run.

    Attributes:
        row: The algorithm.
        algo: The learner that adapts.
        config: Configuration of the run.
        evaluator: Evaluator of the run.
        env_spec: Spaces that the agent has learned in.
        test_tasks: Returns tasks to name in errors.
    """

    row: Algorithm
    algo: MetaRLAlgorithm
    config: Mapping[str, Any]
    evaluator: MetaEvaluator
    env_spec: EnvSpec
    test_tasks: Callable[[], list[EnvUpdate]]

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["run"]["seed"]

    @property
    def adapts_further(self) -> bool:
        """Whether it adapts the last policy further, on its episodes; otherwise it adapts on all episodes so far."""
        return bool(self.evaluator.protocol(self.algo).get("adapt_from") == "last")

    def explore(
        self, env: Any, policy: Any, seen: Sequence[StepSequence], episodes: int | None, seed: int, limit: int | None
    ) -> list[StepSequence]:
        """Episodes of ``policy``, which has adapted to the episodes in ``seen``.

        Args:
            env: As for ``Agent.explore``.
            policy: The initial behavior policy.
            seen: Episodes before these.
            episodes: Number of episodes; ``None`` means those of one round.
            seed: Seed of the episodes.
            limit: Maximum number of steps of an episode; ``None`` means as in training.
        """
        quiet = self.evaluator.protocol(self.algo)["deterministic_exploration"]  # settles the rounds
        count = self.evaluator.round_length if episodes is None else check_whole("episodes", episodes)
        limit = self.config["algorithm"]["max_steps"] if limit is None else limit
        config = self.evaluator.config
        prior_episodes = config.num_prior_episodes if config.posterior_sampling else len(seen) + count
        done: list[StepSequence] = []
        with _opened(env) as environment:
            environment = self.row.seen_env(environment, self.config)
            check_spaces(EnvSpec.from_env(environment), self.env_spec, self.test_tasks)
            for episode in range(count):
                if len(seen) + episode >= prior_episodes:
                    policy = self.adapted([*seen, *done], seed)
                settings = {"eval": quiet, "max_steps": limit, "seed": seed, "sub_seed": episode, "no_close": True}
                done.append(rollout(environment, policy, **settings))
        return done

    def adapted(self, episodes: Sequence[StepSequence], seed: int, policy: Any = None) -> Any:
        """``policy`` adapted to ``episodes`` (it is consumed); ``None`` means a new exploration policy."""
        batch = TrajectoryBatch.from_rollouts(self.env_spec, list(episodes))
        with isolated_rng(derive_seed("adapt", seed, len(episodes))):  # as evaluations do
            initial = self.algo.get_exploration_policy() if policy is None else policy
            return self.algo.adapt_policies([initial], [batch])[0]

    def checked(self, rollouts: Any) -> list[StepSequence]:
        """The episodes of ``rollouts``, in the spaces that the agent has learned in."""
        if not isinstance(rollouts, Iterable):
            raise TypeError(f"rollouts must be episodes, as agent.explore returns them, got {type(rollouts).__name__}")
        episodes = [rollouts] if isinstance(rollouts, StepSequence) else list(rollouts)
        if not episodes:
            raise ValueError("rollouts must hold at least one episode, got none: agent.explore(env, episodes=3)")
        with self.hinting():
            for number, episode in enumerate(episodes):
                check_episode(episode, number, self.env_spec, self.test_tasks)
        return episodes

    @contextlib.contextmanager
    def hinting(self) -> Iterator[None]:
        """Add the observation shape that the algorithm needs to shape errors, if the environment has another one."""
        try:
            yield
        except ShapeError as error:
            hint = self.row.seen_hint
            if not hint:
                raise
            raise ShapeError(f"{error}; {hint}") from error


@final
class AdaptedAgent(Actor):
    """Acts in one task; made by ``Agent.adapt``. ``rollout(env, adapted)`` takes it as a policy."""

    def __init__(
        self, task: TaskProtocol, acting: Any, seen: Sequence[StepSequence], max_path_length: int | None
    ) -> None:
        super().__init__(task.env_spec, derive_seed("adapted", task.seed), max_path_length)
        self._task, self._seen, self._explored = task, list(seen), 0
        self._adapted = acting
        self._policy = as_policy(acting, task.env_spec)

    @property
    def policy(self) -> Policy:
        """The behavior policy."""
        return self._policy

    def explore(
        self, env: Any, episodes: int | None = None, *, seed: int | None = None, max_steps: int | None = None
    ) -> list[StepSequence]:
        """Collect further episodes in the task with this policy, with exploration noise if the algorithm needs it.

        Args:
            env: The environment of the task, as for ``Agent.explore``.
            episodes: Number of episodes; ``None`` means as in a round of the run's evaluations.
            seed: Seed of the episodes; ``None`` means a new one at every call.
            max_steps: Maximum number of steps of an episode; ``None`` means as in training.

        Returns:
            The episodes, for ``adapt``.

        Raises:
            ShapeError: As for ``Agent.explore``.
        """
        if seed is None:
            seed = derive_seed("exploring further", self._task.seed, len(self._seen), self._explored)
        self._explored += 1
        return self._task.explore(env, self._adapted, self._seen, episodes, seed, max_steps)

    def adapt(self, rollouts: Any) -> AdaptedAgent:
        """An agent adapted to further episodes: the next gradient step of MAML, ProMP and DICE.

        Algorithms whose evaluations adapt on all episodes so far (PEARL, RL2) do so here.

        Args:
            rollouts: Episodes of ``explore``, or any other episodes of this agent in the task, with exploration noise.

        Returns:
            A new agent; this one is not changed.

        Raises:
            ShapeError: They come from an environment with other spaces, or other bounds of actions.
            ValueError: There are none.
        """
        task = self._task
        new = task.checked(rollouts)
        seen = [*self._seen, *new]
        if task.adapts_further:
            acting = task.adapted(new, task.seed, copy.deepcopy(self._adapted))
        else:
            acting = task.adapted(seen, task.seed)
        return AdaptedAgent(task, acting, seen, self.max_path_length)

    def act(self, obs: Any, *, deterministic: bool = True) -> Any:
        """See ``Actor.act``."""
        with self._task.hinting():
            return super().act(obs, deterministic=deterministic)

    def __repr__(self) -> str:
        count, config = len(self._seen), self._task.config
        steps = sum(len(episode.rewards) for episode in self._seen)
        seen = f"{counted(count, 'episode')} seen, {steps:,} steps in all"
        return f"AdaptedAgent({config['algo']!r}, {config['env']!r}, {seen}); next: act(obs)"


@contextlib.contextmanager
def _opened(env: Any) -> Iterator[Any]:
    """A given environment, which stays open, or one that is made, and closed afterwards."""
    if is_env_instance(env):
        yield env
        return
    made = env() if isinstance(env, EnvUpdate) else EnvSource.of(env).make()
    try:
        yield made
    finally:
        made.close()
