"""A request to the engine, as one object: made once, and handed down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.checks import check_seed, check_whole, described
from metaroll.errors import name_given
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["KEPT", "Kept", "SampleRequest"]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Which data of rollouts are kept, from the engine to the loop that records them.

    Attributes:
        on_invalid: ``"raise"`` or ``"drop"`` a rollout with NaN or Inf in observation, reward or action.
        on_error: The same for one whose environment or policy raises; a loop by itself raises.
        steps: Keep what happens, and return it; without, only ``last_step`` and ``observations`` show it.
        pieces: Return what live rollouts have done so far; without, whole rollouts when they have ended.
        infos: Keep the infos of environment and policy.
        extras: Record more: ``actions_applied``, ``states (T + 1, S)`` and ``time (T + 1,)`` as far as the environments
            report them, and what a recurrent policy remembers before each step, ``hidden_states (T, H)``.
        fields: Names of the fields that are wanted, without notes of what stays constant; ``None``: all.
    """

    on_invalid: str = "raise"
    on_error: str = "raise"
    steps: bool = True
    pieces: bool = True
    infos: bool = True
    extras: bool = False
    fields: tuple[str, ...] | None = None


KEPT = Kept()
"""The default of the data that are kept."""


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Whole rollouts for each of M variations: ``num_rollouts``, or the fewest with at least ``min_steps`` steps.

    Rollout ``j`` of variation ``m`` has the seed ``(seed, sub_seed, j * M + m)``.

    Attributes:
        updates: The variations; ``None`` means the nominal environment.
        seed, sub_seed: First parts of all seeds.
        min_steps, num_rollouts: Minimum number of steps, or number of rollouts, of each variation.
        max_steps: Truncate rollouts after this many steps.
        contexts: Context of the policy in each variation.
        deterministic, eval: As in ``RolloutPlan``.
        parameters: Flat policy parameters: ``(P,)`` for all variations, or ``(M, P)``, a policy for each, which gives
            what a call with each row would give its variation (to the last bit where the policy has
            ``info.parameter_blocks``); ``None`` means the policy's present ones.
        only: Positions of the variations to run, distinct and from 0 to M - 1, which have the bits that they have among
            all; ``None`` means all.
        progress: Called as ``progress(rollouts, steps)`` with what is new whenever a unit of work is done.

    Raises:
        TypeError: ``updates`` or ``contexts`` is not a list, or a number no integer.
        ValueError: There is not one number, it is below 1, or there is not a context for each update.
    """

    updates: Sequence[EnvUpdate | None]
    seed: int
    sub_seed: int = 0
    min_steps: int | None = None
    num_rollouts: int | None = None
    max_steps: int | None = None
    contexts: Sequence[Context | None] | None = None
    deterministic: bool = False
    eval: bool = False
    parameters: np.ndarray | None = None
    only: Sequence[int] | np.ndarray | None = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if (self.min_steps is None) == (self.num_rollouts is None):
            raise ValueError(f"give either min_steps or num_rollouts, got {self.min_steps} and {self.num_rollouts}")
        for name, value in (("min_steps", self.min_steps), ("num_rollouts", self.num_rollouts)):
            if value is not None:
                check_whole(name_given(name) or name, value)
        _check_variations(self.updates, self.contexts)
        check_seed("seed", self.seed)
        check_seed("sub_seed", self.sub_seed)

    def chosen(self) -> list[int]:
        """Positions of the variations to run.

        Raises:
            TypeError: ``only`` is not a list of integers (a mask is none).
            ValueError: A position lies outside, or occurs twice.
        """
        only, count = self.only, len(self.updates)
        if only is None:
            return list(range(count))
        listed = only.ndim == 1 if isinstance(only, np.ndarray) else isinstance(only, Sequence)
        if not listed or isinstance(only, str):
            raise TypeError(f"only must be a list of positions of variations such as [0, 2], got {described(only)}")
        positions = []
        for m in only:
            if isinstance(m, bool | np.bool_):
                raise TypeError("only must be a list of positions of variations, got a mask; pass np.flatnonzero(mask)")
            if not isinstance(m, int | np.integer):
                raise TypeError(
                    f"only must be a list of positions of variations such as [0, 2], got {described(m)} in it"
                )
            if not 0 <= m < count:
                raise ValueError(f"only must hold positions from 0 to {count - 1} ({count} variations), got {m}")
            positions.append(int(m))
        if len(set(positions)) < len(positions):
            twice = next(m for m in positions if positions.count(m) > 1)
            raise ValueError(f"only must hold each position once, got {twice} more than once")
        return positions

    def plan_of(self, own: Sequence[np.ndarray] | None) -> Callable[[int], RolloutPlan]:
        """From ``j * M + m`` to the plan of rollout ``j`` of variation ``m``, which has parameters of its ``own``."""
        count = len(self.updates)
        base = RolloutPlan(max_steps=self.max_steps, deterministic=self.deterministic, eval=self.eval)
        bases = [
            base.with_(
                env_update=update,
                context=None if self.contexts is None else self.contexts[m],
                parameters=None if own is None else own[m],
            )
            for m, update in enumerate(self.updates)
        ]
        return lambda number: bases[number % count].with_(index=number, seed=(self.seed, self.sub_seed, number))


def _check_variations(updates: Any, contexts: Any) -> None:
    """Whether there is a list of updates, with a context for each where there are contexts."""
    if isinstance(updates, EnvUpdate):
        raise TypeError(f"updates must be a list of EnvUpdates, got a single {type(updates).__name__}; pass [update]")
    for name, value in (("updates", updates), ("contexts", contexts)):
        if isinstance(value, str | Mapping | Set) or not (isinstance(value, Iterable) and isinstance(value, Sized)):
            if name == "contexts" and value is None:
                continue
            kind = "EnvUpdates (None is the environment as it is)" if name == "updates" else "contexts (or None)"
            hint = f"list({name})" if isinstance(value, Iterable) else f"[{None if value is None else name[:-1]}]"
            raise TypeError(f"{name} must be a list of {kind}, got {described(value)}; pass {hint}")
    if contexts is not None and len(contexts) != len(updates):
        update = name_given("update") or "update"
        raise ValueError(f"contexts must have one entry per {update} ({len(updates)}), got {len(contexts)}")
