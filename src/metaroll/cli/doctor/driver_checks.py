"""Checks of ``metaroll doctor`` that ask drivers: GPUs and pictures without a window."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metaroll.cli.doctor.health_checks import Check, gibibytes
from metaroll.cli.doctor.probes import Probe

__all__ = [
    "PICTURES",
    "backend_answers",
    "gpu_check",
    "gpu_finding",
    "picture_finding",
    "picture_probes",
    "without_screen",
]

PICTURES = {"rendering": "Pendulum-v1", "MuJoCo rendering": "HalfCheetah-v5"}
"""Name of the check -> environment that is drawn."""

BACKENDS = {"egl": "libegl1", "osmesa": "libosmesa6"}
"""What MuJoCo can draw with where there is no screen (OSMesa without a GPU, too) -> package of Debian that has it."""

_MUJOCO = "MuJoCo rendering"
_MUJOCO_GL = "MUJOCO_GL"
_NVIDIA = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidia0"), Path("/dev/nvidiactl"))
_NO_WINDOW = (
    "training needs no pictures; for them install a library that draws without a screen (Debian, Ubuntu: apt install "
    f"{' or '.join(BACKENDS.values())}) and export {_MUJOCO_GL}={' or '.join(BACKENDS)}"
)


def gpu_check(seconds: float) -> Check:
    """GPUs that torch can compute on, or why it cannot."""
    import torch

    runtime = torch.version.cuda or torch.version.hip
    built = f"torch built for {'the CPU' if runtime is None else 'CUDA ' + runtime}"
    has_card = any(path.exists() for path in _NVIDIA)
    if runtime is None:
        return gpu_finding(built, {"error": None}, has_card)
    with Probe("gpu", seconds=seconds) as probe:
        return gpu_finding(built, probe.answer(), has_card)


def gpu_finding(built: str, answer: dict[str, Any], has_card: bool) -> Check:
    """What an answer of the probe ``gpu`` says.

    Args:
        built: What torch was built for.
        answer: The probe's answer; ``{"error": None}`` if this torch knows no GPU.
        has_card: Whether the operating system knows a GPU.
    """
    if devices := answer.get("devices"):
        shown = "; ".join(f"{d['name']}, {gibibytes(d['free'])} free of {gibibytes(d['total'])}" for d in devices)
        return Check("GPU", "ok", f"{shown} ({built}; use it with --device cuda)")
    error = answer.get("error")
    if not has_card:
        reason = f"; {str(error).partition('. ')[0]}" if error else ""
        return Check("GPU", "ok", f"none: training runs on the CPU ({built}{reason})")
    if error is None:
        hint = "install a build of torch for it: https://pytorch.org/get-started/locally"
        return Check("GPU", "warn", f"there is an NVIDIA GPU, but this is {built}", hint)
    hint = "install a driver that fits (nvidia-smi shows the present one), or a build of torch that fits the driver"
    return Check("GPU", "warn", f"there is an NVIDIA GPU that does not start ({built}): {error}", hint)


@contextlib.contextmanager
def picture_probes(seconds: float) -> Iterator[dict[str, dict[str, Probe]]]:
    """Processes that draw: name of the check -> ``"given"``, and ``"free"`` (MuJoCo chooses) if MUJOCO_GL is set."""
    with contextlib.ExitStack() as stack:
        probes: dict[str, dict[str, Probe]] = {}
        for name, env_id in PICTURES.items():
            if name == _MUJOCO and importlib.util.find_spec("mujoco") is None:
                continue
            ways: dict[str, dict[str, str | None]] = {"given": {}}
            if name == _MUJOCO and os.environ.get(_MUJOCO_GL):
                ways["free"] = {_MUJOCO_GL: None}
            probes[name] = {
                way: stack.enter_context(Probe("picture", env_id, seconds=seconds, environment=variables))
                for way, variables in ways.items()
            }
        yield probes


def backend_answers(name: str, answers: dict[str, dict[str, Any]], seconds: float) -> dict[str, dict[str, Any]]:
    """Answers of MuJoCo's other ways to draw without a screen, where it cannot draw as this machine is set."""
    if name != _MUJOCO or not answers or not _problem(answers["given"]):
        return {}
    others = [backend for backend in BACKENDS if backend != os.environ.get(_MUJOCO_GL)]
    with contextlib.ExitStack() as stack:
        probes = {backend: stack.enter_context(_probe_of(backend, seconds)) for backend in others}
        return {backend: probe.answer() for backend, probe in probes.items()}


@contextlib.contextmanager
def without_screen(seconds: float = 20.0) -> Iterator[str | None]:
    """For the time of the block MuJoCo draws with the first of ``BACKENDS`` that works here, which is returned.

    ``None``, and all is left as it is, where MuJoCo is not in use, MUJOCO_GL says what to take, there is a screen, or
    none of them works (drawing then says what is wrong).
    """
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if "mujoco" not in sys.modules or os.environ.get(_MUJOCO_GL) or screen or not sys.platform.startswith("linux"):
        yield None
        return
    for backend in BACKENDS:
        with _probe_of(backend, seconds) as probe:
            if not _problem(probe.answer()):
                break
    else:
        yield None
        return
    os.environ[_MUJOCO_GL] = backend
    try:
        yield backend
    finally:
        del os.environ[_MUJOCO_GL]


def _probe_of(backend: str, seconds: float) -> Probe:
    return Probe("picture", PICTURES[_MUJOCO], seconds=seconds, environment={_MUJOCO_GL: backend})


def picture_finding(name: str, answers: dict[str, dict[str, Any]], chosen: str | None) -> Check:
    """What the answers of the probes ``picture`` say.

    Args:
        name: Name of the check.
        answers: From ``"given"`` and perhaps ``"free"``, and those of ``BACKENDS`` that were tried; none if MuJoCo is
            not installed.
        chosen: Value of MUJOCO_GL.
    """
    env_id = PICTURES[name]
    if not answers:
        return Check(name, "warn", "MuJoCo is not installed", "pip install 'metaroll[mujoco]'")
    answer = answers["given"]
    setting = f", {_MUJOCO_GL}={chosen}" if chosen and name == _MUJOCO else ""
    if problem := _problem(answer):
        tried = [
            f"{_MUJOCO_GL}={backend} {'does not, either' if _problem(answers[backend]) else 'works'}"
            for backend in BACKENDS
            if backend in answers
        ]
        value = "; ".join([f"{env_id} cannot be drawn{setting}: {problem}", *tried])
        return Check(name, "warn", value, _cure(name, answers))
    height, width = answer["shape"][:2]
    backend = f" by {answer['backend']}" if answer.get("backend") else ""
    return Check(name, "ok", f"{env_id} drawn{backend}, {width} x {height}{setting}")


def _problem(answer: dict[str, Any]) -> str:
    return str(answer.get("error") or ("the picture is blank" if answer.get("blank") else ""))


def _cure(name: str, answers: dict[str, dict[str, Any]]) -> str:
    if name != _MUJOCO:
        return "pip install 'gymnasium[classic-control]' (training needs no pictures)"
    free = answers.get("free")
    if free is not None and not _problem(free):
        return f"unset {_MUJOCO_GL}: {free.get('backend') or 'its own choice'} works here"
    for backend in BACKENDS:
        if backend in answers and not _problem(answers[backend]):
            return f"export {_MUJOCO_GL}={backend}"
    return _NO_WINDOW
