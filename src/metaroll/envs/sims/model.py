"""The physics of a simulator: pure functions of columns.

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

from metaroll.checks import plain_number
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param
from metaroll.errors import DataError, unknown_name
from metaroll.tasks.distributions import DomainParam
from metaroll.tasks.domain_randomizer import RandomizationRange

__all__ = ["SCALARS", "Column", "Columns", "Constants", "SimModel", "angle_near", "symmetric"]

Column = Any
"""``(N,)`` array, or a number."""

Columns = tuple[Column, ...]
"""One column per label."""

Constants = Mapping[str, Column]
"""Name -> column: domain parameters, and constants computed from them once."""


class SimModel(ABC):
    """Physics of one system. Stateless and immutable: everything that varies is an argument.

    Angles are in rad, lengths in m, times in s, masses in kg, voltages in V.

    Attributes:
        name: Its name in ids and messages.
        state_labels: Names of the state's S entries.
        observation_labels: Names of what is observed.
        action_labels: Names of the actions.
        memory_labels: Quantities beyond the state that the next step needs (plate angles, last acceleration).
        dt: Default length of a step in s.
        max_steps: Default number of steps of an episode.
        params: All domain parameters, by name.
        ordered: Pairs of domain parameters of which the first must not be above the second.
        num_uniforms: How many random numbers an initial state takes.
    """

    name: ClassVar[str]
    state_labels: ClassVar[tuple[str, ...]]
    observation_labels: ClassVar[tuple[str, ...]]
    action_labels: ClassVar[tuple[str, ...]]
    memory_labels: ClassVar[tuple[str, ...]] = ()
    ordered: ClassVar[tuple[tuple[str, str], ...]] = ()
    num_uniforms: ClassVar[int]
    dt: float
    max_steps: int
    params: Mapping[str, Param]

    @property
    def nominal(self) -> dict[str, float]:
        """Domain parameters of the undisturbed system."""
        return {name: param.nominal for name, param in self.params.items()}

    @property
    def default_ranges(self) -> dict[str, RandomizationRange | DomainParam]:
        """How domain parameters vary by default, those that do."""
        return {name: param.varies for name, param in self.params.items() if param.varies is not None}

    def check_params(self, params: Mapping[str, Any]) -> dict[str, float]:
        """``params`` as plain numbers.

        Raises:
            DataError: A name (a ``KeyError``, too) that is not known; the message lists the nearest ones.
            TypeError: Not a number.
            ValueError: Not finite, or outside the range of the parameter.
        """
        if not isinstance(params, Mapping):
            raise TypeError(f"domain_param must be a dict of names and numbers, got {type(params).__name__}")
        checked = {}
        for name, value in params.items():
            if name not in self.params:
                raise DataError(str(unknown_name(f"domain parameter of the {self.name}", str(name), self.params)))
            if type(value) is not float:  # randomizers deliver arrays and tensors of one entry
                value = plain_number(f"domain parameter {name!r}", value)
            low, high = self.params[name].allowed
            if not math.isfinite(value):
                raise ValueError(f"domain parameter {name!r} must be finite, got {value}")
            if value < low or value > high or (low == 0.0 and value == 0.0):
                shown = 0.0 if low == NON_NEGATIVE[0] else low
                interval = f"{'(' if low == 0.0 else '['}{shown:g}, {high:g}{')' if math.isinf(high) else ']'}"
                wanted = "be positive" if (low, high) == POSITIVE else f"lie in {interval}"
                raise ValueError(f"domain parameter {name!r} of the {self.name} must {wanted}, got {value}")
            checked[name] = value
        return checked

    def check_order(self, params: Mapping[str, Any]) -> None:
        """Error if one of two domain parameters that are the ends of a range lies on the wrong side of the other.

        Args:
            params: All domain parameters: numbers, or columns ``(N,)``.
        """
        for low, high in self.ordered:
            wrong = params[low] > params[high]
            if wrong if isinstance(wrong, bool) else bool(wrong.any()):
                raise ValueError(
                    f"domain parameter {low!r} of the {self.name} must not be above {high!r}, got {params[low]} and "
                    f"{params[high]}"
                )

    @abstractmethod
    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params`` and all that is computed from them alone (moments of inertia, bounds), once per reset."""

    @abstractmethod
    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """State and memory after ``dt`` seconds under ``action``, which lies within its bounds."""

    def observe(self, state: Columns, xp: Any) -> Columns:
        """The observation of ``state``; by default the state itself."""
        return state

    def state_from_observation(self, observation: Columns, xp: Any) -> Columns:
        """The state that shows ``observation``: the inverse of ``observe``, for logs of devices.

        By default a state that is observed itself, which ``observe`` hands back as it is.

        An angle that is shown as sine and cosine is known up to full turns, which change nothing of the motion: it
        comes back within half a turn of where the system works. Memory is not seen; it starts as after a reset.

        Raises:
            NotImplementedError: The observation does not determine the state; with the reason.
        """
        alike = len(self.observation_labels) == len(self.state_labels)
        if not alike or self.observe(observation, xp) is not observation:
            raise NotImplementedError(
                f"the observation of the {self.name} ({', '.join(self.observation_labels)}) does not determine its "
                f"state ({', '.join(self.state_labels)})"
            )
        return observation

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
        """The state of an element of the space of initial states; by default the element itself."""
        return init

    def initial_memory(self, state: Columns, constants: Constants, xp: Any) -> Columns:
        """Memory at the start of an episode in ``state``; by default zeros."""
        return tuple(state[0] * 0.0 for _ in self.memory_labels)

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Mechanical energy in J, conserved without friction and input; raises where a model has none."""
        raise NotImplementedError(f"{self.name} has no mechanical energy")


def symmetric(*high: Column) -> tuple[Columns, Columns]:
    """Bounds that are ``high`` on either side of 0."""
    return tuple(-bound for bound in high), high


def angle_near(center: float, sin: Column, cos: Column, xp: Any) -> Column:
    """The angle in rad of a sine and cosine (of any common length) that lies within half a turn of ``center``.

    Args:
        center: 0, or pi.
        sin: Column.
        cos: Column.
        xp: Array namespace.
    """
    return xp.atan2(sin, cos) if center == 0.0 else xp.atan2(-sin, -cos) + math.pi


def _clip(value: float, low: float | None = None, high: float | None = None) -> float:
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


SCALARS = SimpleNamespace(
    **vars(math),
    clip=_clip,
    sign=lambda value: float((value > 0) - (value < 0)),
    where=lambda condition, then, otherwise: then if condition else otherwise,
    logical_and=lambda left, right: left and right,
)
"""``xp`` for plain Python numbers: one simulation alone, for interactive use and as a baseline."""
