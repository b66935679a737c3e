"""The settings of a run besides those of its algorithm and its evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Bounds, Config, Count, Number, Positive, UnusedWhere, Whole
from metaroll.errors import MOST_THREADS, option_text
from metaroll.rollouts.configs import Address, NumWorkers, TransportName, check_transport

__all__ = ["RunConfig", "SnapshotMode"]

SnapshotMode = Literal["all", "last", "gap", "gap_overwrite", "gap_and_last", "none"]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Settings of a run besides those of its algorithm and its evaluations."""

    size: Annotated[
        Literal["small", "medium", "paper"] | None,
        "Size of the run, in fixed numbers: small (minutes on two cores), medium, or paper (the published values, "
        "where there are some). Without it: the preset of the environment.",
    ] = None
    seed: Annotated[Count, "Seed of everything: networks, tasks, rollouts, updates, evaluation."] = 0
    task_seed: Annotated[Count | None, "Seed of the training and held-out tasks (null: the seed of the run)."] = None
    held_out: Annotated[
        Literal["independent", "after_training"],
        "Held-out tasks of a family are the same for all numbers of training tasks (independent), or are drawn "
        "after these, as runs of before 2026-11-28 have them (after_training).",
    ] = "independent"
    epochs: Annotated[Whole, "Number of epochs."] = 500
    hidden_sizes: Annotated[
        tuple[Whole, ...],
        "Hidden layers of the policy, the Q-functions and the value function.",
    ] = (300, 300, 300)
    init: Annotated[
        Literal["xavier_uniform", "oyster", "orthogonal", "fan_in"],
        "How weights are initialized: xavier_uniform, oyster (that of the reference code of PEARL), orthogonal "
        "(usual for PPO) or fan_in (usual for off-policy learners).",
    ] = "xavier_uniform"
    num_workers: NumWorkers = 1
    transport: TransportName = "auto"
    ray_address: Address = None
    step_timeout: Annotated[Positive, "Seconds after which a worker process that is stuck in one step is replaced."] = (
        60.0
    )
    reset_timeout: Annotated[Positive, "The same, while it builds or resets environments."] = 300.0
    device: Annotated[str, "Where gradient steps run, e.g. cpu or cuda."] = "cpu"
    torch_threads: Annotated[
        Annotated[int, Bounds(1, MOST_THREADS)] | None,
        "Threads of gradient steps on the CPU, by torch or NumPy (null: as many as torch chooses at the start; "
        "the run keeps their number, since another one changes the last bits). Several threads pay for large "
        "networks on idle cores; beside other busy programs one thread is much faster.",
    ] = None
    snapshot_mode: Annotated[
        SnapshotMode,
        "Which snapshots are kept; without snapshots the run cannot be resumed.",
    ] = "last"
    snapshot_gap: Annotated[Whole, "Epochs between snapshots, for the modes with a gap."] = 1
    keep_last: Annotated[
        Whole,
        "Number of newest snapshots to keep, in the modes last, gap_overwrite and gap_and_last.",
    ] = 1
    keep_best: Annotated[
        str | None,
        "Keep the snapshot with the highest value of this number, too, for --from-epoch best: return or success "
        "(those of evaluations), or any name in metrics.jsonl, as train/return.",
    ] = None
    stop_at: Annotated[
        Number | None,
        "End the training where the number of stop_metric is at least this (null: never).",
    ] = None
    stop_metric: Annotated[
        str,
        UnusedWhere("stop_at", None),
        "Name of that number: return or success (of evaluations), or any name in metrics.jsonl.",
    ] = "return"
    stop_mean_of: Annotated[Whole, UnusedWhere("stop_at", None), "Average this many latest values of stop_metric."] = 1
    budget: Annotated[
        str | None,
        "End the training after the epoch in which its total time reaches this, such as 90s, 10m, 1h30m or 2d.",
    ] = None
    tensorboard: Annotated[
        bool,
        "Write the numbers for TensorBoard, too, into the folder tensorboard of the run.",
    ] = False
    wandb: Annotated[
        str | None,
        "Send the numbers to this project of Weights & Biases, too (WANDB_MODE=offline keeps them here).",
    ] = None

    def check(self) -> None:
        super().check()
        check_transport(self.num_workers, self.transport, self.ray_address, "ray_address")
        if self.keep_best is not None and self.snapshot_mode == "none":
            expected = f"be left out with {self.shown('snapshot_mode')}"
            raise self.wrong("keep_best", expected, f"or use {option_text('snapshot_mode', 'last')}")
