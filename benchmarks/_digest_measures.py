"""Cases of ``digests.py``: evaluations and comparisons, searches, inference."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _digest_learning import MAML, NARROW, PEARL, PPO, RL2, TINY, make_agent
from _digest_parts import Cases, Parts
from _digest_parts import names as m
from _digest_rollouts import gaussian, spec_of

__all__ = ["CASES", "comparable", "simulate_swing"]

CASES = Cases()

# -- evaluations -------------------------------------------------------------------------------------------------------

NOT_COMPARED = ("text", "versions", "path", "folder", "run", "label", "x", "y")
"""Keys of results whose values are prose, or differ between machines."""


def comparable(tree: Any) -> Any:
    """A tree of JSON without the keys that are not compared."""
    if isinstance(tree, Mapping):
        return {key: comparable(value) for key, value in tree.items() if key not in NOT_COMPARED}
    if isinstance(tree, list | tuple):
        return [comparable(value) for value in tree]
    return tree


def add_tree(parts: Parts, name: str, tree: Mapping[str, Any]) -> None:
    """Record a tree of JSON: what ``verdict`` and ``protocol`` hold one by one, each other entry as a whole."""
    for key, value in comparable(tree).items():
        if isinstance(value, Mapping) and key in ("verdict", "protocol"):
            parts.add_all(f"{name} {key}", value)
        else:
            parts.add(f"{name} {key}", value)


def evaluating(name: str, algo: str, env: Any, changes: Mapping[str, Any], quick: bool = False, **options: Any) -> None:
    """Add a case: the evaluation of an agent after one epoch, as it is returned and in ``evaluation.json``."""

    def run(parts: Parts, folder: Path) -> None:
        agent = make_agent(algo, env, {"seed": 2, "epochs": 1, "run_dir": folder / "run", **options})
        agent.learn(progress=False)
        result = agent.evaluate(out=folder / "evaluation", progress=False, **changes)
        parts.add("returns", result.returns)
        parts.add("environment steps", result.env_steps)
        parts.add_all("metric", result.metrics)
        if getattr(result, "lengths", None) is not None:
            parts.add("lengths", result.lengths)
        add_tree(parts, "file", json.loads((folder / "evaluation" / "evaluation.json").read_text(encoding="utf-8")))

    CASES.add(f"evaluation {name}", run, quick)


LATER = {"evaluate_every": 0}
evaluating("pearl", "pearl", "point-robot", {}, quick=True, **{**PEARL, **NARROW, **LATER})
evaluating("pearl sparse", "pearl", "sparse-point-robot", {"repetitions": 2}, **{**PEARL, **NARROW, **LATER})
evaluating("rl2", "rl2", "bandit-5", {}, quick=True, **{**RL2, **LATER}, trials_per_epoch=50, batch_size=200)
evaluating("maml", "maml", "point-navigation", {}, quick=True, **{**MAML, **TINY, **LATER})
evaluating(
    "promp",
    "promp",
    "point-corners",
    {"repetitions": 6},
    **{**MAML, **TINY, **LATER, "num_train_tasks": None, "num_test_tasks": None, "meta_batch_size": 4},
)
EPISODES = {"num_episodes": 5}
evaluating("ppo", "ppo", "Pendulum-v1", {"num_episodes": 7}, quick=True, **{**PPO, **LATER})
evaluating("ppo with noise", "ppo", "CartPole-v1", {"num_episodes": 7, "deterministic": False}, **{**PPO, **LATER})
evaluating("ppo in random domains", "ppo", "pend", EPISODES, **{**PPO, **LATER}, randomize="default", num_test_tasks=5)
evaluating("ppo on tasks", "ppo", "point-robot", EPISODES, **{**PPO, **LATER}, num_train_tasks=8, num_test_tasks=7)
evaluating("cmaes", "cmaes", "CartPole-v1", EPISODES, evaluate_every=0, max_path_length=60)


@CASES.case("evaluation over domain parameters", quick=True)
def domain_parameters(parts: Parts, folder: Path) -> None:
    """The nominal domain, chosen and drawn ones, and a robustness map."""
    env, controller, starts = m.QCartPoleStabEnv(max_steps=80), m.CartPoleController(), [None] * 4
    chosen = [{"pole_mass": mass} for mass in (0.1, 0.2, 0.3)]
    with m.SamplerPool(1) as pool:
        parts.add_rollouts("nominal", list(m.eval_nominal_domain(pool, env, controller, starts, seed=0)))
        parts.add_rollouts("chosen", list(m.eval_domain_params(pool, env, controller, chosen, seed=0)))
        randomizer = m.default_randomizer("qcp-st", generator=1)
        parts.add_rollouts("drawn", list(m.eval_randomized_domain(pool, env, randomizer, controller, starts, seed=0)))
    grid = {"pole_length": np.linspace(0.2, 0.5, 3), "pole_mass": np.linspace(0.1, 0.3, 2)}
    result = m.robustness_map(gaussian(spec_of("qcp-st")), "qcp-st", grid, num_episodes=4, max_steps=60, seed=0)
    parts.add("map", result.returns)
    parts.add("intervals of the map", list(result.interval))
    parts.add_all("nominal", result.nominal)


@CASES.case("evaluation comparing groups", quick=True)
def comparing(parts: Parts, folder: Path) -> None:
    """Two groups of three seeds."""
    options = {"steps_per_epoch": 200, "epochs": 1, "num_passes": 1, "evaluate_every": 1, "num_episodes": 4}
    agents = []
    for rate in (3e-4, 1e-2):
        for seed in range(3):
            run = folder / f"{rate}-{seed}"
            agent = make_agent("ppo", "Pendulum-v1", {**options, "learning_rate": rate, "seed": seed, "run_dir": run})
            agents.append(agent.learn(progress=False))
    comparison = m.compare(*agents)
    for number, group in enumerate(comparison.groups):
        parts.add_all(f"group {number}", comparable(group))
    for number, pair in enumerate(comparison.comparisons):
        parts.add_all(f"pair {number}", comparable(pair))


@CASES.case("evaluation intervals", quick=True)
def intervals(parts: Parts, folder: Path) -> None:
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(6, 5)), draws.normal(0.3, 1.0, size=(7, 5))
    for corrected, studentized in ((False, False), (True, False), (False, True)):
        bounds = m.bootstrap_ci(x[:, 0], np.mean, 200, 0.05, 2, corrected, studentized, seed=3)
        parts.add(f"bootstrap, corrected {corrected}, studentized {studentized}", list(map(np.asarray, bounds)))
    for method in ("percentile", "basic"):
        parts.add(f"iqm {method}", list(m.interval_of_iqm(x[:, 0], num_reps=500, method=method, generator=4)))
    parts.add("improvement", m.probability_of_improvement(x[:, 0], y[:, 0]))
    parts.add("interval of improvement", list(m.interval_of_improvement(x[:, 0], y[:, 0], num_reps=500, generator=5)))
    parts.add("wilson", [float(value) for value in m.wilson_interval(7, 20)])
    parts.add("iqm", m.interquartile_mean(x[:, 0]))
    parts.add("cvar", m.conditional_value_at_risk(x[:, 0], 0.3))


# -- searches ----------------------------------------------------------------------------------------------------------


def search_of(name: str, module: str) -> Any:
    """Look up a search, public in later versions, in a module of ``functional.search`` in earlier ones."""
    for path in ("metaroll.search", f"metaroll.functional.search.{module}"):
        try:
            return getattr(importlib.import_module(path), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"there is no search {name}")


def rosenbrock(rows: np.ndarray) -> np.ndarray:
    return -np.sum(100.0 * (rows[:, 1:] - rows[:, :-1] ** 2) ** 2 + (1.0 - rows[:, :-1]) ** 2, axis=1)


def rastrigin(rows: np.ndarray) -> np.ndarray:
    return -np.sum(rows**2 - 10.0 * np.cos(2.0 * np.pi * rows) + 10.0, axis=1)


def add_search(parts: Parts, name: str, search: Any, fitness: Any, generations: int, size: int = 6) -> None:
    """Record the state of a search after every tenth of its generations, and its result."""
    state, draws = search.start(np.full(size, 0.5)), np.random.default_rng(8)
    for generation in range(generations):
        if search.stop(state):
            break
        candidates = search.ask(state, draws)
        state = search.tell(state, candidates, fitness(candidates))
        if generation % max(1, generations // 10) == 0:
            parts.add(f"{name} mean", state.mean)
            parts.add(f"{name} best fitness", state.best_fitness)
    parts.add(f"{name} best", state.best)
    parts.add(f"{name} evaluations", state.evaluations)
    parts.add(f"{name} stop", str(search.stop(state)))
    if hasattr(search, "recommended"):
        parts.add(f"{name} recommended", search.recommended(state))


@CASES.case("search CMA-ES", quick=True)
def cma(parts: Parts, folder: Path) -> None:
    for name, search in {
        "plain": m.CMA(),
        "separable": m.CMA(separable=True),
        "mirrored": m.CMA(mirrored=True, active=False),
        "elitism within bounds": m.CMA(elitism=True, lower=-1.0, upper=1.0, population=7),
        "reevaluated": m.CMA(reevaluated=2, max_repetitions=4.0),
        "target": m.CMA(target=-1e-3),
    }.items():
        add_search(parts, name, search, rosenbrock, 80)
    add_search(parts, "600 parameters", m.CMA(), rosenbrock, 10, size=600)


@CASES.case("search CMA-ES with restarts", quick=True)
def restarts(parts: Parts, folder: Path) -> None:
    """Enough generations for a few restarts."""
    restarted = search_of("RestartedCMA", "restarts")
    for rule in ("ipop", "bipop"):
        search = restarted(cma=m.CMA(sigma=0.3, tolfun=1e-2, tolfunhist=1e-2), rule=rule, seed=3)
        add_search(parts, rule, search, rastrigin, 400)


def cross_entropy(population: int, num_best: int, **options: Any) -> Any:
    """Make a CEM search; later versions take the share of elites, earlier ones their number."""
    cem = search_of("CEM", "cem")
    try:
        return cem(population=population, best_frac=num_best / population, **options)
    except TypeError:
        return cem(population=population, num_best=num_best, **options)


@CASES.case("search others", quick=True)
def other_searches(parts: Parts, folder: Path) -> None:
    climb = search_of("HillClimb", "hill_climbing")
    for name, search in {
        "CEM": cross_entropy(12, 4, extra_std=0.2),
        "CEM full": cross_entropy(20, 8, extra_std=0.0, covariance="full", mirrored=True, elitism=True),
        "hill climbing": climb(),
        "hill climbing sphere": climb(population=6, noise="sphere"),
        "ARS": m.ARS(num_best=3),
        "OpenAI-ES": m.OpenAIES(weight_decay=0.01),
        "OpenAI-ES standardized": m.OpenAIES(shaping="standardized", mirrored=False),
        "PGPE": m.PGPE(),
        "SNES": m.SNES(),
        "SNES mirrored": m.SNES(mirrored=True, population=10),
        "starts": m.MultiStart(search=m.CMA(), rules=m.Starts(starts=4, round_length=5, start_std=0.5), seed=2),
        "averaged": m.AveragedMean(search=m.SNES(), window=10),
    }.items():
        add_search(parts, name, search, rosenbrock, 40)


# -- inference ---------------------------------------------------------------------------------------------------------

PRIOR = {"length": (0.5, 1.5), "friction": ("log-uniform", 0.01, 1.0)}
TRUE = np.array([[0.9, 0.1]])


def simulate_swing(thetas: np.ndarray) -> np.ndarray:
    """Angles ``(B, 10)`` of pendulums released at rest, with noise that is a function of the parameters."""
    length, friction = np.asarray(thetas, dtype=np.float64).T
    angle, speed, observed = np.full(len(length), 0.8), np.zeros(len(length)), []
    for step in range(100):
        speed = speed + 0.02 * (-9.81 / length * np.sin(angle) - friction * speed)
        angle = angle + 0.02 * speed
        if step % 10 == 9:
            observed.append(angle)
    noise = np.sin(1e4 * np.outer(length * friction, np.arange(1.0, 11.0)))
    return np.stack(observed, axis=1) + 0.02 * noise


def simulate_with_failures(thetas: np.ndarray) -> np.ndarray:
    features = simulate_swing(thetas)
    features[np.asarray(thetas)[:, 0] > 1.3] = np.nan
    return features


def simulate_many_features(thetas: np.ndarray) -> np.ndarray:
    """``simulate_swing`` and 50 more features, each with little information, ``(B, 60)``."""
    features = simulate_swing(thetas)
    return np.concatenate([features, np.sin(1e3 * features @ np.ones((10, 1)) * np.arange(1.0, 51.0))], axis=1)


def add_draws(parts: Parts, name: str, posterior: Any) -> None:
    parts.add(f"{name} draws", posterior.draws)
    parts.add(f"{name} mean", posterior.mean)
    parts.add(f"{name} std", posterior.std)


def add_density(parts: Parts, name: str, posterior: Any) -> None:
    parts.add(f"{name} samples", posterior.sample(20, seed=3))
    parts.add(f"{name} log-density", posterior.log_prob(np.random.default_rng(4).uniform(0.6, 0.9, (20, 2))))


@CASES.case("inference ABC", quick=True)
def abc(parts: Parts, folder: Path) -> None:
    observed = simulate_swing(TRUE)[0]
    for kernel in ("normal", "componentwise", "uniform"):
        method = m.ABCSMC(PRIOR, 60, kernel=kernel, seed=1, batch_size=200)
        add_draws(parts, kernel, method.infer(simulate_swing, observed, 1500))
    method = m.ABCSMC(PRIOR, 60, regression=False, quantile=0.3, seed=1)
    add_draws(parts, "of failures", method.infer(simulate_with_failures, observed, 1500))


@CASES.case("inference identification", quick=True)
def identification(parts: Parts, folder: Path) -> None:
    observed = simulate_swing(TRUE)[0]
    for method in ("least_squares", "cem"):
        result = m.identify(simulate_swing, observed, PRIOR, method, num_simulations=600, seed=2)
        for name in ("theta", "std", "residual", "num_simulations", "information"):
            parts.add(f"{method} {name}", getattr(result, name))


QUICK_LEARNING = {"max_epochs": 4, "hidden_features": 16, "num_transforms": 2, "learning_rate": 2e-3}


def inferring(
    name: str, config: Mapping[str, Any], quick: bool = False, simulate: Any = simulate_swing, **how: Any
) -> None:
    """Add a case: a neural posterior after a few epochs, and the same loaded from its folder."""

    def run(parts: Parts, folder: Path) -> None:
        estimator = m.EstimatorConfig(**{**QUICK_LEARNING, **config})
        posterior = m.NPDR(PRIOR, estimator, seed=4, **how).infer(simulate, simulate(TRUE)[0], 240)
        add_density(parts, "posterior", posterior)
        if config.get("method") != "nle":  # thousands of draws by MCMC take half a minute
            add_draws(parts, "posterior", posterior)
            loaded = m.Posterior.load(posterior.save(folder / "posterior"))
            add_draws(parts, "loaded", loaded)
            add_density(parts, "loaded", loaded)

    CASES.add(f"inference {name}", run, quick)


inferring("npe maf", {"model": "maf"}, quick=True)
inferring("npe nsf ensemble", {"model": "nsf", "ensemble": 2, "num_bins": 4})
inferring("npe mixture", {"model": "mdn"})
inferring("npe regressions", {"model": "maf", "regressions": True}, simulate=simulate_many_features)
inferring("npe truncated rounds", {"model": "maf"}, quick=True, rounds=2)
inferring("npe rounds from the posterior", {"model": "maf"}, rounds=2, proposal="posterior")
inferring("npe of failures", {"model": "maf"}, simulate=simulate_with_failures)
inferring("nle", {"method": "nle", "model": "mdn", "num_components": 2})
inferring("fmpe", {"method": "fmpe"})


@CASES.case("inference BayesSim", quick=True)
def bayes_sim(parts: Parts, folder: Path) -> None:
    config = m.EstimatorConfig(max_epochs=5)
    for features in (0, 20):
        method = m.BayesSim(PRIOR, 3, features, config, seed=4)
        posterior = method.infer(simulate_swing, simulate_swing(TRUE)[0], 200)
        add_draws(parts, f"{features} features", posterior)
        add_density(parts, f"{features} features", posterior)


@CASES.case("inference checks")
def checks(parts: Parts, folder: Path) -> None:
    config = m.EstimatorConfig(model="maf", **QUICK_LEARNING)
    posterior = m.NPDR(PRIOR, config, seed=4).infer(simulate_swing, simulate_swing(TRUE)[0], 300)
    sizes: dict[str, Any] = {"num_calibration": 60, "num_draws": 40, "num_predictive": 40}
    verdict = m.check_posterior(posterior, simulate_swing, seed=2, **sizes)
    for check in verdict.checks:
        parts.add(f"{check.name}: outcome", check.outcome)
        parts.add(f"{check.name}: values", comparable(check.values))


@CASES.case("inference features of rollouts", quick=True)
def features_of_rollouts(parts: Parts, folder: Path) -> None:
    """Embeddings of simulated segments of a log, and of the log itself."""
    robot = m.PendulumEnv(domain_param={"pole_mass": 0.8, "pole_length": 1.2}, max_steps=60)
    spec = m.EnvSpec.from_env(robot)
    log = [m.rollout(robot, m.DummyPolicy(spec), seed=0, sub_seed=i) for i in range(2)]
    names, thetas = {0: "pole_mass", 1: "pole_length"}, np.array([[1.0, 1.0], [0.8, 1.2], [0.6, 1.4]])
    for name, embedding in {
        "BayesSim": m.BayesSimEmbedding(spec, dim_data=3),
        "changes": m.DeltaStepsEmbedding(spec, dim_data=3, len_rollouts=60, downsampling_factor=5),
        "all steps": m.AllStepsEmbedding(spec, dim_data=3, len_rollouts=60, downsampling_factor=10),
        "last step": m.LastStepEmbedding(spec, dim_data=3),
        "time warping": m.DynamicTimeWarpingEmbedding(spec, dim_data=3),
        "recurrent": m.RNNEmbedding(spec, 3, 8, 1, 4, len_rollouts=60, generator=0),
    }.items():
        options: dict[str, Any] = {"len_segments": 20, "rollouts_real": log, "seed": 0}
        with m.SimRolloutSamplerForSBI("pend", m.IdlePolicy(spec), names, embedding, **options) as sampler:
            parts.add(f"{name}, simulated", sampler(thetas))
            parts.add(f"{name}, recorded", sampler.target_features())


@CASES.case("inference priors and tasks", quick=True)
def priors(parts: Parts, folder: Path) -> None:
    """Tasks drawn from a posterior, from randomizers and from families."""
    prior = m.as_prior({**PRIOR, "mass": ("normal", 1.0, 0.2, 0.5, 1.5)})
    posterior = m.Posterior(prior, draws=np.random.default_rng(2).uniform(0.6, 0.9, (200, 3)))
    sampler = m.PosteriorTaskSampler(posterior.save(folder / "posterior"), generator=0)
    for side in ("train", "test"):
        tasks = m.SplitTaskSampler(sampler, side, generator=0).sample(5)
        parts.add(f"posterior, {side}", [dict(task.task) for task in tasks])
    for sim in ("pend", "qcp-su", "qq-su", "qbb", "omo", "bob", "cata"):
        drawn = m.default_randomizer(sim, generator=3).sample(4)
        parts.add(f"domains of {sim}", [dict(task.task) for task in drawn])
    for family in ("point-robot", "point-navigation", "cheetah-vel", "walker-rand-params", "bandit-5", "random-mdp"):
        for side, tasks in zip(("train", "test"), m.get_family(family).split(4, 3, seed=5), strict=True):
            parts.add(f"{family}, {side}", [task.task for task in tasks])
