"""Adapter for algorithms of other libraries (garage's API, for example): the only place that probes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, final

from metaroll.learners.base import AlgorithmInfo, MetaRLAlgorithm, RLAlgorithm
from metaroll.types import EnvSpec, Runner

__all__ = ["ForeignAlgorithm", "as_algorithm"]


def as_algorithm(algo: Any, *, trains: bool = False) -> RLAlgorithm:
    """``algo`` as an ``RLAlgorithm``: itself, or an adapter around it.

    Args:
        algo: The object.
        trains: Whether it must have ``train(runner)``; evaluations need policies only.

    Raises:
        TypeError: ``train`` is missing, and needed.
    """
    if isinstance(algo, RLAlgorithm):
        return algo
    if trains and not callable(getattr(algo, "train", None)):
        raise TypeError(f"algo must have a method train(runner), got {type(algo).__name__}")
    return ForeignAlgorithm(algo)


class _Member:
    """Descriptor that forwards to the member of the same name of the adapted object.

    Args:
        default: Value where the object does not have it.
    """

    def __init__(self, default: Any = None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, view: Any, owner: type) -> Any:
        return self if view is None else view._get(self._name, self._default)


@final
class ForeignAlgorithm(MetaRLAlgorithm):
    """Adapter for an object with ``train(runner)`` that is not an ``RLAlgorithm``; missing members have defaults.

    It adapts if it has ``get_exploration_policy``. Members are looked up on access.

    Args:
        algo: The object.
    """

    def __init__(self, algo: Any) -> None:
        self._algo = algo

    @property
    def info(self) -> AlgorithmInfo:
        """Properties inferred from the object's members."""
        adapts = self._can("get_exploration_policy")
        return AlgorithmInfo(
            name=type(self._algo).__name__,
            adapts=adapts,
            adapts_again=bool(self._get("adapts_again", False)),
            metric="return_after" if adapts else "return_mean",
            deterministic_exploration=bool(self._get("deterministic_exploration", True)),
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
        """Spaces of the environment, if they are an ``EnvSpec``."""
        spec = self._get("env_spec")
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
        method = self._algo.buffers_state_dict
        return method(copy=copy) if "copy" in inspect.signature(method).parameters else method()

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        self._algo.load_buffers_state_dict(tree)

    def fingerprint(self) -> str | None:
        return str(self._algo.fingerprint()) if self._can("fingerprint") else None

    def _get(self, name: str, default: Any = None) -> Any:
        return getattr(self._algo, name, default)

    def _can(self, name: str) -> bool:
        return callable(self._get(name))
