"""Environments whose constants change from rollout to rollout."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.data_format import to_format
from metaroll.envs.base.batching import is_batched, without_checks
from metaroll.envs.base.env_state import inner_options
from metaroll.envs.wrappers.base import ChainWrapper, Memory, remove_envs, typed_env
from metaroll.errors import ShapeError
from metaroll.tasks.domain_access import domain_params_of, read_domain_params, set_domain_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import RandomDomains
from metaroll.tasks.plan_table import PlanTable
from metaroll.tasks.updates import env_layers
from metaroll.types import EnvUpdate, RolloutPlan, TaskNote

__all__ = [
    "DomainRandWrapper",
    "DomainRandWrapperBuffer",
    "DomainRandWrapperLive",
    "MetaDomainRandWrapper",
    "outermost_dr_wrapper",
    "remove_all_dr_wrappers",
]

_STREAM = 0x6472  # separate from the environment's own stream and from those of other wrappers
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class DomainRandWrapper(ChainWrapper, ABC):
    """Base of the wrappers that choose domain parameters at every reset.

    Each reset starts from the values that the environment had when it was wrapped: a parameter that is not chosen has
    that value, independent of earlier draws. Parameters that are given (``reset(options={"domain_param": {...}})``, a
    ``DomainParamUpdate``, ``domain_param = {...}`` before the reset) replace the draw of that one reset as a whole.
    Evaluations (plans with ``eval``, or ``options={"eval": True}``) run with the values of the beginning, unless
    ``in_evaluation``. What is chosen depends on the seed of the reset alone; the info of the reset and
    ``rollout_info["domain_param"]`` report it. Of several such wrappers the outermost chooses.

    Args:
        env: Any Gymnasium environment whose domain parameters ``DomainParamUpdate`` can set.
        randomizer: Their distribution.
        in_evaluation: Randomize evaluations, too.
    """

    own_domain_params: tuple[str, ...] = ()
    plan_options = ("eval", "rollout")
    batched_slots = ChainWrapper.batched_slots  # what ``reset`` does here, ``plans_in`` does for many

    def __init__(self, env: Any, randomizer: RandomDomains, *, in_evaluation: bool = False) -> None:
        if not isinstance(randomizer, RandomDomains):
            raise TypeError(f"randomizer must be a DomainRandomizer, got {randomizer!r}")
        super().__init__(env)
        self.randomizer = randomizer
        self.in_evaluation = bool(in_evaluation)
        self._base = read_domain_params(env, randomizer.names)
        self._names = set(randomizer.names)
        self._chosen: dict[str, float] | None = None
        self._given: dict[str, float] | None = None
        self._generator = np.random.default_rng()
        self._depth = sum(isinstance(layer, DomainRandWrapper) for layer in env_layers(env))

    # -- parameters --------------------------------------------------------------------------------------------------

    @property
    def domain_param(self) -> dict[str, Any]:
        """The present domain parameters: all that the environment reports, and those that were chosen here."""
        return {**(self._base if self._chosen is None else self._chosen), **(domain_params_of(self.env) or {})}

    @domain_param.setter
    def domain_param(self, params: Mapping[str, float]) -> None:
        set_domain_params(self, params)

    def set_domain_param(self, params: Mapping[str, float]) -> None:
        """Set parameters now, instead of the draw of the next reset."""
        values = self._with_base(params)
        set_domain_params(self.env, values)
        self._chosen, self._given = values, dict(params) or None

    def read_domain_params(self, names: Sequence[str]) -> dict[str, float]:
        """Current values of ``names``."""
        return read_domain_params(self.env, names)

    def restore(self) -> None:
        """Set the parameters that the environment had when it was wrapped."""
        if self._chosen is not None:
            set_domain_params(self.env, self._base)
        self._chosen = self._given = None

    def choose(
        self,
        fixed: Mapping[str, float] | None,
        seed: int | None,
        evaluating: bool = False,
        rollout: tuple[int, int] | None = None,
    ) -> dict[str, float]:
        """Values for one rollout, of all parameters that are ever changed here.

        Args:
            fixed: Values that replace the draw.
            seed: Seed of the reset; ``None`` continues with what there was.
            evaluating: Whether the rollout is an evaluation.
            rollout: Batch and place of the rollout, if they are known.
        """
        if fixed is None:
            fixed = {} if evaluating and not self.in_evaluation else self._draw(self._stream(seed), rollout)
        return self._with_base(fixed)

    @abstractmethod
    def _draw(self, generator: np.random.Generator, rollout: tuple[int, int] | None) -> Mapping[str, float]:
        """One set of values."""

    def _stream(self, seed: int | None) -> np.random.Generator:
        if seed is not None:
            self._generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM, self._depth)))
        return self._generator

    def _with_base(self, params: Mapping[str, float]) -> dict[str, float]:
        """``params``, and of all others the values of the beginning."""
        new = [name for name in params if name not in self._names]
        if new:
            self._base.update(read_domain_params(self.env, new))
            self._names.update(new)
        return {**self._base, **params}

    # -- episodes ----------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Choose domain parameters, then start an episode (see the class for the options)."""
        options = dict(options or {})
        fixed = options.pop("domain_param", None)
        fixed = self._given if fixed is None else DomainParamUpdate(fixed).task
        values = self.choose(fixed, seed, bool(options.get("eval", False)), options.get("rollout"))
        if values or self._chosen:
            set_domain_params(self.env, values)
        self._chosen, self._given = values, None
        observation, info = self.env.reset(seed=seed, options=inner_options(options, self.env))
        return observation, {**info, "domain_param": self.domain_param}

    def new_memory(self, num_rows: int) -> Memory:
        """The values that were chosen."""
        values = np.empty(num_rows, dtype=object)
        values.fill({})
        return {"values": values}

    def plans_in(self, plans: Sequence[RolloutPlan]) -> Sequence[RolloutPlan]:
        """Plans with the domain parameters that are chosen for them."""
        table = PlanTable.of(plans)
        chosen = [self._choose(plan, seed) for plan, seed in zip(table, table.env_seeds.tolist(), strict=True)]
        updates = [DomainParamUpdate(values) if values else None for values in chosen]
        return table.with_updates(updates, update_of=np.arange(len(table)))

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """Remember the chosen values."""
        for row, plan in zip(rows.tolist(), plans or (), strict=False):
            update = plan.env_update
            memory["values"][row] = update.task if isinstance(update, DomainParamUpdate) else {}

    def row_params(self, params: dict[str, Any] | None, memory: Memory, row: int) -> dict[str, Any] | None:
        """Domain parameters inside, and the chosen ones."""
        return {**memory["values"][row], **(params or {})}

    def row_kinds(self, memory: Memory, rows: np.ndarray) -> list[int]:
        """Which values each row has: rows share a dict, or each has its own."""
        return list(map(id, memory["values"][rows]))

    def _choose(self, plan: RolloutPlan, env_seed: int) -> dict[str, float]:
        update = plan.env_update
        if update is not None and not self.accepts_update(update):
            raise TypeError(
                f"random domain parameters in batches go together with DomainParamUpdate, got {update!r}; step a list "
                "of environments: make_slots(..., plans=plans)"
            )
        fixed = update.task or None if isinstance(update, DomainParamUpdate) else None
        _, sub_seed, sub_sub_seed = plan.seed or (0, 0, 0)
        return self.choose(fixed, env_seed, plan.eval, (sub_seed or 0, sub_sub_seed or 0))

    @property
    def can_batch(self) -> bool:
        """Whether the simulator inside takes domain parameters."""
        return is_batched(self.env) and without_checks(self.env).accepts_update(DomainParamUpdate({}))

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether the batched simulator can apply ``update`` beside the random parameters."""
        return self.can_batch and (update is None or type(update) in (TaskNote, DomainParamUpdate))


class DomainRandWrapperLive(DomainRandWrapper):
    """Draws new domain parameters at every reset (see ``DomainRandWrapper``)."""

    def _draw(self, generator: np.random.Generator, rollout: tuple[int, int] | None) -> Mapping[str, float]:
        return self.randomizer.draw(1, generator)[0]


class DomainRandWrapperBuffer(DomainRandWrapper):
    """Takes domain parameters from a list that was drawn before (see ``DomainRandWrapper``).

    With ``selection="cyclic"`` resets by hand go through the list in order (``ring_idx`` is the next). Rollouts of
    samplers must not depend on which worker ran what before: number j of batch k takes entry ``start(k) + j``, round
    and round; ``start(0)`` is 0, and the starts of the following batches spread over the list (steps of the golden
    ratio), so that many small batches use all of it.

    Args:
        env: See ``DomainRandWrapper``.
        randomizer: Distribution for ``fill_buffer``.
        selection: ``"cyclic"``, or ``"random"``: an entry chosen by the seed of the reset.
        in_evaluation: Randomize evaluations, too.
    """

    def __init__(
        self,
        env: Any,
        randomizer: RandomDomains,
        selection: Literal["cyclic", "random"] = "cyclic",
        *,
        in_evaluation: bool = False,
    ) -> None:
        if selection not in ("cyclic", "random"):
            raise ValueError(f"selection must be 'cyclic' or 'random', got {selection!r}")
        super().__init__(env, randomizer, in_evaluation=in_evaluation)
        self.selection = selection
        self._buffer: list[dict[str, float]] | None = None
        self._ring_idx = 0

    @property
    def ring_idx(self) -> int:
        """Entry of the buffer that the next reset by hand takes."""
        return self._ring_idx

    @ring_idx.setter
    def ring_idx(self, ring_idx: int) -> None:
        check_whole("ring_idx", ring_idx, 0)
        num_entries = len(self._buffer or ())
        if not 0 <= ring_idx < max(num_entries, 1):
            hint = "" if num_entries else ": fill the buffer first, with fill_buffer(num_domains)"
            raise ValueError(f"ring_idx must be an entry of the buffer, which has {num_entries}, got {ring_idx}{hint}")
        self._ring_idx = int(ring_idx)

    @property
    def buffer(self) -> list[dict[str, float]] | None:
        """The sets of domain parameters (a copy); ``None`` before it is filled.

        Setting it starts at its first entry.
        """
        return copy.deepcopy(self._buffer)

    @buffer.setter
    def buffer(self, buffer: Sequence[Mapping[str, float]] | None) -> None:
        if buffer is not None:
            if isinstance(buffer, Mapping | str) or not isinstance(buffer, Sequence):
                raise TypeError(f"buffer must be a list of dicts, got {type(buffer).__name__}")
            if not buffer:
                raise ValueError("buffer must hold at least one set of domain parameters, got none")
            entries = [dict(DomainParamUpdate(entry).task) for entry in buffer]
            for name in dict.fromkeys(name for entry in entries for name in entry):
                self._with_base({name: 0.0})  # an unknown name is detected here
            buffer = entries
        self._buffer, self._ring_idx = buffer, 0

    def fill_buffer(self, num_domains: int, generator: np.random.Generator | int | None = None) -> None:
        """Draw ``num_domains`` sets.

        Args:
            num_domains: At least 1.
            generator: Source of randomness; ``None`` means fresh entropy.
        """
        self.buffer = self.randomizer.draw(check_whole("num_domains", num_domains), generator)

    def _draw(self, generator: np.random.Generator, rollout: tuple[int, int] | None) -> Mapping[str, float]:
        buffer = self._buffer
        if not buffer:
            raise ValueError("the buffer of domain parameters must be filled before a reset: fill_buffer(num_domains)")
        if self.selection == "random":
            return buffer[int(generator.integers(len(buffer)))]
        if rollout is not None:
            batch, place = rollout
            return buffer[(int(batch * _GOLDEN % 1.0 * len(buffer)) + place) % len(buffer)]
        position = self._ring_idx
        self._ring_idx = (position + 1) % len(buffer)
        return buffer[position]


class MetaDomainRandWrapper(ChainWrapper):
    """Around an environment that is randomized: lets an optimizer adapt the distributions.

    Args:
        env: An environment with a ``DomainRandWrapper``.
        dp_mapping: The meaning of each entry of an array: ``{0: ("mass", "mean"), 1: ("mass", "std")}``.
    """

    def __init__(self, env: Any, dp_mapping: Mapping[int, tuple[str, str]]) -> None:
        super().__init__(env)
        wrapper = outermost_dr_wrapper(env)
        if wrapper is None:
            raise TypeError(
                f"env must be wrapped in DomainRandWrapperLive or DomainRandWrapperBuffer, got {type(env).__name__}"
            )
        if not isinstance(dp_mapping, Mapping) or not dp_mapping or set(dp_mapping) != set(range(len(dp_mapping))):
            raise ValueError(f"dp_mapping must be a dict with the keys 0, 1, 2, ..., got {dp_mapping!r}")
        for pair in dp_mapping.values():
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"dp_mapping must hold pairs such as ('mass', 'mean'), got {pair!r}")
        self.dp_mapping = {i: (str(dp_mapping[i][0]), str(dp_mapping[i][1])) for i in range(len(dp_mapping))}
        tried = copy.deepcopy(wrapper.randomizer)
        for name, field in self.dp_mapping.values():
            tried.adapt_one_distr_param(name, field, getattr(tried[name], field, None))

    @property
    def randomizer(self) -> RandomDomains:
        """The randomizer of the wrapper inside."""
        return self._inside().randomizer

    @property
    def buffer(self) -> list[dict[str, float]] | None:
        """The buffer of a ``DomainRandWrapperBuffer`` inside, otherwise ``None``."""
        inner = self._inside()
        return inner.buffer if isinstance(inner, DomainRandWrapperBuffer) else None

    def adapt_randomizer(self, values: Any) -> None:
        """Set the distributions' fields; values that one of them cannot have change nothing.

        A buffer keeps what it holds until it is filled again, and samplers what they were given until they are given
        the environment again.

        Args:
            values: Shape ``(len(dp_mapping),)``, array or tensor.
        """
        array = np.asarray(to_format(values, "numpy"), dtype=np.float64)
        if array.shape != (len(self.dp_mapping),):
            raise ShapeError(f"values must have shape ({len(self.dp_mapping)},), got {array.shape}")
        tried = copy.deepcopy(self.randomizer)
        for randomizer in (tried, self.randomizer):
            for (name, field), value in zip(self.dp_mapping.values(), array.tolist(), strict=True):
                randomizer.adapt_one_distr_param(name, field, value)

    def _inside(self) -> DomainRandWrapper:
        return outermost_dr_wrapper(self.env)


def outermost_dr_wrapper(env: Any) -> Any:
    """The outermost ``DomainRandWrapper`` of ``env``, or ``None``."""
    return typed_env(env, DomainRandWrapper)


def remove_all_dr_wrappers(env: Any) -> Any:
    """``env`` without the wrappers that randomize it; it gets the domain parameters back that it was wrapped with.

    Wrappers outside of them are copied, the environment itself is the same one.
    """
    for layer in env_layers(env):
        if isinstance(layer, DomainRandWrapper):
            layer.restore()
    return remove_envs(env, (DomainRandWrapper, MetaDomainRandWrapper))
