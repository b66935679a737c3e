"""``check_sampler`` passes on every sampler of the library, and fails on planted faults with the promise named."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll import (
    CVaRSampler,
    DomainRandomizer,
    EnvSpec,
    LastStepEmbedding,
    LocalSampler,
    MetaSampler,
    ParallelRolloutSampler,
    ParameterExplorationSampler,
    RealRolloutSamplerForSBI,
    RecRolloutSamplerForSBI,
    RolloutSamplerForSBI,
    SimRolloutSamplerForSBI,
    UniformDomainParam,
    WorkerFactory,
    eval_domain_params,
    eval_domain_params_with_segmentwise_reset,
    eval_nominal_domain,
    eval_randomized_domain,
    rollout,
    save_rollouts,
)
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.policies import DummyPolicy, GaussianMLPPolicy, IdlePolicy
from metaroll.rollouts.garage.workers import DefaultWorker
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import torch_generator
from metaroll.sims import PendulumEnv
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.testing import ConformanceError, check_sampler
from metaroll.wrappers import DomainRandWrapperLive

pytestmark = pytest.mark.usefixtures("lent_pools")

STEPS = 12
STATES = [np.array([0.1 * i, 0.0]) for i in range(6)]
SHOWN = PendulumEnv().env_spec
EMBEDDING = LastStepEmbedding(SHOWN, RolloutSamplerForSBI.get_dim_data(SHOWN))
MASSES = DomainRandomizer(UniformDomainParam("pole_mass", 1.0, 0.3), generator=0)


def pendulum() -> PendulumEnv:
    return PendulumEnv(max_steps=STEPS)


@pytest.fixture(autouse=True, scope="module")
def running(shared_pools: Any) -> list[SamplerPool]:
    """The shared workers, started before a kit counts children."""
    return [shared_pools[number] for number in (2, 3)]


def policy_for(env: Any) -> GaussianMLPPolicy:
    spec = env if isinstance(env, EnvSpec) else EnvSource.of(env).spec
    return GaussianMLPPolicy(spec, (4,), generator=torch_generator(0))


def parallel(num_workers: int, env: Any = None, **options: Any) -> ParallelRolloutSampler:
    env = pendulum() if env is None else env
    options = {"min_rollouts": 5, **options}
    return ParallelRolloutSampler(env, policy_for(env), num_workers, show_progress_bar=False, seed=3, **options)


def documented(call: int, place: int) -> StepSequence:
    env = pendulum()
    return rollout(env, policy_for(env), seed=3, sub_seed=call, sub_sub_seed=place, no_close=True)


def explored(sampler: ParameterExplorationSampler) -> Any:
    flat = sampler.policy.acting_parameters()
    return [list(sample.rollouts) for sample in sampler.sample(np.stack([flat, 0.5 * flat, -flat]))]


def listed() -> Any:
    """An environment that is stepped by itself, beside others in a list."""
    return gymnasium.wrappers.TimeLimit(PendulumEnv(), STEPS)


def exploration(num_workers: int, make_env: Any = pendulum) -> ParameterExplorationSampler:
    env = DomainRandWrapperLive(make_env(), MASSES)
    return ParameterExplorationSampler(env, policy_for(env), 3, 2, num_workers, 3)


def meta(num_workers: int) -> MetaSampler:
    is_parallel = num_workers > 1
    options: dict[str, Any] = {"num_workers": num_workers} if is_parallel else {}
    policy = policy_for("point-navigation")
    return MetaSampler("point-navigation", policy, 3, 2, STEPS, parallel=is_parallel, seed=3, **options)


def met(sampler: MetaSampler) -> Any:
    sampler.update_tasks()
    return {task: list(paths) for task, paths in sampler.obtain_samples().items()}


def local(num_workers: int) -> LocalSampler:
    factory = WorkerFactory(seed=3, max_path_length=STEPS, n_workers=num_workers, worker_class=DefaultWorker)
    env = pendulum()
    return LocalSampler(factory, policy_for(env), env)


def batches(sampler: LocalSampler) -> Any:
    batch = sampler.obtain_samples(0, 30, None)
    return {name: getattr(batch, name) for name in ("observations", "actions", "rewards", "lengths")}


def simulations(num_workers: int) -> SimRolloutSamplerForSBI:
    env = pendulum()
    recordings = [recorded(env, number) for number in range(2)]
    return SimRolloutSamplerForSBI(
        env,
        IdlePolicy(env.env_spec),
        {0: "pole_mass"},
        EMBEDDING,
        3,
        rollouts_real=recordings,
        seed=3,
        num_workers=num_workers,
    )


def recorded(env: PendulumEnv, number: int) -> StepSequence:
    return rollout(env, DummyPolicy(env.env_spec), seed=7, sub_seed=number, no_close=True)


def real(num_workers: int) -> RealRolloutSamplerForSBI:
    env = DomainRandWrapperLive(pendulum(), DomainRandomizer(UniformDomainParam("pole_mass", 1.0, 0.5)))
    spec = env.env_spec
    return RealRolloutSamplerForSBI(env, policy_for(spec), EMBEDDING, 1, seed=3)


def from_disk(num_workers: int) -> RecRolloutSamplerForSBI:
    folder, env = Path("recordings"), pendulum()
    if not folder.is_dir():
        save_rollouts([recorded(env, number) for number in range(3)], folder)
    return RecRolloutSamplerForSBI(folder, EMBEDDING, 1, rand_init_rollout=False, seed=3)


def segments(pool: SamplerPool) -> Any:
    env = pendulum()
    start = {"init_state": [0.7, 0.0]}
    whole = rollout(env, policy_for(env), eval=True, max_steps=10, reset_kwargs=start, seed=1, no_close=True)
    params = [*MASSES.draw(3, 0), env.domain_param]
    call = (pool, env, policy_for(env), [[whole[:4], whole[4:]]], [params], True, False)
    return eval_domain_params_with_segmentwise_reset(*call, seed=3)


FUNCTIONS: dict[str, Callable[[SamplerPool], Any]] = {
    "eval_domain_params": lambda pool: eval_domain_params(
        pool, pendulum(), policy_for(pendulum()), MASSES.draw(4, 0), np.array([0.7, 0.0]), seed=3
    ),
    "eval_nominal_domain": lambda pool: eval_nominal_domain(pool, pendulum(), policy_for(pendulum()), STATES, seed=3),
    "eval_randomized_domain": lambda pool: eval_randomized_domain(
        pool, pendulum(), MASSES, policy_for(pendulum()), STATES, seed=3
    ),
    "eval_domain_params_with_segmentwise_reset": segments,
}
ALONE: dict[str, Any] = {"num_workers": (1,)}
IN_TURNS = {**ALONE, "close": None, "sample": lambda sampler: sampler()}
CASES: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "ParallelRolloutSampler": (parallel, {"expected": documented, "num_workers": (1, 2, 3)}),
    "ParallelRolloutSampler, steps": (lambda n: parallel(n, min_rollouts=None, min_steps=40), {}),
    "ParallelRolloutSampler, list": (lambda n: parallel(n, listed()), {}),
    "CVaRSampler": (lambda n: CVaRSampler(parallel(n), 0.3, min_rollouts=4), {}),
    "ParameterExplorationSampler": (exploration, {"sample": explored}),
    "ParameterExplorationSampler, list": (lambda n: exploration(n, listed), {"sample": explored}),
    "MetaSampler": (meta, {"sample": met}),
    "LocalSampler": (local, {**ALONE, "sample": batches, "close": lambda sampler: sampler.shutdown_worker()}),
    "SimRolloutSamplerForSBI": (
        simulations,
        {"sample": lambda sampler: sampler(np.array([[0.8], [1.0], [1.2]])), "repeats": True},
    ),
    "RealRolloutSamplerForSBI": (real, IN_TURNS),
    "RecRolloutSamplerForSBI": (from_disk, {**IN_TURNS, "sample": lambda sampler: sampler()[0]}),
}
"""Sampler, and variant -> what makes it, arguments of the kit."""

ABSTRACT = {"RolloutSamplerForSBI", "Sampler", "SamplerBase"}


@pytest.mark.parametrize("name", CASES)
def test_samplers_keep_their_promises(name: str) -> None:
    make, options = CASES[name]
    check_sampler(make, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_sample_keep_their_promises(name: str, shared_pools: Any) -> None:
    check_sampler(
        lambda number: SamplerPool(1, transport="serial") if number == 1 else shared_pools[number],
        FUNCTIONS[name],
        repeats=True,
        close=None,
    )


def test_every_sampler_has_a_case() -> None:
    public = {name: getattr(metaroll, name) for name in metaroll.__all__ if "Sampler" in name}
    samplers = {name for name, kind in public.items() if isinstance(kind, type) and not issubclass(kind, TaskSampler)}
    own = {name for name in samplers if not name.endswith(("Pool", "TaskSampler", "EnvsSampler"))}
    assert own - ABSTRACT == {name.partition(",")[0] for name in CASES}
    assert {name for name in metaroll.__all__ if name.startswith("eval_")} == FUNCTIONS.keys()


# ---- planted faults --------------------------------------------------------------------------------------------------

ENV = PendulumEnv(max_steps=STEPS)
SPEC = EnvSpec.from_env(ENV)


class Honest:
    """Rollouts of seeds, one after the other, whoever works."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers, self.calls = num_workers, 0

    def seed_of(self, number: int) -> tuple[int, int, int]:
        return 3, self.calls, number

    def sample(self) -> Any:
        rollouts = [self.run(*self.seed_of(number)) for number in range(3)]
        self.calls += 1
        return rollouts

    def run(self, seed: int, sub_seed: int, sub_sub_seed: int) -> StepSequence:
        policy = policy_for(SPEC)
        return rollout(ENV, policy, seed=seed, sub_seed=sub_seed, sub_sub_seed=sub_sub_seed, no_close=True)

    def close(self) -> None:
        pass


class FreshEntropy(Honest):
    def seed_of(self, number: int) -> tuple[int, int, int]:
        return int(np.random.default_rng().integers(2**31)), self.calls, number


class SharedGenerator(Honest):
    """One for all samplers of this process."""

    generator: ClassVar[np.random.Generator] = np.random.default_rng(0)

    def seed_of(self, number: int) -> tuple[int, int, int]:
        return int(self.generator.integers(2**31)), self.calls, number


class GlobalGenerator(Honest):
    def sample(self) -> Any:
        np.random.normal()
        return super().sample()


class SeedOfTheWorker(Honest):
    def seed_of(self, number: int) -> tuple[int, int, int]:
        return 3, self.calls, 10 * (number % self.num_workers) + number


class WhoeverIsFirst(Honest):
    """Returns rollouts in the order in which workers have finished."""

    def sample(self) -> Any:
        rollouts = super().sample()
        return rollouts if self.num_workers == 1 else rollouts[::-1]


class DoesNotCount(Honest):
    def seed_of(self, number: int) -> tuple[int, int, int]:
        return 3, 0, number


class CountsFromOne(Honest):
    def seed_of(self, number: int) -> tuple[int, int, int]:
        return 3, self.calls, number + 1


class OneBuffer(Honest):
    """Every call fills the same array."""

    buffer: np.ndarray | None = None

    def sample(self) -> Any:
        rewards = np.stack([each.rewards for each in super().sample()])
        self.buffer = np.empty_like(rewards) if self.buffer is None else self.buffer
        self.buffer[:] = rewards
        return self.buffer


class Sums(Honest):
    """Adds each call to the array that it has returned before."""

    last: Any = 0.0

    def sample(self) -> Any:
        self.last = self.last + np.stack([each.rewards for each in super().sample()])
        return self.last


class Nothing(Honest):
    def sample(self) -> Any:
        return []


class ClosesOnce(Honest):
    is_open = True

    def close(self) -> None:
        if not self.is_open:
            raise RuntimeError("closed already")
        self.is_open = False


class Fails(Honest):
    """Neither samples nor closes."""

    def sample(self) -> Any:
        raise RuntimeError("no rollouts today")

    def close(self) -> None:
        raise AttributeError("pool")


class LeavesAChild(Honest):
    children: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, num_workers: int) -> None:
        super().__init__(num_workers)
        self.children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))


PLANTED: dict[type[Honest], str] = {
    FreshEntropy: "determinism",
    SharedGenerator: "determinism",
    GlobalGenerator: "globals",
    SeedOfTheWorker: "workers",
    WhoeverIsFirst: "workers",
    DoesNotCount: "calls",
    CountsFromOne: "seeds",
    OneBuffer: "memory",
    Sums: "memory",
    Nothing: "form",
    ClosesOnce: "close",
    LeavesAChild: "close",
}


@pytest.fixture
def children() -> Iterator[None]:
    yield
    for child in LeavesAChild.children:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("children")
@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_planted_faults_are_named(kind: type[Honest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaroll.testing.samplers._END_SECONDS", 0.1)
    before = np.random.get_state()
    with pytest.raises(ConformanceError, match=f"^{PLANTED[kind]}: ") as caught:
        check_sampler(kind, expected=documented if kind is CountsFromOne else None)
    assert caught.value.rule == PLANTED[kind] and not re.search(r"\bnp\.|\n", caught.value.seen), "plain and short"
    np.random.set_state(before)


def test_a_correct_sampler_passes_and_wrong_arguments_are_errors() -> None:
    check_sampler(Honest, expected=documented)
    with pytest.raises(ConformanceError, match=r"^calls: the second call differs from the first"):
        check_sampler(Honest, repeats=True)
    with pytest.raises(TypeError, match="make must be a function that makes a sampler from a number of workers, got 3"):
        check_sampler(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sample must be a function of the sampler, got 'sample'"):
        check_sampler(Honest, "sample")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"make\(1\) must return a sampler, got None"):
        check_sampler(lambda num_workers: None)
    with pytest.raises(RuntimeError, match="no rollouts today"):
        check_sampler(Fails)
    for numbers in ((), (0,)):
        with pytest.raises(ValueError, match="num_workers must"):
            check_sampler(Honest, num_workers=numbers)
