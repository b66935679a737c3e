"""How noisy the meta-gradient is by DICE's estimator and by the low-variance curvature of ratios, on the same samples.

    python benchmarks/dice_variance.py
    python benchmarks/dice_variance.py --repeats 30 --tasks 20
    python benchmarks/dice_variance.py --quick
    python benchmarks/dice_variance.py --check    # small meta-batches, appends nothing; status 1 if it fails

At fixed parameters many meta-batches are drawn, and of each the second-order meta-gradient is computed both ways, from
the same rollouts: inner steps along ``magic_box_objective`` or along ``ratio_objective``. Both get the same rewards to
go: discounted rewards without a baseline, divided by one constant. What is reported is the standard deviation of the
gradient over meta-batches divided by the length of its mean (root of the summed variances over the norm), DICE over
ratios, with the interval of a bootstrap over meta-batches. Rothfuss et al. 2019 (arXiv:1810.06784, figure 4) find about
2 on the half cheetah.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _reporting import report, versions

from metaroll.envs.lookup.registry import get_family
from metaroll.functional.gradients.meta_gradients import Samples
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import DICEOuter, OuterUpdate, TRPOOuter
from metaroll.learners.maml.tasks import BatchedTasks, inner_steps
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed, torch_generator
from metaroll.types import EnvSpec, EnvUpdate

NAME = "dice_variance"
PACKAGES = ("metaroll", "numpy", "torch", "mujoco")
PUBLISHED, DEMANDED = 2.0, 1.3
CHECKED = {"tasks": 6, "rollouts": 10, "steps": 50, "repeats": 10}
"""Sizes of ``--check``: about a minute."""


def rewards_to_go(samples: Samples, discount: float, scale: float) -> Samples:
    """Plain discounted rewards, and their sums from each step on, for both ways."""
    times = torch.arange(samples.rewards.shape[-1], dtype=torch.float32)
    rewards = samples.rewards * discount**times / scale
    return replace(samples, rewards=rewards, advantages=rewards.flip(-1).cumsum(-1).flip(-1))


def learner_of(args: Any, outer: OuterUpdate, tasks: Sequence[EnvUpdate]) -> MAML:
    """The same parameters for both."""
    spec = EnvSpec.from_env(tasks[0]())
    policy = GaussianMLPPolicy(spec, (32, 32), init_std=0.7, init="orthogonal", generator=torch_generator(0))
    return MAML(spec, policy, outer, task_sampler=tasks, max_path_length=args.steps, inner_step_size=args.alpha, seed=0)


def gradients(args: Any, outers: Sequence[OuterUpdate], seed_of_data: int) -> list[np.ndarray]:
    """Meta-gradients ``(repeats, P)`` by each of ``outers``, at the same parameters and by the same rollouts.

    Inner steps of the rollouts are those of the first; they are those of all, since the objectives differ in their
    second derivatives alone.
    """
    tasks = get_family(args.env).split(None, None, seed=0)[0]
    learners = [learner_of(args, outer, tasks) for outer in outers]
    meta, drawn = learners[0]._meta_parameters(), np.random.default_rng(seed_of_data)
    found: list[list[np.ndarray]] = [[] for _ in outers]
    with RolloutEngine(tasks[0], learners[0].policy) as engine:
        for repeat in range(args.repeats):
            updates = [tasks[i] for i in drawn.integers(len(tasks), size=args.tasks)]
            steps = samples_of(args, learners[0], engine, updates, derive_seed(seed_of_data, repeat))
            for gathered, learner in zip(found, learners, strict=True):
                batched = BatchedTasks(learner._problem, learner.outer, steps)
                gathered.append(batched.gradient(meta, learner._state)[0].numpy())
            print(f"{repeat + 1}/{args.repeats}", end="\r", file=sys.stderr, flush=True)
    return [np.stack(gathered).astype(np.float64) for gathered in found]


def samples_of(args: Any, learner: MAML, engine: RolloutEngine, updates: list[EnvUpdate], seed: int) -> list[Samples]:
    """Samples of one meta-batch before and after an inner step."""
    adapter, meta = learner._adapter, learner._meta_parameters()
    parameters, steps = meta, []
    for moment in range(2):
        groups = engine.run_groups(
            updates,
            seed=seed,
            sub_seed=moment,
            max_steps=args.steps,
            num_rollouts=args.rollouts,
            parameters=parameters.numpy(),
        )
        raw = adapter.samples(groups, parameters)[1]
        given = torch.zeros_like(raw.rewards)
        for m, rollouts in enumerate(groups):
            given[m][raw.weights[m] != 0] = torch.from_numpy(np.asarray(rollouts.rewards, dtype=np.float32))
        steps.append(rewards_to_go(replace(raw, rewards=given), args.discount, args.scale))
        if moment == 0:
            parameters = inner_steps(learner._problem, meta, meta, steps[0]).parameters
    return steps


def relative_deviation(found: np.ndarray) -> float:
    """Root of the summed variances over the norm of the mean, of gradients ``(repeats, P)``."""
    return float(np.sqrt(found.var(axis=0, ddof=1).sum()) / np.linalg.norm(found.mean(axis=0)))


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="cheetah-dir")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--scale", type=float, default=1.0, help="rewards are divided by this")
    parser.add_argument("--quick", action="store_true", help="a few small meta-batches, nothing appended")
    parser.add_argument("--check", action="store_true", help="status 1 unless the interval lies above what is demanded")
    args = parser.parse_args()
    if args.check:
        vars(args).update(CHECKED)
    if args.quick:
        args.tasks, args.rollouts, args.steps, args.repeats = 3, 4, 20, 4
    torch.set_num_threads(1)
    both = gradients(args, (DICEOuter(), TRPOOuter()), derive_seed("meta-batches", 0))
    ratio = relative_deviation(both[0]) / relative_deviation(both[1])
    drawn = np.random.default_rng(0)
    picks = [drawn.integers(args.repeats, size=args.repeats) for _ in range(2000)]
    several = [pick for pick in picks if len(set(pick.tolist())) > 1]
    ratios = [relative_deviation(both[0][pick]) / relative_deviation(both[1][pick]) for pick in several]
    low, high = np.quantile(ratios, [0.025, 0.975])
    report(
        NAME,
        args.quick or args.check,
        peer="published",
        metric="relative_deviation_ratio",
        value=ratio,
        unit="DICE over ratios",
        config={name: value for name, value in vars(args).items() if name not in ("quick", "check")},
        versions=versions(*PACKAGES),
        ci_low=float(low),
        ci_high=float(high),
        published=PUBLISHED,
        demanded=DEMANDED,
        dice=relative_deviation(both[0]),
        ratios=relative_deviation(both[1]),
    )
    if args.check and low <= DEMANDED:
        print(f"the interval [{low:.2f}, {high:.2f}] does not lie above {DEMANDED}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
