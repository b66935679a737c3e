"""Algorithms and runners written elsewhere, for garage's API say, with our contracts: the one place to probe them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, final

from metaroll.learners.base import AlgorithmInfo, MetaRLAlgorithm, RLAlgorithm
from metaroll.learners.runner import Runner
from metaroll.types import Context, EnvSpec, EnvUpdate

__all__ = ["ForeignAlgorithm", "ForeignRunner", "PartsRunner", "as_algorithm", "as_runner"]


def as_algorithm(algo: Any, *, trains: bool = False) -> RLAlgorithm:
    """``algo`` with the contract of ``RLAlgorithm``: itself, or a view of an object that is none.

    Args:
        algo: The object.
        trains: Whether it must have ``train(runner)``; an evaluation asks for policies only.

    Raises:
        TypeError: It has no ``train``, and needs it.
    """
    if isinstance(algo, RLAlgorithm):
        return algo
    if trains and not callable(getattr(algo, "train", None)):
        raise TypeError(f"algo must have a method train(runner), got {type(algo).__name__}")
    return ForeignAlgorithm(algo)


class _Member:
    """A member of the object behind the view, under its own name.

    Args:
        otherwise: What it is where the object does not have it.
    """

    def __init__(self, otherwise: Any = None) -> None:
        self._otherwise = otherwise

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, view: Any, owner: type) -> Any:
        return self if view is None else view._ask(self._name, self._otherwise)


@final
class ForeignAlgorithm(MetaRLAlgorithm):
    """A view of an object with ``train(runner)`` that is no ``RLAlgorithm``; what it lacks has our defaults.

    It adapts if it has ``get_exploration_policy``. Every member is looked up when it is asked for.

    Args:
        algo: The object.
    """

    def __init__(self, algo: Any) -> None:
        self._algo = algo

    @property
    def info(self) -> AlgorithmInfo:
        """What can be told from the object's members."""
        adapts = self._can("get_exploration_policy")
        return AlgorithmInfo(
            name=type(self._algo).__name__,
            adapts=adapts,
            adapts_again=bool(self._ask("adapts_again", False)),
            metric="return_after" if adapts else "return_mean",
            deterministic_exploration=bool(self._ask("deterministic_exploration", True)),
            has_state=self._can("state_dict") and self._can("load_state_dict"),
        )

    policy: Any = _Member()
    exploration_policy: Any = _Member()
    max_path_length: Any = _Member()
    discount: Any = _Member(1.0)
    train_tasks: Any = _Member()
    test_env_sampler: Any = _Member()
    num_test_tasks: Any = _Member()
    sampler_cls: Any = _Member()

    @property
    def env_spec(self) -> EnvSpec | None:
        """Spaces of the environment, if they are told in our terms."""
        spec = self._ask("env_spec")
        return spec if isinstance(spec, EnvSpec) else None

    def train(self, runner: Runner) -> Any:
        return self._algo.train(runner)

    def get_exploration_policy(self) -> Any:
        return self._algo.get_exploration_policy()

    def get_exploration_policies(self, count: int) -> list[Any]:
        """The object's own method, where it has one."""
        can = self._can("get_exploration_policies")
        return list(self._algo.get_exploration_policies(count)) if can else super().get_exploration_policies(count)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        return self._algo.adapt_policy(exploration_policy, exploration_trajectories)

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        """The object's own method, where it has one."""
        can = self._can("adapt_policies")
        return list(self._algo.adapt_policies(policies, batches)) if can else super().adapt_policies(policies, batches)

    def state_dict(self) -> dict[str, Any]:
        return self._algo.state_dict()

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        self._algo.load_state_dict(tree)

    def buffers_state_dict(self, copy: bool = True) -> Mapping[str, Any] | None:
        if not self._can("buffers_state_dict"):
            return None
        give = self._algo.buffers_state_dict
        return give(copy=copy) if "copy" in inspect.signature(give).parameters else give()

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        self._algo.load_buffers_state_dict(tree)

    def fingerprint(self) -> str | None:
        return str(self._algo.fingerprint()) if self._can("fingerprint") else None

    def _ask(self, name: str, otherwise: Any = None) -> Any:
        return getattr(self._algo, name, otherwise)

    def _can(self, name: str) -> bool:
        return callable(self._ask(name))


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
