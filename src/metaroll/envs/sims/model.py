"""What the physics of a simulator is: pure functions of columns.

A *column* is one quantity of all simulations: an array ``(N,)`` of NumPy or torch (any device, with gradients), or a
plain number. The same formula serves all of them: it only uses Python's operators and the functions of ``xp``, the
namespace of the array library, or ``SCALARS`` for plain numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

__all__ = ["EFFICIENCY", "NON_NEGATIVE", "POSITIVE", "SCALARS", "Column", "Columns", "Constants", "SimModel"]

Column = Any
"""``(N,)`` array, or a number."""

Columns = tuple[Column, ...]
"""One column per label."""

Constants = Mapping[str, Column]
"""Name -> column: domain parameters, and what is computed from them once."""

POSITIVE = (0.0, math.inf)
"""Range of masses, lengths, inertias."""
NON_NEGATIVE = (-math.ulp(0.0), math.inf)
"""Range of friction and damping, which may be 0."""
EFFICIENCY = (0.0, 1.0)
"""Range of shares of power that arrive."""


class SimModel(ABC):
    """Physics of one system. Stateless and immutable: everything that varies is an argument.

    Angles are in rad, lengths in m, times in s, masses in kg, voltages in V.

    Attributes:
        name: What ids and messages call it.
        state_labels: Names of the state's S entries.
        observation_labels: Names of what is observed.
        action_labels: Names of the actions.
        memory_labels: Quantities beyond the state that the next step needs (plate angles, last acceleration).
        dt: Default length of a step in s.
        max_steps: Default number of steps of an episode.
        nominal: Domain parameters of the undisturbed system.
        ranges: Domain parameter -> interval (low, high) that it must lie in, low excluded where it is 0; a parameter
            that is not named may be any finite number.
        ordered: Pairs of domain parameters of which the first must not be above the second.
        num_uniforms: How many random numbers an initial state takes.
    """

    name: ClassVar[str]
    state_labels: ClassVar[tuple[str, ...]]
    observation_labels: ClassVar[tuple[str, ...]]
    action_labels: ClassVar[tuple[str, ...]]
    memory_labels: ClassVar[tuple[str, ...]] = ()
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    ordered: ClassVar[tuple[tuple[str, str], ...]] = ()
    num_uniforms: ClassVar[int]
    dt: float
    max_steps: int
    nominal: Mapping[str, float]

    @abstractmethod
    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params`` and all that is computed from them alone (moments of inertia, bounds), once per reset."""

    @abstractmethod
    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """State and memory after ``dt`` seconds under ``action``, which lies within its bounds."""

    @abstractmethod
    def observe(self, state: Columns, xp: Any) -> Columns:
        """What is observed in ``state``."""

    @abstractmethod
    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Lowest and highest actions."""

    @abstractmethod
    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Lowest and highest states; a rollout outside of them has failed."""

    def observation_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Lowest and highest observations: by their labels those of the state, 1 for sines and cosines, else none.

        The last observation of a rollout that has failed lies outside.
        """
        known = dict(zip(self.state_labels, zip(*self.state_bounds(constants), strict=True), strict=True))
        circular, unknown = (-1.0, 1.0), (-math.inf, math.inf)
        pairs = [
            known.get(label, circular if label.startswith(("sin", "cos")) else unknown)
            for label in self.observation_labels
        ]
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)

    @abstractmethod
    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Lowest and highest entries of initial states, in the coordinates that ``state_from_init`` takes."""

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        """A random initial state from ``num_uniforms`` columns of numbers in [0, 1).

        By default each entry of ``initial_bounds`` is uniform.
        """
        low, high = self.initial_bounds(constants)
        init = tuple(a + (b - a) * u for a, b, u in zip(low, high, uniforms, strict=True))
        return self.state_from_init(init, constants, xp)

    def state_from_init(self, init: Columns, constants: Constants, xp: Any) -> Columns:
        """The state that an element of the space of initial states stands for; by default that itself."""
        return init

    def initial_memory(self, state: Columns, constants: Constants, xp: Any) -> Columns:
        """Memory at the start of an episode in ``state``; by default zeros."""
        return tuple(state[0] * 0.0 for _ in self.memory_labels)

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Mechanical energy in J, conserved without friction and input; raises where a model has none."""
        raise NotImplementedError(f"{self.name} has no mechanical energy")


def _where(condition: bool, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def _clip(value: float, low: float | None = None, high: float | None = None) -> float:
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


def _sign(value: float) -> float:
    return float((value > 0) - (value < 0))


SCALARS = SimpleNamespace(
    sin=math.sin,
    cos=math.cos,
    tan=math.tan,
    exp=math.exp,
    log=math.log,
    sqrt=math.sqrt,
    tanh=math.tanh,
    atan2=math.atan2,
    floor=math.floor,
    abs=abs,
    sign=_sign,
    where=_where,
    clip=_clip,
    minimum=min,
    maximum=max,
    logical_and=lambda left, right: left and right,
    logical_or=lambda left, right: left or right,
    pi=math.pi,
)
"""``xp`` for plain Python numbers: one simulation alone, for interactive use and as a baseline."""
