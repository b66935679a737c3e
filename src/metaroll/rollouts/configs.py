"""How rollouts are run, and how samplers make features of them."""

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
    "How rollouts are run: in this process, in processes, on a Ray cluster, or as the number of workers suggests.",
]
Address = Annotated[
    str | None,
    "HOST:PORT of the Ray cluster, auto for one that runs on this machine, or local for a new one (null: the one that "
    "ray.init has connected, that of RAY_ADDRESS, or a new one on this machine alone, in this order).",
]
_Loss = Literal["raise", "drop"]


def check_transport(num_workers: int, transport: str, address: str | None, name: str = "address") -> None:
    """``ValueError`` where these do not go together; ``name`` is what ``address`` is called."""
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
    """``ValueError`` where a documented ``num_workers`` and that of a config are two."""
    if isinstance(config, WorkersConfig) and config.num_workers not in (1, num_workers):
        name = option_name("num_workers")
        raise ValueError(
            f"{name} must be that of config, {config.num_workers}, or config leave it out, got {num_workers}"
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
    """Seconds without a sign of life before a worker is given up and replaced; ``None`` waits for ever.

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
    """How workers are had: how many, where, and when one is given up."""

    num_workers: NumWorkers = 1
    transport: TransportName = "auto"
    address: Address = None
    timeouts: Annotated[PoolTimeouts | None, Added(), "When a silent worker is given up (null: PoolTimeouts())."] = None
    max_retries: Annotated[
        Count, Added(), "How often the work of a lost worker is tried again on a fresh one before it is an error."
    ] = 3

    def check(self) -> None:
        super().check()
        check_transport(self.num_workers, self.transport, self.address)
        check_address(self.address)


@dataclass(frozen=True, kw_only=True)
class UnitsConfig(WorkersConfig):
    """Settings of simulations where the caller does not choose what happens to failures."""

    slots_per_unit: Annotated[
        Whole | None, "Environments stepped together in a worker (null: what suits the kind of environment)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class EngineConfig(UnitsConfig):
    """How a ``RolloutEngine`` runs rollouts."""

    on_invalid: Annotated[
        _Loss, "What becomes of rollouts with NaN or Inf: an error (raise), or they are left out and listed (drop)."
    ] = "raise"
    on_error: Annotated[_Loss, "The same for rollouts in which the environment or the policy raises."] = "raise"


@dataclass(frozen=True, kw_only=True)
class StepLimit(Config):
    """How long the rollouts of a sampler may be."""

    max_steps: Annotated[
        Whole | None, "Rollouts are truncated after this many steps (null: the limit of the environment alone)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(StepLimit, EngineConfig):
    """How a ``ParallelRolloutSampler`` samples: in place of rollouts that are dropped it samples others."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(StepLimit, UnitsConfig):
    """How a ``ParameterExplorationSampler`` samples."""

    common_noise: Annotated[
        bool, "Rollout j of every set of parameters has the same seed, so that returns differ by less chance."
    ] = False


# ------------------------------------------------------------------------------------------------- features of rollouts
@dataclass(frozen=True, kw_only=True)
class FeaturesConfig(Config):
    """How rollouts become features, for simulation-based inference."""

    num_segments: Annotated[
        Whole | None,
        "Segments into which rollouts are cut, of equal length or one step less; the simulation restarts from the "
        "recorded state with every segment. Give this or len_segments; 1 leaves rollouts whole.",
    ] = None
    len_segments: Annotated[Whole | None, "Steps of each segment; the last one may have fewer."] = None
    stop_on_done: Annotated[
        bool,
        "End rollouts at the environment's own ending (and fill them up); ignoring it is dangerous on a real system.",
    ] = True
    features_of: Annotated[
        Literal["rollouts", "segments"],
        "Segments are put together again, and each rollout has features (rollouts); or each segment has features of "
        "its own, one after the other, and segments need one length (segments).",
    ] = "rollouts"
    series: Annotated[
        Literal["states", "observations"] | None,
        "What features are made of, beside actions (null: states where env_spec.state_space describes them).",
    ] = None
    pad_mode: Annotated[Literal["zeros", "last"], "What rollouts that ended early are filled up with."] = "zeros"

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
    """How a ``SimRolloutSamplerForSBI`` simulates sets of parameters, and makes features of what comes out."""

    use_rec_act: Annotated[bool, "Play the recorded actions, instead of letting the policy act."] = True
    exact_starts: Annotated[
        bool,
        "initial_state returns where rollouts truly started. What simulations measure there has its own noise then, "
        "as in all other rows, so that one posterior can be asked of many recordings; else they have measured what was "
        "recorded there, which is why they start where they do.",
    ] = False
    chained: Annotated[
        bool,
        "The series of a simulation continues where each segment has ended, instead of where the next one starts: for "
        "features of changes alone, where starts are off by noise of sensors, which is no change. From exact starts "
        "the jump measures how far simulation and robot diverged in a segment.",
    ] = False
    clip_actions: Annotated[
        bool, "Play recorded actions beyond the bounds of the environment, which clips them; else they are an error."
    ] = False

    def check(self) -> None:
        super().check()
        if self.chained and self.stop_on_done and self.pad_mode == "zeros":
            expected = "be False where rollouts that end early are filled up with zeros, which are no motion"
            raise self.wrong("chained", expected, "stop_on_done=False, or pad_mode='last'")
