"""PEARL on both point-robot families, several seeds: adaptation of small networks to held-out tasks.

    python benchmarks/pearl_point_robot.py                                  # both families, seeds 0 1 2
    python benchmarks/pearl_point_robot.py --families sparse --seeds 1      # one of these runs
    python benchmarks/pearl_point_robot.py --summary                        # summary of the committed results
    python benchmarks/pearl_point_robot.py --families dense --seeds 100 --set epochs=40 reward_scale=5 --no-save

Dense: the score after 5 exploration episodes, where 0 is the return of a floor (goes to the origin) and 1 that of an
oracle (knows the goal). Sparse: return of the 5th exploration episode minus that of the 1st, in the sparse reward.
Intervals (95 %, bootstrap) are over held-out tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import yaml
from _reporting import read_results, report, versions

from metaroll.envs.point.point_robot import go_to
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.seeding import derive_seed
from metaroll.training.evaluation.evaluation_metrics import (
    interval_of_mean,
    interval_of_normalized_score,
    normalized_score,
)
from metaroll.training.session.demo import DEMO_VALUES
from metaroll.training.session.experiments import (
    Experiment,
    build,
    build_evaluator,
    resolve,
    split_tasks,
    torch_threads,
)

NAME = "pearl_point_robot"
ENVS = {"dense": "point-robot", "sparse": "sparse-point-robot"}

# Differences from the preset of each family: small networks, fewer updates, a new posterior after each episode.
# A run has one or more stages.
DENSE: dict[str, Any] = {
    **DEMO_VALUES,
    "epochs": 60,
    "evaluate_every": 5,
}
_SPARSE: dict[str, Any] = {
    **DEMO_VALUES,
    "evaluate_every": 10,
    "num_train_tasks": 80,
    "warmup_steps": 100,
    "num_extra_rl_steps_posterior": 0,
}
# Small networks do not learn from the sparse reward alone in so little time: an agent that does not know the goal yet
# moves to the middle of the half circle, where no goal is near enough for a reward. Meta-training has the dense reward
# anyway, so in the first stage the agent infers its task from that, and in the later stages from the sparse reward.
# Only the networks are carried over. The later stages collect as in the test: few episodes, most of them under the
# posterior. The last stage takes smaller steps; before it, the gain swings between 1 and 4 from one evaluation to the
# next. The first and the last stage are long: what the agent cannot do with the dense reward it does not learn later,
# and small steps still raise the gain after 30 epochs.
_SPARSE_CONTEXT: dict[str, Any] = {
    **_SPARSE,
    "tasks_per_epoch": 40,
    "num_steps_prior": 40,
    "num_steps_posterior": 160,
    "meta_batch_size": 16,
    "kl_lambda": 0.2,
}
SPARSE: tuple[dict[str, Any], ...] = (
    {
        **_SPARSE,
        "epochs": 120,
        "tasks_per_epoch": 20,
        "context_reward_key": None,
        "return_reward_key": None,
        "num_steps_prior": 100,
        "num_steps_posterior": 100,
    },
    {
        **_SPARSE_CONTEXT,
        "epochs": 50,
        **dict.fromkeys(("policy_lr", "qf_lr", "vf_lr"), 3e-4),
        "context_lr": 5e-4,
    },
    {
        **_SPARSE_CONTEXT,
        "epochs": 90,
        **dict.fromkeys(("policy_lr", "qf_lr", "vf_lr", "context_lr"), 6e-5),
    },
)
STAGES: dict[str, tuple[dict[str, Any], ...]] = {"dense": (DENSE,), "sparse": SPARSE}
QUICK: dict[str, Any] = {
    "epochs": 1,
    "hidden_sizes": (16,),
    "encoder_hidden_sizes": (16,),
    "num_train_tasks": 4,
    "num_test_tasks": 5,
    "warmup_steps": 40,
    "gradient_steps": 5,
    "tasks_per_epoch": 2,
}
REPETITIONS = 4  # of the final evaluation, per held-out task
FIFTH = 5  # counted from 1


class Progress:
    """Prints returns of evaluations during training to standard error."""

    def __init__(self, family: str, seed: int) -> None:
        self._name = f"{family} seed {seed}"
        self._begun = time.monotonic()

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        if "MetaTest/return_after" in metrics:
            episodes = [v for k, v in metrics.items() if k.startswith("MetaTest/return_episode_")]
            curve = " ".join(f"{value:.2f}" for value in episodes)
            seconds = time.monotonic() - self._begun
            print(f"{self._name} epoch {epoch + 1}: episodes {curve} ({seconds:.0f} s)", file=sys.stderr, flush=True)


def configurations(family: str, seed: int, overrides: Mapping[str, Any], quick: bool) -> list[dict[str, Any]]:
    """The complete configuration of every stage of one run."""
    more = [("--quick", QUICK if quick else {}), ("--set", overrides), ("--seeds", {"seed": seed})]
    return [resolve("pearl", ENVS[family], [("the benchmark", values), *more]) for values in STAGES[family]]


def returns_of(stages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, np.ndarray], int]:
    """Train through all stages and evaluate on held-out tasks.

    Returns:
        Returns ``(tasks, repetitions, episodes)`` of ``agent``, ``floor`` and ``oracle``; and the steps of training.
    """
    networks: list[Any] = []
    env_steps = 0
    for config in stages[:-1]:
        experiment = trained(config, networks)
        experiment.runner.close()
        networks, env_steps = experiment.algo.networks, env_steps + experiment.runner.total_env_steps
    config = stages[-1]
    experiment = trained(config, networks)
    held_out = split_tasks(config, experiment.source)[1]
    evaluator = build_evaluator(config, experiment.source, held_out, repetitions=REPETITIONS)
    with (
        contextlib.closing(experiment.runner),
        contextlib.closing(evaluator),
        torch_threads(config["run"]["torch_threads"]),
    ):
        spec = experiment.algo.env_spec
        to_origin = ScriptedPolicy(lambda obs, context: go_to(np.zeros_like(obs), obs), spec)
        to_goal = ScriptedPolicy(lambda obs, context: go_to(context["goal"], obs), spec)
        returns = {
            "agent": evaluator.evaluate(experiment.algo).returns,
            "floor": evaluator.run_reference(to_origin),
            "oracle": evaluator.run_reference(to_goal, lambda task: {"goal": np.asarray(task["goal"], np.float64)}),
        }
    return returns, env_steps + experiment.runner.total_env_steps


def trained(config: Mapping[str, Any], networks: Sequence[Any]) -> Experiment:
    """Train an agent, from the weights of ``networks`` if there are any."""
    experiment = build(config, callbacks=(Progress(config["env"], config["run"]["seed"]),))
    for network, earlier in zip(experiment.algo.networks, networks, strict=bool(networks)):
        network.load_state_dict(earlier.state_dict())
    with torch_threads(config["run"]["torch_threads"]):
        experiment.runner.train(n_epochs=config["run"]["epochs"])
    return experiment


def dense_line(returns: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> dict[str, Any]:
    """Normalized score of the episodes after adaptation; those of the references are the same episodes."""
    adapted = slice(config["evaluation"]["num_adaptation_episodes"], None)
    per_task = {name: cells[:, :, adapted].mean(axis=(1, 2)) for name, cells in returns.items()}
    return {
        "metric": "normalized_score",
        "unit": "share of the way from floor to oracle",
        **score([per_task], derive_seed("score", config["run"]["seed"])),
        "return_after": float(per_task["agent"].mean()),
        "return_floor": float(per_task["floor"].mean()),
        "return_oracle": float(per_task["oracle"].mean()),
        "per_task": rounded(per_task),
    }


def sparse_line(returns: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> dict[str, Any]:
    """Gain in sparse return from the first to the fifth exploration episode."""
    first, fifth = (returns["agent"][:, :, episode - 1].mean(axis=1) for episode in (1, FIFTH))
    per_task = {"gain": fifth - first}
    return {
        "metric": "exploration_gain",
        "unit": "sparse return, 5th exploration episode minus 1st",
        **gain([per_task], derive_seed("gain", config["run"]["seed"])),
        "return_first": float(first.mean()),
        "return_fifth": float(fifth.mean()),
        "return_floor": float(returns["floor"].mean()),
        "return_oracle": float(returns["oracle"].mean()),
        "per_task": rounded(per_task),
    }


LINES = {"dense": dense_line, "sparse": sparse_line}


def score(runs: Sequence[Mapping[str, Any]], seed: int) -> dict[str, float]:
    """Normalized score and its interval, over the tasks of all ``runs``."""
    samples = [np.concatenate([run[name] for run in runs]) for name in ("agent", "floor", "oracle")]
    low, high = interval_of_normalized_score(*samples, seed=seed)
    return {"value": normalized_score(*samples), "ci_low": low, "ci_high": high}


def gain(runs: Sequence[Mapping[str, Any]], seed: int) -> dict[str, float]:
    """Mean gain and its interval, over the tasks of all ``runs``."""
    gains = np.concatenate([run["gain"] for run in runs])
    low, high = interval_of_mean(gains, seed=seed)
    return {"value": float(gains.mean()), "ci_low": low, "ci_high": high}


POOLED = {"dense": score, "sparse": gain}


def rounded(per_task: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: [round(float(value), 4) for value in values] for name, values in per_task.items()}


def measure(family: str, seed: int, overrides: Mapping[str, Any], quick: bool, save: bool) -> dict[str, Any]:
    """Train, evaluate and report one agent."""
    stages = configurations(family, seed, overrides, quick)
    begun = time.monotonic()
    returns, env_steps = returns_of(stages)
    return report(
        NAME,
        not save,
        peer="none",
        **LINES[family](returns, stages[-1]),
        config={
            "family": family,
            "seed": seed,
            "stages": stages_of(family, overrides, quick),
            "repetitions": REPETITIONS,
        },
        adaptation_curve=[round(float(value), 4) for value in returns["agent"].mean(axis=(0, 1))],
        n_test_tasks=len(returns["agent"]),
        env_steps=int(env_steps),
        seconds=round(time.monotonic() - begun, 1),
        versions=versions("metaroll", "torch", "numpy"),
    )


def summarize(family: str, lines: Sequence[Mapping[str, Any]], save: bool) -> None:
    """Report one line for all seeds: the mean, its interval over all tasks, and that over seeds (Student's t)."""
    values = np.array([line["value"] for line in lines])
    half = math.nan
    if len(values) > 1:
        half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    pooled = POOLED[family]([line["per_task"] for line in lines], 0)
    report(
        NAME,
        not save,
        peer="none",
        metric=f"{lines[0]['metric']}_mean",
        value=float(values.mean()),
        unit=lines[0]["unit"],
        ci_low=pooled["ci_low"],
        ci_high=pooled["ci_high"],
        ci_over_seeds=None if math.isnan(half) else [float(values.mean()) - half, float(values.mean()) + half],
        values=values.tolist(),
        config={**lines[0]["config"], "seed": [line["config"]["seed"] for line in lines]},
        versions=lines[-1]["versions"],
    )


def known_lines(family: str, seeds: Sequence[int], overrides: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest line of the results for each of ``seeds``, among those with the current settings."""
    stages = [plain(values) for values in stages_of(family, overrides)]
    newest: dict[int, dict[str, Any]] = {}
    for line in read_results(NAME):
        config = line["config"]
        if config["family"] == family and config["stages"] == stages and config["seed"] in seeds:
            newest[config["seed"]] = line
    return [newest[seed] for seed in seeds if seed in newest]


def stages_of(family: str, overrides: Mapping[str, Any], quick: bool = False) -> list[dict[str, Any]]:
    """The settings of every stage that differ from the preset."""
    return [{**values, **(QUICK if quick else {}), **overrides} for values in STAGES[family]]


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def assignment(text: str) -> tuple[str, Any]:
    """Parse ``name=value``, with the value in YAML."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name.strip(), yaml.safe_load(value)


def arguments() -> argparse.Namespace:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", choices=sorted(ENVS), default=sorted(ENVS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--set", type=assignment, nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="change options"
    )
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results (for tuning)")
    parser.add_argument("--summary", action="store_true", help="do not train, only summarize the results")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, one seed, nothing appended")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    overrides, save = dict(args.set), not (args.quick or args.no_save)
    for family in args.families:
        if args.summary:
            lines = known_lines(family, args.seeds, overrides)
        else:
            seeds = args.seeds[:1] if args.quick else args.seeds
            lines = [measure(family, seed, overrides, args.quick, save) for seed in seeds]
        if len(lines) > 1:
            summarize(family, lines, save)
        elif args.summary:
            num = f"{len(lines)} of the seeds {args.seeds}"
            raise SystemExit(f"{family}: a summary needs 2 seeds with these settings, the results have {num}")


if __name__ == "__main__":
    main()
