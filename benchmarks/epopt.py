"""EPOpt and PPO under randomized domain parameters: CartPole and Pendulum of Packer et al. 2018 (arXiv:1810.12282).

    python benchmarks/epopt.py                                                   # both problems, five seeds each
    python benchmarks/epopt.py --env Pendulum --algorithm epopt --seeds 3        # a part, appended to the results
    python benchmarks/epopt.py --summary                                         # of the stored results

Each gets 15,000 episodes, 100 per epoch; every sampled episode counts. ``epopt`` and ``ppo`` train under constants
drawn from the paper's range R for every episode. PPO learns from all episodes, EPOpt after its warm-up from the worst
tenth; until then both are the same run. ``nominal`` is PPO under the nominal constants alone. Policies are evaluated
without noise, in one episode under each of 1,000 held-out draws from R. Draws and initial states are the same for all.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from _packer_envs import ENVS, PackerEnv
from _reporting import read_results, report, versions

from metaroll.contrib.epopt import EPOpt
from metaroll.functional.bootstrap import bootstrap_ci, interval_bounds
from metaroll.functional.cvar import conditional_value_at_risk, cvar_count
from metaroll.functional.robust_statistics import wilson_interval
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.networks import MLP
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed, torch_generator
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec, RolloutPlan

NAME = "epopt"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
ALGORITHMS = ("ppo", "epopt", "nominal")
SEEDS = (0, 1, 2, 3, 4)
WORST = 0.1
NUM_REPS = 10_000
HELD_OUT = 1000
PUBLISHED = "Packer et al. 2018, arXiv:1810.12282: PPO and EPOpt-PPO, R to R, mean and deviation of five runs"

COMMON: dict[str, Any] = {
    "epochs": 150,
    "rollouts_per_epoch": 100,
    "warm_up_epochs": 50,
    "epsilon": 0.1,
    "hidden_sizes": [64, 64],
    "learning_rate": 3e-4,
    "lr_decay_epochs": 150,
    "num_passes": 10,
    "gae_lambda": 0.95,
    "held_out": HELD_OUT,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "CartPole": {**COMMON, "batch_size": 500, "discount": 0.99},
    "Pendulum": {**COMMON, "batch_size": 250, "discount": 0.98, "init_std": 1.0},
}
QUICK: dict[str, Any] = {"epochs": 2, "rollouts_per_epoch": 20, "warm_up_epochs": 1, "num_passes": 2, "held_out": 20}
DEMANDED = {("CartPole", "ppo"): 98.0, ("CartPole", "epopt"): 98.0, ("Pendulum", "epopt"): 77.0}

_OF_LEARNER = ("learning_rate", "lr_decay_epochs", "batch_size", "num_passes", "gae_lambda", "discount")


def make_learner(problem: PackerEnv, algorithm: str, setting: Mapping[str, Any], seed: int) -> EPOpt:
    """An EPOpt learner; as PPO, it keeps all rollouts (epsilon = 1)."""
    spec = EnvSpec.from_env(problem.make())
    generator, sizes = torch_generator(derive_seed("networks", seed)), setting["hidden_sizes"]
    shape: dict[str, Any] = {"init": "orthogonal", "generator": generator}
    if "init_std" in setting:
        policy = GaussianMLPPolicy(spec, sizes, init_std=setting["init_std"], **shape)
    else:
        policy = CategoricalMLPPolicy(spec, sizes, **shape)
    critic = MLP(spec.obs_dim, 1, sizes, "tanh", **shape)
    numbers = {name: setting[name] for name in _OF_LEARNER}
    seed = derive_seed("algorithm", seed)
    constants = None if algorithm == "nominal" else problem.randomizer()
    ppo = PPO(spec, policy=policy, critic=critic, task_sampler=constants, evaluate_every=0, seed=seed, **numbers)
    return EPOpt(
        ppo,
        epsilon=setting["epsilon"] if algorithm == "epopt" else 1.0,
        warmup_epochs=setting["warm_up_epochs"],
        rollouts_per_epoch=setting["rollouts_per_epoch"],
    )


def evaluate(problem: PackerEnv, policy: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and successes, ``(count,)`` each, of one episode under each held-out draw."""
    draws = problem.randomizer().sample(count, generator=derive_seed("held-out constants", 0))
    plans = [
        RolloutPlan(index=i, seed=(derive_seed("evaluation", 0), i, 0), env_update=draw, eval=True, deterministic=True)
        for i, draw in enumerate(draws)
    ]
    with RolloutEngine(problem.make, policy) as engine:
        rollouts = engine.run(plans)
    returns = [float(rollout.undiscounted_return()) for rollout in rollouts]
    return np.array(returns), np.array([problem.succeeds(rollout) for rollout in rollouts])


def measure(env: str, algorithm: str, seed: int, quick: bool) -> None:
    """Train one agent and report its evaluation under the held-out constants."""
    problem, setting = ENVS[env], {**SETTINGS[env], **(QUICK if quick else {})}
    learner = make_learner(problem, algorithm, setting, seed)
    begun = time.perf_counter()
    with LocalRunner(seed=derive_seed("rollouts", seed)) as runner:
        runner.setup(learner, problem.make)
        runner.train(setting["epochs"])
        env_steps = runner.total_env_steps
    seconds = time.perf_counter() - begun
    returns, successes = evaluate(problem, learner.policy, setting["held_out"])
    low, high = wilson_interval(int(successes.sum()), len(successes))
    cvar = conditional_value_at_risk(returns, WORST)
    report(
        NAME,
        quick,
        peer="none",
        metric="success_rate",
        value=100.0 * float(successes.mean()),
        unit="% of held-out draws",
        config={"env": env, "algorithm": algorithm, "seed": seed, **setting},
        versions=versions(*PACKAGES),
        ci_low=100.0 * low,
        ci_high=100.0 * high,
        cvar=cvar,
        mean_return=float(returns.mean()),
        returns=[round(value, 1) for value in returns.tolist()],
        successes="".join("1" if success else "0" for success in successes),
        env_steps=env_steps,
        seconds=round(seconds, 1),
    )
    text = f"{100 * successes.mean():.1f} %, CVaR {cvar:.1f}, return {returns.mean():.1f}, {seconds:.0f} s"
    print(f"{env} {algorithm} seed {seed}: {text}", file=sys.stderr, flush=True)


def known_lines(env: str, algorithm: str, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Seed -> newest line in the results with the present settings."""
    newest: dict[int, dict[str, Any]] = {}
    for line in read_results(NAME):
        config = line["config"]
        wanted = {"env": env, "algorithm": algorithm, "seed": config["seed"], **SETTINGS[env]}
        if line["metric"] == "success_rate" and config == wanted and config["seed"] in seeds:
            newest[config["seed"]] = line
    return dict(sorted(newest.items()))


def worst_mean(returns: np.ndarray) -> np.ndarray:
    """Mean of the worst tenth of ``(..., draws)``."""
    count = cvar_count(returns.shape[-1], WORST)
    return np.partition(returns, count - 1, axis=-1)[..., :count].mean(axis=-1)


def resampled(values: np.ndarray, statistic: Any, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of ``statistic(values)``; seeds (axis 0) and draws (axis -1) are both resampled."""
    generator = np.random.default_rng(seed)
    count, draws = values.shape[0], values.shape[-1]
    statistics = []
    for _ in range(NUM_REPS // 10):
        rows, columns = generator.integers(count, size=count), generator.integers(draws, size=draws)
        statistics.append(statistic(values[rows][..., columns]))
    low, high = interval_bounds(statistic(values), np.array(statistics), 0.025, "percentile")
    return float(low), float(high)


def summarize(env: str, seeds: Sequence[int]) -> None:
    """Report success rates beside the published ones, and paired differences of CVaR_0.1, from the results."""
    runs = {algorithm: known_lines(env, algorithm, seeds) for algorithm in ALGORITHMS}
    for algorithm, lines in runs.items():
        if len(lines) < 2:
            print(f"{env} {algorithm}: the results hold {len(lines)} of the seeds {list(seeds)}", file=sys.stderr)
            continue
        report_success(env, algorithm, lines)
    for other in ("ppo", "nominal"):
        if len(runs[other].keys() & runs["epopt"].keys()) >= 2:
            report_difference(env, other, runs[other], runs["epopt"])


def report_success(env: str, algorithm: str, lines: Mapping[int, Mapping[str, Any]]) -> None:
    successes = 100.0 * np.array([[int(c) for c in line["successes"]] for line in lines.values()])
    low, high = resampled(successes, np.mean)
    published = ENVS[env].published.get(algorithm)
    demanded = DEMANDED.get((env, algorithm))
    more: dict[str, Any] = {} if demanded is None else {"demanded": demanded}
    value = float(successes.mean())
    if published is not None:
        more |= {"ratio": value / published[0], "published_mean": published[0], "published_std": published[1]}
    report(
        NAME,
        False,
        peer="none" if published is None else "published",
        metric="success_rate_mean",
        value=value,
        unit="% of held-out draws",
        config={"env": env, "algorithm": algorithm, "seed": list(lines), **SETTINGS[env], "published": PUBLISHED},
        versions=versions(*PACKAGES),
        ci_low=low,
        ci_high=high,
        values=successes.mean(axis=1).tolist(),
        **more,
    )


def report_difference(
    env: str, other: str, others: Mapping[int, Mapping[str, Any]], epopt: Mapping[int, Mapping[str, Any]]
) -> None:
    """Report the difference of CVaR_0.1; it is paired, since both share seeds, draws and initial states."""
    both = [seed for seed in others if seed in epopt]
    returns = np.array([[others[seed]["returns"], epopt[seed]["returns"]] for seed in both])  # (seeds, 2, draws)
    cvars = worst_mean(returns)
    differences = cvars[:, 1] - cvars[:, 0]
    mean, low, high = bootstrap_ci(differences, np.mean, NUM_REPS, 0.05, 2, studentized=True, seed=0)
    bounds: dict[str, Any] = (
        {"ci_low": float(low[0]), "ci_high": float(high[0])} if np.isfinite([low, high]).all() else {}
    )
    interval = resampled(returns, lambda part: np.diff(worst_mean(part), axis=1).mean())
    report(
        NAME,
        False,
        peer="none",
        metric="cvar_difference",
        value=float(mean[0]),
        unit=f"return, worst tenth, epopt minus {other}",
        config={
            "env": env,
            "minus": other,
            "seed": both,
            **SETTINGS[env],
            "interval": "studentized bootstrap over pairs of seeds",
        },
        versions=versions(*PACKAGES),
        **bounds,
        ci_of_seeds_and_draws=list(interval),
        values=differences.tolist(),
        cvar_other=float(cvars[:, 0].mean()),
        cvar_epopt=float(cvars[:, 1].mean()),
        seeds_above=int((differences > 0).sum()),
        demanded=0.0,
    )


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", nargs="+", choices=sorted(SETTINGS), default=sorted(SETTINGS))
    parser.add_argument("--algorithm", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--summary", action="store_true", help="train nothing, only summarize the results")
    parser.add_argument("--quick", action="store_true", help="two short epochs of one seed, nothing appended")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for env in args.env:
        if not args.summary:
            for seed in args.seeds[:1] if args.quick else args.seeds:
                for algorithm in args.algorithm:
                    measure(env, algorithm, seed, args.quick)
        elif not args.quick:
            summarize(env, args.seeds)


if __name__ == "__main__":
    # The BLAS of NumPy reads this when it is loaded; more threads do not pay off for small networks.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    main()
