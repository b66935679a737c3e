"""Recorded rollouts for simulations to follow: where segments start, and the features for comparing both."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.configs.inference import InferenceOptions
from metaroll.data.step_sequence import StepSequence
from metaroll.functional.series.noise import informative_spans
from metaroll.inference.embeddings import (
    AllStepsEmbedding,
    BayesSimEmbedding,
    DeltaStepsEmbedding,
    DynamicTimeWarpingEmbedding,
    Embedding,
    LastStepEmbedding,
)
from metaroll.inference.priors import Prior
from metaroll.lab.inferring.compared import Compared, check_columns
from metaroll.policies.playback import IdlePolicy
from metaroll.rollouts.samplers.sbi import RolloutSamplerForSBI, SimRolloutSamplerForSBI
from metaroll.rollouts.samplers.segment_starts import SegmentStarts
from metaroll.rollouts.samplers.sensor_noise import typical
from metaroll.seeding import derive_seed
from metaroll.types import EnvSpec

__all__ = ["Followed", "behavior"]

_PROBES = 3
_ATTEMPTS = 5
"""Number of parameter sets for comparing simulators, and of attempts with new ones if all of them fail."""


class Followed(NamedTuple):
    """Recorded rollouts of one length beside the simulator that follows them.

    Attributes:
        compared: The data to compare between robot and simulator.
        rollouts: The R rollouts.
        starts: Where simulations of their segments start.
        spans: Numbers of kept steps over which features measure changes.
    """

    compared: Compared
    rollouts: list[StepSequence]
    starts: SegmentStarts
    spans: tuple[int, ...]

    @classmethod
    def of(cls, compared: Compared, rollouts: Sequence[StepSequence], options: InferenceOptions) -> Followed:
        """From rollouts that ``comparable`` has checked and reordered.

        Raises:
            ShapeError: They have other columns than the simulator shows and takes.
            DataError: The states in which segments start are unknown.
        """
        check_columns(compared, rollouts)
        starts = compared.starts(rollouts, options.segment_length)
        return cls(compared, list(rollouts), starts, _spans(compared, rollouts, starts, options))

    def sampler(self, prior: Prior, options: InferenceOptions, exact_starts: bool = False) -> SimRolloutSamplerForSBI:
        """From parameters to features of the recorded segments, simulated with the recorded actions."""
        compared, length = self.compared, len(self.rollouts[0])
        embedding = _embedding(options, compared.spec, length, self.spans)
        return SimRolloutSamplerForSBI(
            compared.source,
            IdlePolicy(compared.source.spec),
            dict(enumerate(prior.names)),
            embedding,
            len_segments=min(options.segment_length, length),
            stop_on_done=False,  # the robot continued, whatever the simulator considers an end
            rollouts_real=self.rollouts,
            series=compared.field,
            seed=derive_seed("simulations", options.seed),
            initial_state=compared.initial_state,
            exact_starts=exact_starts,
            entries=compared.entries,
            noise=compared.noise.stds,
            assumed_noise=compared.noise.assumed,
            chained=embedding.of_changes and self.starts.are_drawn,  # not with exact starts, which show the drift
            clip_actions=True,
            num_workers=options.num_workers,
        )


def behavior(sampler: SimRolloutSamplerForSBI, prior: Prior) -> str:
    """A hash of the simulator's output for some parameters, which changes with the simulator."""
    probe = copy.copy(sampler)  # leaves the seeds and failures of the original unchanged
    probe.failed = []
    features: list[np.ndarray] = []
    with probe, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "all .* simulations failed")
        for attempt in range(_ATTEMPTS):
            features.append(probe(prior.sample(_PROBES, derive_seed("probes", attempt))).numpy())
            if np.isfinite(features[-1]).any():  # failures are alike
                break
    return hashlib.sha256(np.concatenate(features).tobytes()).hexdigest()[:16]


def _spans(
    compared: Compared, rollouts: Sequence[StepSequence], starts: SegmentStarts, options: InferenceOptions
) -> tuple[int, ...]:
    if options.features != "bayessim" or not starts.are_drawn:
        return (1,)  # series that are not chained jump where segments start, the more so the farther changes reach
    # Changes that reach over most of a segment show how far off it has started: 8 of 20 steps do not, 16 do.
    most = max(1, min(options.segment_length, len(rollouts[0])) // (2 * options.every))
    series = [compared.recorded(one)[:: options.every] for one in rollouts]
    return informative_spans(series, typical(compared.noise.measured), most)


def _embedding(options: InferenceOptions, spec: EnvSpec, length: int, spans: tuple[int, ...]) -> Embedding:
    dim_data = RolloutSamplerForSBI.get_dim_data(spec)
    every: dict[str, Any] = {"downsampling_factor": options.every}
    if options.features == "all-steps":
        return AllStepsEmbedding(spec, dim_data, length, **every)
    if options.features == "delta-steps":
        return DeltaStepsEmbedding(spec, dim_data, length, **every)
    if options.features == "bayessim":
        return BayesSimEmbedding(spec, dim_data, spans=spans, **every)
    plain = {"last-step": LastStepEmbedding, "dtw": DynamicTimeWarpingEmbedding}
    return plain[options.features](spec, dim_data, **every)
