"""The settings of an inference, and of the loop from a robot's log to a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from metaroll.config import Bounds, Config, Count, Whole
from metaroll.errors import MOST_THREADS, option_name
from metaroll.inference.configs import check_num_simulations

__all__ = ["InferenceOptions", "LoopOptions", "parsed_noise"]

_FREE = ("estimate", "none")


def parsed_noise(text: str) -> str | float | dict[str, float]:
    """``"estimate"``, ``"none"``, a number for all channels, or numbers by label (``"theta=0.01,theta_dot=0.1"``).

    Raises:
        ValueError: It is none of these.
    """
    if text in _FREE:
        return text
    parts = [part.strip() for part in text.split(",")]
    try:
        if len(parts) == 1 and "=" not in parts[0]:
            parsed: float | dict[str, float] = float(parts[0])
            wrong = not 0.0 <= parsed < math.inf
        else:
            parsed = {label.strip(): float(value) for label, _, value in (part.rpartition("=") for part in parts)}
            wrong = len(parsed) < len(parts) or any(not name or not 0.0 <= s < math.inf for name, s in parsed.items())
    except ValueError:
        wrong, parsed = True, 0.0
    if wrong:
        raise ValueError(
            f"{option_name('noise')} must be 'estimate', 'none', a deviation of at least 0 in the unit of each channel "
            f"('0.01'), or deviations by label ('theta=0.01,theta_dot=0.1'; others then have none), got {text!r}"
        )
    return parsed


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(Config):
    """Settings of ``infer``."""

    method: Annotated[
        Literal["npdr", "bayessim", "nle", "fmpe"],
        "npdr (flows), bayessim (a mixture of Gaussians), nle (the likelihood) or fmpe (flow matching).",
    ] = "npdr"
    features: Annotated[
        Literal["bayessim", "all-steps", "delta-steps", "last-step", "dtw"],
        "Features by which recorded and simulated rollouts are compared: bayessim (sums of products of actions and "
        "changes; mean and variance of changes), all-steps, delta-steps, last-step, or dtw (dynamic time warping).",
    ] = "bayessim"
    every: Annotated[Whole, "Features use one of this many steps."] = 1
    segment_length: Annotated[int, Bounds(2), "Steps after which a simulation restarts from the recorded state."] = 20
    num_simulations: Annotated[
        Whole,
        "Sets of parameters that are simulated, in all rounds. If checks show after several rounds that training was "
        "insufficient, one more round as large as the last follows, which is checked with new simulations.",
    ] = 2000
    rounds: Annotated[
        Whole,
        "Rounds of simulation and learning; from the second on within the region of the posterior. The last one has "
        "half of the simulations.",
    ] = 4
    hold_out: Annotated[
        Count,
        "Number of rollouts (or of pieces, if they are cut), the last ones, that are held out from inference to judge "
        "its predictions.",
    ] = 1
    seed: Annotated[Count, "Seed of everything."] = 0
    num_workers: Annotated[Whole, "Processes that simulate; results do not depend on it."] = 1
    torch_threads: Annotated[
        int,
        Bounds(1, MOST_THREADS),
        "Threads for training the posterior; its networks are small, so more threads mostly wait.",
    ] = 1
    checks: Annotated[
        bool, "Check the posterior: calibration, coverage, whether the simulator can be right at all."
    ] = True
    noise: Annotated[
        str,
        "Sensor noise, which is added to simulations: estimate (from the rollouts; below a hundredth of the variation "
        "in a segment, that much is added to rollouts and simulations), none, a standard deviation in the unit of each "
        "column, or deviations by label: theta=0.01,theta_dot=0.1.",
    ] = "estimate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", _as_text(self.noise))
        super().__post_init__()

    def check(self) -> None:
        super().check()
        check_num_simulations(self.num_simulations, self.rounds)
        parsed_noise(self.noise)


def _as_text(noise: Any) -> str:
    """A number, a dict or ``None`` as the equivalent text."""
    if isinstance(noise, Mapping):
        return ",".join(f"{label}={std}" for label, std in noise.items())
    return "none" if noise is None else str(noise)


@dataclass(frozen=True, kw_only=True)
class LoopOptions(Config):
    """Sizes of the loop."""

    seed: Annotated[Count, "Seed of everything, including the hidden robot."] = 0
    rollouts: Annotated[int, Bounds(2), "Logged rollouts."] = 5
    simulations: Annotated[int, Bounds(80), "Sets of parameters that are simulated."] = 3000
    epochs: Annotated[Whole, "Epochs of each training, of 5,000 steps."] = 300
    trainings: Annotated[
        Whole,
        "Trainings of each policy, with different seeds; the one with the highest return in its training domains is "
        "kept.",
    ] = 1
    episodes: Annotated[int, Bounds(2), "Episodes on the robot to evaluate each policy."] = 50
    jobs: Annotated[Whole, "Trainings in parallel, each in its own process."] = 2
