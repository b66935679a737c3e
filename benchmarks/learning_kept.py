"""Do agents still learn as well as in another checkout, whose gradient steps round differently? Five seeds each.

    git worktree add ../before COMMIT
    OMP_NUM_THREADS=1 python benchmarks/learning_kept.py ../before
    OMP_NUM_THREADS=1 python benchmarks/learning_kept.py ../before --cases tqc rl2
    OMP_NUM_THREADS=1 python benchmarks/learning_kept.py --check      # one case, two seeds, this checkout beside itself

A single bit that differs changes everything a few hundred steps later, so only distributions can be compared. A case
trains small networks for a few ten thousand steps at most. Its score is the mean training return in the last quarter of
the epochs. A line holds the scores of all seeds on both sides, the 95 % interval of the mean on this side (Student's t
over seeds), and whether it contains the mean of the other side. With five seeds this is a coarse test: it detects a
step that learns something else, not a loss of a few percent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _reporting import report, versions

HERE = Path(__file__).resolve().parent
NAME = "learning_kept"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
SEEDS = 5

OFF_POLICY = {
    "epochs": 24,
    "steps_per_epoch": 20,
    "n_train_steps": 20,
    "min_buffer_size": 400,
    "buffer_batch_size": 64,
    "hidden_sizes": (32, 32),
}
PPO = {"steps_per_epoch": 1000, "batch_size": 200, "hidden_sizes": (16,)}
CASES: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "tqc": ("tqc", "Pendulum-v1", {**OFF_POLICY, "num_critics": 3}),
    "discrete sac": ("sac", "CartPole-v1", {**OFF_POLICY}),
    "rsac": ("rsac", "Pendulum-v1", {**OFF_POLICY, "hidden_size": 32, "min_buffer_size": 640}),
    "sac by autograd": ("SAC", "Pendulum-v1", OFF_POLICY),
    "td3 by autograd": ("TD3", "Pendulum-v1", OFF_POLICY),
    "dqn by autograd": ("DQN", "CartPole-v1", {**OFF_POLICY, "epsilon_steps": 2000}),
    "ppo gru": ("ppo", "Pendulum-v1", {**PPO, "network": "gru", "epochs": 24}),
    "ppo discrete gru": ("ppo", "CartPole-v1", {**PPO, "network": "gru", "epochs": 16}),
    "rl2": ("rl2", "bandit-5", {"epochs": 24, "trials_per_epoch": 200, "batch_size": 400, "hidden_sizes": (16,)}),
}
"""Case -> algorithm, environment and options; one for each gradient step whose bits changed since version 0.2.

Algorithms in capitals are classes of learners, which get ELU networks: no step has hand-written gradients of those.
"""


# -- in the process of a training --------------------------------------------------------------------------------------


class Returns:
    """Records the training return of each epoch."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, Any]) -> None:
        if "return" in metrics:  # an epoch may be shorter than an episode
            self.values.append(float(metrics["return"]))


def score_of(case: str, seed: int, epochs: int | None) -> float:
    """The score of one training."""
    from _digest_learning import make_agent

    algo, env, options = CASES[case]
    returns, settings = Returns(), {"seed": seed, **options}
    if epochs is not None:
        settings["epochs"] = epochs
    if algo.isupper():
        train_elu(algo, env, settings, returns)
    else:
        make_agent(algo, env, settings).learn(progress=False, callbacks=[returns])
    last = returns.values[-max(1, len(returns.values) // 4) :]
    return statistics.fmean(last)


def train_elu(algo: str, env: str, options: Mapping[str, Any], returns: Returns) -> None:
    """Train a learner of class ``algo`` with ELU networks."""
    import gymnasium
    from _digest_parts import names as m

    from metaroll.seeding import torch_generator

    rest = dict(options)
    epochs, sizes, generator = rest.pop("epochs"), rest.pop("hidden_sizes"), torch_generator(options["seed"])
    spec = m.EnvSpec.from_env(gymnasium.make(env))
    policies = {
        "SAC": m.TanhGaussianMLPPolicy,
        "TD3": m.DeterministicMLPPolicy,
        "DQN": m.GreedyQPolicy,
    }
    networks = {"policy": policies[algo](spec, sizes, "elu", init="fan_in", generator=generator)}
    if algo != "DQN":
        networks["qf"] = m.Critics(spec, 2, sizes, "elu", init="fan_in", generator=generator)
    learner = getattr(m, algo)(spec, **networks, evaluate_every=0, **rest)
    with m.LocalRunner(seed=options["seed"], callbacks=[returns]) as runner:
        runner.setup(learner, env)
        runner.train(epochs)


# -- both sides --------------------------------------------------------------------------------------------------------


def run(checkout: Path, case: str, seed: int, epochs: int | None) -> float:
    """The score of one training, in a process with the library of a checkout."""
    path = os.pathsep.join([str(checkout / "src"), str(HERE)])
    command = [sys.executable, "-W", "ignore", str(HERE / f"{NAME}.py"), "--score", case, "--seed", str(seed)]
    command += [] if epochs is None else ["--epochs", str(epochs)]
    environ = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:  # a training that is stopped leaves its run there
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}, seed {seed}, in {checkout} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def compare(case: str, before: Path, seeds: Sequence[int], epochs: int | None, quick: bool) -> bool:
    """Report one case; returns whether the interval of this side contains the mean of the other side."""
    from scipy import stats

    scores = {
        side: [run(folder, case, seed, epochs) for seed in seeds]
        for side, folder in (("before", before), ("after", HERE.parent))
    }
    mean, here = statistics.fmean(scores["before"]), statistics.fmean(scores["after"])
    error = statistics.stdev(scores["after"]) / len(seeds) ** 0.5
    half = float(stats.t.ppf(0.975, len(seeds) - 1)) * error
    low, high = here - half, here + half
    algo, env, options = CASES[case]
    line = report(
        NAME,
        quick,
        peer="none",
        metric="return",
        value=round(here, 3),
        unit="return",
        config={"case": case, "algorithm": algo, "env": env, "seeds": len(seeds), **options},
        interval=[round(low, 3), round(high, 3)],
        before=round(mean, 3),
        contains=bool(low <= mean <= high),
        scores={side: [round(score, 3) for score in values] for side, values in scores.items()},
        versions=versions(*PACKAGES),
    )
    return line["contains"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", default=HERE.parent, help="the other checkout")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--check", "--quick", dest="check", action="store_true", help="one case, short; appends nothing"
    )
    parser.add_argument("--score", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.score:
        print(json.dumps(score_of(args.score, args.seed, args.epochs)))
        return
    cases, seeds, epochs = (["rl2"], range(2), 2) if args.check else (args.cases, range(args.seeds), None)
    kept = [compare(case, args.before.resolve(), seeds, epochs, args.check) for case in cases]
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
