"""Meta-World's benchmarks with a seed that works, in a fraction of the time."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.envs.metaworld.library import MW_TASKS_PER_ENV, env_classes, metaworld_package, mujoco_package
from metaroll.errors import unknown_name
from metaroll.seeding import isolated_rng

__all__ = ["CustomBenchmark", "benchmark_names", "first_task_of", "make_metaworld_benchmark"]

_FIXED = ("ML10", "ML25", "ML45", "MT10", "MT25", "MT50")
_SINGLE = ("ML1", "MT1")
_CUSTOM = ("custom-ML", "custom-MT")
_SEED_LIMIT = 2**32


@dataclass(frozen=True)
class CustomBenchmark:
    """A multi-task benchmark of chosen environments, with the attributes of ``metaworld.Benchmark``."""

    train_classes: Mapping[str, Any]
    train_tasks: Sequence[Any]
    test_classes: Mapping[str, Any] = field(default_factory=dict)
    test_tasks: Sequence[Any] = ()


def benchmark_names() -> list[str]:
    """Benchmarks that ``make_metaworld_benchmark`` knows."""
    return [*_SINGLE, *_FIXED, *_CUSTOM]


def make_metaworld_benchmark(
    name: str,
    env_name: str | None = None,
    *,
    train: Sequence[str] | None = None,
    test: Sequence[str] | None = None,
    seed: int = 0,
) -> Any:
    """A benchmark of Meta-World; its tasks are those of ``metaworld.ML10(seed=seed)`` and the like, bitwise identical.

    NumPy's global generator, which Meta-World draws from, is left unchanged. Meta-World simulates the arm for every
    goal that it draws (half a minute for ML10); here only the draws are made. Goals are hidden in ML, visible in MT.

    Args:
        name: ``"ML1"`` or ``"MT1"`` (with ``env_name``), ``"ML10"``, ``"ML25"``, ``"ML45"``, ``"MT10"``, ``"MT25"``,
            ``"MT50"``; ``"custom-ML"`` (with ``train`` and ``test``) or ``"custom-MT"`` (with ``train``).
        env_name: Such as ``"reach-v3"``.
        train: Names of the environments of training.
        test: Names of the environments of the meta-test, none of them in ``train``.
        seed: The same seed gives the same tasks.
    """
    if name not in benchmark_names():
        raise unknown_name("Meta-World benchmark", name, benchmark_names())
    seed = check_whole("seed", seed, 0, _SEED_LIMIT - 1)
    _check_arguments(name, env_name, train, test)
    package = metaworld_package()
    if name == "custom-MT":
        classes = _classes_of("train", train)
        return CustomBenchmark(classes, _draw_tasks(classes, False, seed))
    if name in _FIXED:
        train_classes, test_classes = _split_of(package, name)
    elif name in _SINGLE:
        train_classes = _classes_of("env_name", [env_name])
        test_classes = train_classes
    else:
        train_classes, test_classes = _classes_of("train", train), _classes_of("test", test)
    hidden = "ML" in name
    kind = getattr(package, {"custom-ML": "CustomML"}.get(name, name))
    benchmark = kind.__new__(kind)
    benchmark._train_classes, benchmark._test_classes = train_classes, test_classes
    benchmark._train_tasks = _draw_tasks(train_classes, hidden, seed)
    # ML1 tests on other goals of the same environment, drawn from the next seed; ML10 and ML45 on other environments.
    benchmark._test_tasks = _draw_tasks(test_classes, hidden, seed + (name == "ML1")) if hidden else []
    return benchmark


def first_task_of(name: str, env_name: str | None = None) -> tuple[str, Any, int]:
    """Of a benchmark with seed 0: the first environment, its first training task, and how many environments there are.

    Only the goals of that environment are drawn.
    """
    classes = _split_of(metaworld_package(), name)[0] if env_name is None else _classes_of("env_name", [env_name])
    first = next(iter(classes))
    return first, _draw_tasks({first: classes[first]}, "ML" in name, 0)[0], len(classes)


def _check_arguments(name: str, env_name: str | None, train: Any, test: Any) -> None:
    wanted = {"env_name": name in _SINGLE, "train": name in _CUSTOM, "test": name == "custom-ML"}
    for argument, value in (("env_name", env_name), ("train", train), ("test", test)):
        if wanted[argument] and value is None:
            raise ValueError(f"{argument} must be given for {name}, for instance {argument}='reach-v3'")
        if not wanted[argument] and value is not None:
            raise ValueError(f"{argument} has no meaning for {name}, got {value!r}; leave it out")
    both = set(train or ()) & set(test or ())
    if both:
        raise ValueError(f"train and test must have no environment in common, got {sorted(both)} in both")


def _split_of(package: Any, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Classes of training and test of a benchmark with fixed ones."""
    from metaworld import env_dict

    split = getattr(env_dict, f"{name}_V3")
    return (split["train"], split["test"]) if "ML" in name else (split, {})


def _classes_of(argument: str, names: Any) -> dict[str, Any]:
    known = env_classes()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} must be a list of names such as 'reach-v3', got {names!r}")
    names = list(names)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{argument} must name at least one environment, and none twice, got {names}")
    for name in names:
        if name not in known:
            raise unknown_name("Meta-World environment", name, known)
    return {name: known[name] for name in names}


def _draw_tasks(classes: Mapping[str, Any], hidden: bool, seed: int) -> list[Any]:
    """The tasks that Meta-World makes for ``classes``: 50 each, drawn one after the other from one stream."""
    task_type = metaworld_package().types.Task
    tasks = []
    with isolated_rng(seed):
        for name, env_class in classes.items():
            for vector in _draw_vectors(name, env_class):
                data = {"rand_vec": vector, "env_cls": env_class, "partially_observable": hidden}
                tasks.append(task_type(env_name=name, data=pickle.dumps(data)))
    return tasks


def _draw_vectors(name: str, env_class: Any) -> list[np.ndarray]:
    still = type(env_class.__name__, (_Still, env_class), {})
    env = still()
    env._freeze_rand_vec, env._set_task_called = False, True
    vectors = []
    for _ in range(MW_TASKS_PER_ENV):
        env.reset()
        vectors.append(env._last_rand_vec)
    env.close()
    if len(np.unique(np.array(vectors), axis=0)) != MW_TASKS_PER_ENV:
        raise ValueError(f"Meta-World's {name} drew a goal twice; choose another seed")
    return vectors


class _Still:
    """Comes before a class of Meta-World whose resets shall draw goals, but simulate nothing."""

    model: Any
    data: Any
    tcp_center: Any

    def _reset_hand(self, steps: int = 50) -> None:
        mujoco: Any = mujoco_package()
        mujoco.mj_forward(self.model, self.data)  # positions of all objects, which a reset may read
        self.init_tcp = self.tcp_center

    def do_simulation(self, ctrl: Any, n_frames: int) -> None:
        """Nothing moves."""
