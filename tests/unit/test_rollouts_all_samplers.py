"""specs/sampling.md 0.4, 22: what holds for every sampler beside its kit: it survives crashes and says what failed.

A sampler joins by an entry in SAMPLERS, a transport by one in TRANSPORTS. What workers run lies in modules that are
imported quickly (``pool_functions``, ``sampler_envs``), since each of them imports it anew.
"""

from __future__ import annotations

import time

import numpy as np
import psutil
import pytest
import torch
from pool_functions import whereabouts
from sampler_envs import Oscillator, Troubled

from metaroll.data.compare import first_difference
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.errors import RolloutError
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.samplers.cvar import CVaRSampler
from metaroll.rollouts.samplers.evaluation import (
    eval_domain_params,
    eval_domain_params_with_segmentwise_reset,
    eval_nominal_domain,
    eval_randomized_domain,
)
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import EnvSpec

TRANSPORTS = [("serial", 1), ("process", 2), ("ray", 2)]
"""Name of the transport, number of workers."""

OTHER_PROCESSES = TRANSPORTS[1:]
OURS = ("metaroll.rollouts.workers.worker_main:main", "ray::RayWorker")
MOST_WORKERS = sum({"serial": 0, "process": 0, "ray": 2}[kind] * number for kind, number in TRANSPORTS)
"""Processes beside those of the shared pools; a worker on Ray is an actor with a process beside it."""

STATES = [np.array([0.1 * i, 0.0]) for i in range(20)]


def policy_for(env):
    return GaussianMLPPolicy(EnvSpec.from_env(env), hidden_sizes=(4,), generator=torch.Generator().manual_seed(0))


def randomizer(env):
    nominal = env.domain_param
    name = next(iter(nominal))
    return DomainRandomizer(UniformDomainParam(name, nominal[name], 0.3 * abs(nominal[name])), generator=0)


def parallel(env, pool):
    with ParallelRolloutSampler(
        env, policy_for(env), pool.num_workers, min_rollouts=20, show_progress_bar=False, seed=3, pool=pool
    ) as sampler:
        while True:
            yield lambda: sampler.sample(STATES)


def cvar(env, pool):
    inner = ParallelRolloutSampler(
        env, policy_for(env), pool.num_workers, min_rollouts=1, show_progress_bar=False, seed=3, pool=pool
    )
    with CVaRSampler(inner, 0.3, min_rollouts=6) as sampler:
        while True:
            yield lambda: sampler.sample(STATES)


def exploration(env, pool):
    policy = policy_for(env)
    flat = torch.from_numpy(policy.acting_parameters())
    sets = torch.stack([flat, 0.5 * flat, -flat])
    wrapped = DomainRandWrapperLive(env, randomizer(env))
    with ParameterExplorationSampler(wrapped, policy, 10, 2, pool.num_workers, 3, pool=pool, max_steps=25) as sampler:
        while True:
            yield lambda: [found for sample in sampler.sample(sets, STATES) for found in sample.rollouts]


def domain_grid(env, pool):
    params = randomizer(env).draw(8, 0)
    while True:
        yield lambda: eval_domain_params(pool, env, policy_for(env), params * 2, np.array([0.7, 0.0]), seed=3)


def nominal(env, pool):
    while True:
        yield lambda: eval_nominal_domain(pool, env, policy_for(env), STATES, seed=3)


def randomized(env, pool):
    while True:
        yield lambda: eval_randomized_domain(pool, env, randomizer(env), policy_for(env), STATES, seed=3)


def segmentwise(env, pool):
    start = {"init_state": [0.7, 0.0]}
    plain = Oscillator() if isinstance(env, Troubled) else env
    whole = rollout(plain, policy_for(env), eval=True, max_steps=20, reset_kwargs=start, seed=1, no_close=True)
    parts, params = [whole[:7], whole[7:14], whole[14:]], [*randomizer(env).draw(5, 0), env.domain_param]
    call = (pool, env, policy_for(env), [parts], [params], True, False)
    while True:
        yield lambda: [
            found for segment in eval_domain_params_with_segmentwise_reset(*call, seed=3)[0] for found in segment
        ]


SAMPLERS = {
    "parallel": parallel,
    "cvar": cvar,
    "parameter exploration": exploration,
    "domain parameters": domain_grid,
    "nominal domain": nominal,
    "randomized domain": randomized,
    "segmentwise": segmentwise,
}


@pytest.fixture(scope="module")
def pools(shared_pools):
    def others():
        return {process.pid for process in psutil.Process().children(recursive=True)} - shared_pools.processes()

    class Pools(dict):
        def __missing__(self, name):  # Ray starts where a test asks for it
            kind, num = name.split(", ")
            made = shared_pools[int(num)] if kind == "process" else SamplerPool(int(num), transport=kind)
            made.invoke_all(whereabouts)
            return self.setdefault(name, made)

    before, running = others(), Pools()
    yield running
    for name, pool in running.items():
        if not name.startswith("process"):
            pool.stop()
    assert eventually(lambda: others() <= before)


def name_of(key):
    return f"{key[0]}, {key[1]}"


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def workers_alive():
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(name in " ".join(process.cmdline()) for name in OURS) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True)
def no_process_is_left_behind(shared_pools):
    """Instead of that of conftest.py: workers that were killed are replaced by others, and Ray has its own ways."""
    yield

    def others():
        return [process for process in workers_alive() if process.pid not in shared_pools.processes()]

    assert eventually(lambda: len(others()) <= MOST_WORKERS), "this test left workers behind"


@pytest.fixture
def take():
    """Calls of a sampler in turn; it is closed at the end."""
    opened = []

    def call(name, env, pool):
        opened.append(SAMPLERS[name](env, pool))
        return lambda: next(opened[-1])()

    yield call
    for generator in opened:
        generator.close()


def same(left, right):
    return [first_difference(a, b) for a, b in zip(left, right, strict=True)] == [None] * len(left)


QUICK = ("parallel", "parameter exploration", "segmentwise")
"""Samplers whose workers are killed in every run of the tests; the others ask the same pool in the same way."""
KILLED = [
    pytest.param(name_of(key), name, marks=[] if name in QUICK and key[0] == "process" else [pytest.mark.slow])
    for key in OTHER_PROCESSES
    for name in SAMPLERS
]
RAISED = [
    pytest.param(name_of(key), marks=[pytest.mark.slow] if key[0] == "ray" else [])
    for key in (TRANSPORTS[0], *OTHER_PROCESSES)
]


@pytest.mark.parametrize(("where", "name"), KILLED)
def test_a_killed_worker_is_replaced(name, where, pools, take, tmp_path):
    """specs/sampling.md 10: its work is done again, with the same bits."""
    path = tmp_path / "what"
    env = Troubled(str(path))
    expected = take(name, env, pools["serial, 1"])()
    path.write_text("kill", encoding="ascii")
    restarts = sum(worker.restarts for worker in pools[where].describe_workers())
    found = take(name, env, pools[where])()
    assert not path.exists()
    assert sum(worker.restarts for worker in pools[where].describe_workers()) > restarts
    assert same(found, expected)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("where", RAISED)
def test_an_exception_arrives_and_the_sampler_stays_usable(name, where, pools, take, tmp_path):
    """specs/sampling.md 10 (d): as RolloutError with the plan; no worker is left in the middle of something."""
    path = tmp_path / "what"
    env = Troubled(str(path))
    sample = take(name, env, pools[where])
    path.write_text("raise", encoding="ascii")
    with pytest.raises(RolloutError, match="the spring is broken") as caught:
        sample()
    assert caught.value.plan is not None and caught.value.step == 3
    path.unlink()
    again = sample()
    assert len(again) >= 6 and all(np.isfinite(found.rewards).all() for found in again)
