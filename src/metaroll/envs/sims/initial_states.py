"""Where episodes of a simulator start: as the model says, in a box, in one state, or in one of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.sims.model import Columns, Constants, SimModel
from metaroll.errors import ShapeError

__all__ = ["InitialStates", "checked_init", "states_of_inits"]


@dataclass(frozen=True, eq=False)
class InitialStates:
    """A distribution of initial states; elements are states ``(S,)``, or coordinates ``(D,)`` that stand for them.

    Attributes:
        low: Lowest entries of a box ``(D,)``, or ``None``.
        high: Highest entries of it.
        choices: States to choose from with equal chances, ``(K, D)``, or ``None``. With neither, the model draws.
        single: Whether ``choices`` was given as one state.
    """

    low: np.ndarray | None = None
    high: np.ndarray | None = None
    choices: np.ndarray | None = None
    single: bool = False

    @classmethod
    def of(cls, init_space: Any, model: SimModel) -> InitialStates:
        """From a finite ``Box``, a state ``(D,)``, a list of states ``(K, D)``, or ``None`` (the model's own).

        Raises:
            ShapeError: Elements are neither states nor coordinates of initial states.
            ValueError: Infinite bounds, NaN, or no state at all.
        """
        if init_space is None or isinstance(init_space, cls):
            return cls() if init_space is None else init_space
        if isinstance(init_space, Box):
            low = checked_init(model, init_space.low, "init_space.low", finite=False)
            high = checked_init(model, init_space.high, "init_space.high", finite=False)
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                raise ValueError(
                    f"init_space must be bounded, since initial states are drawn from it, got {init_space}"
                )
            return cls(low, high)
        try:
            array = np.array(init_space, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"init_space must be a Box, a state, a list of states of one length, or None, got {init_space!r}"
            ) from error
        rows = np.atleast_2d(array)
        if array.size == 0:
            raise ValueError("init_space must hold at least one state, got none")
        choices = np.stack([checked_init(model, row, "init_space") for row in rows])
        return cls(choices=choices, single=array.ndim == 1)

    @property
    def is_own(self) -> bool:
        """Whether the model draws."""
        return self.low is None and self.choices is None

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """One element ``(D,)``."""
        if self.choices is not None:
            return self.choices[0 if self.single else int(generator.integers(len(self.choices)))]
        if self.low is None or self.high is None:
            raise RuntimeError("the model draws its initial states itself")
        return self.low + (self.high - self.low) * generator.random(len(self.low))

    def shown(self) -> Any:
        """What it was made of (a copy); ``None`` for the model's own."""
        if self.choices is not None:
            return self.choices[0].copy() if self.single else list(self.choices.copy())
        if self.low is None or self.high is None:
            return None
        return Box(self.low, self.high, dtype=np.float64)


def checked_init(model: SimModel, value: Any, name: str = "init_state", *, finite: bool = True) -> np.ndarray:
    """An initial state, or coordinates of one, in memory of its own."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold numbers, got {value!r}") from error
    if array.shape != (len(model.state_labels),):
        wanted = sorted({len(model.state_labels), _num_coordinates(model)}, reverse=True)
        if array.ndim != 1 or array.size not in wanted:
            shapes = " or ".join(f"({size},)" for size in wanted)
            labels = ", ".join(model.state_labels)
            raise ShapeError(f"{name} of the {model.name} must have shape {shapes} ({labels}), got {array.shape}")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array}")
    return array


def states_of_inits(model: SimModel, inits: np.ndarray, constants: Constants, xp: Any, dtype: Any) -> Columns:
    """States of which ``inits (k, D)`` are the coordinates, or ``inits`` as columns where these are states."""
    columns = tuple(np.ascontiguousarray(column, dtype=dtype) for column in inits.T)
    if inits.shape[1] == len(model.state_labels):
        return columns
    return model.state_from_init(columns, constants, xp)


def _num_coordinates(model: SimModel) -> int:
    nominal = {name: np.array([value]) for name, value in model.nominal.items()}
    return len(model.initial_bounds(model.constants(nominal, np))[0])
