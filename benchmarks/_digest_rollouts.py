"""Cases of ``digests.py``: the slot loop with every kind of slots and policy, at several numbers of slots and workers.

A rollout depends on its plan alone, so entries for 1, 5 and 16 slots, and for two workers, must be the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from _digest_parts import Cases, Parts
from _digest_parts import names as m

__all__ = ["CASES", "seeded", "spec_of"]

CASES = Cases()
NUM_PLANS = 21
MAX_STEPS = 40
NUMBERS_OF_SLOTS = (1, 5, 16)


class Doubled(gymnasium.ActionWrapper[Any, Any, Any]):
    """A wrapper unknown to metaroll: environments behind it are stepped one by one."""

    def action(self, action: Any) -> Any:
        return np.clip(2.0 * np.asarray(action), -2.0, 2.0)


def foreign_pendulum() -> Any:
    return Doubled(gymnasium.make("Pendulum-v1"))


def noisy_cart_pole() -> Any:
    """A simulator behind wrappers that are stepped as arrays."""
    env = m.ActDelayWrapper(m.QCartPoleStabEnv(), delay=2)
    return m.GaussianObsNoiseWrapper(m.ActNormWrapper(env), noise_std=0.01)


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def spec_of(env: Any) -> Any:
    """The spec of an environment as it is given to an engine."""
    with m.RolloutEngine(env, lambda obs: obs) as engine:
        return engine.env_spec


def gaussian(spec: Any) -> Any:
    return m.GaussianMLPPolicy(spec, hidden_sizes=(32, 32), init_std=0.5, generator=seeded())


def wide(spec: Any) -> Any:
    return m.GaussianMLPPolicy(spec, hidden_sizes=(300, 300), hidden_nonlinearity="relu", generator=seeded())


def squashed(spec: Any) -> Any:
    return m.TanhGaussianMLPPolicy(spec, hidden_sizes=(16, 16), generator=seeded())


def deterministic(spec: Any) -> Any:
    return m.DeterministicMLPPolicy(spec, hidden_sizes=(16, 16), generator=seeded())


def gru(spec: Any) -> Any:
    return m.GRUGaussianPolicy(spec, hidden_size=12, generator=seeded())


def normalized(spec: Any) -> Any:
    return m.NormalizedPolicy(m.GaussianMLPPolicy(spec, hidden_sizes=(8,), generator=seeded()))


def exploring(spec: Any) -> Any:
    return m.OrnsteinUhlenbeckPolicy(deterministic(spec))


def categorical(spec: Any) -> Any:
    return m.CategoricalMLPPolicy(spec, hidden_sizes=(16,), generator=seeded())


def categorical_gru(spec: Any) -> Any:
    return m.CategoricalGRUPolicy(spec, hidden_size=8, generator=seeded())


def greedy(spec: Any) -> Any:
    return m.EpsilonGreedyPolicy(m.GreedyQPolicy(spec, hidden_sizes=(16,), generator=seeded()))


BOX = (gaussian, squashed, deterministic, gru)
CHOICES = (categorical, categorical_gru, greedy)


def plans_of(updates: Iterable[Any] = (None,), num: int = NUM_PLANS, max_steps: int = MAX_STEPS) -> list[Any]:
    """Plans that take ``updates`` in turn, each with its own seed; every third acts without noise."""
    return [
        m.RolloutPlan(index=i, seed=(7, 0, i), env_update=update, max_steps=max_steps - i, deterministic=i % 3 == 2)
        for i, update in zip(range(num), itertools.cycle(updates), strict=False)
    ]


def tasks_of(family: str, num: int = 4) -> tuple[Any, Sequence[Any]]:
    """The environment of a family, and ``num`` training tasks."""
    source = m.get_family(family)
    return source.env_constructor, source.split(num_train=num, num_test=2, seed=3)[0]


def rolling(
    name: str,
    make: Callable[[], tuple[Any, Sequence[Any]]],
    policies: Sequence[Callable[[Any], Any]],
    quick: bool = False,
    workers: bool = False,
) -> None:
    """Add a case: rollouts of each policy at each number of slots, and of the first one in two worker processes."""

    def run(parts: Parts, folder: Path) -> None:
        env, updates = make()
        spec = spec_of(env)
        for policy in policies:
            for num_slots in NUMBERS_OF_SLOTS:
                with m.RolloutEngine(env, policy(spec), slots_per_unit=num_slots) as engine:
                    parts.add_rollouts(f"{policy.__name__}, {num_slots} slots:", list(engine.run(plans_of(updates))))
        if workers:
            with m.RolloutEngine(env, policies[0](spec), num_workers=2, slots_per_unit=3) as engine:
                parts.add_rollouts("two workers:", list(engine.run(plans_of(updates))))

    CASES.add(f"rollouts {name}", run, quick)


def plain(env: Any) -> Callable[[], tuple[Any, Sequence[Any]]]:
    return lambda: (env, (None,))


def of_family(family: str) -> Callable[[], tuple[Any, Sequence[Any]]]:
    return lambda: tasks_of(family)


def in_domains(env: Any, **ranges: tuple[float, float]) -> Callable[[], tuple[Any, Sequence[Any]]]:
    """Four sets of domain parameters, from the lower to the upper end of each range."""
    shares = np.linspace(0.0, 1.0, 4)
    params = [{name: float(low + share * (high - low)) for name, (low, high) in ranges.items()} for share in shares]
    return lambda: (env, [m.DomainParamUpdate(values) for values in params])


rolling("Pendulum-v1", plain("Pendulum-v1"), (*BOX, wide, normalized, exploring), quick=True, workers=True)
rolling("Pendulum-v1 in domains", in_domains("Pendulum-v1", m=(0.8, 1.2), g=(9.0, 11.0)), (gaussian,))
for discrete in ("CartPole-v1", "Acrobot-v1", "MountainCar-v0"):
    rolling(discrete, plain(discrete), CHOICES, quick=discrete == "CartPole-v1")
rolling("MountainCarContinuous-v0", plain("MountainCarContinuous-v0"), (gaussian,))
rolling("list of Gymnasium environments", plain(foreign_pendulum), BOX, quick=True, workers=True)
for family in (
    "point-robot",
    "sparse-point-robot",
    "point-navigation",
    "point-walls",
    "point-corners",
    "point-momentum",
):
    rolling(family, of_family(family), BOX if family == "point-robot" else (gaussian,), quick=family == "point-robot")
rolling("bandit-10", of_family("bandit-10"), CHOICES[:2], quick=True)
rolling("random-mdp", of_family("random-mdp"), CHOICES[:2], workers=True)
for sim in ("omo", "pend", "bob", "qcp-st", "qcp-su", "qq-st", "qq-su", "qbb", "cata"):
    rolling(sim, of_family(sim), BOX if sim == "pend" else (gaussian,), quick=sim in ("pend", "qbb"))
rolling("wrapped simulator", plain(noisy_cart_pole), (gaussian, gru), quick=True)
rolling("HalfCheetah-v5", plain("HalfCheetah-v5"), BOX, quick=True, workers=True)
rolling("HalfCheetah-v5 in domains", in_domains("HalfCheetah-v5", **{"body_mass:torso": (5.0, 7.0)}), (gaussian,))
rolling("Hopper-v5", plain("Hopper-v5"), (gaussian,))
rolling("Ant-v5", plain("Ant-v5"), (deterministic,))
for family in ("cheetah-vel", "walker-rand-params", "swimmer-vel", "metaworld:ML1-reach-v3"):
    rolling(family, of_family(family), (gaussian,))


@CASES.case("rollouts with parameters of their own", quick=True)
def own_parameters(parts: Parts, folder: Path) -> None:
    """Each plan carries its own parameters of the policy."""
    for env, make in (("Pendulum-v1", gaussian), ("CartPole-v1", categorical), ("pend", gru)):
        policy = make(spec_of(env))
        center = np.asarray(policy.get_param_values())
        rows = center + 0.1 * np.random.default_rng(0).standard_normal((NUM_PLANS, center.size))
        plans = [
            m.RolloutPlan(index=i, seed=(7, 1, i), parameters=row.astype(center.dtype), max_steps=MAX_STEPS)
            for i, row in enumerate(rows)
        ]
        for num_slots in NUMBERS_OF_SLOTS:
            with m.RolloutEngine(env, policy, slots_per_unit=num_slots) as engine:
                parts.add_rollouts(f"{env}, {num_slots} slots:", list(engine.run(plans)))


@CASES.case("rollouts on tensors", quick=True)
def on_tensors(parts: Parts, folder: Path) -> None:
    """The slot loop on torch tensors, here on the CPU."""
    for env, make in (("pend", gaussian), ("qq-su", gru), ("CartPole-v1", categorical), ("point-robot", squashed)):
        with m.RolloutEngine(env, make(spec_of(env)), device="cpu") as engine:
            parts.add_rollouts(env, list(engine.run(plans_of())))


@CASES.case("rollouts with given first states")
def first_states(parts: Parts, folder: Path) -> None:
    states = np.random.default_rng(0).uniform(-0.1, 0.1, (NUM_PLANS, 4))
    plans = [m.RolloutPlan(index=i, seed=(7, 2, i), init_state=row, max_steps=20) for i, row in enumerate(states)]
    env = m.QCartPoleStabEnv()
    with m.RolloutEngine(env, gaussian(spec_of(env)), record_extras=True) as engine:
        rollouts = list(engine.run(plans))
    parts.add_rollouts("qcp-st", rollouts)
    parts.add("states", [rollout.states for rollout in rollouts])


@CASES.case("rollouts one at a time", quick=True)
def one_at_a_time(parts: Parts, folder: Path) -> None:
    """``rollout``, ``replay``, and a controller that is not a network."""
    env = m.QQubeSwingUpEnv(max_steps=60)
    parts.add_rollouts("controller", [m.rollout(env, m.QubeController(), seed=3)])
    parts.add_rollouts("policy", [m.rollout("Pendulum-v1", gaussian(spec_of("Pendulum-v1")), seed=3, max_steps=30)])
    plan = plans_of()[4]
    parts.add_rollouts("replay", [m.replay(plan, "Pendulum-v1", gaussian(spec_of("Pendulum-v1")))])


@CASES.case("rollouts that go on", quick=True)
def live_collection(parts: Parts, folder: Path) -> None:
    """Live collection into a replay buffer, and a batch sampled from it."""
    for env, make in (("point-robot", exploring), ("CartPole-v1", greedy), ("HalfCheetah-v5", gaussian)):
        spec = spec_of(env)
        buffer = m.ReplayBuffer(spec.observation_space, spec.action_space, 1000, num_slots=4)
        with (
            m.RolloutEngine(env, make(spec)) as engine,
            engine.open(lambda n: m.RolloutPlan(index=n, seed=(0, 0, n), max_steps=15), num_slots=4) as live,
        ):
            for _ in range(4):
                pieces = live.advance(7)
                parts.add_rollouts(f"{env} pieces", list(pieces))
                buffer.add(pieces)
        batch = buffer.sample(32, n_step=3, discount=0.9, generator=np.random.default_rng(1))
        for column in ("observations", "actions", "rewards", "next_observations"):
            parts.add(f"{env} replayed {column}", np.asarray(getattr(batch, column)))


@CASES.case("rollouts of samplers", quick=True)
def samplers(parts: Parts, folder: Path) -> None:
    """The samplers of Pyrado (parallel, worst cases, sets of parameters), and ProMP's with its processors."""
    spec = spec_of("pend")
    ranges = [{"pole_mass": mass} for mass in (0.9, 1.0, 1.1)]
    options: dict[str, Any] = {"show_progress_bar": False, "seed": 5, "max_steps": 30}
    with m.ParallelRolloutSampler("pend", gaussian(spec), 1, min_rollouts=6, **options) as sampler:
        parts.add_rollouts("parallel", list(sampler.sample(domain_params=ranges)))
    with m.ParallelRolloutSampler("pend", gaussian(spec), 1, min_rollouts=1, **options) as inner:
        parts.add_rollouts("worst", list(m.CVaRSampler(inner, epsilon=0.25, min_rollouts=3).sample()))
    randomizer = m.DomainRandomizer(m.UniformDomainParam("pole_mass", 1.0, 0.2), generator=0)
    live = m.DomainRandWrapperLive(m.PendulumEnv(max_steps=30), randomizer)
    policy = gaussian(spec)
    center = np.asarray(policy.get_param_values())
    sets = center + 0.1 * np.random.default_rng(0).standard_normal((5, center.size))
    with m.ParameterExplorationSampler(live, policy, 2, 3, num_workers=1, seed=0) as exploration:
        parts.add("returns of sets of parameters", np.asarray(exploration.sample(sets).mean_returns))
    env, _ = tasks_of("point-navigation")
    with m.MetaSampler("point-navigation", gaussian(spec_of(env)), 4, 3, 20, seed=0) as meta:
        meta.update_tasks()
        paths = meta.obtain_samples()
    for name, processor in (
        ("linear", m.MetaSampleProcessor(m.LinearFeatureBaseline(), gae_lambda=0.95, normalize_adv=True)),
        ("zero", m.MetaSampleProcessor(m.ZeroBaseline(), discount=0.9, positive_adv=True)),
        ("dice", m.DiceMetaSampleProcessor(m.LinearTimeBaseline(), 20)),
    ):
        for task in processor.process_samples(paths):
            for column in ("observations", "rewards", "returns", "advantages", "adjusted_rewards", "mask"):
                if column in task:
                    parts.add(f"paths, {name} baseline, {column}", np.asarray(task[column]))


@CASES.case("rollouts of a vector environment")
def vector_environment(parts: Parts, folder: Path) -> None:
    """Our slots behind Gymnasium's interface of vector environments."""
    for mode in ("next_step", "same_step"):
        envs = m.SlotsVectorEnv("pend", 3, gymnasium.vector.AutoresetMode[mode.upper()], max_episode_steps=9)
        observations, _ = envs.reset(seed=4)
        for step in range(25):
            actions = np.full(envs.action_space.shape or (), np.sin(step), dtype=np.float32)
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            parts.add(f"{mode} observations", np.array(observations))
            parts.add(f"{mode} rewards and endings", [np.array(rewards), np.array(terminated), np.array(truncated)])
        envs.close()
