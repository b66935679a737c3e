"""Meta-test: explore in held-out tasks, adapt, act. Which episodes there are is fixed before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from metaroll.checks import check_flag, check_whole
from metaroll.config import Checked, ConfigField, config_of, understands
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import ExistingEnvUpdate
from metaroll.training.evaluation.evaluation_metrics import episode_outcomes
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.evaluation.evaluator import (
    Evaluator,
    checked_limit,
    checked_number,
    count_episodes,
)
from metaroll.types import Context, EnvSpec, EnvUpdate

__all__ = ["MetaEvaluator", "adapt_policies", "as_meta_algorithm", "fresh_policies"]


def _episodes_of(evaluator: MetaEvaluator) -> int:
    """Exploration episodes per task, in all rounds that there are for an algorithm."""
    return evaluator.num_rounds * evaluator.round_length


class MetaEvaluator(Evaluator[MetaEvaluationConfig]):
    """Measures how well an algorithm adapts to tasks that it was not trained on.

    Every cell (task, repetition) has its own exploration policy, new from the algorithm, and every episode a seed; both
    are the same at every evaluation, so that differences between evaluations come from the algorithm. Where exploration
    has noise that adapted episodes lack, the first episode is no measure of the policy before adaptation: exploration
    policies then act in the adapted episodes, too (``EvaluationResult.unadapted_returns``).

    The policy of the adapted episodes is made by one function (``policies_after``), for the agent and for all that it
    is compared with; they differ in the data alone. Adapted episodes are never adapted to.

    - By default (garage): all exploration episodes under the exploration policy, one adaptation, then ``num_episodes``
      adapted episodes.
    - ``posterior_sampling`` (PEARL, arXiv:1903.08254; oyster): after ``num_prior_episodes`` episodes the policy is
      adapted again after every exploration episode, from all episodes of the cell so far; then follow ``num_episodes``
      adapted episodes.
    - ``adaptation_rounds`` (e.g. several gradient steps): ``episodes_per_round`` episodes and an adaptation, this many
      times, before the adapted episodes.

    Attributes:
        num_rounds: How often exploration episodes are followed by an adaptation, once an algorithm is known.
        round_length: Exploration episodes of each round.
        continues: Whether a round adapts the policy of the last one.
        worker_class, worker_args: Arguments of the documented constructor.

    Args:
        config: Settings; ``None`` means the defaults.
        test_task_sampler, max_steps, num_test_tasks, prefix, seed, allow_overlap: See ``Evaluator``.
        test_task_names: Names of the tasks, in the order of the sampler; tasks of one name are reported together.
        all_tasks: Whether the test tasks are all there are, and no sample of many (see ``EvaluationResult``).
        options: Settings by name, in place of those of ``config``.
    """

    config_class: ClassVar[type[EvaluationConfig | MetaEvaluationConfig]] = MetaEvaluationConfig
    _needs_tasks: ClassVar[bool] = True

    @understands()
    def __init__(
        self,
        config: MetaEvaluationConfig | None = None,
        *,
        test_task_sampler: TaskSampler | None = None,
        max_steps: float | None = None,
        num_test_tasks: int | None = None,
        test_task_names: Sequence[str] | None = None,
        prefix: str = "MetaTest",
        seed: int = 0,
        allow_overlap: bool = False,
        all_tasks: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            config,
            options,
            test_task_sampler=test_task_sampler,
            max_steps=max_steps,
            num_test_tasks=num_test_tasks,
            prefix=prefix,
            seed=seed,
            allow_overlap=allow_overlap,
        )
        self.test_task_names, self.all_tasks = test_task_names, all_tasks
        self._follow(1)

    # Settings, by the names of the documents, too.
    num_episodes = ConfigField[int](changes=True)
    n_test_rollouts = ConfigField[int]("num_episodes", changes=True)
    num_adaptation_episodes = ConfigField[int](changes=True, shown=_episodes_of)
    n_exploration_traj = ConfigField[int]("num_adaptation_episodes", changes=True, shown=_episodes_of)
    deterministic = ConfigField[bool](changes=True)
    return_reward_key = ConfigField[str | None](changes=True)
    posterior_sampling = ConfigField[bool](changes=True)
    num_prior_episodes = ConfigField[int](changes=True)
    deterministic_exploration = ConfigField[bool | None](changes=True)
    adaptation_rounds = ConfigField[int | None](changes=True)
    episodes_per_round = ConfigField[int | None](changes=True)
    adapt_from = ConfigField[Literal["last", "all"]](changes=True)
    max_path_length = Checked[float | None](checked_limit, "max_steps")
    n_test_tasks = Checked[int | None](checked_number, "num_test_tasks")
    all_tasks = Checked[bool](check_flag)
    worker_class: Any = None
    worker_args: Mapping[str, Any] | None = None

    def settle(self, config: MetaEvaluationConfig) -> None:
        """See ``Evaluator``."""
        super().settle(config)
        self._follow(1)

    @property
    def repetitions(self) -> int:
        """Cells per task."""
        return self.config.repetitions

    @repetitions.setter
    def repetitions(self, value: int) -> None:
        self.settle(config_of(MetaEvaluationConfig, self.config, {"repetitions": value}))

    def protocol(self, algo: Any) -> dict[str, Any]:
        """How ``algo`` is evaluated: arguments as they are used, by name (plain data, for files).

        Of rounds and episodes under the prior there are only those that the way of adapting has.
        """
        quiet = self.explores_quietly(as_meta_algorithm(algo))
        self._follow(as_meta_algorithm(algo).info.inner_steps)
        if self.config.posterior_sampling:
            adapts: dict[str, Any] = {"num_prior_episodes": self.config.num_prior_episodes}
        else:
            rounds = {"adaptation_rounds": self.num_rounds, "episodes_per_round": self.round_length}
            adapts = {**rounds, "adapt_from": "last" if self.continues else self.config.adapt_from}
        return {
            "n_exploration_traj": self.num_adaptation_episodes,
            "n_test_rollouts": self.config.num_episodes,
            "posterior_sampling": self.config.posterior_sampling,
            **adapts,
            "deterministic_exploration": quiet,
            **super().protocol(algo),
        }

    def prepare(self, algo: Any) -> list[EnvUpdate]:
        """See ``Evaluator``; rounds that were not given are those of ``algo``."""
        self._follow(as_meta_algorithm(algo).info.inner_steps)
        return super().prepare(algo)

    def explores_quietly(self, algo: MetaRLAlgorithm) -> bool:
        """Whether exploration episodes of ``algo`` are deterministic."""
        if self.config.deterministic_exploration is not None:
            return self.config.deterministic_exploration
        return self.config.deterministic and algo.info.deterministic_exploration

    def evaluate(
        self,
        algo: Any,
        test_rollouts_per_task: int | None = None,
        *,
        engine: RolloutEngine | None = None,
        keep_rollouts: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> EvaluationResult:
        """Run the protocol on ``algo``, which is left unchanged.

        Args:
            algo: Offers ``get_exploration_policy()`` and ``adapt_policy(policy, trajectories)``.
            test_rollouts_per_task: Adapted episodes per task; ``None`` means ``num_episodes``.
            engine: Engine to use (its policy may be exchanged); ``None`` means one of the evaluator's own.
            keep_rollouts: Keep all steps in the result.
            progress: Called as ``progress(done, total)``, in episodes, while they run.
        """
        num_adapted = self.config.num_episodes if test_rollouts_per_task is None else test_rollouts_per_task
        check_whole("test_rollouts_per_task", num_adapted)
        algo = as_meta_algorithm(algo)
        updates = self.prepare(algo)
        limit = self._step_limit(algo)
        policies = fresh_policies(algo, len(updates) * self.repetitions, self.seed)
        history = [Rollouts()] * len(policies)
        quiet = self.explores_quietly(algo)
        pairs = quiet != self.config.deterministic
        count = count_episodes(
            progress, len(policies) * (self.num_adaptation_episodes + (2 if pairs else 1) * num_adapted)
        )
        for episodes in self._rounds():
            if episodes.start:
                policies = self.adapted(algo, policies, history)
            self._run_round(engine, policies, history, episodes, limit, deterministic=quiet, progress=count)
        episodes = range(self.num_adaptation_episodes, self.num_adaptation_episodes + num_adapted)
        nothing = [Rollouts()] * len(policies)
        policies = self.policies_after(algo, history)
        self._run_round(engine, policies, history, episodes, limit, progress=count)
        unadapted = list(nothing) if pairs else []
        if pairs:
            self._run_round(engine, self.policies_after(algo, nothing), unadapted, episodes, limit, progress=count)
        self._num_evaluations += 1
        lengths, success_steps = episode_outcomes(history, len(updates))
        return EvaluationResult(
            returns=self._returns(history),
            num_exploration=self.num_adaptation_episodes,
            tasks=[update.task for update in updates],
            task_names=list(self.test_task_names or (f"task {i}" for i in range(len(updates)))),
            cells=[self._cell(cell, episode) for cell in range(len(history)) for episode in range(len(history[0]))],
            reward_key=self.config.return_reward_key,
            env_steps=sum(int(rollouts.bounds[-1]) for rollouts in (*history, *unadapted)),
            metrics=self._metrics([rollouts[self.num_adaptation_episodes :] for rollouts in history], algo.discount),
            prefix=self.prefix,
            provenance=dict((history[0][0].rollout_info or {}).get("provenance") or {}),
            lengths=lengths,
            success_steps=success_steps,
            rollouts=history if keep_rollouts else None,
            unadapted_returns=self._returns(unadapted) if pairs else None,
            all_tasks=self.all_tasks,
        )

    def run_cells(
        self,
        policies: Sequence[Any],
        episodes: range,
        contexts: Sequence[Context | None] | None = None,
        *,
        engine: RolloutEngine | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Returns ``(num_tasks, repetitions, len(episodes))`` of other policies in cells of ``evaluate``, same seeds.

        Args:
            policies: One per cell (task by task, all repetitions of one after the other).
            episodes: Which episodes of each cell.
            contexts: Context of the policy of each cell; ``None`` means its own belief.
            engine, progress: As in ``evaluate``.
        """
        return self._returns(self.cell_rollouts(policies, episodes, contexts, engine=engine, progress=progress))

    def cell_rollouts(
        self,
        policies: Sequence[Any],
        episodes: range,
        contexts: Sequence[Context | None] | None = None,
        *,
        engine: RolloutEngine | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Rollouts]:
        """The rollouts behind ``run_cells``, those of each cell together; arguments as there."""
        history = [Rollouts()] * len(policies)
        count = count_episodes(progress, len(policies) * len(episodes))
        self._run_round(engine, policies, history, episodes, self._step_limit(), contexts=contexts, progress=count)
        return history

    def run_reference(
        self,
        policy: Any,
        contexts_of_task: Callable[[Any], Context | None] | None = None,
        *,
        test_rollouts_per_task: int | None = None,
        engine: RolloutEngine | None = None,
    ) -> np.ndarray:
        """Returns of another policy in the very cells of ``evaluate``, e.g. of an oracle or a floor.

        Args:
            policy: The policy that acts in all cells.
            contexts_of_task: Context of the policy in a task.
            test_rollouts_per_task, engine: As in ``evaluate``.

        Returns:
            Shape ``(num_tasks, repetitions, num_exploration + num_adapted)``.
        """
        num_adapted = self.config.num_episodes if test_rollouts_per_task is None else test_rollouts_per_task
        tasks = [update.task for update in self.draw() for _ in range(self.repetitions)]
        contexts = [None if contexts_of_task is None else contexts_of_task(task) for task in tasks]
        episodes = range(self.num_adaptation_episodes + num_adapted)
        return self.run_cells([policy] * len(tasks), episodes, contexts, engine=engine)

    def policies_after(self, algo: MetaRLAlgorithm, data: Sequence[Rollouts]) -> list[Any]:
        """The policies of the adapted episodes: new exploration policies, adapted to ``data`` as the protocol has it.

        Args:
            algo: The adapting algorithm.
            data: Episodes of each cell, the same number of episodes; none: those of no adaptation. Rounds that
                continue from each other's policies take them round by round.
        """
        policies, number = fresh_policies(algo, len(data), self.seed), len(data[0])
        if not number:
            return policies
        if not self.continues or self.num_rounds == 1:
            return adapt_policies(algo, policies, data, self.draw()[0], self.seed, fresh=False)
        for end in range(self.round_length, number + 1, self.round_length):
            policies = self.adapted(algo, policies, [rollouts[:end] for rollouts in data])
        return policies

    def adapted(self, algo: MetaRLAlgorithm, policies: Sequence[Any], history: Sequence[Rollouts]) -> list[Any]:
        """Policies of all cells, adapted to the episodes so far as the protocol has it.

        Args:
            algo: The adapting algorithm.
            policies: The policies of the last episodes, which the caller no longer uses.
            history: All episodes of each cell, the same number of them.
        """
        done = len(history[0])
        again = done > (self.config.num_prior_episodes if self.config.posterior_sampling else self.round_length)
        last = self.continues
        # An exploration policy is consumed by its adaptation, so further adaptations start from fresh ones,
        # unless the algorithm declares that it takes its adapted policies as well (copying networks takes time).
        fresh = again and not last and not algo.info.adapts_again
        first = done - self.round_length if last else 0
        return adapt_policies(algo, policies, history, self.draw()[0], self.seed, fresh=fresh, first=first)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _follow(self, inner_steps: int) -> None:
        """Settle rounds and episodes, for an algorithm that learns to adapt in that many steps."""
        config = self.config
        self.num_rounds, self.round_length = config.rounds(inner_steps)
        follows = config.adaptation_rounds is None and config.episodes_per_round is None and self.num_rounds > 1
        self.continues = follows or config.adapt_from == "last"

    def _rounds(self) -> list[range]:
        """Exploration episodes between adaptations."""
        explore = self.num_adaptation_episodes
        if self.config.posterior_sampling:
            starts = [0, *range(self.config.num_prior_episodes, explore)]
        else:
            starts = list(range(0, explore, self.round_length))
        return [range(start, end) for start, end in zip(starts, [*starts[1:], explore], strict=True)]

    def _make_engine(self, policy: Any) -> RolloutEngine:
        return RolloutEngine(self.draw()[0], policy)


def as_meta_algorithm(algo: Any) -> MetaRLAlgorithm:
    """``algo`` with the contract of ``MetaRLAlgorithm``.

    Raises:
        TypeError: It does not adapt.
    """
    known = as_algorithm(algo)
    if not isinstance(known, MetaRLAlgorithm) or not known.info.adapts:
        raise TypeError(
            f"a meta-test needs an algorithm with get_exploration_policy and adapt_policy, got {known.info.name}: "
            "use a PolicyEvaluator"
        )
    return known


def fresh_policies(algo: MetaRLAlgorithm, count: int, seed: int) -> list[Any]:
    """``count`` exploration policies, the same ones for the same algorithm and seed."""
    with isolated_rng(derive_seed("explore", seed)):  # foreign algorithms may draw from global generators
        return algo.get_exploration_policies(count)


def adapt_policies(
    algo: MetaRLAlgorithm,
    policies: Sequence[Any],
    history: Sequence[Rollouts],
    update: EnvUpdate,
    seed: int,
    *,
    fresh: bool,
    first: int = 0,
) -> list[Any]:
    """Policies adapted from the rollouts in ``history``, one cell each.

    Args:
        algo: The adapting algorithm.
        policies: One per cell, given up by the caller.
        history: Rollouts of each cell, the same number of them.
        update: Update of the first task; its environment has the spaces if the algorithm does not know them.
        seed: Seed for algorithms that draw from global generators.
        fresh: Adapt new exploration policies instead of ``policies``.
        first: Leave out this many rollouts of each cell.

    Raises:
        ValueError: The algorithm returned another number of policies.
    """
    spec = _spec_of(update) if algo.env_spec is None else algo.env_spec
    with isolated_rng(derive_seed("adapt", seed, len(history[0]))):
        if fresh:
            policies = algo.get_exploration_policies(len(policies))
        batches = [TrajectoryBatch.from_rollouts(spec, done[first:]) for done in history]
        adapted = list(algo.adapt_policies(policies, batches))
    if len(adapted) != len(batches):
        raise ValueError(
            f"adapt_policies of {algo.info.name} must return a policy for each of {len(batches)} batches, got "
            f"{len(adapted)}"
        )
    return adapted


def _spec_of(update: EnvUpdate) -> EnvSpec:
    env = update()
    try:
        return EnvSpec.from_env(env)
    finally:
        if not isinstance(update, ExistingEnvUpdate):  # that one belongs to the caller
            env.close()
