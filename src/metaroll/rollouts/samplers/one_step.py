"""Predictions of a simulator for the next row of recorded rollouts, from each of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.samplers.segment_starts import ObservedState, surely_observed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import RolloutPlan

__all__ = ["OneStep"]


@dataclass(frozen=True, eq=False)
class OneStep:
    """Predictions of N recorded rows from the rows before them.

    Attributes:
        source: Makes the simulator.
        before: Rows, ``(N, C)``: states, or whole observations.
        after: The rows that follow them, ``(N, C)``.
        rollouts: The rollout of each row, ``(N,)``.
        contexts: Contexts that give the policy the action in between, N of them.
        policy: Plays the recorded actions.
        field: ``"states"`` or ``"observations"``, what rows are.
        state_of: From rows to states; ``None``: they are states.
        seed: Seed of the simulator's randomness.
    """

    source: EnvSource
    before: np.ndarray
    after: np.ndarray
    rollouts: np.ndarray
    contexts: list[dict[str, np.ndarray]]
    policy: PlaybackPolicy
    field: str
    state_of: ObservedState | None
    seed: int

    @classmethod
    def of(
        cls,
        source: EnvSource,
        rollouts: Sequence[StepSequence],
        field: str,
        action_field: str,
        observed_state: ObservedState,
        most: int,
        seed: int,
    ) -> OneStep:
        """Of ``most`` rows at most, spread evenly over the rollouts."""
        before, after, contexts = [], [], []
        for number, recorded in enumerate(rollouts):
            series = np.asarray(recorded.get_data_values(field), dtype=np.float64)[: len(recorded)]
            series = series.reshape(len(series), -1)
            before.append(series[:-1])
            after.append(series[1:])
            contexts += [{"recording": np.array(number), "start": np.array(row)} for row in range(len(series) - 1)]
        first, second = np.concatenate(before), np.concatenate(after)
        chosen = np.unique(np.linspace(0, len(first) - 1, min(most, len(first))).astype(np.int64))
        actions = [np.asarray(recorded.get_data_values(action_field))[: len(recorded)] for recorded in rollouts]
        return cls(
            source,
            first[chosen],
            second[chosen],
            np.array([int(contexts[row]["recording"]) for row in chosen]),
            [contexts[row] for row in chosen],
            PlaybackPolicy(source.spec, actions),
            field,
            None if field == "states" else observed_state,
            seed,
        )

    def from_observed(self, noise: np.ndarray) -> OneStep:
        """Those from rows that determine their state despite noise, with deviations ``noise (C,)``.

        Raises:
            NotImplementedError: Nothing gives the state of an observation.
        """
        if self.state_of is None:
            return self
        return self._of(np.flatnonzero(surely_observed(self.state_of, self.before, noise)))

    def can_predict(self, params: Mapping[str, float], tries: int) -> bool:
        """Whether at least one of ``tries`` rows, spread over all, can be simulated; a check before thousands are."""
        chosen = np.unique(np.linspace(0, len(self.before) - 1, min(tries, len(self.before))).astype(np.int64))
        if not len(chosen):
            return False
        few = self._of(chosen)
        return bool(np.isfinite(few.predicted([(params, few.before)])[0]).all(axis=1).any())

    def predicted(self, sets: Sequence[tuple[Mapping[str, float], np.ndarray]]) -> list[np.ndarray]:
        """Predicted successors for each pair of parameters and rows ``(N, C)``; NaN where a simulation failed."""
        plans, places = [], []
        for number, (params, rows) in enumerate(sets):
            update = DomainParamUpdate(params)
            states: Any = rows if self.state_of is None else self.state_of(rows)
            for row, state in enumerate(states):
                if np.isfinite(state).all():
                    seed = (self.seed, number, row)
                    plan = RolloutPlan(len(plans), seed, update, eval=True, init_state=state, max_steps=1)
                    plans.append(plan.with_(context=self.contexts[row]))
                    places.append((number, row))
        predictions = np.full((len(sets), *self.before.shape), np.nan)
        options: dict[str, Any] = {"on_invalid": "drop", "on_error": "drop", "record_extras": self.field == "states"}
        with RolloutEngine(self.source, self.policy, **options) as engine:
            made = engine.run(plans)
            lost = {entry.plan.index for entry in engine.dropped}
        kept = (place for index, place in enumerate(places) if index not in lost)
        try:
            series = made.each(self.field)  # without a StepSequence for each of thousands
        except KeyError as missing:
            raise DataError(missing.args[0]) from None
        for (number, row), values in zip(kept, series, strict=True):
            predictions[number, row] = values[1].reshape(-1)
        return list(predictions)

    def _of(self, rows: np.ndarray) -> OneStep:
        """Those from some rows alone."""
        before, after, rollouts = (values[rows] for values in (self.before, self.after, self.rollouts))
        return replace(self, before=before, after=after, rollouts=rollouts, contexts=[self.contexts[i] for i in rows])
