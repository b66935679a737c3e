"""Inference for the command line: from recorded rollouts to a posterior, its predictions, and a page about both."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.checks import check_instance, check_path
from metaroll.configs.inference import InferenceOptions
from metaroll.data.folders.kinds import INFER
from metaroll.data.folders.taking import take
from metaroll.data.posteriors.folder import POSTERIOR, posterior_versions, read_description
from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.posteriors import INFERENCE
from metaroll.envs.lookup.randomization import default_randomizer
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import MetarollError, ShapeError, about_option, option_name, option_text
from metaroll.inference.checks import check_posterior
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.neural import NPDR, BayesSim, InferenceProgress
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.verdicts import Check, Verdict
from metaroll.lab.inferring.comparable import comparable
from metaroll.lab.inferring.compared import Compared
from metaroll.lab.inferring.following import Followed, behavior
from metaroll.lab.inferring.log_checks import doubts_about
from metaroll.lab.inferring.pieces import Pieces, even_pieces
from metaroll.lab.inferring.probing import probe
from metaroll.lab.results.inference_result import PAGE, Inference, Traces
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.samplers.sbi import SimRolloutSamplerForSBI
from metaroll.rollouts.samplers.sensor_noise import SensorNoise
from metaroll.seeding import derive_seed
from metaroll.tasks.domain_access import check_param_ranges, read_domain_params
from metaroll.tasks.domain_params import NOISE, DomainParamUpdate
from metaroll.training.algorithms.building import parse_ranges
from metaroll.training.session.experiments import torch_threads
from metaroll.training.store.files import read_json, to_plain, write_json
from metaroll.types import RolloutPlan

__all__ = ["infer", "infer_config", "noise_of_sensors", "segment_sampler", "usual_prior"]

_DRAWS_SHOWN = 100


def usual_prior(env: Any, params: Sequence[str] = ()) -> Prior:
    """The prior of a simulator: ranges ``NAME=LOW:HIGH``, or 0.5 to 1.5 times the parameters that usually vary.

    Raises:
        ValueError: The simulator has no usual ranges, or a range is malformed.
        DataError: It lacks a parameter.
    """
    source = EnvSource.of(env)
    if params:
        ranges: dict[str, tuple[float, float]] = parse_ranges(params, option_name("param"))
        made = source.make()
        try:
            with about_option("param"):
                check_param_ranges(made, {name: span for name, span in ranges.items() if not name.startswith(NOISE)})
        finally:
            source.close(made)
        return as_prior(ranges)
    source.close(source.make())  # raises the error if there is no such environment
    try:
        names = default_randomizer(source, generator=0).names
    except ValueError as error:
        hint = option_text("param", ["NAME=LOW:HIGH"])
        raise ValueError(f"{env} has no default ranges of parameters: name the unknown ones, {hint}") from error
    made = source.make()
    try:
        values = {name: float(value) for name, value in read_domain_params(made, list(names)).items()}
    finally:
        source.close(made)
    return as_prior({name: (0.5 * value, 1.5 * value) for name, value in values.items() if value > 0.0})


def infer(
    env: Any,
    rollouts: Sequence[StepSequence],
    prior: Any,
    folder: str | Path,
    options: InferenceOptions | None = None,
    *,
    name: str | None = None,
    initial_state: Callable[[StepSequence], Any] | None = None,
    progress: Callable[[InferenceProgress], None] | None = None,
) -> Inference:
    """Infer the posterior of a simulator's parameters from recorded rollouts.

    An interrupted inference continues: simulations in the folder are reused, and a matching posterior is kept.
    Rollouts of unequal length, and those with gaps, are cut into pieces of one length (``even_pieces``). Columns whose
    labels are the simulator's, in another order, are brought into its order; actions beyond its bounds are clipped,
    with a warning. Where rollouts have no states, the simulator says in which it shows an observation
    (``state_from_observation``, docs/your_simulator.md). One simulation is checked before all others are run.
    Parameters called ``noise.LABEL`` are the noise of a sensor.

    Args:
        env: Simulator, as for ``RolloutEngine``.
        rollouts: The recorded rollouts.
        prior: Any form that ``as_prior`` takes.
        folder: Where the posterior (``posterior/``), all simulations and ``inference.json`` go; simulations of the same
            recordings, segments and features that are there are used again, as long as the simulator makes of some
            parameters what it made of them then.
        options: How.
        name: Name of the simulator in reports.
        initial_state: Function from a recorded segment to the state in which its simulation starts.
        progress: Called after every batch of simulations and every training.

    Raises:
        TypeError: ``options`` is something else.
        ValueError: There are too few rollouts, or too few simulations worked; rollouts have another time step than the
            simulator; or most of their actions are out of its bounds.
        DataError: A rollout lacks a field, or the simulator a parameter, or columns cannot be brought into its order.
        RunExistsError: The folder holds something else, or another process is writing to it.
    """
    options = InferenceOptions() if options is None else options
    check_instance("options", options, InferenceOptions, "InferenceOptions or None")
    folder, prior = check_path("folder", folder), as_prior(prior)
    source = EnvSource.of(env)
    seen, held_out, pieces = _split(source, rollouts, prior, options, own_start=initial_state is not None)
    compared = Compared.of(source, seen, prior, options, initial_state)
    followed = Followed.of(compared, seen, options)
    probe(followed, prior, options)
    apart = compared.of_others(held_out, seen, prior, options)
    with take(folder, INFER) as held:
        with torch_threads(options.torch_threads), followed.sampler(prior, options) as sampler:
            simulator = _marks(str(name or env), followed, sampler, prior, options)
            observed = sampler.target_features().numpy()
            finished = _finished(folder, prior, simulator, observed, options)
            is_new = finished is None
            if finished is not None:
                posterior, checks = finished
            else:
                method = _method(prior, options, run_dir=folder, simulator=simulator, progress=progress)
                unseen = Followed.of(apart, held_out, options) if held_out else None
                judge = _Judge(sampler, unseen, options, progress)
                posterior = method.infer(sampler, observed, options.num_simulations, judge if options.checks else None)
                posterior, checks = judge.result(posterior)
        traces = [
            *_traces(apart, held_out, posterior, options, held_out=True),
            *_traces(compared, seen[:1], posterior, options, held_out=False),
        ]
        failed = int(posterior.description["num_failed"])
        inference = Inference(
            *(str(name or env), posterior, compared.nominal, traces, failed, options, folder, checks),
            noise=_noise_info(compared.noise, apart.noise, followed.spans),
            recordings=_recordings(seen, held_out, pieces.text),
            doubts=[*doubts_about(source, rollouts), *([pieces.text] if pieces.bridged else [])],
        )
        if is_new:
            held.clear((INFERENCE, PAGE))  # of an earlier posterior, which is kept until this one is complete
            posterior.save(folder / POSTERIOR)
        write_json(folder / INFERENCE, inference.to_dict())
        return inference


def _finished(
    folder: Path, prior: Prior, simulator: Mapping[str, Any], observed: np.ndarray, options: InferenceOptions
) -> tuple[Posterior, dict[str, Any]] | None:
    """The posterior in ``folder`` and its checks, if it was made from the same inputs by the same versions."""
    try:
        written = read_json(folder / INFERENCE)
        versions = read_description(folder / POSTERIOR)["versions"]
        posterior = Posterior.load(folder / POSTERIOR)
        asked = {**written["options"], "num_workers": options.num_workers}
        checks = dict(written["checks"])
    except (MetarollError, OSError, KeyError, TypeError, ValueError):
        return None  # it will be inferred again
    same = (
        asked == asdict(options)
        and versions == posterior_versions()
        and posterior.prior.to_plain() == prior.to_plain()
        and posterior.description.get("simulator") == to_plain(simulator)
        and posterior.observed is not None
        and np.array_equal(np.ravel(posterior.observed), np.ravel(observed))
        and (options.method == "bayessim" or _learned_as(posterior) in (None, infer_config(options).to_plain()))
    )
    return (posterior, checks) if same else None


def _learned_as(posterior: Posterior) -> dict[str, Any] | None:
    """The settings of its networks; ``None`` if it has none."""
    return posterior.estimator.to_plain()["config"] if posterior.has_estimator else None


def noise_of_sensors(
    env: Any,
    rollouts: Sequence[StepSequence],
    prior: Prior,
    options: InferenceOptions,
    true_start: Callable[[StepSequence], Any] | None = None,
) -> SensorNoise:
    """Sensor noise as estimated by ``infer`` from ``rollouts``, without the held-out ones.

    Args:
        env, rollouts, prior, options: As for ``infer``.
        true_start: As for ``segment_sampler``.
    """
    source = EnvSource.of(env)
    seen, _, _ = _split(source, rollouts, prior, options, true_start is not None)
    return Compared.of(source, seen, prior, options, true_start).noise.pooled


def segment_sampler(
    env: Any,
    rollouts: Sequence[StepSequence],
    prior: Prior,
    options: InferenceOptions,
    noise: SensorNoise | None = None,
    true_start: Callable[[StepSequence], Any] | None = None,
) -> SimRolloutSamplerForSBI:
    """From parameters to features of the recorded segments, simulated with the recorded actions, as ``infer`` does it.

    Held-out rollouts are left out.

    Args:
        env, rollouts, prior, options: As for ``infer``.
        noise: Sensor noise known from other rollouts; ``None``: estimated from ``rollouts``.
        true_start: From a rollout to the state in which it truly started, where one posterior is to be asked of many
            logs with the same actions: what is measured there has noise like all other rows then. ``None``: simulations
            start beside what was measured in these rollouts, whose noise is that of no other log.

    Raises:
        ValueError: Rollouts are cut into segments (``options.segment_length``), and ``true_start`` says where they
            start.
    """
    source, is_known = EnvSource.of(env), true_start is not None
    seen, _, _ = _split(source, rollouts, prior, options, is_known)
    if is_known and options.segment_length < len(seen[0]):
        raise ValueError(
            f"segment_length must be at least {len(seen[0])}, the steps of a rollout, if true_start is given, got "
            f"{options.segment_length}"
        )
    compared = Compared.of(source, seen, prior, options, true_start, noise)
    return Followed.of(compared, seen, options).sampler(prior, options, exact_starts=is_known)


def _method(prior: Prior, options: InferenceOptions, **kept: Any) -> NPDR | BayesSim:
    common: dict[str, Any] = {"prior": prior, "rounds": options.rounds, "seed": options.seed, **kept}
    return BayesSim(**common) if options.method == "bayessim" else NPDR(config=infer_config(options), **common)


def _marks(
    name: str, followed: Followed, sampler: SimRolloutSamplerForSBI, prior: Prior, options: InferenceOptions
) -> dict[str, Any]:
    """Everything besides parameters and seeds that simulations depend on; only those with the same marks are reused."""
    return {
        "env": name,
        "features": options.features,
        "every": options.every,
        "spans": list(followed.spans),
        "dt": followed.compared.dt,
        "segments": "stepped on past ends; with noise, each from where the one before has ended",
        "noise": followed.compared.noise.to_dict(),
        "recordings": sampler.target_digest(),
        "behavior": behavior(sampler, prior),
    }


class _Judge:
    """Checks posteriors, and decides whether one is done or another round of simulations could fix it.

    Args:
        sampler: Simulates the recordings that were learned from.
        unseen: Held-out recordings, whose features differ.
        options: How.
        progress: Called when checks begin.
    """

    def __init__(
        self,
        sampler: SimRolloutSamplerForSBI,
        unseen: Followed | None,
        options: InferenceOptions,
        progress: Callable[[InferenceProgress], None] | None,
    ) -> None:
        self._sampler, self._unseen, self._options, self._progress = sampler, unseen, options, progress
        self._judged: list[tuple[Posterior, Verdict]] = []
        self._unjudged = ""

    def __call__(self, posterior: Posterior) -> bool:
        rounds, is_first = int(posterior.description["rounds"]), not self._judged
        if self._progress is not None:
            self._progress(InferenceProgress("check", rounds, rounds, 0, 1))
        # Do not judge the next posterior by the simulations that rejected the last one.
        seed = derive_seed("checks", self._options.seed, *([] if is_first else ["one more round"]))
        try:
            verdict = self._verdict(posterior, seed)
        except ValueError as error:  # too few simulations are usable
            if isinstance(error, ShapeError):
                raise
            if is_first:  # do not train on a posterior that cannot be judged
                words = (
                    "too few simulations with its draws succeeded to judge it: the prior covers parameters at which "
                    "the simulator fails, or the posterior is wrong"
                )
                none = Verdict((Check("simulations", "failed", words),), posterior.names, ())
                self._judged.append((posterior, none))
                return True
            self._unjudged = (
                f"which gave a posterior that could not be judged ({error}), so the earlier one is returned"
            )
            self._judged[0][0].description.update(
                num_failed=posterior.description["num_failed"],
                num_unlearned=posterior.description["num_simulations"][-1],
            )
            return True
        self._judged.append((posterior, verdict))
        return (
            not verdict.learns_with_more or verdict.too_wide
        )  # a posterior that is too wide is still good for training

    def result(self, posterior: Posterior) -> tuple[Posterior, dict[str, Any]]:
        """The last judged posterior and its verdict as JSON types, given the posterior that inference returned.

        If none was judged, that one and an empty dict.
        """
        if not self._judged:
            return posterior, {}
        (first, before), (last, verdict) = self._judged[0], self._judged[-1]
        lines = [f"{check.shown_outcome} {check.name}: {check.words}" for check in verdict.checks]
        description = last.description
        if last is not first or "num_unlearned" in description:
            made = sum(first.description["num_simulations"]) + sum(first.description["num_failed_in_rounds"])
            more = (
                sum(description["num_simulations"])
                + description.get("num_unlearned", 0)
                + description["num_failed"]
                - made
            )
            words = f"{', '.join(before.failed)} failed after {made:,} simulations; {more:,} more were made"
            if last is first:
                why = self._unjudged or f"of which {description['num_unlearned']:,} are usable, too few to learn from"
                words += f", {why}"
            lines.append(f"note one more round: {words}")
        return last, {**verdict.to_plain(), "text": str(verdict).splitlines()[0], "lines": lines}

    def _verdict(self, posterior: Posterior, seed: int) -> Verdict:
        held_out: dict[str, Any] = {}
        unseen = self._unseen
        with contextlib.nullcontext() if unseen is None else unseen.sampler(posterior.prior, self._options) as other:
            if other is not None:
                held_out = {"held_out": other.target_features().numpy(), "held_out_simulate": other}
            return check_posterior(posterior, self._sampler, seed=seed, **held_out)


# ----------------------------------------------------------------------------------------------------------- recordings
def _split(
    source: EnvSource,
    rollouts: Sequence[StepSequence],
    prior: Prior,
    options: InferenceOptions,
    own_start: bool = False,
) -> tuple[list[StepSequence], list[StepSequence], Pieces]:
    """Rollouts for inference and held-out ones, of one length and in the simulator's columns; how they were cut."""
    listed, hold_out = listed_rollouts(rollouts), options.hold_out
    if not listed:
        raise ValueError("rollouts must hold at least one recorded rollout, got none")
    for number, rollout in enumerate(listed):
        if not rollout.continuous or rollout.rollout_count != 1:
            raise ShapeError(
                f"rollouts must be of one episode each, got {rollout.rollout_count} at position {number}: take them "
                "apart (StepSequence.iterate_rollouts)"
            )
    ordered = comparable(source, listed, prior.names, own_start=own_start)
    cut = even_pieces(ordered, options.segment_length, hold_out + 1)
    count = len(cut.rollouts)
    if hold_out >= count:
        raise ValueError(
            f"{option_name('hold_out')} must leave a rollout to learn from, got {hold_out} of {count}"
            + (f" ({cut.text})" if cut.text else "")
            + f": {option_text('hold_out', count - 1)}"
        )
    return cut.rollouts[: count - hold_out], cut.rollouts[count - hold_out :], cut


def _noise_info(seen: SensorNoise, held_out: SensorNoise, spans: Sequence[int]) -> dict[str, Any]:
    """Sensor noise as JSON types and in words; that of held-out rollouts too, if it differs."""
    info = {**seen.to_dict(), "text": str(seen)}
    if len(spans) > 1:
        info["text"] += f"; so changes are measured over {', '.join(map(str, spans[:-1]))} and {spans[-1]} steps"
    if held_out is not seen:
        info["held_out"] = held_out.to_dict()
        info["text"] += f". In held-out rollouts: {str(held_out).partition(': ')[2]}"
    return info


def _recordings(seen: Sequence[StepSequence], held_out: Sequence[StepSequence], left_out: str) -> str:
    """Number and length of the rollouts, in words."""
    words = f"recordings: {len(seen)} of {len(seen[0])} steps"
    if held_out:
        words += ", the last one held out" if len(held_out) == 1 else f", the last {len(held_out)} held out"
    return f"{words}; {left_out}" if left_out else words


def infer_config(options: InferenceOptions) -> EstimatorConfig:
    """How ``infer`` learns posteriors: small flows, minutes on a laptop.

    Three of them if drawing is cheap: a single one is too narrow if parameters can compensate for one another.
    """
    method = options.method if options.method in ("nle", "fmpe") else "npe"
    return EstimatorConfig(
        method=method,
        model="maf",
        regressions=method == "npe",
        ensemble=3 if method == "npe" else 1,
        batch_size=50,
        learning_rate=1e-3,
        stop_after_epochs=15,
        max_epochs=200,
    )


# ---------------------------------------------------------------------------------------------------------- predictions
def _traces(
    compared: Compared,
    rollouts: Sequence[StepSequence],
    posterior: Posterior,
    options: InferenceOptions,
    held_out: bool,
) -> list[Traces]:
    """Predictions of recorded rollouts by draws of the posterior and the nominal parameters, without sensor noise."""
    if not rollouts:
        return []
    step = len(posterior.draws) // _DRAWS_SHOWN or 1
    sets = [dict(zip(posterior.names, row, strict=True)) for row in posterior.draws[::step][:_DRAWS_SHOWN].tolist()]
    sets.append(dict(compared.nominal))
    actions = [np.asarray(rollout.get_data_values(compared.action_field)) for rollout in rollouts]
    policy = PlaybackPolicy(compared.source.spec, actions)
    starts = compared.starts(rollouts, options.segment_length)
    segments = [0, *np.cumsum(starts.segments[:-1]).tolist()]
    plans = [
        RolloutPlan(
            index,
            (derive_seed("predictions", options.seed), 0, index),
            DomainParamUpdate(compared.domain_params(params)),
            eval=True,
            init_state=starts.states[number * len(segments) + part],
            max_steps=starts.segments[part],
            stop_on_done=False,
            context={"recording": np.array(number), "start": np.array(first)},
        )
        for index, (number, params, (part, first)) in enumerate(
            itertools.product(range(len(rollouts)), sets, enumerate(segments))
        )
    ]
    with RolloutEngine(compared.source, policy, on_invalid="drop", on_error="drop", record_extras=True) as engine:
        simulated = list(engine.run(plans))
        lost = {entry.plan.index for entry in engine.dropped}
    kept = (plan.index for plan in plans if plan.index not in lost)
    recorded = [compared.recorded(rollout) for rollout in rollouts]
    predictions = np.full((len(rollouts), len(sets), *recorded[0].shape), math.nan)
    for index, rollout in zip(kept, simulated, strict=True):
        number, within = divmod(index, len(sets) * len(segments))
        place, part = divmod(within, len(segments))
        values = compared.recorded(rollout)
        predictions[number, place, segments[part] : segments[part] + len(values)] = values
    return [
        Traces(
            _trace_labels(compared),
            compared.dt,
            recorded[number],
            predictions[number, :-1],
            predictions[number, -1],
            held_out,
        )
        for number in range(len(rollouts))
    ]


def _trace_labels(compared: Compared) -> tuple[str, ...]:
    named = compared.spec.state_labels if compared.field == "states" else compared.spec.observation_labels
    return compared.labels if named else tuple(f"{compared.field[:-1]} {label}" for label in compared.labels)
