"""Sets of domain parameters as inference has them: rows of numbers, whose names are kept elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from metaroll.checks import array_of, check_list, check_whole, described
from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import changes_actions, taken_params
from metaroll.envs.wrappers.domain_rand import outermost_dr_wrapper
from metaroll.errors import DataError, ShapeError
from metaroll.tasks.domain_access import check_param_names
from metaroll.types import EnvSpec

__all__ = [
    "FailedSimulation",
    "check_domain_params",
    "check_taken_over",
    "checked_names",
    "checked_spec",
    "checked_values",
    "seed_of_values",
]

_RTOL = 1e-5
"""Relative tolerance of a parameter: NumPy's doubles pass through float32 in ``sbi``."""


@dataclass(frozen=True)
class FailedSimulation:
    """A simulation that raised, or diverged; the features of its parameters are NaN.

    Attributes:
        domain_param: The parameters.
        message: The error.
        row: Place of the parameters in the call.
        rollout, segment: Which recorded rollout, and which of its segments, was simulated; -1: none was, since the
            parameters themselves are wrong.
        step: Where it ended (-1: while resetting).
        call: Which call of the sampler it was, counted from 0.
    """

    domain_param: dict[str, float]
    message: str
    row: int
    rollout: int
    segment: int
    step: int
    call: int


def checked_spec(source: EnvSource, params: Sequence[str]) -> tuple[EnvSpec, bool]:
    """Spaces of an environment, not randomized, that must have ``params``, and whether wrappers change actions."""
    made = source.make()
    try:
        if outermost_dr_wrapper(made) is not None:
            raise TypeError(
                f"env must not be randomized, since its parameters are set here, got {made}; pass "
                "remove_all_dr_wrappers(env)"
            )
        check_param_names(made, list(params))
        return EnvSpec.from_env(made), changes_actions(made)
    finally:
        source.close(made)


def checked_names(dp_mapping: Any) -> tuple[str, ...]:
    """Names in the order of their numbers."""
    if not isinstance(dp_mapping, Mapping):
        raise TypeError(
            f"dp_mapping must be a dict from numbers to names such as {{0: 'mass'}}, got {described(dp_mapping)}"
        )
    if not dp_mapping:
        raise ValueError("dp_mapping must name at least one domain parameter, got none")
    for number, name in dp_mapping.items():
        check_whole("a number in dp_mapping", number, 0)
        if not isinstance(name, str):
            raise TypeError(f"dp_mapping must map to names, got {name!r} for {number}")
    names = tuple(dp_mapping[number] for number in sorted(dp_mapping))
    if len(set(names)) < len(names):
        raise ValueError(f"dp_mapping must name each domain parameter once, got {', '.join(names)}")
    return names


def checked_values(dp_values: Any, names: Sequence[str]) -> np.ndarray:
    """Given sets of parameters as float64 ``(B, d)``; ``(n,)`` are n sets where d is 1, else one set.

    Raises:
        ShapeError: There are more or fewer than d parameters.
        TypeError: They are not numbers.
    """
    width = len(names)
    sets = dp_values.detach().cpu().numpy() if isinstance(dp_values, Tensor) else dp_values
    values = array_of("dp_values", sets, f"numbers (B, {width})").astype(np.float64)
    if values.ndim < 2:
        values = values.reshape(-1, 1) if width == 1 else values.reshape(1, -1)
    if values.ndim != 2 or values.shape[1] != width:
        raise ShapeError(f"dp_values must have shape (B, {width}) for {', '.join(names)}, got {np.shape(sets)}")
    return values


def seed_of_values(seed: int, values: np.ndarray) -> int:
    """A number of 64 bits that hangs on a seed and on parameters."""
    digest = hashlib.blake2b(values.tobytes(), digest_size=8, key=seed.to_bytes(16, "little"))
    return int.from_bytes(digest.digest(), "little")


def check_domain_params(
    rollouts: list[StepSequence] | StepSequence,
    domain_param_value: Any,
    domain_param_names: Iterable[str],
) -> None:
    """Whether rollouts ran with the domain parameters that were commanded, to a relative error of 1e-5.

    Args:
        rollouts: Simulated rollouts or segments, whose ``rollout_info`` has ``domain_param``.
        domain_param_value: One set of parameters, ``(d,)``, or a number.
        domain_param_names: Their d names.

    Raises:
        ValueError: A parameter has another value.
        DataError: A rollout does not report a parameter.
        ShapeError: There are more or fewer names than values.
    """
    names = [domain_param_names] if isinstance(domain_param_names, str) else domain_param_names
    names = check_list("domain_param_names", names, "names", str)
    expected_values = (
        domain_param_value.detach().cpu().numpy() if isinstance(domain_param_value, Tensor) else domain_param_value
    )
    values = array_of("domain_param_value", expected_values, f"{len(names)} numbers").astype(np.float64).reshape(-1)
    if len(values) != len(names):
        raise ShapeError(
            f"domain_param_value must have a value for each of {names}, got shape {np.shape(expected_values)}"
        )
    recordings = [rollouts] if isinstance(rollouts, StepSequence) else listed_rollouts(rollouts)
    for number, recorded in enumerate(recordings):
        reported = (recorded.rollout_info or {}).get("domain_param", {})
        for name, value in zip(names, values.tolist(), strict=True):
            if name not in reported:
                known = ", ".join(sorted(map(str, reported))) or "none"
                raise DataError(
                    f"rollout_info['domain_param'] of rollout {number} must contain {name!r}, it has {known}"
                )
            actual = float(np.asarray(reported[name]).item())
            if not abs(actual - value) <= _RTOL * abs(value):
                raise ValueError(
                    f"rollout {number} must run with {name} = {value!r}, as commanded, but ran with {actual!r}; the "
                    "environment, or a wrapper, does not take it over"
                )


def check_taken_over(recorded: StepSequence, source: EnvSource, values: np.ndarray, names: Sequence[str]) -> None:
    """Check that a rollout ran with a set of parameters, as far as it reports them.

    For a wrapper that reports its value of a parameter (a delay that it rounds), that value counts; a value that a
    simulator ignores or clamps without a word is an error.

    Args:
        recorded: The rollout.
        source: Source of the environment in which it was made.
        values: The commanded values, ``(d,)``.
        names: The d names.

    Raises:
        ValueError: A parameter has another value.
        DataError: The rollout reports parameters, but not this one.
    """
    if "domain_param" not in (recorded.rollout_info or {}):
        return
    instance = source.make()
    try:
        taken = taken_params(instance, dict(zip(names, values.tolist(), strict=True)))
    finally:
        source.close(instance)
    check_domain_params(recorded, [taken[name] for name in names], names)
