"""The domains of a sampler: drawn by the randomizing wrapper of an environment, which is removed from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import has_init_space, read_state, state_owner
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperBuffer, outermost_dr_wrapper, remove_all_dr_wrappers
from metaroll.errors import ShapeError
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvUpdate

__all__ = ["Domains", "given_list", "given_params", "given_states"]


def given_list(name: str, values: Iterable[Any], entry: str) -> list[Any]:
    """``values`` as a list of at least one ``entry`` (how errors call it)."""
    if isinstance(values, Mapping | StepSequence | str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {entry}s, got a {type(values).__name__}; put it into a list")
    listed = list(values)
    if not listed:
        raise ValueError(f"{name} must hold at least one {entry}, got none")
    return listed


def given_states(name: str, states: Iterable[Any], allow_none: bool = False) -> list[np.ndarray | None]:
    """Copies of given initial states, each ``(S,)``; at least one.

    Args:
        name: Name of the argument in errors.
        states: A list of states, or an array ``(n, S)``.
        allow_none: Whether an entry may be ``None``, which leaves that state to the environment.
    """
    checked: list[np.ndarray | None] = []
    for position, state in enumerate(given_list(name, states, "state")):
        if state is None and allow_none:
            checked.append(None)
            continue
        try:
            array = np.array(state, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must hold states of numbers, got {state!r} at position {position}") from error
        if array.ndim != 1 or not array.size:
            raise ShapeError(f"{name} must be a list of states (S,), got shape {array.shape} at position {position}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got {array} at position {position}")
        checked.append(array)
    lengths = sorted({state.size for state in checked if state is not None})
    if len(lengths) > 1:
        raise ShapeError(f"{name} must hold states of one length, got lengths {lengths}")
    return checked


def given_params(name: str, params: Iterable[Any]) -> list[DomainParamUpdate]:
    """Given dicts of domain parameters as updates; at least one."""
    return [DomainParamUpdate(entry) for entry in given_list(name, params, "dict")]


@dataclass
class _Plain:
    """Makes the environments of a source without the wrappers that randomize them."""

    source: EnvSource

    def __call__(self) -> Any:
        return remove_all_dr_wrappers(self.source.make())

    def __repr__(self) -> str:
        return f"{self.source!r} without random domains"


class Domains:
    """An environment without its randomization, and the source of domains and initial states for it.

    Args:
        env: As for ``RolloutEngine``; not changed.

    Attributes:
        source: The environment without wrappers that randomize it, for ``RolloutEngine``.
        draws_states: Whether initial states can be drawn; they can where the environment declares by ``init_space``
            that it can be started in any state.
    """

    def __init__(self, env: Any) -> None:
        source = EnvSource.of(env)
        instance = source.make()
        self._wrapper = outermost_dr_wrapper(instance)
        self.draws_states = has_init_space(instance)
        self.source = source if self._wrapper is None else EnvSource(_Plain(source))
        source.close(instance)

    def draw(self, num_domains: int, generator: np.random.Generator) -> list[EnvUpdate | None]:
        """Domains of the outermost wrapper that randomizes; ``None`` for each if there is none."""
        if self._wrapper is None:
            return [None] * num_domains
        buffer = self._wrapper.buffer if isinstance(self._wrapper, DomainRandWrapperBuffer) else None
        if buffer:
            drawn = [buffer[i] for i in generator.integers(len(buffer), size=num_domains)]
        else:
            drawn = self._wrapper.randomizer.draw(num_domains, generator)
        return [DomainParamUpdate(params) for params in drawn]

    def draw_states(
        self, updates: Sequence[EnvUpdate | None], num_each: int, generator: np.random.Generator
    ) -> list[np.ndarray]:
        """``num_each`` initial states for each domain, one domain after the other."""
        states: list[np.ndarray] = []
        env, before = self.source.make(), None
        try:
            for update in updates:
                # An environment can be reused for another domain that sets all parameters of the last one.
                if update is not None and before is not None and not update.replaces(before):
                    self.source.close(env)
                    env = self.source.make()
                env = env if update is None else update(env)
                states += [self._drawn_state(env, generator) for _ in range(num_each)]
                before = update
        finally:
            self.source.close(env)
        return states

    def _drawn_state(self, env: Any, generator: np.random.Generator) -> np.ndarray:
        env.reset(seed=int(generator.integers(2**31)))
        state = read_state(state_owner(env))
        if state is None:
            raise TypeError(
                f"{type(env.unwrapped).__name__} has an init_space but does not report its state; give it an attribute "
                "state, or pass init_states"
            )
        return state
