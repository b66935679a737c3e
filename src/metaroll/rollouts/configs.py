"""Settings of rollouts, samplers, and features of rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from metaroll.config import Added, Config, Count, Whole
from metaroll.errors import option_name, option_text

__all__ = [
    "Address",
    "EngineConfig",
    "ExplorationConfig",
    "FeaturesConfig",
    "NumWorkers",
    "PoolTimeouts",
    "SamplerConfig",
    "SimulationConfig",
    "StepLimit",
    "TransportName",
    "UnitsConfig",
    "WorkersConfig",
    "check_address",
    "check_num_workers",
    "check_transport",
]

NumWorkers = Annotated[Whole, "Rollout worker processes; results do not depend on it."]
TransportName = Annotated[
    Literal["auto", "serial", "process", "ray"],
    "Where rollouts run: in this process, in worker processes, on a Ray cluster, or chosen by the number of workers.",
]
Address = Annotated[
    str | None,
    "HOST:PORT of the Ray cluster, auto for one that runs on this machine, or local for a new one (null: the one that "
    "ray.init has connected, that of RAY_ADDRESS, or a new one on this machine alone, in this order).",
]
_Loss = Literal["raise", "drop"]


def check_transport(num_workers: int, transport: str, address: str | None, name: str = "address") -> None:
    """``ValueError`` unless these are compatible; ``name`` is the name of ``address``."""
    if transport == "serial" and num_workers > 1:
        here, there = option_text("transport", "serial"), option_text("transport", "process")
        raise ValueError(
            f"{option_name('num_workers')} must be 1 with {here}, which is this process, got {num_workers}: or use "
            f"{there}"
        )
    if address is not None and transport != "ray":
        here, there = option_text("transport", transport), option_text("transport", "ray")
        raise ValueError(f"{option_name(name)} must be left out with {here}, got {address!r}: or use {there}")


def check_num_workers(num_workers: int, config: WorkersConfig | None) -> None:
    """``ValueError`` if a documented ``num_workers`` and that of a config differ."""
    if isinstance(config, WorkersConfig) and config.num_workers not in (1, num_workers):
        name = option_name("num_workers")
        raise ValueError(
            f"{name} must be that of config, {config.num_workers}, or be left out of it, got {num_workers}"
        )


def check_address(address: str | None, name: str = "address") -> None:
    """``ValueError`` unless ``address``, an option called ``name``, can be that of a cluster (or is ``None``)."""
    if address is None or address in ("auto", "local"):
        return
    if "://" in address:
        raise ValueError(
            f"{name} must be 'HOST:PORT' of a Ray cluster, got {address!r}: Ray Client is not supported, run the "
            "program on a node of the cluster"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(
            f"{name} must be 'HOST:PORT' of a Ray cluster (`ray start --head` prints it), 'auto' or 'local', got "
            f"{address!r}"
        )


def check_timeout(name: str, value: Any) -> None:
    """``ValueError`` unless it is a time to wait, in s, or ``None``."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name} must be positive seconds or None (wait for ever), got {value!r}")


@dataclass(frozen=True)
class PoolTimeouts:
    """Seconds without a sign of life before a worker is given up and replaced; ``None`` waits forever.

    ``step_s`` holds between two steps of an environment and while results are sent, ``reset_s`` for resets,
    ``start_s`` until a worker has started and has imported what the engine's commands need, ``call_s`` for functions of
    the user (who knows how long they take). One that takes longer is tried again, ``max_retries + 1``
    times in all, before ``WorkerLost`` is raised.
    """

    step_s: float | None = 60.0
    reset_s: float | None = 300.0
    start_s: float | None = 300.0
    call_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("step_s", "reset_s", "start_s", "call_s"):
            check_timeout(name, getattr(self, name))

    def limit(self, phase: str, stopped: bool) -> float | None:
        """Allowed silence of a worker, in s."""
        limits = {"start": self.start_s, "call": self.call_s, "reset": self.reset_s}
        limit = limits.get(phase, self.step_s)
        if stopped and self.step_s is not None:  # a stopped process will not answer in any phase
            return self.step_s if limit is None else min(limit, self.step_s)
        return limit


# ------------------------------------------------------------------------------------------------ how rollouts are run
@dataclass(frozen=True, kw_only=True)
class WorkersConfig(Config):
    """Settings of workers: how many, where, and when one is given up."""

    num_workers: NumWorkers = 1
    transport: TransportName = "auto"
    address: Address = None
    timeouts: Annotated[PoolTimeouts | None, Added(), "When a silent worker is given up (null: PoolTimeouts())."] = None
    max_retries: Annotated[
        Count, Added(), "Number of retries of a lost worker's work, each on a new worker, before it is an error."
    ] = 3

    def check(self) -> None:
        super().check()
        check_transport(self.num_workers, self.transport, self.address)
        check_address(self.address)


@dataclass(frozen=True, kw_only=True)
class UnitsConfig(WorkersConfig):
    """Settings of simulations whose handling of failures is fixed."""

    slots_per_unit: Annotated[
        Whole | None, "Environments stepped together in a worker (null: chosen by the kind of environment)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class EngineConfig(UnitsConfig):
    """Settings of a ``RolloutEngine``."""

    on_invalid: Annotated[
        _Loss, "What happens to rollouts with NaN or Inf: an error (raise), or they are left out and listed (drop)."
    ] = "raise"
    on_error: Annotated[_Loss, "The same for rollouts in which the environment or the policy raises."] = "raise"


@dataclass(frozen=True, kw_only=True)
class StepLimit(Config):
    """Maximum length of the rollouts of a sampler."""

    max_steps: Annotated[
        Whole | None, "Rollouts are truncated after this many steps (null: the limit of the environment alone)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(StepLimit, EngineConfig):
    """Settings of a ``ParallelRolloutSampler``, which replaces dropped rollouts by new ones."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(StepLimit, UnitsConfig):
    """Settings of a ``ParameterExplorationSampler``."""

    common_noise: Annotated[
        bool, "Rollout j of every set of parameters has the same seed, which makes comparisons less noisy."
    ] = False


# ------------------------------------------------------------------------------------------------- features of rollouts
@dataclass(frozen=True, kw_only=True)
class FeaturesConfig(Config):
    """Settings of features of rollouts, for simulation-based inference."""

    num_segments: Annotated[
        Whole | None,
        "Number of segments into which rollouts are cut, equally long up to one step; the simulation restarts from the "
        "recorded state in every segment. Give this or len_segments; 1 leaves rollouts whole.",
    ] = None
    len_segments: Annotated[Whole | None, "Steps of each segment; the last one may have fewer."] = None
    stop_on_done: Annotated[
        bool,
        "End rollouts at the environment's own ending (and fill them up); ignoring it is dangerous on a real system.",
    ] = True
    features_of: Annotated[
        Literal["rollouts", "segments"],
        "Whether the segments of a rollout are joined for one set of features (rollouts), or each segment has its "
        "own, one after another, which requires segments of equal length (segments).",
    ] = "rollouts"
    series: Annotated[
        Literal["states", "observations"] | None,
        "Inputs of the features, besides actions (null: states if env_spec.state_space describes them).",
    ] = None
    pad_mode: Annotated[Literal["zeros", "last"], "What fills up rollouts that ended early."] = "zeros"

    def check(self) -> None:
        super().check()
        if (self.num_segments is None) == (self.len_segments is None):
            segments = f"num_segments={self.num_segments} and len_segments={self.len_segments}"
            raise ValueError(
                "give either num_segments or len_segments, got "
                f"{'neither' if self.num_segments is None else segments}; num_segments=1 leaves rollouts whole"
            )


@dataclass(frozen=True, kw_only=True)
class SimulationConfig(FeaturesConfig, UnitsConfig):
    """Settings of a ``SimRolloutSamplerForSBI``: simulation of parameters, and features of the results."""

    use_rec_act: Annotated[bool, "Play the recorded actions, instead of letting the policy act."] = True
    exact_starts: Annotated[
        bool,
        "Whether initial_state returns the true initial states. Simulated measurements of it then have their own "
        "noise, as in all other rows, so that one posterior is valid for many recordings; otherwise they are the "
        "recorded ones, from which simulations start.",
    ] = False
    chained: Annotated[
        bool,
        "Continue the series of a simulation where each segment ended, not where the next one starts: for features "
        "that depend on changes only, when starts have sensor noise, which is not a change. With exact starts the jump "
        "measures how far simulation and robot diverged in a segment.",
    ] = False
    clip_actions: Annotated[
        bool, "Play recorded actions beyond the bounds of the environment, which clips them; or refuse them."
    ] = False

    def check(self) -> None:
        super().check()
        if self.chained and self.stop_on_done and self.pad_mode == "zeros":
            expected = "be False if rollouts that end early are filled up with zeros, which are not a motion"
            raise self.wrong("chained", expected, "stop_on_done=False, or pad_mode='last'")
