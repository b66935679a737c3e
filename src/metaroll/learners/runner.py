"""What drives a learner, as far as learners may know: ``LocalRunner`` is one, others are viewed as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, final

import numpy as np

from metaroll.types import Context, EnvUpdate

__all__ = ["ForeignRunner", "PartsRunner", "Runner", "as_runner"]


class Runner(Protocol):
    """All that an algorithm may ask of its driver. Nobody assigns attributes on it."""

    @property
    def step_itr(self) -> int:
        """Number of calls of ``obtain_samples`` and ``sample_parameters`` so far."""
        ...

    @property
    def total_env_steps(self) -> int: ...

    def step_epochs(self) -> Iterator[int]:
        """Epochs to run; after each body the runner logs and saves a snapshot."""
        ...

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: Any = None,
        env_update: EnvUpdate | Sequence[EnvUpdate] | None = None,
        *,
        contexts: Sequence[Context | None] | None = None,
        num_rollouts: int | None = None,
        deterministic: bool = False,
        parameters: np.ndarray | None = None,
    ) -> Sequence[Any]:
        """Whole rollouts with at least ``batch_size`` steps (or exactly ``num_rollouts``).

        With one ``env_update`` (or none) the result is a sequence of StepSequences. With a sequence of M updates (and M
        ``contexts``) it is M such sequences, ``batch_size`` or ``num_rollouts`` holding for each. ``parameters (M, P)``
        are those of the policy in each variation, ``(P,)`` those in all of them.
        """
        ...

    def advance(
        self,
        num_steps: int,
        *,
        num_slots: int = 1,
        env_updates: Any = None,
        parameters: np.ndarray | None = None,
        actions: Any = None,
        deterministic: bool = False,
    ) -> Sequence[Any]:
        """Up to ``num_steps`` steps in each of ``num_slots`` rollouts that go on from call to call.

        For algorithms that do not wait for the end of an episode. The result is ``Rollouts``: pieces of rollouts, as
        columns, in the order of the rollouts' numbers (``plans[i].index``). A piece with ``done[-1]`` ends with its
        rollout; the last observation of any other is the first one of the next piece, and nothing ends there.

        Args:
            num_steps: Steps in each slot; fewer are taken in one whose rollout ends (the next begins a little later).
            num_slots: Rollouts at a time; the same in all calls of a run.
            env_updates: Variations of the environment: a list, or a sampler of tasks or domains (one that draws by a
                given generator). Each new rollout gets one, drawn from the run's seed and its number. The same in all
                calls of a run.
            parameters: Flat policy parameters ``(P,)``; ``None`` means those that the algorithm's policy has now.
            actions: Actions ``(num_slots, ...)`` for all of these steps, instead of those of the policy, which is not
                asked (what it remembers stands still).
            deterministic: Act by the deterministic policy; the same in all calls of a run.
        """
        ...

    def sample_parameters(
        self,
        param_sets: np.ndarray,
        *,
        num_domains: int = 1,
        num_init_states_per_domain: int = 1,
        deterministic: bool = True,
        fields: tuple[str, ...] | None = None,
    ) -> list[Sequence[Any]]:
        """Whole rollouts of the policy with each set of flat parameters ``(n, P)``: n sequences of StepSequences.

        All sets act in the same ``num_domains * num_init_states_per_domain`` pairs of a domain and an initial state.

        Args:
            param_sets: The sets.
            num_domains: Domains of each.
            num_init_states_per_domain: Rollouts in each domain.
            deterministic: Act by the deterministic policy.
            fields: Names of the columns that the algorithm looks at, ``("rewards",)`` say, if it needs no more: others
                are not recorded then (unless paths are stored). ``None``: all.
        """
        ...

    def evaluate(self, algo: Any, task_sampler: Any) -> float:
        """Run the meta-test protocol of ``algo`` on tasks of ``task_sampler``; average return after adaptation."""
        ...

    def log(self, metrics: Mapping[str, float]) -> None: ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Say how far a phase is: ``"warm-up"`` or ``"sampling"`` (environment steps, which the runner goes on to count
        itself), ``"updates"`` (gradient steps) or ``"evaluation"`` (episodes). It is cheap, and changes no result.
        """
        ...


class PartsRunner(Runner, Protocol):
    """A runner that also collects in parts, between which it can save what there is."""

    def obtain_in_parts(
        self,
        itr: int,
        batch_size: int,
        env_updates: Sequence[EnvUpdate],
        *,
        contexts: Sequence[Context | None] | None = None,
        missing: Sequence[int] | None = None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
        """What one call of ``obtain_samples`` would give, some variations at a time: positions, and a list for each.

        How they are divided changes no bit. Between two parts the runner may save a snapshot: the algorithm stores each
        part before it asks for the next, and after a resume it asks for what it still lacks.

        Args:
            itr, batch_size, contexts: As for ``obtain_samples``.
            env_updates: All M variations.
            missing: Positions of those that are wanted; ``None`` means all.
        """
        ...


def as_runner(runner: Any) -> PartsRunner:
    """``runner`` with the contract of ``PartsRunner``: itself, or a view of one that lacks what came later."""
    whole = all(callable(getattr(runner, name, None)) for name in ("progress", "obtain_in_parts"))
    return cast("PartsRunner", runner if whole else ForeignRunner(runner))


@final
class ForeignRunner:
    """A view of a driver that knows epochs, rollouts, evaluation and log; it is told no progress unless it can.

    Args:
        runner: The driver.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        if name == "_runner":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self._runner, name)

    def progress(self, phase: str, done: int, total: int) -> None:
        tell = getattr(self._runner, "progress", None)
        if callable(tell):
            tell(phase, done, total)

    def obtain_in_parts(
        self,
        itr: int,
        batch_size: int,
        env_updates: Sequence[EnvUpdate],
        *,
        contexts: Sequence[Context | None] | None = None,
        missing: Sequence[int] | None = None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
        """All that is missing in one part, by ``obtain_samples``."""
        wanted = range(len(env_updates)) if missing is None else missing
        told = None if contexts is None else [contexts[m] for m in wanted]
        updates = [env_updates[m] for m in wanted]
        yield wanted, self._runner.obtain_samples(itr, batch_size, env_update=updates, contexts=told)
