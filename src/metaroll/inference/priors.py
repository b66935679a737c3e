"""Priors over simulator parameters: bounded, independent, plain data; and the bijection to a standard normal.

Neural estimators work in the transformed space, so that no posterior has mass outside the bounds of its prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import torch
from scipy.special import log_ndtr, ndtr, ndtri

from metaroll.checks import array_of, check_list, check_whole, described, plain_number
from metaroll.errors import ShapeError, unknown_name
from metaroll.seeding import as_generator

__all__ = ["Marginal", "Prior", "TellsPrior", "as_prior"]

_FURTHEST = 8.0
"""Truncation of the standard normal: beyond it, all values would be rounded to the bound of a parameter."""
_LEAST_MASS = 1e-9
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@runtime_checkable
class TellsPrior(Protocol):
    """Anything that describes a prior as plain data: distributions of domain parameters, and randomizers of them."""

    def prior_entries(self) -> list[dict[str, Any]]:
        """An entry for each parameter, as ``Marginal.from_plain`` reads it."""
        ...


@final
@dataclass(frozen=True)
class Marginal:
    """Prior distribution of one parameter.

    Args:
        name: Name of the parameter in the environment.
        kind: ``"uniform"``, ``"log-uniform"`` or ``"normal"`` (truncated to the bounds).
        low: Lower bound; a normal may have none (``-inf``).
        high: Upper bound; a normal may have none (``inf``).
        mean: Mean of a normal before truncation.
        std: Standard deviation of a normal before truncation.

    Raises:
        TypeError: A value is not a number, or the name is not a string.
        ValueError: The bounds are not an interval, or hold (nearly) none of a normal's mass.
    """

    name: str
    kind: str
    low: float = -math.inf
    high: float = math.inf
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be the name of a parameter, got {self.name!r}")
        if self.kind not in ("uniform", "log-uniform", "normal"):
            raise unknown_name(f"kind of prior of {self.name!r}", str(self.kind), ("uniform", "log-uniform", "normal"))
        for field in ("low", "high", "mean", "std"):
            what = f"{field} of the prior of {self.name!r}"
            finite = field in ("mean", "std") or self.kind != "normal"
            object.__setattr__(self, field, plain_number(what, getattr(self, field), finite=finite))
        if not self.low < self.high:
            raise ValueError(f"the prior of {self.name!r} must have low below high, got {self.low} and {self.high}")
        if self.kind == "log-uniform" and self.low <= 0.0:
            raise ValueError(f"low of the log-uniform prior of {self.name!r} must be above 0, got {self.low}")
        if self.kind == "normal" and self.std <= 0.0:
            raise ValueError(f"std of the prior of {self.name!r} must be above 0, got {self.std}")
        if self.kind == "normal" and self._mass() < _LEAST_MASS:
            raise ValueError(
                f"the normal prior of {self.name!r} (mean {self.mean:g}, std {self.std:g}) must have mass between its "
                f"bounds {self.low:g} and {self.high:g}; move them, or take a uniform one"
            )

    def to_plain(self) -> dict[str, Any]:
        """The entry as JSON types; a missing bound is ``None``."""
        low, high = (value if math.isfinite(value) else None for value in (self.low, self.high))
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind, "low": low, "high": high}
        return {**entry, "mean": self.mean, "std": self.std} if self.kind == "normal" else entry

    @classmethod
    def from_plain(cls, entry: Mapping[str, Any]) -> Marginal:
        """The marginal of an entry from ``to_plain``.

        Raises:
            TypeError: ``entry`` has another form.
            ValueError: Its values do not define a distribution.
        """
        known = {"name", "kind", "low", "high", "mean", "std"}
        if not isinstance(entry, Mapping) or not {"name", "kind"} <= set(entry) <= known:
            raise TypeError(f"an entry of a prior must be a dict with name, kind, low and high, got {entry!r}")
        return cls(**{key: value for key, value in entry.items() if value is not None})

    def log_prob(self, values: np.ndarray) -> np.ndarray:
        """Logarithm of the density, the shape of ``values``; ``-inf`` outside the bounds."""
        inside = (values >= self.low) & (values <= self.high)
        if self.kind == "uniform":
            return np.where(inside, -math.log(self.high - self.low), -np.inf)
        if self.kind == "log-uniform":
            safe = np.where(inside, values, self.low)
            return np.where(inside, -np.log(safe) - math.log(math.log(self.high / self.low)), -np.inf)
        scaled = (values - self.mean) / self.std
        return np.where(inside, -0.5 * scaled**2 - _LOG_SQRT_2PI - math.log(self.std) - math.log(self._mass()), -np.inf)

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """Maps values to the space where the prior is a standard normal: ``Phi^-1(F(value))``."""
        below, above = self._sides(values)
        # From the smaller tail, since 1 - (a number near 1) has few digits.
        half = np.where(below < above, below, above)
        with np.errstate(divide="ignore"):
            return np.clip(np.where(below < above, 1.0, -1.0) * ndtri(half), -_FURTHEST, _FURTHEST)

    def from_normal(self, normal: np.ndarray) -> np.ndarray:
        """The inverse of ``to_normal``."""
        below, above = ndtr(normal), ndtr(-normal)
        if self.kind == "normal":
            low, high = ((bound - self.mean) / self.std for bound in (self.low, self.high))
            if math.isinf(low) and math.isinf(high):
                return self.mean + self.std * normal
            # Quantiles from the smaller tail, as above: F = Phi(low) + below * mass, 1 - F = Phi(-high) + above * mass.
            left, right = ndtr(low) + below * self._mass(), ndtr(-high) + above * self._mass()
            scaled = np.where(left < right, ndtri(np.minimum(left, 0.5)), -ndtri(np.minimum(right, 0.5)))
            return np.clip(self.mean + self.std * scaled, self.low, self.high)
        low, high = (self.low, self.high) if self.kind == "uniform" else (math.log(self.low), math.log(self.high))
        spread = np.where(below < above, low + (high - low) * below, high - (high - low) * above)
        return np.clip(spread if self.kind == "uniform" else np.exp(spread), self.low, self.high)

    def _mass(self) -> float:
        """Share of the normal between the bounds."""
        low, high = (self.low - self.mean) / self.std, (self.high - self.mean) / self.std
        if low > 0.0:
            low, high = -high, -low
        return float(ndtr(high) - ndtr(low)) if low > -37.0 else float(math.exp(log_ndtr(high)))

    def _sides(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mass below and above each value, each computed directly."""
        if self.kind == "normal":
            scaled = (np.clip(values, self.low, self.high) - self.mean) / self.std
            low, high = (self.low - self.mean) / self.std, (self.high - self.mean) / self.std
            return (ndtr(scaled) - ndtr(low)) / self._mass(), (ndtr(-scaled) - ndtr(-high)) / self._mass()
        low, high = self.low, self.high
        if self.kind == "log-uniform":
            low, high, values = math.log(low), math.log(high), np.log(np.clip(values, low, high))
        values = np.clip(values, low, high)
        return (values - low) / (high - low), (high - values) / (high - low)


@final
class Prior:
    """Independent marginals of d parameters.

    Args:
        marginals: One for each parameter, in the order of the columns of ``thetas``.

    Raises:
        TypeError: An entry is not a ``Marginal``.
        ValueError: ``marginals`` is empty, or two have the same name.
    """

    def __init__(self, marginals: Iterable[Marginal]) -> None:
        hint = "; as_prior takes other forms"
        self.marginals = tuple(check_list("marginals", marginals, "Marginals", Marginal, hint))
        """The distributions, one for each parameter."""
        names = [marginal.name for marginal in self.marginals]
        if not names:
            raise ValueError("a prior must have at least one parameter, got none")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"a prior must have every parameter once, got {twice!r} twice")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the environment."""
        return tuple(marginal.name for marginal in self.marginals)

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
        return len(self.marginals)

    @property
    def flat_columns(self) -> tuple[int, ...]:
        """Columns of parameters that are uniform between their bounds, or whose logarithm is."""
        return tuple(i for i, marginal in enumerate(self.marginals) if marginal.kind != "normal")

    @property
    def low(self) -> np.ndarray:
        """Lower bounds, ``(d,)``."""
        return np.array([marginal.low for marginal in self.marginals])

    @property
    def high(self) -> np.ndarray:
        """Upper bounds, ``(d,)``."""
        return np.array([marginal.high for marginal in self.marginals])

    @property
    def std(self) -> np.ndarray:
        """Standard deviations of the parameters, ``(d,)``, from 4096 quantiles of each."""
        quantiles = ndtri((np.arange(4096) + 0.5) / 4096)
        return np.array([marginal.from_normal(quantiles).std() for marginal in self.marginals])

    def sample(self, num: int, generator: np.random.Generator | int | None = None) -> np.ndarray:
        """``num`` sets of parameters, ``(num, d)``.

        Args:
            num: Number of sets.
            generator: Source of randomness; ``None`` means fresh entropy.
        """
        count = check_whole("num", num, 0)
        return self.from_normal(as_generator(generator).standard_normal((count, self.dim)))

    def log_prob(self, thetas: Any) -> np.ndarray:
        """Logarithm of the density of each row of ``thetas (n, d)``, ``(n,)``; ``-inf`` outside the bounds."""
        rows = self.check_rows("thetas", thetas)
        return sum((m.log_prob(rows[:, i]) for i, m in enumerate(self.marginals)), np.zeros(len(rows)))

    def to_normal(self, thetas: np.ndarray) -> np.ndarray:
        """``thetas (n, d)`` in the space where the prior is a standard normal, ``(n, d)``."""
        return np.stack([m.to_normal(thetas[:, i]) for i, m in enumerate(self.marginals)], axis=1)

    def from_normal(self, normal: np.ndarray) -> np.ndarray:
        """The inverse of ``to_normal``: rows of standard normal numbers as parameters, ``(n, d)``."""
        return np.stack([m.from_normal(normal[:, i]) for i, m in enumerate(self.marginals)], axis=1)

    def log_stretch(self, thetas: np.ndarray) -> np.ndarray:
        """``log |d to_normal / d theta|`` of each row, ``(n,)``: prior density over that of the standard normal."""
        normal = self.to_normal(thetas)
        return self.log_prob(thetas) + (0.5 * normal**2 + _LOG_SQRT_2PI).sum(axis=1)

    def check_rows(self, what: str, thetas: Any) -> np.ndarray:
        """``thetas`` as float64 ``(n, d)``; one set ``(d,)`` is a row.

        Raises:
            ShapeError: ``thetas`` has another shape.
            TypeError: ``thetas`` is not numeric.
        """
        if isinstance(thetas, torch.Tensor):
            thetas = thetas.detach().cpu().numpy()
        rows = array_of(what, thetas, f"an array (n, {self.dim})").astype(np.float64)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ShapeError(
                f"{what} must have shape (n, {self.dim}), a column for each of {list(self.names)}, got {rows.shape}"
            )
        return rows

    def to_plain(self) -> list[dict[str, Any]]:
        """An entry of JSON types for each parameter."""
        return [marginal.to_plain() for marginal in self.marginals]

    @classmethod
    def from_plain(cls, entries: Sequence[Mapping[str, Any]]) -> Prior:
        """The prior of entries from ``to_plain``, or from ``prior_entries`` of distributions of domain parameters."""
        return cls(Marginal.from_plain(entry) for entry in entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self.marginals == other.marginals

    def __hash__(self) -> int:
        return hash(self.marginals)

    def __repr__(self) -> str:
        shown = (f"{m.name}: {m.kind} [{m.low:g}, {m.high:g}]" for m in self.marginals)
        return f"Prior({', '.join(shown)})"


def as_prior(params: Any) -> Prior:
    """A prior from any of its forms.

    Args:
        params: A ``Prior``; ``{"mass": (0.5, 2.0), "length": ("log-uniform", 0.1, 10.0), "g": ("normal", 9.8, 0.1, 9,
            11)}`` (a normal's bounds may be left out); a distribution of domain parameters
            (``UniformDomainParam("mass", 1.0, 0.5)``), a list of them, or a ``DomainRandomizer``.

    Raises:
        TypeError: ``params`` has none of these forms.
        ValueError: Its values do not define a prior.
    """
    if isinstance(params, Prior):
        return params
    if isinstance(params, TellsPrior):
        return Prior.from_plain(params.prior_entries())
    if isinstance(params, Mapping) and params:
        return Prior(_marginal(name, value) for name, value in params.items())
    if isinstance(params, list | tuple) and params and all(isinstance(param, TellsPrior) for param in params):
        return Prior.from_plain([entry for param in params for entry in param.prior_entries()])
    raise TypeError(
        "a prior must be a dict such as {'mass': (0.5, 2.0), 'length': ('log-uniform', 0.1, 10.0)}, a list of "
        f"distributions of domain parameters, a DomainRandomizer or a Prior, got {described(params)}"
    )


def _marginal(name: str, value: Any) -> Marginal:
    if isinstance(value, Marginal):
        return value
    if isinstance(value, tuple | list):
        if len(value) == 2 and not isinstance(value[0], str):
            return Marginal(name, "uniform", value[0], value[1])
        if len(value) == 3 and value[0] in ("uniform", "log-uniform"):
            return Marginal(name, value[0], value[1], value[2])
        if len(value) in (3, 5) and value[0] == "normal":
            fields: dict[str, Any] = dict(zip(("kind", "mean", "std", "low", "high"), value, strict=False))
            return Marginal(name, **fields)
    raise TypeError(
        f"the prior of {name!r} must be (low, high), ('log-uniform', low, high), ('normal', mean, std) or "
        f"('normal', mean, std, low, high), got {value!r}"
    )
