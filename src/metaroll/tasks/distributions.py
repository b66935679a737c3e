"""Distributions of single domain parameters, which can be adapted."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from metaroll.checks import check_whole, plain_number
from metaroll.errors import ShapeError, unknown_name
from metaroll.seeding import as_generator

__all__ = [
    "BernoulliDomainParam",
    "DomainParam",
    "LogUniformDomainParam",
    "MultivariateNormalDomainParam",
    "NormalDomainParam",
    "TableDomainParam",
    "UniformDomainParam",
]


@dataclass
class DomainParam(ABC):
    """A domain parameter (or several that vary together) as a random variable.

    Draws are clipped to [clip_lo, clip_up], then rounded to whole numbers if ``roundint``.

    Args:
        name: Its name in the environment.
        clip_lo: Lowest value.
        clip_up: Highest value.
        roundint: Round to whole numbers.
    """

    name: Any
    clip_lo: Any = field(default=-np.inf, kw_only=True)
    clip_up: Any = field(default=np.inf, kw_only=True)
    roundint: bool = field(default=False, kw_only=True)

    _numbers: ClassVar[tuple[str, ...]] = ()
    """Fields of the distribution that are single numbers."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be the name of a domain parameter, got {self.name!r}")
        for name in self._numbers:
            setattr(self, name, plain_number(f"{name} of {self.name!r}", getattr(self, name)))
        for name in ("clip_lo", "clip_up"):
            setattr(self, name, plain_number(f"{name} of {self.name!r}", getattr(self, name), finite=False))
        if self.clip_lo > self.clip_up:
            raise ValueError(
                f"clip_lo of {self.name!r} must not be above clip_up, got {self.clip_lo} and {self.clip_up}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values of one draw."""
        return (self.name,)

    @classmethod
    def get_field_names(cls) -> list[str]:
        """Names of all fields, those of the distribution last."""
        return [entry.name for entry in dataclasses.fields(cls)]

    @classmethod
    def distribution_fields(cls) -> list[str]:
        """Names of the attributes that ``adapt`` can change."""
        common = {entry.name for entry in dataclasses.fields(DomainParam)}
        return [name for name in cls.get_field_names() if name not in common]

    def sample(self, num: int = 1, generator: np.random.Generator | int | None = None) -> np.ndarray:
        """``num`` draws, ``(num,)`` float64; ``(num, D)`` of D parameters that vary together.

        Args:
            num: How many.
            generator: Source of randomness; ``None`` means fresh entropy.

        Raises:
            TypeError: ``num`` is not an integer.
            ValueError: ``num`` is negative.
        """
        count = check_whole("num", num, 0)
        values = np.clip(self._draw(count, as_generator(generator)), self.clip_lo, self.clip_up)
        return np.rint(values) if self.roundint else values

    def sample_one(self, generator: np.random.Generator) -> dict[str, float]:
        """One draw by name, the same as ``sample(1, generator)`` but much faster."""
        value = min(max(float(self._draw(None, generator)), self.clip_lo), self.clip_up)
        return {self.name: float(round(value)) if self.roundint else value}

    def adapt(self, distr_param: str, value: Any) -> None:
        """Change one field of the distribution; a value that it cannot have changes nothing.

        Args:
            distr_param: One of ``distribution_fields()``: ``"mean"``, ``"halfspan"``, ``"std"`` ...
            value: Its new value.
        """
        known = self.distribution_fields()
        if distr_param not in known:
            raise unknown_name(f"distribution parameter of {self.name!r} ({type(self).__name__})", distr_param, known)
        changed = dataclasses.replace(self, **{distr_param: value})
        setattr(self, distr_param, getattr(changed, distr_param))

    def prior_entries(self) -> list[dict[str, Any]]:
        """The distribution as plain data, an entry for each parameter: a bounded prior for inference.

        Mass beyond the clips, which draws put onto them, is spread between them. Whole numbers count as continuous.

        Raises:
            TypeError: It has no separate density in each parameter.
        """
        raise TypeError(
            f"{type(self).__name__} of {self.names} cannot be a prior: that takes independent uniform, log-uniform or "
            "normal distributions"
        )

    def _bounded(self, kind: str, low: float = -np.inf, high: float = np.inf, **more: float) -> list[dict[str, Any]]:
        bounds = max(low, float(self.clip_lo)), min(high, float(self.clip_up))
        return [{"name": self.name, "kind": kind, "low": bounds[0], "high": bounds[1], **more}]

    @abstractmethod
    def narrowed(self, factor: float) -> DomainParam:
        """A copy whose values lie ``factor`` times as far from their center."""

    @abstractmethod
    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        """``num`` values before clipping; ``None`` means a single number."""


@dataclass
class UniformDomainParam(DomainParam):
    """Uniform on [mean - halfspan, mean + halfspan]."""

    mean: float
    halfspan: float

    _numbers: ClassVar[tuple[str, ...]] = ("mean", "halfspan")

    def __post_init__(self) -> None:
        super().__post_init__()
        _not_negative(self, "halfspan")

    def narrowed(self, factor: float) -> UniformDomainParam:
        return dataclasses.replace(self, halfspan=factor * self.halfspan)

    def prior_entries(self) -> list[dict[str, Any]]:
        return self._bounded("uniform", self.mean - self.halfspan, self.mean + self.halfspan)

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        return self.mean + self.halfspan * (2.0 * generator.random(num) - 1.0)


@dataclass
class NormalDomainParam(DomainParam):
    """Normal with standard deviation ``std``."""

    mean: float
    std: float

    _numbers: ClassVar[tuple[str, ...]] = ("mean", "std")

    def __post_init__(self) -> None:
        super().__post_init__()
        _not_negative(self, "std")

    def narrowed(self, factor: float) -> NormalDomainParam:
        return dataclasses.replace(self, std=factor * self.std)

    def prior_entries(self) -> list[dict[str, Any]]:
        return self._bounded("normal", mean=self.mean, std=self.std)

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        return self.mean + self.std * generator.standard_normal(num)


@dataclass
class MultivariateNormalDomainParam(DomainParam):
    """Several parameters, jointly normal.

    Args:
        name: Their D names.
        mean: Shape ``(D,)``.
        cov: Covariance ``(D, D)``, symmetric and positive semi-definite.
        clip_lo: Lowest values, ``(D,)`` or one for all.
        clip_up: Highest values, ``(D,)`` or one for all.
        roundint: Round to whole numbers.
    """

    mean: Any
    cov: Any

    def __post_init__(self) -> None:
        self.name = _names(self.name)
        size = len(self.name)
        self.mean = _array(f"mean of {self.name}", self.mean, (size,))
        self.cov = _array(f"cov of {self.name}", self.cov, (size, size))
        self.clip_lo, self.clip_up = _clips(self)
        scale = max(1e-300, float(np.abs(self.cov).max()))
        if not np.allclose(self.cov, self.cov.T, rtol=1e-8, atol=1e-12 * scale):
            raise ValueError(f"cov of {self.name} must be symmetric, got {self.cov.tolist()}")
        if np.linalg.eigvalsh(self.cov).min() < -1e-10 * scale:
            raise ValueError(f"cov of {self.name} must be positive semi-definite, got {self.cov.tolist()}")

    @property
    def names(self) -> tuple[str, ...]:
        return self.name

    def sample_one(self, generator: np.random.Generator) -> dict[str, float]:
        return dict(zip(self.name, self.sample(1, generator)[0].tolist(), strict=True))

    def narrowed(self, factor: float) -> MultivariateNormalDomainParam:
        return dataclasses.replace(self, cov=factor**2 * self.cov)

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        return generator.multivariate_normal(self.mean, self.cov, size=num, method="eigh", check_valid="ignore")


@dataclass
class TableDomainParam(DomainParam):
    """Several parameters, jointly as in a table: each draw is one of its rows, all equally likely.

    Args:
        name: Their D names.
        draws: The table, ``(N, D)``.
        clip_lo: Lowest values, ``(D,)`` or one for all.
        clip_up: Highest values, ``(D,)`` or one for all.
        roundint: Round to whole numbers.
    """

    draws: Any

    def __post_init__(self) -> None:
        self.name = _names(self.name)
        self.draws = np.array(self.draws, dtype=np.float64)
        if self.draws.ndim != 2 or self.draws.shape[1] != len(self.name) or not len(self.draws):
            raise ShapeError(f"draws of {self.name} must have shape (N, {len(self.name)}), got {self.draws.shape}")
        if not np.isfinite(self.draws).all():
            raise ValueError(f"draws of {self.name} must be finite")
        self.clip_lo, self.clip_up = _clips(self)

    @property
    def names(self) -> tuple[str, ...]:
        return self.name

    def sample_one(self, generator: np.random.Generator) -> dict[str, float]:
        return dict(zip(self.name, self.sample(1, generator)[0].tolist(), strict=True))

    def narrowed(self, factor: float) -> TableDomainParam:
        center = self.draws.mean(axis=0)
        return dataclasses.replace(self, draws=center + factor * (self.draws - center))

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        return self.draws[generator.integers(len(self.draws), size=num)]

    def __repr__(self) -> str:
        return f"TableDomainParam({self.name!r}, {len(self.draws)} draws)"


@dataclass
class BernoulliDomainParam(DomainParam):
    """``val_1`` with probability ``prob_1``, otherwise ``val_0``."""

    val_0: float
    val_1: float
    prob_1: float

    _numbers: ClassVar[tuple[str, ...]] = ("val_0", "val_1", "prob_1")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.prob_1 <= 1.0:
            raise ValueError(f"prob_1 of {self.name!r} must lie in [0, 1], got {self.prob_1}")

    def narrowed(self, factor: float) -> BernoulliDomainParam:
        mean = self.val_0 + self.prob_1 * (self.val_1 - self.val_0)
        moved = (mean + factor * (value - mean) for value in (self.val_0, self.val_1))
        return dataclasses.replace(self, **dict(zip(("val_0", "val_1"), moved, strict=True)))

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        return np.where(generator.random(num) < self.prob_1, self.val_1, self.val_0)


@dataclass
class LogUniformDomainParam(DomainParam):
    """Between ``low`` and ``high``, both positive, with a uniform logarithm."""

    low: float
    high: float

    _numbers: ClassVar[tuple[str, ...]] = ("low", "high")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.low <= self.high:
            raise ValueError(f"low and high of {self.name!r} must fulfill 0 < low <= high, got {self.low}, {self.high}")

    def narrowed(self, factor: float) -> LogUniformDomainParam:
        center, halfspan = self._logarithms()
        return dataclasses.replace(
            self, low=float(np.exp(center - factor * halfspan)), high=float(np.exp(center + factor * halfspan))
        )

    def prior_entries(self) -> list[dict[str, Any]]:
        return self._bounded("log-uniform", self.low, self.high)

    def _draw(self, num: int | None, generator: np.random.Generator) -> Any:
        center, halfspan = self._logarithms()
        drawn = np.exp(center + halfspan * (2.0 * generator.random(num) - 1.0))
        return np.clip(drawn, self.low, self.high)  # the last bit of exp(log(x)) may be another

    def _logarithms(self) -> tuple[float, float]:
        low, high = np.log(self.low), np.log(self.high)
        return float(0.5 * (low + high)), float(0.5 * (high - low))


def _not_negative(param: DomainParam, name: str) -> None:
    if getattr(param, name) < 0:
        raise ValueError(f"{name} of {param.name!r} must not be negative, got {getattr(param, name)}")


def _array(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(value, dtype=np.float64)
    if array.shape != shape:
        raise ShapeError(f"{what} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite, got {array.tolist()}")
    return array


def _names(name: Any) -> tuple[str, ...]:
    """The names of parameters that vary together."""
    if isinstance(name, str) or not isinstance(name, Sequence):
        raise TypeError(f"name must be a list of names, one per dimension, got {name!r}")
    if not name or not all(isinstance(part, str) and part for part in name):
        raise TypeError(f"name must be a list of names, one per dimension, got {list(name)!r}")
    if len(set(name)) != len(name):
        raise ValueError(f"name must not hold a parameter twice, got {list(name)}")
    return tuple(name)


def _clips(param: DomainParam) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of each of several parameters, two of ``(D,)``."""
    size, bounds = len(param.names), []
    for field_name, value in (("clip_lo", param.clip_lo), ("clip_up", param.clip_up)):
        what, array = f"{field_name} of {param.name}", np.asarray(value, dtype=np.float64)
        if array.shape not in ((), (size,)):
            raise ShapeError(f"{what} must be a number or have shape ({size},), got {array.shape}")
        if np.isnan(array).any():
            raise ValueError(f"{what} must be numbers, got {array.tolist()}")
        bounds.append(np.broadcast_to(array, (size,)).copy())
    if not (bounds[0] <= bounds[1]).all():
        raise ValueError(f"clip_lo must not be above clip_up, got clip_lo={bounds[0]}, clip_up={bounds[1]}")
    return bounds[0], bounds[1]
