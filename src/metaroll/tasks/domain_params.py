"""Physical constants of a simulation (domain parameters) as a change to an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from metaroll.checks import plain_number
from metaroll.tasks.domain_access import domain_params_of, set_domain_params
from metaroll.tasks.task_key import task_key
from metaroll.types import EnvUpdate

__all__ = ["NOISE", "DomainParamUpdate", "domain_params_of"]

NOISE = "noise."
"""Prefix of inferred parameters that are the noise of a sensor, not parameters of the simulator."""


class DomainParamUpdate(EnvUpdate):
    """Sets domain parameters, ``{"g": 9.81, "m": 1.2}``.

    The environment, or the outermost wrapper that can, receives them through a method ``set_domain_param(dict)``, or
    else a property ``domain_param`` (a dict of all parameters that can be set). An environment with neither gets them
    as attributes, if it has attributes of these names that are numbers: ``g``, ``m`` and ``l`` of ``Pendulum-v1``; one
    of Gymnasium's MuJoCo environments as entries of its model: ``body_mass:torso``, ``geom_friction:floor``,
    ``dof_damping:*`` (see ``metaroll.envs.mujoco.model_params``).

    Values are absolute, so setting the same names again leaves nothing of the ones before; after other names, the
    engine starts from an untouched environment.

    Args:
        params: Name -> number (also a 0-dimensional or one-element array or tensor).
        env_constructor: Makes an environment if there is none to be changed; ``None`` makes that an error.

    Note:
        Attributes of an environment of yours from which others were computed in its constructor do not change those:
        set these as well, or give it a property ``domain_param``. In ``CartPole-v1``, ``total_mass`` and
        ``polemass_length`` follow ``masspole``, ``masscart`` and ``length``, unless they are set themselves.
    """

    def __init__(self, params: Mapping[str, Any], *, env_constructor: Callable[[], Any] | None = None) -> None:
        if not isinstance(params, Mapping):
            raise TypeError(f"params must be a dict of names and numbers, got {type(params).__name__}")
        self.task = {str(name): _as_number(name, value) for name, value in params.items()}
        self._env_constructor = env_constructor

    @property
    def env_constructor(self) -> Callable[[], Any] | None:
        """The constructor of an environment if there is none."""
        return self._env_constructor

    def __call__(self, old_env: Any = None) -> Any:
        if old_env is None:
            if self._env_constructor is None:
                raise ValueError("DomainParamUpdate changes an environment, got None; make one first")
            old_env = self._env_constructor()
        if self.task:
            set_domain_params(old_env, self.task)
        return old_env

    def replaces(self, previous: EnvUpdate) -> bool:
        """Whether all that ``previous`` has set is set again."""
        return isinstance(previous, DomainParamUpdate) and previous.task.keys() <= self.task.keys()

    def __eq__(self, other: object) -> bool:
        if type(other) is not DomainParamUpdate:
            return NotImplemented
        return self.task == other.task

    def __hash__(self) -> int:
        return hash((DomainParamUpdate, task_key(self.task)))

    def __repr__(self) -> str:
        return f"DomainParamUpdate({self.task!r})"


def _as_number(name: str, value: Any) -> float:
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return plain_number(f"domain parameter {name!r}", value)
