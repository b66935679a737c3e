"""PPO on Pendulum-v1 and HalfCheetah-v5, compared with the PPO of Stable-Baselines3 with the same hyperparameters.

    python benchmarks/ppo_control.py                                                  # both environments, five seeds
    python benchmarks/ppo_control.py --env HalfCheetah-v5 --seeds 3 --subject ours    # some of these runs
    python benchmarks/ppo_control.py --env HalfCheetah-v5 --speed                     # short trainings in turn
    python benchmarks/ppo_control.py --env HalfCheetah-v5 --summary                   # summary of the results

The final return is the mean over 20 episodes without noise. Times are those of training alone, without construction
and evaluation, with one thread each. ``--speed`` trains both in turn for a short time, so that other load on the
machine slows both alike. Each pair of neighbors gives a ratio; the median and range are reported.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import scipy.stats
import torch
from _reporting import read_results, report, report_missing, versions

from metaroll.seeding import derive_seed
from metaroll.training.session.experiments import build, resolve

NAME = "ppo_control"
PEER = "stable-baselines3"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco", "stable-baselines3")
UNIT = "return without noise"
EPISODES = 20
QUICK_EPISODES = 1
SEEDS = (0, 1, 2, 3, 4)

# Hyperparameters of both. An epoch holds whole episodes (2000 steps are 10 of Pendulum-v1 and 2 of HalfCheetah-v5), so
# the fixed-length segments of Stable-Baselines3 are whole episodes, too.
COMMON: dict[str, Any] = {
    "steps_per_epoch": 2000,
    "batch_size": 80,
    "num_passes": 10,
    "learning_rate": 3e-4,
    "discount": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "entropy_coeff": 0.0,
    "value_coeff": 0.5,
    "max_grad_norm": 0.5,
    "hidden_sizes": (64, 64),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {
        **COMMON,
        "epochs": 100,
        "learning_rate": 1e-3,
        "lr_decay_epochs": 100,
        # With 0.9, some seeds never swing up from hanging still.
        "discount": 0.95,
        # Our actions lie in [-1, 1] and are scaled to the bounds of 2. The initial standard deviation of 1 in
        # Stable-Baselines3 is that of unscaled actions.
        "init_std": 0.5,
    },
    "HalfCheetah-v5": {**COMMON, "epochs": 150},
}
QUICK: dict[str, Any] = {"epochs": 1, "steps_per_epoch": 1000, "batch_size": 100, "num_passes": 2}
THRESHOLD = {"Pendulum-v1": -200.0}
FASTER = 2.5
SPEED_EPOCHS, SPEED_PAIRS = 10, 5


def train_ours(env: str, setting: Mapping[str, Any], seed: int, episodes: int) -> dict[str, Any]:
    """Train ours: final returns ``(episodes,)``, seconds of training and its steps."""
    fixed = {"seed": seed, "evaluate_every": 0, "torch_threads": 1, "num_episodes": episodes}
    config = resolve("ppo", env, [("the benchmark", {**setting, **fixed})])
    experiment = build(config)
    with contextlib.closing(experiment.runner):
        begun = time.perf_counter()
        experiment.runner.train(config["run"]["epochs"])
        seconds = time.perf_counter() - begun
        experiment.runner.evaluate(experiment.algo)
        evaluation: Any = experiment.runner.last_evaluation
    return {"returns": evaluation.returns[0], "seconds": seconds, "env_steps": experiment.runner.total_env_steps}


def train_sb3(env: str, setting: Mapping[str, Any], seed: int, episodes: int) -> dict[str, Any]:
    """The same with Stable-Baselines3."""
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # pyright: ignore[reportMissingImports]

    envs = VecNormalize(DummyVecEnv([lambda: gymnasium.make(env)]), gamma=setting["discount"])
    sizes, rate = list(setting["hidden_sizes"]), setting["learning_rate"]

    def decayed(remaining: float) -> float:
        return rate * remaining

    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=decayed if "lr_decay_epochs" in setting else rate,
        n_steps=setting["steps_per_epoch"],
        batch_size=setting["batch_size"],
        n_epochs=setting["num_passes"],
        gamma=setting["discount"],
        gae_lambda=setting["gae_lambda"],
        clip_range=setting["clip_range"],
        ent_coef=setting["entropy_coeff"],
        vf_coef=setting["value_coeff"],
        max_grad_norm=setting["max_grad_norm"],
        policy_kwargs={"net_arch": {"pi": sizes, "vf": sizes}},
        seed=seed,
        device="cpu",
    )
    begun = time.perf_counter()
    model.learn(setting["epochs"] * setting["steps_per_epoch"])
    seconds = time.perf_counter() - begun
    returns = [sb3_episode(model, envs, env, derive_seed("episode", seed, k)) for k in range(episodes)]
    return {"returns": np.array(returns), "seconds": seconds, "env_steps": model.num_timesteps}


def sb3_episode(model: Any, envs: Any, env: str, seed: int) -> float:
    """Return of one episode without noise, with the observation normalizer as it was at the end of training."""
    environment: Any = gymnasium.make(env)
    obs, _ = environment.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action, _ = model.predict(envs.normalize_obs(obs), deterministic=True)
        obs, reward, terminated, truncated, _ = environment.step(action)
        total, done = total + float(reward), terminated or truncated
    environment.close()
    return total


TRAINERS = {"ours": train_ours, "sb3": train_sb3}
SUBJECTS = {"ours": "metaroll", "sb3": PEER}


def measure(env: str, seed: int, subjects: Sequence[str], quick: bool) -> None:
    """Train and report one agent of each of ``subjects``."""
    setting = {**SETTINGS[env], **(QUICK if quick else {})}
    order = subjects if seed % 2 == 0 else tuple(reversed(subjects))
    for subject in order:
        config = {"env": env, "seed": seed, **setting, "hidden_sizes": list(setting["hidden_sizes"])}
        known = {
            "peer": "none",
            "metric": "final_return",
            "unit": UNIT,
            "config": config,
            "versions": versions(*PACKAGES),
        }
        gc.collect()
        try:
            run = TRAINERS[subject](env, setting, seed, QUICK_EPISODES if quick else EPISODES)
        except ImportError as error:
            report_missing(NAME, quick, reason=str(error), subject=SUBJECTS[subject], **known)
            continue
        returns = run["returns"]
        report(
            NAME,
            quick,
            value=float(returns.mean()),
            subject=SUBJECTS[subject],
            returns=[round(float(value), 2) for value in returns],
            seconds=round(run["seconds"], 2),
            env_steps=int(run["env_steps"]),
            **known,
        )
        rate = run["env_steps"] / run["seconds"]
        print(f"{env} seed {seed} {subject}: {returns.mean():.1f}, {rate:.0f} steps/s", file=sys.stderr, flush=True)


def summarize(env: str, seeds: Sequence[int]) -> None:
    """Report means over the seeds of the results, and the interval of the difference."""
    runs = {subject: known_lines(env, name, seeds) for subject, name in SUBJECTS.items()}
    ours, peers = runs["ours"], runs["sb3"]
    if len(ours) < 2:
        num = f"{len(ours)} of the seeds {list(seeds)}"
        raise SystemExit(f"{env}: a summary needs 2 seeds with these settings, the results have {num}")
    values = np.array([line["value"] for line in ours.values()])
    config = {**next(iter(ours.values()))["config"], "seed": list(ours)}
    known = {"unit": UNIT, "config": config, "versions": versions(*PACKAGES)}
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    mean = float(values.mean())
    more: dict[str, Any] = {"ci_low": mean - half, "ci_high": mean + half, "values": values.tolist()}
    if env in THRESHOLD:
        more |= {"demanded": THRESHOLD[env], "seeds_above": int((values >= THRESHOLD[env]).sum())}
    report(NAME, False, peer="none", metric="final_return_mean", value=mean, **more, **known)
    if len(peers) < 2:
        report_missing(NAME, False, peer=PEER, metric="return_difference", reason="too few runs of the peer", **known)
        return
    theirs = np.array([line["value"] for line in peers.values()])
    interval = scipy.stats.ttest_ind(values, theirs, equal_var=False).confidence_interval(0.95)
    report(
        NAME,
        False,
        peer=PEER,
        metric="return_difference",
        value=mean - float(theirs.mean()),
        ci_low=float(interval.low),
        ci_high=float(interval.high),
        peer_mean=float(theirs.mean()),
        peer_values=theirs.tolist(),
        **known,
    )


def measure_speed(env: str) -> None:
    """Train both in turn for a short time; reports steps per second of ours, and the ratio to Stable-Baselines3."""
    setting = {**SETTINGS[env], "epochs": SPEED_EPOCHS}
    config = {"env": env, **setting, "hidden_sizes": list(setting["hidden_sizes"]), "pairs": SPEED_PAIRS}
    unit = "environment steps/s"
    known = {"metric": "training_steps_per_second", "unit": unit, "config": config, "versions": versions(*PACKAGES)}
    rates: dict[str, list[float]] = {subject: [] for subject in SUBJECTS}
    try:
        for pair in range(SPEED_PAIRS + 1):
            for subject in sorted(SUBJECTS, reverse=bool(pair % 2)):
                gc.collect()
                run = TRAINERS[subject](env, setting, pair, QUICK_EPISODES)
                rates[subject].append(run["env_steps"] / run["seconds"])
    except ImportError as error:
        report_missing(NAME, False, peer=PEER, reason=str(error), **known)
        return
    mine, theirs = rates["ours"][1:], rates["sb3"][1:]  # the first pair warms up
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    report(
        NAME,
        False,
        peer=PEER,
        value=round(statistics.median(mine), 1),
        ratio=round(statistics.median(ratios), 3),
        ratio_range=[round(min(ratios), 3), round(max(ratios), 3)],
        peer_value=round(statistics.median(theirs), 1),
        demanded=FASTER,
        load_average=round(os.getloadavg()[0], 2),
        **known,
    )


def known_lines(env: str, subject: str, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Seed -> newest line of ``subject`` in the results, among those with the current settings."""
    setting = {**SETTINGS[env], "hidden_sizes": list(SETTINGS[env]["hidden_sizes"])}
    newest: dict[int, dict[str, Any]] = {}
    for line in read_results(NAME):
        config = {name: value for name, value in line["config"].items() if name not in ("env", "seed")}
        same = line["subject"] == subject and line["config"]["env"] == env and config == setting
        if same and line["metric"] == "final_return" and line["value"] is not None and line["config"]["seed"] in seeds:
            newest[line["config"]["seed"]] = line
    return dict(sorted(newest.items()))


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", nargs="+", choices=sorted(SETTINGS), default=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--subject", nargs="+", choices=sorted(TRAINERS), default=["ours", "sb3"])
    parser.add_argument("--speed", action="store_true", help="only measure the speed of both, in turn")
    parser.add_argument("--summary", action="store_true", help="do not train, only summarize the results")
    parser.add_argument("--quick", action="store_true", help="one short epoch of one seed, nothing appended")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for env in args.env:
        if args.speed:
            measure_speed(env)
        elif not args.summary:
            for seed in args.seeds[:1] if args.quick else args.seeds:
                measure(env, seed, tuple(args.subject), args.quick)
        elif not args.quick:
            summarize(env, args.seeds)


if __name__ == "__main__":
    # Both libraries are measured with one thread; BLAS reads this when NumPy is first imported.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    main()
