"""Noise of sensors that simulations have: how much each set of parameters gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import check_number
from metaroll.errors import DataError, ShapeError, unknown_name
from metaroll.rollouts.samplers.series_features import channel_labels
from metaroll.tasks.domain_params import NOISE
from metaroll.types import EnvSpec

__all__ = ["Sensors", "SimulatedNoise", "split_names"]


def split_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of domain parameters, and those that are the noise of a channel (``noise.LABEL``)."""
    noise = tuple(name for name in names if name.startswith(NOISE))
    return tuple(name for name in names if name not in noise), noise


@dataclass(frozen=True, kw_only=True)
class Sensors:
    """Visible parts of states and observations, with their noise.

    Attributes:
        entries: Which entries of a state (or observation) count, bool ``(n,)``; ``None``: all.
        noise: Deviation of the noise in ``"states"`` and ``"observations"``, ``(n,)`` each, where there is any; ``(R,
            n)`` where rollouts have other ones. It is added to what is simulated before features are made, and
            simulations start as far beside the recorded states as these may be off.
        assumed_noise: Deviation of noise, ``(C,)`` or ``(R, C)``, of the entries that count which recorded rollouts do
            not have: it is added to their series as to what is simulated, and segments start where they do without it.
    """

    entries: np.ndarray | None = None
    noise: Mapping[str, np.ndarray] = field(default_factory=dict)
    assumed_noise: np.ndarray | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Sensors:
        """Those among ``options``, which keep the others; ``None`` means the default."""
        taken = {name: options.pop(name, None) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in taken.items() if value is not None})

    def check(self, num_rollouts: int) -> None:
        """``ShapeError`` where deviations are neither of all rollouts, ``(n,)``, nor of each, ``(R, n)``."""
        deviations = {f"noise[{name!r}]": stds for name, stds in self.noise.items()}
        for name, stds in {**deviations, "assumed_noise": self.assumed_noise}.items():
            if stds is not None and np.ndim(stds) != 1 and (np.ndim(stds) != 2 or len(stds) != num_rollouts):
                raise ShapeError(
                    f"{name} must be deviations of all entries, (n,), or those of each of {num_rollouts} "
                    f"rollouts_real, ({num_rollouts}, n), got shape {np.shape(stds)}"
                )


class SimulatedNoise:
    """From sets of parameters to deviations of noise.

    Args:
        names: Names of the columns of a set.
        spec: Spec of the simulation.
        field: ``"states"`` or ``"observations"``: what is measured.
        sensors: Its visible parts.

    Raises:
        DataError: There is no channel of a name.
    """

    def __init__(self, names: Sequence[str], spec: EnvSpec, field: str, sensors: Sensors) -> None:
        self._names = split_names(names)[1]
        entries, assumed = sensors.entries, sensors.assumed_noise
        common, self._entry_of = sensors.noise.get(field), dict[int, int]()
        self._common: np.ndarray | None = None
        if common is None and assumed is None and not self._names:
            return
        labels = channel_labels(spec, field, entries)
        for name in self._names:
            if name.removeprefix(NOISE) not in labels:
                raise DataError(str(unknown_name("noise of a channel", name, [NOISE + label for label in labels])))
            self._entry_of[list(names).index(name)] = labels.index(name.removeprefix(NOISE))
        whole = np.zeros(len(labels)) if common is None else np.asarray(common, dtype=np.float64)
        own = whole if entries is None or common is None else whole[..., entries]
        self._common = own if assumed is None else np.hypot(own, assumed)

    def check(self, params: Mapping[str, float]) -> None:
        """``ValueError`` where a deviation among ``params`` is negative."""
        for name in self._names:
            check_number(name, params[name], 0.0)

    def by_set(self, values: np.ndarray) -> np.ndarray | None:
        """Deviations for sets of parameters ``(B, d)``, ``(B, R or 1, C)``; ``None`` if there is none at all."""
        if self._common is None or not (self._entry_of or self._common.any()):
            return None
        table = np.tile(np.atleast_2d(self._common), (len(values), 1, 1))
        for column, entry in self._entry_of.items():
            table[:, :, entry] = values[:, column, None]
        return table
