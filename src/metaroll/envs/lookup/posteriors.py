"""A posterior as a family of tasks: ``SIM@FOLDER`` is the simulator with the parameters that inference has drawn."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from metaroll.data.doors.json_files import read_json_dict
from metaroll.data.posteriors.folder import DESCRIPTION, POSTERIOR, find_posterior, read_description
from metaroll.envs.base.constructors import NamedEnv, close_env, env_names
from metaroll.envs.base.names import AT, simulator_and_posterior
from metaroll.envs.base.task_family import TaskFamily
from metaroll.errors import DamagedFileError, PosteriorError, UnknownNameError
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler
from metaroll.tasks.updates import env_layers

__all__ = ["INFERENCE", "posterior_family", "posterior_name"]

INFERENCE = "inference.json"
"""The results of a run of ``metaroll infer``, beside the folder of its posterior, with the verdict."""

_RECORDINGS = "recordings"
"""Entry for the simulator in the description of a posterior of ``metaroll infer``, which writes its verdict beside."""

_families: dict[str, tuple[tuple[int, int], TaskFamily]] = {}


def posterior_name(env: str, folder: str | Path) -> str:
    """The name of the family of ``env`` with the posterior in ``folder``."""
    if AT in env:
        raise ValueError(f"{env} has tasks already: give the simulator by itself, with the folder of a posterior")
    return f"{env}{AT}{folder}"


def posterior_family(name: str) -> TaskFamily:
    """The family that ``posterior_name`` names; draws are split into training and held-out ones by their values.

    There is a warning where the posterior is of another simulator, its checks advised against training on it, or the
    run that made it has not finished.

    Raises:
        UnknownNameError: A part of the name is missing.
        PosteriorError: There is no posterior in the folder, or a damaged one.
        DataError: The simulator lacks one of the parameters.
    """
    env, folder = simulator_and_posterior(name)
    if not (env and folder):
        raise UnknownNameError(f"tasks of a posterior are written SIM{AT}FOLDER, got {name!r}")
    place = find_posterior(Path(folder).expanduser())
    try:
        facts = (place / DESCRIPTION).stat()
    except OSError:
        raise PosteriorError(
            f"{folder} holds no posterior: name the folder of a run of metaroll infer (or that of a posterior), seen "
            f"from {Path.cwd()}"
        ) from None
    mark = facts.st_mtime_ns, facts.st_size
    known = _families.get(name)
    if known is None or known[0] != mark:
        about = f"{env} with parameters drawn from the posterior in {folder}"
        drawn = PosteriorTaskSampler(place, generator=0)
        made = TaskFamily.from_params(env, drawn, name=name, description=about)
        family = replace(made, drawn_as=f"{env}{AT}{hashlib.sha256(drawn.values.tobytes()).hexdigest()}")
        for doubt in (*_other_simulator(env, folder, place), *_failed_checks(folder, place)):
            warnings.warn(doubt, stacklevel=2)
        known = _families[name] = mark, family
    return known[1]


def _other_simulator(env: str, folder: str, place: Path) -> list[str]:
    """That the posterior was inferred with another simulator than ``env``, where its folder records that."""
    inferred = _simulator_of(place).get("env")
    if inferred is None or inferred == env:
        return []
    # The folder may come from elsewhere, so only a registered environment that it names is made.
    if inferred in gymnasium.registry or inferred in env_names():
        with contextlib.suppress(Exception):  # an environment that cannot be made here may raise anything
            if _innermost(inferred) is _innermost(env):
                return []
    return [
        f"the posterior in {folder} is of the simulator {inferred!r}, and tasks are made of {env!r}: parameters of one "
        "name may be other things there; train in the simulator that was compared with the recordings"
    ]


def _simulator_of(place: Path) -> Mapping[str, Any]:
    """The simulator of the inference, as the posterior's folder records it."""
    recorded = (read_description(place).get("training") or {}).get("simulator")
    return recorded if isinstance(recorded, Mapping) else {}


def _innermost(name: str) -> type:
    """The environment of a name, without wrappers."""
    made = NamedEnv(name)()
    try:
        return type(list(env_layers(made))[-1])
    finally:
        close_env(made)


def _failed_checks(folder: str, place: Path) -> list[str]:
    """The advice of the posterior's run where it was not to train on it; a text where the run did not finish."""
    if place.name != POSTERIOR:
        return []
    checks: Any = None
    try:
        checks = read_json_dict(place.parent / INFERENCE).get("checks")
    except (OSError, DamagedFileError):
        if _RECORDINGS in _simulator_of(place):
            return [
                f"it is unknown whether to train on the posterior in {folder}: there is no {INFERENCE} beside it, so "
                "the run that made it has not finished; run metaroll infer again, which continues where it was"
            ]
    if not isinstance(checks, Mapping) or checks.get("passed", True) or checks.get("too_wide", False):
        return []
    return [f"{folder}: {checks.get('text', 'the posterior failed its checks')}"]
