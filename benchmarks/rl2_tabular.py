"""RL2 on Bernoulli bandits and random MDPs, in newly drawn tasks, compared with the exact optimum and classical rules.

    python benchmarks/rl2_tabular.py --setup bandit-10 --runs FOLDER                   # n=10 pulls, five seeds
    python benchmarks/rl2_tabular.py --setup bandit-100 mdp-10 --seeds 0 --runs FOLDER # n=100 pulls; ten episodes
    python benchmarks/rl2_tabular.py --setup mdp-10 --runs FOLDER --minutes 20         # a part; call again to continue
    python benchmarks/rl2_tabular.py --summary                                         # summary of the results
    python benchmarks/rl2_tabular.py --check                                           # minutes, status 1 if it fails

Setups are those of Duan et al. 2016 (arXiv:1611.02779), tables 1 and 2: five arms, n pulls; ten states, five actions,
ten episodes of ten steps. Their settings were chosen by training returns; evaluations draw tasks of their own. Policies
act without noise. Classical rules play the same bandits with the same random numbers, so differences are paired.
Intervals are 95 % bootstrap intervals over means of blocks of trials.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _reporting import newest_of, report, versions
from conformity import play_mdps

from metaroll.envs.tabular.bandit import BernoulliBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv
from metaroll.envs.wrappers.trials import TrialUpdate
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed
from metaroll.tasks.updates import NewEnvUpdate, SetTaskUpdate
from metaroll.training.session import experiments
from metaroll.training.store.snapshots import latest, load_snapshot
from metaroll.types import RolloutPlan

NAME = "rl2_tabular"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
UNIT = "reward per trial"
ARMS, EPISODE = 5, 10
CHUNK = 50_000
BLOCKS = 1000
"""Number of blocks of trials whose means are resampled."""


class Setup(NamedTuple):
    """A problem, the trials of its evaluation, and the mean it must reach; ``demanded=0`` is for the gain on greedy."""

    env: str
    pulls: int
    trials: int
    demanded: float
    options: dict[str, Any]


BANDIT: dict[str, Any] = {
    "hidden_sizes": (32,),
    "num_passes": 4,
    "batch_size": 2500,
    "learning_rate": 3e-3,
    "discount": 1.0,
    "gae_lambda": 0.95,
}
SETUPS = {
    # One episode of n steps instead of n episodes of one step: only the flag of an episode's end differs.
    "bandit-10": Setup(
        "bandit-5", 10, 1_000_000, 0.0, {**BANDIT, "episodes_per_trial": 1, "trials_per_epoch": 5000, "epochs": 100}
    ),
    "bandit-100": Setup(
        "bandit-5",
        100,
        20_000,
        77.5,
        {
            **BANDIT,
            "hidden_sizes": (48,),
            "batch_size": 10_000,
            "gae_lambda": 0.9,
            "learning_rate": 2e-3,
            "discount": 0.99,
            "episodes_per_trial": 1,
            "trials_per_epoch": 1000,
            "epochs": 400,
        },
    ),
    "mdp-10": Setup(
        "random-mdp",
        100,
        10_000,
        150.2,
        {
            "hidden_sizes": (128,),
            "num_passes": 4,
            "batch_size": 5000,
            "learning_rate": 1e-3,
            "entropy_coeff": 0.02,
            "discount": 0.99,
            "gae_lambda": 0.9,
            "episodes_per_trial": 10,
            "trials_per_epoch": 500,
            "epochs": 400,
        },
    ),
}
SEEDS = (0, 1, 2, 3, 4)
RULES = ("greedy", "thompson", "ucb1")
EXACT = {10: 6.660}
"""Number of pulls -> expected total reward of the best rule for five arms, to check the calculation."""


# -------------------------------------------------------------------------------------------------------------- bandits
def exact_optimum(pulls: int, arms: int = ARMS) -> float:
    """Expected total reward of the best rule for ``pulls`` of ``arms`` with uniform probabilities.

    Dynamic programming over counts of wins and losses: ``V(c) = max_i p_i (1 + V(c + win_i)) + (1 - p_i) V(c +
    loss_i)`` with the posterior mean ``p_i = (won_i + 1) / (won_i + lost_i + 2)``. Arms are exchangeable, so counts are
    kept sorted.
    """

    @functools.cache
    def value(counts: tuple[tuple[int, int], ...], left: int) -> float:
        if not left:
            return 0.0
        best = 0.0
        for i, (won, lost) in enumerate(counts):
            if i and counts[i - 1] == counts[i]:
                continue
            others = counts[:i] + counts[i + 1 :]
            mean = (won + 1) / (won + lost + 2)
            up = value(tuple(sorted((*others, (won + 1, lost)))), left - 1)
            down = value(tuple(sorted((*others, (won, lost + 1)))), left - 1)
            best = max(best, mean * (1.0 + up) + (1.0 - mean) * down)
        return best

    return value(((0, 0),) * arms, pulls)


def rule_choice(rule: str, won: np.ndarray, lost: np.ndarray, pull: int, generator: np.random.Generator) -> np.ndarray:
    """Arms ``(N,)`` that a rule chooses, given wins and losses ``(N, k)``; probabilities are uniform a priori."""
    if rule == "greedy":
        return np.argmax((won + 1) / (won + lost + 2), axis=1)
    if rule == "thompson":
        return np.argmax(generator.beta(won + 1, lost + 1), axis=1)
    tried = won + lost  # Auer et al. 2002, "Finite-time analysis of the multiarmed bandit problem", figure 1
    with np.errstate(divide="ignore", invalid="ignore"):
        index = won / tried + np.sqrt(2.0 * math.log(max(pull, 1)) / tried)
    return np.argmax(np.where(tried > 0, index, np.inf), axis=1)


def play_rule(rule: str, probabilities: np.ndarray, numbers: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Total rewards ``(N,)`` of a rule in N trials of n pulls.

    Pull t of trial i pays if ``numbers[i, t]``, of ``(N, n)``, is below the probability of the chosen arm, of ``(N,
    k)``.
    """
    won, lost = np.zeros((2, *probabilities.shape))
    rows, total = np.arange(len(probabilities)), np.zeros(len(probabilities))
    for pull in range(numbers.shape[1]):
        arms = rule_choice(rule, won, lost, pull, generator)
        paid = numbers[:, pull] < probabilities[rows, arms]
        won[rows, arms] += paid
        lost[rows, arms] += ~paid
        total += paid
    return total


def play_policy(policy: Any, probabilities: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The same for a policy, with the observations of a ``TrialWrapper`` (see ``agrees_with_engine``)."""
    count, arms = probabilities.shape
    rows, total = np.arange(count), np.zeros(count)
    obs = np.zeros((count, 1 + arms + 2), dtype=np.float32)
    obs[:, 0] = 1.0
    state = policy.initial_state([None] * count, [np.random.default_rng(0)] * count)
    noise = np.zeros((count, policy.info.noise_dim), dtype=np.float32)
    for pull in range(numbers.shape[1]):
        chosen, state, _ = policy.act(obs, state, noise, True)
        paid = numbers[:, pull] < probabilities[rows, chosen]
        total += paid
        obs[:, 1:] = 0.0
        obs[rows, 1 + chosen] = 1.0
        obs[:, 1 + arms] = paid
    return total


def agrees_with_engine(policy: Any, pulls: int, trials: int = 500) -> bool:
    """Whether ``play_policy`` and the engine give equal rewards, in tasks whose arms pay always or never."""
    probabilities = (np.random.default_rng(derive_seed(NAME, "engine")).random((trials, ARMS)) < 0.3).astype(np.float64)
    maker = TrialUpdate(NewEnvUpdate(BernoulliBanditEnv), 1, pulls)
    plans = [
        RolloutPlan(
            i, (0, 0, i), TrialUpdate(SetTaskUpdate(BernoulliBanditEnv, {"probabilities": row}), 1, pulls), eval=True
        )
        for i, row in enumerate(probabilities)
    ]
    with RolloutEngine(maker, policy) as engine:
        totals = engine.run_reduced(plans, total_reward)[:, 0]
    return bool(np.array_equal(totals, play_policy(policy, probabilities, np.full((trials, pulls), 0.5))))


def bandit_totals(players: Sequence[Any], pulls: int, trials: int, seed: int) -> np.ndarray:
    """Total rewards ``(len(players), trials)`` of rules (by name) and policies, all in the same tasks."""
    parts = []
    for begin in range(0, trials, CHUNK):
        generator = np.random.default_rng(derive_seed(NAME, "evaluation", pulls, seed, begin))
        count = min(CHUNK, trials - begin)
        probabilities, numbers = generator.random((count, ARMS)), generator.random((count, pulls))
        parts.append(
            [
                play_rule(player, probabilities, numbers, np.random.default_rng(derive_seed(NAME, player, seed, begin)))
                if isinstance(player, str)
                else play_policy(player, probabilities, numbers)
                for player in players
            ]
        )
    return np.concatenate(parts, axis=1)


# ----------------------------------------------------------------------------------------------------------------- MDPs
def total_reward(columns: Any, bounds: np.ndarray) -> np.ndarray:
    """Total reward of each rollout, ``(n, 1)``."""
    return np.add.reduceat(columns["rewards"], bounds[:-1])[:, None]


def mdp_totals(policy: Any, trials: int, seed: int) -> np.ndarray:
    """Total rewards ``(trials,)`` of ten episodes, each trial in a new MDP."""
    tasks = RandomMDPEnv().sample_tasks(trials, generator=derive_seed(NAME, "mdps", seed))
    maker = TrialUpdate(NewEnvUpdate(RandomMDPEnv), 10, EPISODE)
    plans = (
        RolloutPlan(
            i,
            (derive_seed(NAME, "mdp", seed), 0, i),
            TrialUpdate(SetTaskUpdate(RandomMDPEnv, task), 10, EPISODE),
            eval=True,
        )
        for i, task in enumerate(tasks)
    )
    with RolloutEngine(maker, policy) as engine:
        return engine.run_reduced(plans, total_reward)[:, 0]


# ------------------------------------------------------------------------------------------------------------- training
def config_of(setup: Setup, seed: int, **more: Any) -> dict[str, Any]:
    """Configuration of a run; tasks, networks and training depend on ``seed``."""
    fixed = {
        "seed": seed,
        "evaluate_every": 0,
        "torch_threads": 1,
        "max_path_length": setup.pulls // setup.options["episodes_per_trial"],
        "lr_decay_epochs": {**setup.options, **more}["epochs"],
        "num_test_tasks": 1,
        "posterior_sampling": False,
        "n_exploration_traj": 1,
    }
    return experiments.resolve("rl2", setup.env, [("the benchmark", {**setup.options, **fixed, **more})])


def train(
    config: dict[str, Any], folder: Path | None, minutes: float | None = None, log: Callable[[str], None] = print
) -> tuple[Any, int, float]:
    """Train; returns the learner, its number of epochs, and the CPU seconds of this call."""
    epochs, begun, cpu = config["run"]["epochs"], time.monotonic(), time.process_time()
    if folder is not None and latest(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)  # the run was stopped before its first snapshot
    done = 0 if folder is None or not folder.exists() else load_snapshot(folder, "last").iteration
    while True:
        over = minutes is not None and time.monotonic() - begun > 60.0 * minutes
        experiment = experiments.build(config, folder)
        with contextlib.closing(experiment.runner), experiments.torch_threads(config["run"]["torch_threads"]):
            if done:
                experiment.runner.restore(folder)
            if done >= epochs or over:
                return experiment.algo, done, time.process_time() - cpu
            goal = epochs if folder is None else min(epochs, done + 10)
            last = experiment.runner.resume(goal) if done else experiment.runner.train(goal)
            done = goal
            log(f"epoch {done}/{epochs}: return {last:.3f}, {time.monotonic() - begun:.0f} s")
            if folder is None:
                return experiment.algo, done, time.process_time() - cpu


# --------------------------------------------------------------------------------------------------------------- report
def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and its 95 % interval, from means of equal blocks of trials."""
    blocks = (
        values[: len(values) // BLOCKS * BLOCKS].reshape(BLOCKS, -1).mean(axis=1) if len(values) > BLOCKS else values
    )
    low, high = (float(np.ravel(v)[0]) for v in bootstrap_ci(blocks, np.mean, 10_000, 0.05, 2, seed=0)[1:])
    return float(values.mean()), low, high


def report_mean(name: str, subject: str, values: np.ndarray, quick: bool, config: dict[str, Any], **more: Any) -> None:
    """Report the mean of ``values (trials,)``."""
    mean, low, high = interval(values)
    report(
        NAME,
        quick,
        peer="none",
        metric="total_reward",
        value=mean,
        unit=UNIT,
        config={"setup": name, "policy": subject, "trials": len(values), **config},
        versions=versions(*PACKAGES),
        ci_low=low,
        ci_high=high,
        commit=commit(),
        **more,
    )


@functools.cache
def commit() -> str:
    """The commit that is checked out, with a plus if files of src have been changed."""
    here = Path(__file__).parent
    run = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, check=False)
    changed = run(["git", "status", "--porcelain", "--untracked-files=no", "../src"]).stdout.strip()
    return run(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() + ("+" if changed else "")


def settings_of(setup: Setup, seed: int, epochs_done: int, /, **more: Any) -> dict[str, Any]:
    """Settings of a training as the results state them."""
    settings = {**setup.options, **more, "hidden_sizes": list(setup.options["hidden_sizes"])}
    return settings | {"seed": seed, "epochs_done": epochs_done}


def measure(name: str, seed: int, runs: Path | None, minutes: float | None, quick: bool, **more: Any) -> bool:
    """Train, evaluate and report one agent; returns whether it reaches what is demanded with its training so far."""
    setup = SETUPS[name]
    trials = more.pop("trials", setup.trials)
    config = config_of(setup, seed, **more)
    log = functools.partial(print, f"{name} seed {seed}", file=sys.stderr, flush=True)
    algo, epochs, seconds = train(config, None if runs is None else runs / f"{name}-{seed}", minutes, log)
    settings = settings_of(setup, seed, epochs, **more)
    steps = epochs * settings["trials_per_epoch"] * setup.pulls
    known: dict[str, Any] = {"env_steps": steps, "seconds_of_last_part": round(seconds, 1)}
    if setup.env != "bandit-5":
        values = mdp_totals(algo.policy, trials, seed)
        report_mean(name, "rl2", values, quick, settings, demanded=setup.demanded, **known)
        return float(values.mean()) >= setup.demanded
    if not agrees_with_engine(algo.policy, setup.pulls):
        raise SystemExit("play_policy and the engine give different rewards in the same trials")
    values, greedy = bandit_totals([algo.policy, "greedy"], setup.pulls, trials, seed)
    report_mean(name, "rl2", values, quick, settings, demanded=setup.demanded or None, **known)
    gain, low, high = interval(values - greedy)
    pair = {"rl2": float(values.mean()), "greedy": float(greedy.mean())}
    report(
        NAME,
        quick,
        peer="none",
        metric="gain_on_greedy",
        value=gain,
        unit=UNIT,
        config={"setup": name, "trials": trials, **settings},
        versions=versions(*PACKAGES),
        ci_low=low,
        ci_high=high,
        commit=commit(),
        **pair,
    )
    return low > 0.0 if setup.demanded == 0.0 else float(values.mean()) >= setup.demanded


def report_known(quick: bool, share: float = 1.0) -> bool:
    """Report the exact optimum and the rewards of classical rules; returns whether the optimum has its known value."""
    best = exact_optimum(10)
    report(
        NAME,
        quick,
        peer="none",
        metric="exact_optimum",
        value=best,
        unit=UNIT,
        config={"setup": "bandit-10", "policy": "optimal"},
        versions=versions(*PACKAGES),
    )
    for name, trials in (("bandit-10", 1_000_000), ("bandit-100", 20_000)):
        totals = bandit_totals(RULES, SETUPS[name].pulls, int(trials * share), 0)
        for rule, values in zip(RULES, totals, strict=True):
            report_mean(name, rule, values, quick, {"seed": 0})
    for rule in ("greedy", "thompson"):
        values = play_mdps(rule, 10, int(2000 * share), 0).sum(axis=1)
        report_mean("mdp-10", rule, values, quick, {"seed": 0})
    return abs(best - EXACT[10]) < 5e-4


def summarize() -> None:
    """Report the mean over the seeds of each setup, from the newest lines of runs that were trained to the end."""
    for name, setup in SETUPS.items():
        paired = setup.demanded == 0.0
        metric = "gain_on_greedy" if paired else "total_reward"
        policy = {} if paired else {"policy": "rl2"}
        head = {"setup": name, **policy, "trials": setup.trials}
        settings = {seed: settings_of(setup, seed, setup.options["epochs"]) for seed in SEEDS}
        newest = {seed: newest_of(NAME, metric, {**head, **config}) for seed, config in settings.items()}
        lines = {seed: line for seed, line in newest.items() if line is not None}
        if not lines:
            continue
        values = np.array([line["value"] for line in lines.values()])
        lows = [line["ci_low"] for line in lines.values()]
        report(
            NAME,
            False,
            peer="none",
            metric=f"{metric}_of_seeds",
            value=float(values.mean()),
            unit=UNIT,
            config={"setup": name, "seeds": sorted(lines)},
            versions=versions(*PACKAGES),
            values=values.tolist(),
            lowest_ci_low=min(lows),
            demanded=setup.demanded,
            seeds_that_hold=int((np.array(lows) > 0.0).sum() if paired else (values >= setup.demanded).sum()),
            commit=commit(),
        )


def check() -> bool:
    """Compute the optimum, run the rules, and train for minutes; the agent must beat Thompson sampling."""
    optimum = report_known(True, 0.02)
    config = config_of(SETUPS["bandit-10"], 0, epochs=25, trials_per_epoch=2000, num_passes=6)
    algo, _, _ = train(config, None, log=lambda text: None)
    agrees = agrees_with_engine(algo.policy, 10)
    learned, thompson = bandit_totals([algo.policy, "thompson"], 10, 20_000, 1).mean(axis=1)
    print(
        f"exact optimum correct: {optimum}; same rewards as the engine: {agrees}; after 25 short epochs "
        f"{learned:.3f}, Thompson sampling {thompson:.3f}"
    )
    return bool(optimum and agrees and learned > thompson)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setup", nargs="+", choices=sorted(SETUPS), default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, help="folder of the runs; runs that exist continue")
    parser.add_argument("--minutes", type=float, help="longest training per seed and call, with --runs")
    parser.add_argument("--known", action="store_true", help="report the exact optimum and classical rules")
    parser.add_argument("--summary", action="store_true", help="do not train, only summarize the results")
    parser.add_argument("--quick", action="store_true", help="one tiny epoch of one seed per setup, nothing appended")
    parser.add_argument("--check", action="store_true", help="a short training, status 1 if it learns too little")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        raise SystemExit(0 if check() else 1)
    if args.quick:
        report_known(True, 0.001)
        for name in SETUPS:
            measure(name, 0, None, None, True, epochs=1, trials_per_epoch=50, trials=1000)
        return
    if args.known:
        report_known(False)
    for name in args.setup:
        for seed in args.seeds:
            measure(name, seed, args.runs, args.minutes, False)
    if args.summary:
        summarize()


if __name__ == "__main__":
    main()
