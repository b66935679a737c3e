"""Domain parameters counted on another scale, for samplers and estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import plain_number
from metaroll.envs.wrappers.base import ChainWrapper, Memory
from metaroll.errors import unknown_name
from metaroll.tasks.domain_access import check_param_names, domain_params_of, read_domain_params, set_domain_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["DomainParamTransformWrapper"]

_SCALES = ("log", "sqrt")


class DomainParamTransformWrapper(ChainWrapper):
    """Some domain parameters are set and reported as their logarithm or square root, which keeps them positive.

    All that is outside (randomizers, samplers, ``rollout_info["domain_param"]``) sees the transformed values.

    Args:
        env: Environment whose domain parameters ``DomainParamUpdate`` can set.
        scales: Name -> ``"log"`` or ``"sqrt"``.
    """

    own_domain_params: tuple[str, ...] = ()
    batched_slots = ChainWrapper.batched_slots  # what ``reset`` does here, ``plans_in`` does for many

    def __init__(self, env: Any, scales: Mapping[str, str]) -> None:
        super().__init__(env)
        check_param_names(env, list(scales))
        for name, scale in scales.items():
            if scale not in _SCALES:
                raise unknown_name(f"scale of {name!r}", str(scale), _SCALES)
        self.scales = dict(scales)
        self.forward(read_domain_params(env, list(scales)))  # a value that is not positive is detected here

    def forward(self, params: Mapping[str, float]) -> dict[str, Any]:
        """Transformed values, which this wrapper reports, from those of the environment."""
        return {name: self._forward(name, value) for name, value in params.items()}

    def inverse(self, params: Mapping[str, float]) -> dict[str, Any]:
        """Values of the environment, from transformed ones."""
        return {name: self._inverse(name, value) for name, value in params.items()}

    @property
    def domain_param(self) -> dict[str, Any]:
        """Domain parameters that the environment reports, transformed."""
        params = domain_params_of(self.env)
        return self.forward(read_domain_params(self.env, list(self.scales)) if params is None else params)

    @domain_param.setter
    def domain_param(self, params: Mapping[str, float]) -> None:
        set_domain_params(self, params)

    def set_domain_param(self, params: Mapping[str, float]) -> None:
        """Set parameters that are given transformed."""
        set_domain_params(self.env, self.inverse(params))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the option ``domain_param`` is given transformed."""
        params = (options or {}).get("domain_param")
        if isinstance(params, Mapping):
            options = {**(options or {}), "domain_param": self.inverse(params)}
        return self.env.reset(seed=seed, options=options)

    def read_domain_params(self, names: Sequence[str]) -> dict[str, float]:
        """Current values of ``names``, transformed."""
        return self.forward(read_domain_params(self.env, names))

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether the batched simulator can apply ``update``, which is given transformed."""
        return super().accepts_update(self._inner_update(update))

    def _inner_update(self, update: EnvUpdate | None) -> EnvUpdate | None:
        """The update for the environment inside."""
        return DomainParamUpdate(self.inverse(update.task)) if isinstance(update, DomainParamUpdate) else update

    def plans_in(self, plans: Sequence[RolloutPlan]) -> Sequence[RolloutPlan]:
        """Plans with values that the environment knows."""
        table = PlanTable.of(plans)
        if not any(isinstance(update, DomainParamUpdate) for update in table.updates):
            return table
        return table.with_updates(table.map_updates(self._inner_update))

    def taken_params(self, params: Mapping[str, float]) -> dict[str, Any]:
        """Transformed domain parameters, completed by the environment inside."""
        return self.forward(super().taken_params(self.inverse(params)))

    def row_params(self, params: dict[str, Any] | None, memory: Memory, row: int) -> dict[str, Any] | None:
        """Domain parameters inside, transformed."""
        return None if params is None else self.forward(params)

    def row_kinds(self, memory: Memory, rows: np.ndarray) -> list[None]:
        """Nothing is remembered."""
        return [None] * len(rows)

    def _forward(self, name: str, value: Any) -> Any:
        scale = self.scales.get(name)
        if scale is None:
            return value
        if value < 0 or (scale == "log" and value == 0):
            raise ValueError(f"{name!r} must be positive for the scale {scale!r}, got {value}")
        return math.log(value) if scale == "log" else math.sqrt(value)

    def _inverse(self, name: str, value: Any) -> Any:
        scale = self.scales.get(name)
        if scale is None:
            return value
        value = plain_number(f"domain parameter {name!r}", value)
        if scale == "log":
            try:
                return math.exp(value)
            except OverflowError as error:
                raise ValueError(f"{name!r} is set as its logarithm, of which {value} is too large") from error
        if value < 0:
            raise ValueError(f"{name!r} is set as its square root, which must not be negative, got {value}")
        return value * value
