"""Defines the data compared between recorded rollouts and a simulator, and the initial states of the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.configs.inference import InferenceOptions, parsed_noise
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import determined_entries, time_step_of
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import changes_actions
from metaroll.errors import ShapeError, about_option
from metaroll.inference.priors import Prior
from metaroll.lab.inferring.comparable import compared_field, starting_field
from metaroll.rollouts.samplers.one_step import OneStep
from metaroll.rollouts.samplers.segment_starts import SegmentStarts, observed_states
from metaroll.rollouts.samplers.sensor_noise import SensorNoise, estimated_noise, given_noise, least_noise, typical
from metaroll.rollouts.samplers.series_features import applied_field, channel_labels, labeled_as, segment_lengths
from metaroll.seeding import derive_seed
from metaroll.tasks.domain_access import read_domain_params
from metaroll.tasks.domain_params import NOISE
from metaroll.types import EnvSpec, flat_dim

__all__ = ["Compared", "check_columns"]

_PREDICTED = 600
"""Number of rows whose next row a simulator predicts, to estimate their noise."""
_LOUD, _NAMED = 2.0, 4
"""Noise set by the user, in deviations of the measurements, from which it is implausible; channels that are named."""
_ENOUGH = 50
"""Minimum number of rows for estimating the noise of states that no simulator predicts."""


@dataclass(frozen=True, eq=False)
class Compared:
    """A simulator beside recorded rollouts.

    Attributes:
        source: The simulator.
        field: ``"states"`` if both have them, else ``"observations"``.
        entries: Which of its entries count, bool ``(n,)``; ``None``: all. An observation may hold what a state does not
            tell (forces of contacts), which differs after a start from there.
        labels: Names of the compared entries.
        channels: Names of all entries.
        spec: Spec of the simulator, in the form of the compared rollouts.
        dt: Seconds per step, if the simulator defines it.
        nominal: The simulator's own parameters; for noise, values from the log.
        action_field: Field of the recorded actions to play back.
        initial_state: Function from a recorded segment to its first state, if given.
        noise: Noise of the sensors.
    """

    source: EnvSource
    field: Literal["states", "observations"]
    entries: np.ndarray | None
    labels: tuple[str, ...]
    channels: tuple[str, ...]
    spec: EnvSpec
    dt: float | None
    nominal: Mapping[str, float]
    action_field: str
    initial_state: Callable[[StepSequence], Any] | None
    noise: SensorNoise

    @classmethod
    def of(
        cls,
        source: EnvSource,
        rollouts: Sequence[StepSequence],
        prior: Prior,
        options: InferenceOptions,
        initial_state: Callable[[StepSequence], Any] | None,
        noise: SensorNoise | None = None,
    ) -> Compared:
        """Of rollouts that ``comparable`` has brought into the simulator's form, where ``noise`` is known with it."""
        params = [name for name in prior.names if not name.startswith(NOISE)]
        env = source.make()
        try:
            spec, dt, as_given = EnvSpec.from_env(env), time_step_of(env), changes_actions(env)
            spec = labeled_as(spec, rollouts)
            nominal = {name: float(value) for name, value in read_domain_params(env, params).items() if name in params}
            field = compared_field(spec, rollouts)
            entries = determined_entries(env) if field == "observations" else None
        finally:
            source.close(env)
        labels = channel_labels(spec, field, entries)
        plain = cls(
            source,
            field,
            entries,
            labels,
            channel_labels(spec, field),
            _compared_spec(spec, field, entries),
            dt,
            nominal,
            applied_field(rollouts, as_given),
            initial_state,
            SensorNoise(labels, {}, np.zeros(len(labels)), "by default"),
        )
        check_columns(plain, rollouts)
        plain._warn_of_loud_noise(rollouts, parsed_noise(options.noise))
        noise = plain._noise_of(rollouts, prior, options) if noise is None else noise
        inferred = {NOISE + label: float(std) for label, std in zip(labels, typical(noise.compared), strict=True)}
        nominal |= {name: inferred[name] for name in prior.names if name in inferred}
        return replace(plain, noise=noise, nominal=nominal)

    def observed_state(self, observations: np.ndarray) -> np.ndarray:
        """The states ``(N, S)`` of observations ``(N, O)``, if the simulator can compute them."""
        return observed_states(self.source, observations)

    def starts(self, rollouts: Sequence[StepSequence], segment_length: int) -> SegmentStarts:
        """Where simulations of segments of ``rollouts`` start; these must be the first rollouts with known noise."""
        names = [f"rollout {number}" for number in range(len(rollouts))]
        cut = segment_lengths(len(rollouts[0]), None, min(segment_length, len(rollouts[0])))
        state = self.initial_state
        noise = self.noise.of_first(len(rollouts)).stds
        return SegmentStarts.of(rollouts, names, cut, state, self.observed_state, noise)

    def of_others(
        self,
        rollouts: Sequence[StepSequence],
        seen: Sequence[StepSequence],
        prior: Prior,
        options: InferenceOptions,
    ) -> Compared:
        """The same for other ``rollouts``; with their own noise if not all are equally noisy."""
        if not rollouts:
            return self
        noise = self._noise_of([*seen, *rollouts], prior, options)
        return replace(self, noise=noise.of_last(len(rollouts))) if noise.differs or self.noise.differs else self

    def recorded(self, rollout: StepSequence) -> np.ndarray:
        """The compared entries of a recorded rollout, ``(T, C)``."""
        return self.shown(np.asarray(rollout.get_data_values(self.field), dtype=np.float64)[: len(rollout)])

    def shown(self, values: np.ndarray) -> np.ndarray:
        """The compared entries, ``(T, C)``, of states (or observations)."""
        flat = values.reshape(len(values), -1)
        return flat if self.entries is None else flat[:, self.entries]

    def domain_params(self, params: Mapping[str, float]) -> dict[str, float]:
        """The parameters of the simulator, without sensor noise."""
        return {name: value for name, value in params.items() if not name.startswith(NOISE)}

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _noise_of(self, rollouts: Sequence[StepSequence], prior: Prior, options: InferenceOptions) -> SensorNoise:
        wanted = parsed_noise(options.noise)
        inferred = tuple(name.removeprefix(NOISE) for name in prior.names if name.startswith(NOISE))
        for name, low in zip(prior.names, prior.low.tolist(), strict=True):
            if name.startswith(NOISE) and low < 0.0:
                raise ValueError(f"{name} must be a deviation, at least 0, got a range from {low:g}")
        if wanted == "none" and not inferred:
            return SensorNoise(self.labels, {}, np.zeros(len(self.labels)), "as was asked for")
        fields = {self.field} if self.initial_state is not None else {self.field, starting_field(rollouts)}
        stds: dict[str, np.ndarray] = {}
        if isinstance(wanted, str):
            stds[self.field] = self._estimated(rollouts, self.field, prior, options)
        else:
            with about_option("noise"):
                stds[self.field] = given_noise(wanted, self.channels)
        if wanted == "none":  # except for channels whose noise is inferred: segments start with their estimated noise
            is_inferred = np.array([label in inferred for label in self.channels])
            stds[self.field] = np.where(is_inferred, stds[self.field], 0.0)
        # States used only as starts come from the same sensors: without noise in one there is none in the other.
        if "states" in fields - {self.field} and stds[self.field].any() and sum(map(len, rollouts)) >= _ENOUGH:
            stds["states"] = self._estimated(rollouts, "states", prior, options)
        compared = self._counting(stds[self.field])
        if wanted != "estimate":
            how = "as was asked for" if wanted == "none" else "as was given"
            return SensorNoise(self.labels, stds, compared, how, inferred=inferred)
        least = self._counting(least_noise(rollouts, self.field, options.segment_length))
        assumed = np.sqrt(np.maximum(np.square(least) - np.square(compared), 0.0))
        assumed[..., [label in inferred for label in self.labels]] = 0.0
        return SensorNoise(self.labels, stds, compared, "estimated from the log", True, assumed, inferred)

    def _warn_of_loud_noise(self, rollouts: Sequence[StepSequence], wanted: Any) -> None:
        """Warn if the given noise is far larger than the variation of the measurements."""
        rows = np.concatenate([self.recorded(one) for one in rollouts])
        if len(rows) < _ENOUGH or isinstance(wanted, str):
            return
        stds = self._counting(given_noise(wanted, self.channels))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without any value
            moved = np.nanstd(rows, axis=0)
        loud = np.flatnonzero((stds > _LOUD * moved) & (np.ptp(rows, axis=0) > 0.0)).tolist()
        if loud:
            named = ", ".join(f"{self.labels[i]} {stds[i]:.4g} (measured: {moved[i]:.4g})" for i in loud[:_NAMED])
            more = f" and {len(loud) - _NAMED} more" if len(loud) > _NAMED else ""
            warnings.warn(
                f"the given noise of sensors is far larger than the standard deviation of the measurements: "
                f"{named}{more}; check that its unit is that of the channel",
                stacklevel=5,
            )

    def _counting(self, values: np.ndarray) -> np.ndarray:
        """The compared ones ``(..., C)`` of all entries ``(..., n)``."""
        return values if self.entries is None else values[..., self.entries]

    def _estimated(
        self, rollouts: Sequence[StepSequence], field: str, prior: Prior, options: InferenceOptions
    ) -> np.ndarray:
        kept = self.entries if field == "observations" else None
        predictions = None
        if field == self.field:
            seed = derive_seed("one step", options.seed)
            state_of = self.observed_state
            predictions = OneStep.of(self.source, rollouts, field, self.action_field, state_of, _PREDICTED, seed)
        ranges = {
            name: (float(low), float(high))
            for name, low, high in zip(prior.names, prior.low, prior.high, strict=True)
            if not name.startswith(NOISE)
        }
        noise = estimated_noise(rollouts, field, self.action_field, predictions, ranges, self.nominal, kept)
        return noise.by_rollout(least_noise(rollouts, field, options.segment_length))


def check_columns(compared: Compared, rollouts: Sequence[StepSequence]) -> None:
    """Raise an error if rollouts have other columns than the simulator's observations and actions.

    Raises:
        ShapeError: They have.
    """
    spec = compared.source.spec
    space = spec.action_space
    for number, rollout in enumerate(rollouts):
        recorded = (
            np.asarray(rollout.get_data_values(compared.field))[: len(rollout)].reshape(len(rollout), -1).shape[1]
        )
        own = spec.observation_space if compared.field == "observations" else spec.state_space
        labels = spec.observation_labels if compared.field == "observations" else spec.state_labels
        if own is not None and recorded != flat_dim(own):
            named = f" ({', '.join(labels)})" if labels else ""
            raise ShapeError(
                f"rollout {number} (counted from 0) must have {flat_dim(own)} {compared.field} per step{named}, as the "
                f"simulator has, got {recorded}: is it the log of another robot? Else map its columns to those of the "
                "simulator (metaroll import-log --env SIM)"
            )
        actions = np.asarray(rollout.get_data_values(compared.action_field))[: len(rollout)]
        if isinstance(space, Discrete):
            whole = actions.reshape(len(actions), -1)
            if whole.shape[1] != 1 or (whole != np.round(whole)).any() or whole.min() < 0 or whole.max() >= space.n:
                shown = f"{whole.shape[1]} numbers" if whole.shape[1] != 1 else f"values {whole.min()} to {whole.max()}"
                raise ShapeError(
                    f"{compared.action_field} of rollout {number} (counted from 0) must be choices 0 to {space.n - 1}, "
                    f"as the simulator takes them, got {shown} per step: is it the log of another robot?"
                )
        elif isinstance(space, Box) and actions.reshape(len(actions), -1).shape[1] != flat_dim(space):
            raise ShapeError(
                f"rollout {number} (counted from 0) must have {flat_dim(space)} {compared.action_field} per step, as "
                f"the simulator takes, got {actions.reshape(len(actions), -1).shape[1]}: is it another robot's log?"
            )


def _compared_spec(spec: EnvSpec, field: str, entries: np.ndarray | None) -> EnvSpec:
    """A spec whose states (or observations) are the compared entries."""
    if field == "states":
        return spec
    spec = replace(spec, state_space=None, state_labels=None)
    space = spec.observation_space
    if entries is None or not isinstance(space, Box):
        return spec
    kept = Box(space.low.reshape(-1)[entries], space.high.reshape(-1)[entries], dtype=space.dtype.type)
    labels = spec.observation_labels
    kept_labels = None if labels is None else tuple(label for label, keep in zip(labels, entries, strict=True) if keep)
    return replace(spec, observation_space=kept, observation_labels=kept_labels)
