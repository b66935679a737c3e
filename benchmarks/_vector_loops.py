"""Loops of policy and ``step`` over the vector environments of other libraries."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from _throughput_envs import Rate, make_env, make_policy

ENVPOOL_THREADS = 2
PEER_POLICIES = {
    "numpy": "the same policy, through our NumPy path",
    "torch": "the same policy as a torch module on one thread, without log-densities",
}


class VectorLoop:
    """A loop of policy and ``step`` over a vector environment that resets itself, as in most libraries."""

    def __init__(self, name: str, num_envs: int, vector: Any, acting: str) -> None:
        self._vector, self._num_envs = vector, num_envs
        self._act = ACTING[acting](make_policy(name), num_envs)
        reset = vector.reset()
        self._obs = reset[0] if isinstance(reset, tuple) else reset

    def rate(self, seconds: float) -> Rate:
        steps, begin = 0, time.perf_counter()
        while not steps or time.perf_counter() - begin < seconds:
            self.take(16)
            steps += 16 * self._num_envs
        return Rate(steps / (time.perf_counter() - begin))

    def take(self, num_steps: int) -> None:
        """Step all environments ``num_steps`` times."""
        act, vector, obs = self._act, self._vector, self._obs
        for _ in range(num_steps):
            obs = vector.step(act(obs))[0]
        self._obs = obs

    def close(self) -> None:
        self._vector.close()


def numpy_acting(policy: Any, num_envs: int) -> Callable[[np.ndarray], np.ndarray]:
    """The policy's own fast path."""
    parameters, generator = policy.acting_parameters(), np.random.default_rng(0)
    draw = generator.random if policy.noise_kind == "uniform" else generator.standard_normal

    def blocks() -> Iterator[np.ndarray]:
        while True:
            yield from draw((256, num_envs, policy.noise_dim))

    noise = blocks()
    return lambda obs: policy.act(obs, {}, next(noise), False, parameters)[0]


def torch_acting(policy: Any, num_envs: int) -> Callable[[np.ndarray], np.ndarray]:
    """The torch module on one thread, as users of vector environments call it; only actions, no log-densities."""
    import torch

    def act(obs: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            rows = torch.as_tensor(obs, dtype=torch.float32)
            if policy.noise_kind == "uniform":
                return torch.multinomial(policy(rows).exp(), 1)[:, 0].numpy()
            mean, log_std = policy.distribution(rows)
            return torch.normal(mean, log_std.exp()).numpy()

    return act


ACTING = {"numpy": numpy_acting, "torch": torch_acting}


def gymnasium_loop(name: str, num_envs: int, acting: str) -> VectorLoop:
    """One process, one environment after another."""
    make = [functools.partial(make_env, name)] * num_envs
    return VectorLoop(name, num_envs, gymnasium.vector.SyncVectorEnv(make), acting)


def sb3_loop(name: str, num_envs: int, acting: str) -> VectorLoop:
    """One process and one message per environment and step."""
    from stable_baselines3.common.vec_env import SubprocVecEnv  # pyright: ignore[reportMissingImports]

    make: list[Callable[[], gymnasium.Env]] = [functools.partial(make_env, name)] * num_envs
    return VectorLoop(name, num_envs, SubprocVecEnv(make, start_method="forkserver"), acting)


def envpool_loop(name: str, num_envs: int, acting: str) -> VectorLoop:
    """Environments written in C++, stepped by a pool of threads."""
    import envpool  # pyright: ignore[reportMissingImports]

    if name not in envpool.list_all_envs():
        raise LookupError(f"envpool has no {name}")
    threads = {"num_envs": num_envs, "num_threads": ENVPOOL_THREADS, "seed": 0}
    return VectorLoop(name, num_envs, envpool.make(name, env_type="gymnasium", **threads), acting)


def pufferlib_loop(name: str, num_envs: int, acting: str) -> VectorLoop:
    """One process, one environment after another, into shared buffers."""
    from pufferlib import emulation, vector  # pyright: ignore[reportMissingImports]

    def make(buf: Any = None, seed: int = 0) -> Any:
        return emulation.GymnasiumPufferEnv(env_creator=functools.partial(make_env, name), buf=buf, seed=seed)

    return VectorLoop(name, num_envs, vector.make(make, backend=vector.Serial, num_envs=num_envs), acting)


PEERS = {
    "gymnasium": (gymnasium_loop, "SyncVectorEnv in one process"),
    "stable-baselines3": (sb3_loop, "SubprocVecEnv, one process per environment"),
    "envpool": (envpool_loop, f"{ENVPOOL_THREADS} threads"),
}
