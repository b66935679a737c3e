"""Algorithms written elsewhere, for garage's API say, with our contract: the one place to probe them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, final

from metaroll.learners.base import AlgorithmInfo, MetaRLAlgorithm, RLAlgorithm
from metaroll.types import EnvSpec, Runner

__all__ = ["ForeignAlgorithm", "as_algorithm"]


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
