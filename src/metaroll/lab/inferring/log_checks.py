"""Reports doubts about recorded rollouts that a simulator is to follow; nothing is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaroll.data.rollouts import time_step
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import time_step_of
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError, RolloutError, ShapeError
from metaroll.lab.logs.lags import lag_of_log, lag_text
from metaroll.lab.logs.plausibility import check_log
from metaroll.lab.logs.series.lags import Lag
from metaroll.lab.logs.timing import gaps_text
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import derive_seed

__all__ = ["doubts_about", "lag_of", "random_rollouts"]

_EPISODES, _STEPS = 5, 100


def doubts_about(source: EnvSource, rollouts: Sequence[StepSequence]) -> list[str]:
    """The report of ``metaroll import-log``: a lag that is clearly not 0, findings of ``check_log``, and gaps."""
    env = source.make()
    try:
        simulated, dt = random_rollouts(env), time_step_of(env)
    finally:
        source.close(env)
    lag, own = lag_of(rollouts), time_step(rollouts[0])
    doubts = []
    if lag is not None and lag.is_known and not lag.low <= 0.0 <= lag.high:
        doubts.append(lag_text(lag, own))
    doubts += [finding.text for finding in check_log(rollouts, simulated, dt)]
    for number, recorded in enumerate(rollouts):
        log = (recorded.rollout_info or {}).get("log") or {}
        gaps = gaps_text((log.get("timing") or {}).get("gaps") or [])
        if gaps and "made_up" not in log:  # imported before gaps were stored by time
            doubts.append(f"rollout {number} has {gaps}; made-up values count as recorded: import the log again")
    if dt is not None and own is None:
        doubts.append(f"the recordings have no time step: that of the simulator is assumed, {dt:g} s")
    return doubts


def random_rollouts(env: Any) -> list[StepSequence]:
    """Rollouts with random actions; empty if none can be drawn."""
    env.action_space.seed(derive_seed(0, "import-log"))
    try:
        return [rollout(env, lambda _: env.action_space.sample(), seed=i, max_steps=_STEPS) for i in range(_EPISODES)]
    except (RolloutError, TypeError, ValueError):
        return []


def lag_of(rollouts: Sequence[StepSequence]) -> Lag | None:
    """The lag of commands; ``None`` if observations or actions are not numeric."""
    try:
        return lag_of_log(rollouts)
    except (DataError, ShapeError):
        return None
