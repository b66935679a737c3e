"""Checks of whether policies, environments and slots can run on a torch device, rather than in NumPy."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import WrappedSlots
from metaroll.policies.parameters import ParameterLayout
from metaroll.rollouts.configs import WorkersConfig
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.types import Policy, Slots

__all__ = [
    "IN_NUMPY",
    "TILES",
    "check_env_on_device",
    "check_policy_on_device",
    "check_slots_on_device",
    "device_of",
    "name_of",
    "policy_on_device",
]

TILES = {"cpu": 256, "cuda": 4096}
"""Rows per call of a policy, by kind of device: libraries choose another matrix product for other heights."""

IN_NUMPY = "leave device out (device=None) to run it in NumPy"
"""The hint for objects that cannot run on a device."""


def device_of(
    device: str | torch.device | None, workers: WorkersConfig, pool: SamplerPool | None = None
) -> torch.device | None:
    """A device of torch, checked; ``None``: NumPy.

    Raises:
        ValueError: There is no such device here, rollouts do not run on its kind, or workers are asked for (one in a
            process of its own, too).
    """
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be None (NumPy), 'cpu' (torch) or 'cuda', got {device!r}") from error
    if chosen.type not in TILES:
        raise ValueError(f"device must be None (NumPy), 'cpu' (torch) or 'cuda', got {str(chosen)!r}")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {str(chosen)!r} is not there: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            "devices; use device=None (NumPy) or device='cpu', or install a torch for CUDA"
        )
    wrong = None
    if pool is not None and not pool.is_serial:
        wrong = ("pool must run in this process (SamplerPool(1))", f"one with worker processes ({pool.num_workers})")
    elif pool is None and workers.num_workers != 1:
        wrong = ("num_workers must be 1 (and transport 'auto' or 'serial')", f"{workers.num_workers}")
    elif pool is None and workers.transport not in ("auto", "serial"):
        wrong = ("transport must be 'auto' or 'serial'", f"{workers.transport!r}")
    if wrong is not None:
        raise ValueError(
            f"{wrong[0]} with device={str(chosen)!r}, which runs rollouts in this process, got {wrong[1]}; leave "
            "device out to use workers"
        )
    return chosen


def name_of(device: torch.device) -> str:
    """The kind of a device, as rollouts remember it."""
    return "torch on cpu" if device.type == "cpu" else f"cuda ({torch.cuda.get_device_name(device)})"


def check_policy_on_device(policy: Policy) -> None:
    """Whether ``policy`` acts on tensors, in float32.

    Raises:
        TypeError: It does not.
    """
    if not policy.info.runs_on_torch or not isinstance(policy, nn.Module):
        raise TypeError(
            f"policy must be one of metaroll's MLP or GRU policies to run on a device, got {type(policy).__name__}, "
            f"which acts in NumPy; {IN_NUMPY}"
        )
    kinds = {parameter.dtype for parameter in policy.parameters()} - {torch.float32}
    if kinds:
        raise TypeError(
            f"policy must act in float32 on a device, got parameters in {', '.join(sorted(map(str, kinds)))}; call "
            "policy.float()"
        )


def check_env_on_device(source: EnvSource) -> None:
    """Whether environments of ``source`` are a simulator that steps tensors.

    Raises:
        TypeError: They are not.
    """
    with contextlib.closing(source.slots(1)) as slots:
        check_slots_on_device(slots)


def check_slots_on_device(slots: Slots) -> SimulatorSlots:
    """``slots``, whose simulator steps tensors.

    Raises:
        TypeError: It does not.
    """
    if not isinstance(slots, SimulatorSlots) or not slots.simulator.runs_on_torch:
        wrapper = f" in a {type(slots.wrapper).__name__}" if isinstance(slots, WrappedSlots) else ""
        raise TypeError(
            "env must be stepped as arrays to run on a device (metaroll's points, bandits, tables and simulated "
            "systems are, and CartPole-v1, without a wrapper, in variations that they apply themselves), but "
            f"{slots.info.name}{wrapper} is not; {IN_NUMPY}"
        )
    space = slots.env_spec.observation_space
    if not isinstance(space, Box | Discrete):
        raise TypeError(f"env must show a Box or a Discrete space to run on a device, got {space}; {IN_NUMPY}")
    return slots


def policy_on_device(policy: Policy, parameters: np.ndarray | None, device: torch.device) -> Any:
    """A copy of ``policy`` on a device, with the flat parameters ``(P,)`` (``None``: its own)."""
    check_policy_on_device(policy)
    twin: Any = copy.deepcopy(policy)
    if parameters is not None:
        ParameterLayout.of(twin, twin.acting_parameter_names()).assign(twin, parameters)
    return twin.to(device).requires_grad_(False)
