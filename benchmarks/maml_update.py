"""The gradient of one meta-iteration of MAML, beside learn2learn's approach of one adapted clone per task.

    python benchmarks/maml_update.py                       # second order, then first order
    python benchmarks/maml_update.py --threads 2           # with two threads of torch
    python benchmarks/maml_update.py --quick               # a few tasks, nothing appended
    python benchmarks/maml_update.py --check               # status 1 if a bar is missed, nothing appended

The peer is learn2learn's algorithm in plain torch. For each task it clones the parameters, differentiates the inner
loss with a graph, and updates the clone (``clone_module``, ``update_module`` of learn2learn 0.2); the meta-gradient is
that of the mean loss over tasks. Both get the same arrays and the same objectives: a likelihood ratio in the inner
step, log-likelihood times advantages after it. Gradients are compared before anything is timed; they must agree to
1e-5.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import torch
from _reporting import report, versions
from torch import Tensor

from metaroll.envs.lookup.registry import get_family
from metaroll.functional.distributions import DiagonalGaussian
from metaroll.functional.gradients.meta_gradients import Samples
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import VPGOuter
from metaroll.learners.maml.tasks import BatchedTasks, with_old
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

NAME = "maml_update"
PACKAGES = ("metaroll", "numpy", "torch")
OBS_DIM, ACT_DIM = 17, 6  # those of the half cheetah
ALPHA = 0.1
DEMANDED = {True: 1.5, False: 1.2}
"""Second order or not -> demanded speed over that of the loop."""
TOLERANCE = 1e-5


def make_ours(num_tasks: int, rollouts: int, steps: int, second_order: bool) -> tuple[MAML, list[Samples]]:
    """A learner, and random samples before and after the inner step in the form that it takes."""
    box = gymnasium.spaces.Box
    spec = EnvSpec(box(-9, 9, (OBS_DIM,)), box(-1, 1, (ACT_DIM,)), steps)
    policy = GaussianMLPPolicy(spec, (64, 64), init="orthogonal", generator=torch_generator(0))
    tasks = get_family("point-navigation").split(2, 2, seed=0)[0]
    learner = MAML(
        spec, policy=policy, outer=VPGOuter(), task_sampler=tasks, second_order=second_order, inner_lr=ALPHA, seed=0
    )
    generator = torch_generator(1)
    shape = (num_tasks, rollouts, steps)

    def sample(parameters: Tensor) -> Samples:
        advantages = torch.randn(shape, generator=generator)
        zeros = torch.zeros(shape)
        samples = Samples(
            observations=torch.randn((*shape, OBS_DIM), generator=generator),
            actions=torch.randn((*shape, ACT_DIM), generator=generator),
            weights=torch.full(shape, 1.0 / (rollouts * steps)),
            advantages=advantages,
            rewards=advantages,
            old=DiagonalGaussian(zeros[..., None], zeros[..., None]),
            old_log_prob=zeros,
            score=torch.zeros(num_tasks),
        )
        return with_old(learner._problem, parameters, samples)

    meta = learner._meta_parameters()
    return learner, [sample(meta), sample(meta)]


def clone_and_adapt(learner: MAML, steps: list[Samples], second_order: bool) -> Callable[[], Tensor]:
    """The function that computes the same meta-gradient ``(P,)`` by one clone per task and one backward pass."""
    # The meta-parameters theta: name -> tensor in its own shape, P numbers in all.
    theta = {name: value.detach().clone().requires_grad_() for name, value in learner.policy.named_parameters()}
    names = [name for name in theta if name.endswith(("weight", "bias"))]

    def log_prob(weights: dict[str, Tensor], obs: Tensor, actions: Tensor) -> Tensor:
        # log pi(a | s), a diagonal Gaussian around an MLP with tanh: observations (N, O), actions (N, A) -> (N,).
        x = obs
        for k in range(0, len(names), 2):
            x = torch.nn.functional.linear(x, weights[names[k]], weights[names[k + 1]])
            x = torch.tanh(x) if k + 2 < len(names) else x
        log_std = weights["policy.log_std"].clamp(min=math.log(1e-6))
        return torch.distributions.Normal(x, log_std.exp(), validate_args=False).log_prob(actions).sum(-1)

    # Observations (N, O), actions (N, A) and advantages (N,) of each task before and after its inner step; N is
    # rollouts times steps.
    data = [
        [(s.observations[m].flatten(0, 1), s.actions[m].flatten(0, 1), s.advantages[m].flatten(0, 1)) for s in steps]
        for m in range(len(steps[0].weights))
    ]

    def gradient() -> Tensor:
        total = torch.zeros(())
        for before, after in data:
            clone = {name: value.clone() for name, value in theta.items()}
            # L(theta) = -mean(pi_theta(a | s) / pi_old(a | s) A), (N,) -> (), where pi_old is pi_theta held constant.
            log_probs = log_prob(clone, before[0], before[1])
            loss = -(torch.exp(log_probs - log_probs.detach()) * before[2]).mean()
            # theta' = theta - alpha grad L(theta), every tensor in its own shape (Finn et al. 2017, arXiv:1703.03400,
            # algorithm 3). A graph of this step gives the meta-gradient its second-order term.
            gradients = torch.autograd.grad(loss, list(clone.values()), create_graph=second_order)
            clone = {name: value - ALPHA * grad for (name, value), grad in zip(clone.items(), gradients, strict=True)}
            # L'(theta') = -mean(log pi_theta'(a | s) A), (N,) -> (), on the samples after the step.
            total = total - (log_prob(clone, after[0], after[1]) * after[2]).mean()
        # d/dtheta of the mean of L'(theta') over tasks, through the inner steps; flattened to (P,).
        meta_gradient = torch.autograd.grad(total / len(data), list(theta.values()))
        return torch.cat([grad.reshape(-1) for grad in meta_gradient])

    return gradient


def measure(second_order: bool, args: argparse.Namespace) -> bool:
    """Compare the gradients, then time both in turn; returns whether gradients agree and the bar holds."""
    sizes = (4, 4, 20) if args.quick else (args.tasks, args.rollouts, args.steps)
    learner, steps = make_ours(*sizes, second_order)
    meta, state = learner._meta_parameters(), learner._state

    def ours() -> Tensor:
        return BatchedTasks(learner._problem, learner.outer, steps).gradient(meta, state)[0]

    theirs = clone_and_adapt(learner, steps, second_order)
    difference = float((ours() - theirs()).norm() / theirs().norm())
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(3 if args.quick else args.repeats):
        for name, compute in (("ours", ours), ("theirs", theirs)):
            begun = time.perf_counter()
            compute()
            times[name].append(time.perf_counter() - begun)
    ratios = np.array(times["theirs"]) / np.array(times["ours"])
    ratio = float(np.median(ratios))
    report(
        NAME,
        args.quick or args.check,
        peer="loop",
        metric="meta_gradient_ms",
        value=1e3 * statistics.median(times["ours"]),
        unit="ms per meta-iteration",
        ratio=ratio,
        config={
            "order": 2 if second_order else 1,
            "tasks": sizes[0],
            "rollouts": sizes[1],
            "steps": sizes[2],
            "hidden_sizes": [64, 64],
            "threads": torch.get_num_threads(),
        },
        versions=versions(*PACKAGES),
        loop_ms=1e3 * statistics.median(times["theirs"]),
        best_ms=1e3 * min(times["ours"]),
        loop_best_ms=1e3 * min(times["theirs"]),
        ratio_low=float(np.quantile(ratios, 0.1)),
        ratio_high=float(np.quantile(ratios, 0.9)),
        demanded=DEMANDED[second_order],
        gradient_difference=difference,
    )
    if difference > TOLERANCE:
        print(f"FAILED: gradients differ by {difference:.2g}, at most {TOLERANCE} is allowed", flush=True)
    if ratio < DEMANDED[second_order]:
        print(f"missed: {ratio:.2f} times the loop's speed, demanded {DEMANDED[second_order]}", flush=True)
    return difference <= TOLERANCE and ratio >= DEMANDED[second_order]


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=None, help="threads of torch (default: its own choice)")
    parser.add_argument("--quick", action="store_true", help="a few tasks, nothing appended")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; appends nothing")
    args = parser.parse_args()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    held = [measure(second_order, args) for second_order in (True, False)]
    return int(args.check and not all(held))


if __name__ == "__main__":
    raise SystemExit(main())
