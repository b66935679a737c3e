"""A posterior as a family of tasks: ``SIM@FOLDER`` is the simulator with the parameters that inference has drawn."""

from __future__ import annotations

from pathlib import Path

from metaroll.data.posteriors.folder import DESCRIPTION
from metaroll.envs.base.task_family import TaskFamily
from metaroll.errors import PosteriorError, UnknownNameError
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler

__all__ = ["AT", "POSTERIOR", "posterior_family", "posterior_name"]

AT = "@"
"""Between the name of a simulator and the folder of a posterior."""
POSTERIOR = "posterior"
"""The folder of the posterior in that of a run of ``metaroll infer``."""

_families: dict[str, tuple[tuple[int, int], TaskFamily]] = {}


def posterior_name(env: str, folder: str | Path) -> str:
    """What the family of ``env`` with the posterior in ``folder`` is called."""
    if AT in env:
        raise ValueError(f"{env} has tasks already: give the simulator by itself, with the folder of a posterior")
    return f"{env}{AT}{folder}"


def posterior_family(name: str) -> TaskFamily:
    """The family that ``posterior_name`` names; draws are split into training and held-out ones by their values.

    Raises:
        UnknownNameError: A part of the name is missing.
        PosteriorError: There is no posterior in the folder, or a damaged one.
        DataError: The simulator lacks one of the parameters.
    """
    env, _, folder = name.partition(AT)
    if not (env and folder):
        raise UnknownNameError(f"tasks of a posterior are written SIM{AT}FOLDER, got {name!r}")
    place = Path(folder).expanduser()
    if (place / POSTERIOR / DESCRIPTION).is_file():
        place /= POSTERIOR
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
        family = TaskFamily.from_params(env, PosteriorTaskSampler(place, generator=0), name=name, description=about)
        known = _families[name] = mark, family
    return known[1]
