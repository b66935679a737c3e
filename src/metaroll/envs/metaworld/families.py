"""Meta-World's benchmarks as families of tasks: ``metaworld:ML1-reach-v3``, ``metaworld:ML10``, ``metaworld:MT10``."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any, NamedTuple

from metaroll.envs.base.names import BENCHMARK
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.metaworld.benchmarks import first_task_of, make_metaworld_benchmark
from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
from metaroll.envs.metaworld.library import HORIZON, env_classes, metaworld_package
from metaroll.envs.metaworld.sawyer import MetaWorldEnvMaker
from metaroll.envs.metaworld.wrappers import TaskWrapper
from metaroll.errors import UnknownNameError, unknown_name
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvUpdate

__all__ = ["BENCHMARKS", "benchmark_family", "meant_name"]


class _Numbers(NamedTuple):
    train: int
    test: int
    what: str


_SINGLE = {
    "ML1": _Numbers(50, 10, "goals are hidden; other goals are held out"),
    "MT1": _Numbers(50, 10, "goals are visible; tested on the tasks of training, as published"),
}
_FIXED = {
    "ML10": _Numbers(500, 50, "10 environments with hidden goals; 5 others are held out"),
    "ML25": _Numbers(1250, 50, "25 environments with hidden goals; 5 others are held out"),
    "ML45": _Numbers(2250, 50, "45 environments with hidden goals; 5 others are held out"),
    "MT10": _Numbers(500, 20, "10 environments with visible goals; tested on the tasks of training, as published"),
    "MT25": _Numbers(1250, 25, "25 environments with visible goals; tested on the tasks of training, as published"),
    "MT50": _Numbers(2500, 50, "50 environments with visible goals; tested on the tasks of training, as published"),
}
BENCHMARKS = (*(f"{BENCHMARK}{name}-reach-v3" for name in _SINGLE), *(BENCHMARK + name for name in _FIXED))
"""Names as users type them; those of one environment with the first that there is."""

_CUSTOM = ("custom-ML", "custom-MT")
_NUMBERED = ("MT10", "MT25", "MT50")
"""Benchmarks whose observations hold the number of the environment."""
_EXAMPLE = "reach-v3"
# With or without Meta-World's name before it: ML10, metaworld/ML1-reach-v3, Meta-World/MT1, mt1:push-v3.
_ALIKE = re.compile(r"(?:meta-?world[-/:.])?(m[lt]\d+|custom-m[lt])(?:[-/:.](.+))?", re.IGNORECASE)
_ITSELF = re.compile(r"meta-?world(?:[-/:.](.*))?", re.IGNORECASE)


@functools.lru_cache(maxsize=16)
def benchmark_family(name: str) -> TaskFamily:
    """The family ``metaworld:NAME``, whose tasks are those of ``make_metaworld_benchmark`` with the seed of the split.

    Where a benchmark has several environments, both lists begin with one task of each, then the next of each ... In
    MT10, MT25 and MT50 observations end with the number of the environment, one-hot, as published.

    Args:
        name: ``metaworld:`` and ``ML1-ENV`` or ``MT1-ENV`` with an environment such as ``reach-v3``, or ``ML10``,
            ``ML25``, ``ML45``, ``MT10``, ``MT25`` or ``MT50``.

    Raises:
        ImportError: Meta-World is not installed.
        UnknownNameError: There is no such benchmark, or no such environment.
    """
    metaworld_package()
    kind, env_name = _parsed(name)
    numbers, visible = {**_SINGLE, **_FIXED}[kind], kind.startswith("MT")
    return TaskFamily(
        name,
        _FirstTask(kind, env_name),
        numbers.train,
        numbers.test,
        HORIZON,
        f"Meta-World: {env_name + ', ' if env_name else ''}{numbers.what}",
        same_tasks=visible,
        lists=functools.partial(_lists, kind, env_name),
    )


def meant_name(name: str) -> str | None:
    """The correct name of the benchmark that ``name`` seems to mean; ``None`` if it is not one of Meta-World."""
    match = _ALIKE.fullmatch(name)
    if match is None:
        itself = _ITSELF.fullmatch(name)
        if itself is None:
            return None
        return f"{BENCHMARK}ML1-{itself[1] or _EXAMPLE}"
    kind, env = match[1].upper().replace("CUSTOM", "custom"), match[2]
    return f"{BENCHMARK}{kind}-{env or _EXAMPLE}" if kind in _SINGLE else f"{BENCHMARK}{kind}"


def _parsed(name: str) -> tuple[str, str | None]:
    """Benchmark, and environment where it has one."""
    text = name.removeprefix(BENCHMARK)
    kind, _, env_name = text.partition("-")
    if text in _FIXED:
        return text, None
    if kind in _SINGLE and env_name in env_classes():
        return kind, env_name
    if text in _CUSTOM:
        raise UnknownNameError(
            f"{name} has environments of your choice, for which there are no options: choose a benchmark by name, such "
            f"as {BENCHMARKS[0]}, or train in Python (docs/metaworld.md)"
        )
    singles = [f"{BENCHMARK}{kind}-{env}" for kind in _SINGLE for env in env_classes()]
    meant = meant_name(name)
    if meant in (*singles, *BENCHMARKS):
        raise UnknownNameError(f"unknown benchmark of Meta-World {name!r}; did you mean {meant!r}? (docs/metaworld.md)")
    raise unknown_name("benchmark of Meta-World", name, {*BENCHMARKS, *difflib.get_close_matches(name, singles)})


class _FirstTask:
    """Makes the environment of a benchmark's first training task: a picklable constructor."""

    def __init__(self, kind: str, env_name: str | None) -> None:
        self._kind, self._env_name = kind, env_name

    def __call__(self, render_mode: str | None = None) -> Any:
        name, task, size = first_task_of(self._kind, self._env_name)
        wrapper = TaskWrapper(one_hot=(0, size)) if self._kind in _NUMBERED else None
        return SetTaskUpdate(MetaWorldEnvMaker(name, render_mode=render_mode), task, wrapper)()

    def __repr__(self) -> str:
        return f"the first task of {self._kind}{'-' if self._env_name else ''}{self._env_name or ''}"


@functools.lru_cache(maxsize=2)
def _lists(kind: str, env_name: str | None, seed: int) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
    """Training and held-out tasks of a benchmark."""
    benchmark = make_metaworld_benchmark(kind, env_name, seed=seed)
    train = MetaWorldTaskSampler(benchmark, "train", add_env_onehot=kind in _NUMBERED, generator=0).in_turn()
    test = train if kind.startswith("MT") else MetaWorldTaskSampler(benchmark, "test", generator=0).in_turn()
    return train, test
