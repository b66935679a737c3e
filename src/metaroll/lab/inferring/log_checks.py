"""What looks wrong with recorded rollouts beside a simulator that is to follow them: in words, none is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaroll.data.rollouts import time_step
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import time_step_of
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError, RolloutError, ShapeError
from metaroll.lab.logs.lags import lag_text, log_lag
from metaroll.lab.logs.plausibility import check_log
from metaroll.lab.logs.series.lags import Lag
from metaroll.lab.logs.timing import gaps_text
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import derive_seed

__all__ = ["doubts_about", "lag_of", "random_rollouts"]

_EPISODES, _STEPS = 5, 100


def doubts_about(source: EnvSource, rollouts: Sequence[StepSequence]) -> list[str]:
    """What ``metaroll import-log`` says of them: a lag that is surely not 0, findings of ``check_log``, and gaps."""
    env = source.make()
    try:
        simulated, dt = random_rollouts(env), time_step_of(env)
    finally:
        source.close(env)
    lag, own = lag_of(rollouts), time_step(rollouts[0])
    found = []
    if lag is not None and lag.is_told and not lag.low <= 0.0 <= lag.high:
        found.append(lag_text(lag, own))
    found += [finding.text for finding in check_log(rollouts, simulated, dt)]
    for number, one in enumerate(rollouts):
        log = (one.rollout_info or {}).get("log") or {}
        told = gaps_text((log.get("timing") or {}).get("gaps") or [])
        if told and "made_up" not in log:  # imported before gaps were told by their times
            found.append(f"rollout {number} has {told}; what is made up counts as recorded: import the log again")
    if dt is not None and own is None:
        found.append(
            f"the recordings do not say how long their steps are: they are taken for the simulator's, {dt:g} s"
        )
    return found


def random_rollouts(env: Any) -> list[StepSequence]:
    """Rollouts with random actions, none if the environment has none that can be drawn."""
    env.action_space.seed(derive_seed(0, "import-log"))
    try:
        return [rollout(env, lambda _: env.action_space.sample(), seed=i, max_steps=_STEPS) for i in range(_EPISODES)]
    except (RolloutError, TypeError, ValueError):
        return []


def lag_of(rollouts: Sequence[StepSequence]) -> Lag | None:
    """The lag of commands; ``None`` where observations or actions are no numbers."""
    try:
        return log_lag(rollouts)
    except (DataError, ShapeError):
        return None
