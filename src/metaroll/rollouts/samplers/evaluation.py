"""Evaluates a policy over domains and initial states on a pool of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_flag
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.samplers.domains import Domains, given_list, given_params, given_states
from metaroll.rollouts.samplers.sampler import LAST_SEED, SeedOption, chosen_seed
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import RandomDomains
from metaroll.types import RolloutPlan

__all__ = [
    "eval_domain_params",
    "eval_domain_params_with_segmentwise_reset",
    "eval_nominal_domain",
    "eval_randomized_domain",
]


def eval_domain_params(
    pool: SamplerPool,
    env: Any,
    policy: Any,
    params: Sequence[Mapping[str, Any]],
    init_state: np.ndarray | None = None,
    seed: SeedOption = LAST_SEED,
) -> list[StepSequence]:
    """One rollout for each dict of domain parameters, in their order.

    Args:
        pool: Workers; the pool stays usable.
        env: As for ``RolloutEngine``; wrappers that randomize it take no part.
        policy: As for ``RolloutEngine``; acts as in evaluations: the mean action, dropout off.
        params: Dicts of domain parameters, at least one.
        init_state: Where every rollout starts, ``(S,)``; ``None`` leaves that to the environment.
        seed: Seed of all randomness: rollout ``i`` has ``(seed, 0, i)``. ``None`` means fresh entropy. Default: the
            seed that was given to ``metaroll.set_seed`` last.
    """
    updates = given_params("params", params)
    state = None if init_state is None else given_states("init_state", [init_state])[0]
    base = RolloutPlan(eval=True, init_state=state)
    return _run(pool, Domains(env), policy, [base.with_(env_update=update) for update in updates], _seed(seed))


def eval_nominal_domain(
    pool: SamplerPool,
    env: Any,
    policy: Any,
    init_states: Sequence[np.ndarray | None],
    seed: SeedOption = LAST_SEED,
) -> list[StepSequence]:
    """One rollout for each initial state, with the domain parameters that ``env`` has.

    Args:
        pool: See ``eval_domain_params``.
        env: See ``eval_domain_params``.
        policy: See ``eval_domain_params``.
        init_states: Initial states ``(S,)``, at least one; ``None`` instead of one leaves it to the environment.
        seed: See ``eval_domain_params``.
    """
    states = given_states("init_states", init_states, allow_none=True)
    base = RolloutPlan(eval=True)
    return _run(pool, Domains(env), policy, [base.with_(init_state=state) for state in states], _seed(seed))


def eval_randomized_domain(
    pool: SamplerPool,
    env: Any,
    randomizer: RandomDomains,
    policy: Any,
    init_states: Sequence[np.ndarray | None],
    seed: SeedOption = LAST_SEED,
) -> list[StepSequence]:
    """One rollout for each initial state, each in its own domain.

    ``rollout_info["domain_param"]`` of each rollout holds the domain.

    Args:
        pool: See ``eval_domain_params``.
        env: See ``eval_domain_params``.
        randomizer: Draws the domains, from ``seed``; its own generator is not used.
        policy: See ``eval_domain_params``.
        init_states: See ``eval_nominal_domain``.
        seed: See ``eval_domain_params``.
    """
    if not isinstance(randomizer, RandomDomains):
        raise TypeError(f"randomizer must be a DomainRandomizer, got {type(randomizer).__name__}")
    states = given_states("init_states", init_states, allow_none=True)
    number = _seed(seed)
    drawn = randomizer.draw(len(states), np.random.default_rng(derive_seed("evaluated domains", number)))
    base = RolloutPlan(eval=True)
    plans = [
        base.with_(init_state=state, env_update=DomainParamUpdate(domain))
        for state, domain in zip(states, drawn, strict=True)
    ]
    return _run(pool, Domains(env), policy, plans, number)


def eval_domain_params_with_segmentwise_reset(
    pool: SamplerPool,
    env_sim: Any,
    policy: Any,
    segments_real_all: Sequence[Sequence[StepSequence]],
    domain_params_ml_all: Sequence[Sequence[Mapping[str, Any]]],
    stop_on_done: bool,
    use_rec: bool,
    seed: SeedOption = LAST_SEED,
) -> list[list[list[StepSequence]]]:
    """Simulate recorded rollouts segment by segment, each segment from the recorded state.

    All segments under all their domain parameters are one call of the engine.

    Args:
        pool: See ``eval_domain_params``.
        env_sim: See ``eval_domain_params``.
        policy: See ``eval_domain_params``; with ``use_rec`` a ``PlaybackPolicy`` with one recording per rollout.
        segments_real_all: For each recorded rollout its segments, in order and without gaps; they need ``states``.
        domain_params_ml_all: For each recorded rollout the dicts of domain parameters to try.
        stop_on_done: End simulated segments at the environment's own ending; they are then filled up with zeros.
        use_rec: The actions are played back from the recordings.
        seed: See ``eval_domain_params``.

    Returns:
        Simulated segments by rollout, segment and domain, each exactly as long as the recorded one; a field
        ``padded (T,)`` marks the steps that were filled up.

    Raises:
        ValueError: A simulated segment did not begin in the recorded state, or (with ``use_rec``) did not act as
            recorded.
    """
    stop_on_done, use_rec = check_flag("stop_on_done", stop_on_done), check_flag("use_rec", use_rec)
    segments = [
        _checked_segments(entry, number)
        for number, entry in enumerate(given_list("segments_real_all", segments_real_all, "list"))
    ]
    domains = [
        given_params(f"domain_params_ml_all[{number}]", entry)
        for number, entry in enumerate(given_list("domain_params_ml_all", domain_params_ml_all, "list"))
    ]
    if len(domains) != len(segments):
        raise ShapeError(
            f"domain_params_ml_all must have one list per recorded rollout ({len(segments)}), got {len(domains)}"
        )
    if use_rec:
        _check_recordings(policy, segments)
    base = RolloutPlan(eval=True, stop_on_done=stop_on_done)
    plans: list[RolloutPlan] = []
    for number, (parts, updates) in enumerate(zip(segments, domains, strict=True)):
        begin = 0
        for segment in parts:
            context = {"recording": np.array(number), "start": np.array(begin)} if use_rec else None
            first = np.array(segment.states[0], dtype=np.float64)
            part = base.with_(init_state=first, max_steps=len(segment), context=context)
            plans.extend(part.with_(env_update=update) for update in updates)
            begin += len(segment)
    simulated_rollouts = iter(_run(pool, Domains(env_sim), policy, plans, _seed(seed)))
    nested = []
    for number, (parts, updates) in enumerate(zip(segments, domains, strict=True)):
        nested.append([])
        for place, segment in enumerate(parts):
            simulated = [next(simulated_rollouts) for _ in updates]
            _check_alike(segment, simulated, f"segment {place} of rollout {number}", use_rec)
            for rollout in simulated:
                StepSequence.pad(rollout, len(segment))
            nested[-1].append(simulated)
    return nested


def _run(
    pool: SamplerPool, domains: Domains, policy: Any, plans: Sequence[RolloutPlan], seed: int
) -> list[StepSequence]:
    """Run plans in evaluation mode, numbered and seeded by their position."""
    if not isinstance(pool, SamplerPool):
        raise TypeError(f"pool must be a SamplerPool, got {type(pool).__name__}; use e.g. SamplerPool(2)")
    numbered = [plan.with_(index=i, seed=(seed, 0, i)) for i, plan in enumerate(plans)]
    with (
        module_mode(policy, True),
        RolloutEngine(domains.source, policy, pool=pool, record_extras=True) as engine,
    ):
        rollouts = engine.run(numbered)
        rollouts.add_info("env_spec", engine.env_spec)
    return list(rollouts)


def _seed(seed: SeedOption) -> int:
    chosen = chosen_seed(seed)
    return fresh_seed() if chosen is None else chosen


def _checked_segments(segments: Any, number: int) -> list[StepSequence]:
    name = f"segments_real_all[{number}]"
    listed = given_list(name, segments, "segment")
    for place, segment in enumerate(listed):
        if not isinstance(segment, StepSequence):
            raise TypeError(f"{name} must hold StepSequences, got {type(segment).__name__} at position {place}")
        if "states" not in segment.data_names:
            raise DataError(
                f"{name} must have a field 'states' to start from, segment {place} has {segment.data_names}"
            )
    copies = [segment.get_rollout(0) for segment in listed]
    for segment in copies:
        segment.numpy()
    return copies


def _check_recordings(policy: Any, segments: Sequence[Sequence[StepSequence]]) -> None:
    if not isinstance(policy, PlaybackPolicy):
        raise TypeError(f"policy must be a PlaybackPolicy with use_rec=True, got {type(policy).__name__}")
    lengths = [len(recording) for recording in policy.act_recordings]
    if len(lengths) != len(segments):
        raise ShapeError(
            f"policy must hold one recording per recorded rollout ({len(segments)}), got {len(lengths)} recordings"
        )
    for number, (length, parts) in enumerate(zip(lengths, segments, strict=True)):
        steps = sum(len(segment) for segment in parts)
        if steps > length:
            raise ShapeError(
                f"recording {number} of the policy must be as long as the segments of rollout {number} ({steps} steps "
                f"together), got {length}"
            )


def _check_alike(segment: StepSequence, simulated: Sequence[StepSequence], where: str, use_rec: bool) -> None:
    """The simulated segments begin where the recorded one does, and act alike if they play it back."""
    recorded = np.asarray(segment.actions)
    for rollout in simulated:
        domain = rollout.rollout_info.get("domain_param")
        if "states" in rollout.data_names and not np.allclose(rollout.states[0], segment.states[0]):
            raise ValueError(
                f"{where} must begin in the recorded state {segment.states[0]}, began in {rollout.states[0]} with "
                f"domain parameters {domain}"
            )
        if not use_rec:
            continue
        played, expected = np.asarray(rollout.actions), recorded[: len(rollout)]
        if not np.allclose(played.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6):
            raise ValueError(
                f"{where} must play back the recorded actions, but did not with domain parameters {domain}; the "
                "policy's recordings must be those of segments_real_all, in the same order"
            )
