"""How PEARL collects data: under the prior, then under the posterior of what each task has shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaroll.learners.pearl_config import CollectionConfig
from metaroll.learners.pearl_data import TaskBuffers
from metaroll.types import Context, EnvUpdate, Runner

__all__ = ["PEARLCollector", "waves_of"]

_PRIOR: Context = {}
"""No context: z comes from the prior, whatever the policy in training believes at the time."""


def waves_of(tasks: Sequence[int]) -> list[list[int]]:
    """Task indices in waves without repetition, each repetition one wave later.

    A task that is drawn twice must see its two visits one after the other (the second clears the context of the first);
    visits of different tasks do not touch one another and may share a call.
    """
    waves: list[list[int]] = []
    visits: dict[int, int] = {}
    for task in tasks:
        visit = visits.get(task, 0)
        visits[task] = visit + 1
        if visit == len(waves):
            waves.append([])
        waves[visit].append(task)
    return waves


class PEARLCollector:
    """Fills the buffers of the train tasks through a runner; many tasks per call.

    Args:
        updates: Environment update of every train task.
        buffers: Where rollouts go.
        config: How many steps of which kind.
        posterior: Task indices -> what each task's policy is told: the belief inferred from the task's context buffer.
    """

    def __init__(
        self,
        updates: Sequence[EnvUpdate],
        buffers: TaskBuffers,
        config: CollectionConfig,
        posterior: Callable[[Sequence[int]], list[Context]],
    ) -> None:
        self._updates = updates
        self._buffers = buffers
        self._config = config
        self._posterior = posterior

    def collect_initial(self, runner: Runner) -> None:
        """Data of every train task under the prior, before any training; one call for all tasks."""
        self._collect_prior(runner, range(len(self._updates)), self._config.num_initial_steps)

    def collect_visits(self, runner: Runner, tasks: Sequence[int]) -> None:
        """Visit ``tasks`` (indices, repetitions count): forget the context, collect prior, posterior and extra data."""
        config = self._config
        for wave in waves_of(tasks):
            for task in wave:
                self._buffers.clear_context(task)
            if config.num_steps_prior:
                self._collect_prior(runner, wave, config.num_steps_prior)
            if config.num_steps_posterior:
                self._collect_posterior(runner, wave, config.num_steps_posterior, to_context=True)
            if config.num_extra_rl_steps_posterior:
                self._collect_posterior(runner, wave, config.num_extra_rl_steps_posterior, to_context=False)

    def _collect_prior(self, runner: Runner, tasks: Sequence[int], num_steps: int) -> None:
        self._obtain(runner, tasks, [_PRIOR] * len(tasks), to_context=True, batch_size=num_steps)

    def _collect_posterior(self, runner: Runner, tasks: Sequence[int], num_steps: int, *, to_context: bool) -> None:
        """At least ``num_steps`` per task; the first ``update_post_train`` episodes under the prior, the posterior is
        inferred anew after every ``update_post_train`` episodes.
        """
        rate, horizon = self._config.update_post_train, self._config.max_path_length
        steps = dict.fromkeys(tasks, 0)
        open_tasks, contexts = list(tasks), [_PRIOR] * len(tasks)
        while open_tasks:
            left = rate  # episodes until the posterior is inferred again
            while left and open_tasks:
                # No task gets an episode that it would not have got alone: as many as the one nearest to its end needs.
                need = min(-(-(num_steps - steps[task]) // horizon) for task in open_tasks)
                episodes = min(left, need)
                taken = self._obtain(runner, open_tasks, contexts, to_context=to_context, num_rollouts=episodes)
                left -= episodes
                still = []
                for position, (task, count) in enumerate(zip(open_tasks, taken, strict=True)):
                    steps[task] += count
                    if steps[task] < num_steps:
                        still.append(position)
                open_tasks, contexts = [open_tasks[i] for i in still], [contexts[i] for i in still]
            if open_tasks:
                contexts = list(self._posterior(open_tasks))

    def _obtain(
        self,
        runner: Runner,
        tasks: Sequence[int],
        contexts: Sequence[Context],
        *,
        to_context: bool,
        batch_size: int | None = None,
        num_rollouts: int | None = None,
    ) -> list[int]:
        """Ask for rollouts of all ``tasks`` in one call and store them; number of steps per task."""
        groups = runner.obtain_samples(
            runner.step_itr,
            batch_size,
            env_update=[self._updates[task] for task in tasks],
            contexts=list(contexts),
            num_rollouts=num_rollouts,
        )
        if len(groups) != len(tasks):
            raise ValueError(
                f"the runner must return one list of rollouts per task, got {len(groups)} for {len(tasks)}"
            )
        taken = []
        for task, rollouts in zip(tasks, groups, strict=True):
            count = self._buffers.add(task, rollouts, to_context=to_context)
            if not count:
                raise ValueError(f"the runner returned no steps for train task {task}")
            taken.append(count)
        return taken
