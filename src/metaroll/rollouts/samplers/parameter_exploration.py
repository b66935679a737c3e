"""Samples rollouts of many sets of policy parameters, all in the same domains and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import torch

from metaroll.checks import check_flag, check_list, check_whole
from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.rollouts.configs import ExplorationConfig, check_num_workers
from metaroll.rollouts.samplers.domains import Domains, given_states
from metaroll.rollouts.samplers.sampler import EngineSampler, chosen_seed
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import derive_seed, fresh_seed, get_base_seed
from metaroll.tasks.plan_table import NO_LIMIT, PlanTable

__all__ = ["ParameterExplorationSampler", "ParameterSample", "ParameterSamplingResult"]


class ParameterSample(NamedTuple):
    """One set of policy parameters and its rollouts.

    Attributes:
        params: Shape ``(P,)``.
        rollouts: Rollouts of the policy with these parameters.
    """

    params: torch.Tensor
    rollouts: list[StepSequence]

    @property
    def mean_undiscounted_return(self) -> float:
        """Mean of the rollouts' undiscounted returns."""
        if not self.rollouts:
            raise ValueError("rollouts must hold at least one rollout for a mean return, got none")
        return float(np.mean(Rollouts.of(self.rollouts).discounted_returns(1.0)))

    @property
    def num_rollouts(self) -> int:
        """Number of rollouts."""
        return len(self.rollouts)


class ParameterSamplingResult(Sequence[ParameterSample]):
    """Samples in the order of the parameter vectors.

    An integer index gives a ``ParameterSample``, a slice another result. The properties are computed once; they do not
    follow later changes to rollouts.

    Args:
        samples: The samples.
    """

    def __init__(self, samples: Iterable[ParameterSample]) -> None:
        self._samples = check_list("samples", samples, "ParameterSample(params, rollouts)", ParameterSample)

    @overload
    def __getitem__(self, index: int) -> ParameterSample: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterSamplingResult: ...
    def __getitem__(self, index: int | slice) -> ParameterSample | ParameterSamplingResult:
        if isinstance(index, slice):
            return ParameterSamplingResult(self._samples[index])
        return self._samples[index]

    def __len__(self) -> int:
        return len(self._samples)

    @cached_property
    def parameters(self) -> torch.Tensor:
        """All parameter vectors, shape ``(n, P)``."""
        if not self._samples:
            return torch.empty((0, 0))
        return torch.stack([sample.params for sample in self._samples])

    @cached_property
    def mean_returns(self) -> np.ndarray:
        """Mean undiscounted return of each set, float64 ``(n,)``."""
        return np.array([sample.mean_undiscounted_return for sample in self._samples], dtype=np.float64)

    @cached_property
    def rollouts(self) -> list[list[StepSequence]]:
        """Rollouts of each set."""
        return [sample.rollouts for sample in self._samples]

    @cached_property
    def num_rollouts(self) -> int:
        """Number of rollouts of all sets together."""
        return sum(sample.num_rollouts for sample in self._samples)


class ParameterExplorationSampler(EngineSampler):
    """Rolls out many sets of policy parameters; the results do not depend on the number of workers.

    Each set acts in the same ``num_domains * num_init_states_per_domain`` pairs of a domain and an initial state, drawn
    anew for each call of ``sample``. Domains are drawn by the outermost wrapper that randomizes ``env`` (at random
    from its buffer, if that is filled); no such wrapper takes part in the rollouts. In the batched simulators the whole
    population runs as one simulation per worker.

    Everything is drawn from the seed and the number of the call. Rollout ``i`` (those of the first set come first) has
    the seed ``(seed, call, i)``. Where ``common_noise`` is set, rollout ``j`` of every set has the seed
    ``(seed, call, j)`` instead, so that the noise of policy and environment is the same for all sets, too, and their
    returns differ by less chance. So it always is in an environment without ``init_space``, whose initial states only
    its seed decides.

    Args:
        env: As for ``RolloutEngine``; an instance is copied, and never stepped itself.
        policy: A policy with flat parameters: one of metaroll, or a torch module.
        num_init_states_per_domain: Number of initial states in each domain.
        num_domains: Number of domains.
        num_workers: Number of workers, in place of that of ``config``; one works in this process.
        seed: Seed of all randomness; ``None`` means the one that was given to ``metaroll.set_seed`` last, or fresh
            entropy for each call if there is none.
        config: How rollouts are run; ``None`` means the defaults.
        pool: A pool to share, of ``num_workers`` workers, which ``close`` does not stop.
        options: Settings by name, in place of those of ``config``, e.g. ``common_noise=True``.

    Attributes:
        config: The settings.
        env: The environment as it was given.
        policy: The policy. Its own parameters are not changed.
        seed: The seed.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        num_init_states_per_domain: int,
        num_domains: int,
        num_workers: int,
        seed: int | None = None,
        *,
        config: ExplorationConfig | None = None,
        pool: SamplerPool | None = None,
        **options: Any,
    ) -> None:
        self.num_init_states_per_domain = check_whole("num_init_states_per_domain", num_init_states_per_domain)
        self.num_domains = check_whole("num_domains", num_domains)
        self.seed = chosen_seed(get_base_seed() if seed is None else seed)
        check_num_workers(num_workers, config)
        config = config_of(ExplorationConfig, config, {"num_workers": num_workers, **options}, type(self))
        super().__init__(env, policy, config, without_domains=True, pool=pool)
        self.common_noise = config.common_noise

    @property
    def num_rollouts_per_param(self) -> int:
        """Number of rollouts per set of policy parameters: domains times initial states."""
        return self.num_domains * self.num_init_states_per_domain

    def sample(
        self,
        param_sets: torch.Tensor | np.ndarray,
        init_states: Sequence[np.ndarray] | None = None,
        *,
        eval: bool = False,
        number: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ParameterSamplingResult:
        """Roll out each set of parameters in all pairs of domains and initial states.

        ``sample_groups`` gives the same as columns, which costs less.

        Args:
            param_sets: Sets of policy parameters ``(n, P)``.
            init_states: ``num_domains * num_init_states_per_domain`` initial states ``(S,)``, those of the first domain
                first; ``None`` draws them.
            eval: True means the mean action, and torch modules in evaluation mode (dropout off).
            number: Number of the call, of which all is drawn; ``None`` means the one after the last.
            progress: As for ``RolloutEngine.run``.

        Returns:
            One sample per set, in the order of ``param_sets``.

        Raises:
            RolloutError: Environment or policy raised; ``error.completed`` holds the rollouts that were done.
            WorkerLost: Workers died repeatedly.
        """
        groups = self.sample_groups(param_sets, init_states, eval=eval, number=number, progress=progress)
        return ParameterSamplingResult(
            ParameterSample(params, list(group))
            for params, group in zip(self._checked_sets(param_sets), groups, strict=True)
        )

    def sample_groups(
        self,
        param_sets: torch.Tensor | np.ndarray,
        init_states: Sequence[np.ndarray] | None = None,
        *,
        eval: bool = False,
        number: int | None = None,
        fields: tuple[str, ...] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Rollouts]:
        """``sample``, as ``Rollouts`` of each set; ``fields`` as for ``RolloutEngine.run``."""
        eval = check_flag("eval", eval)
        self._check_open()
        sets = self._checked_sets(param_sets)
        states = None if init_states is None else given_states("init_states", init_states)
        each = self.num_rollouts_per_param
        if states is not None and len(states) != each:
            raise ShapeError(
                f"init_states must hold {each} states, {self.num_init_states_per_domain} for each of "
                f"{self.num_domains} domains, got {len(states)}"
            )
        self._count = self._count + 1 if number is None else check_whole("number", number, low=0)
        with self._acting(eval):
            rollouts = self._run(self._plans(sets, states, eval), progress=progress, fields=fields)
        return [rollouts[begin : begin + each] for begin in range(0, len(sets) * each, each)]

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _own_options(self) -> dict[str, Any]:
        return {
            "num_init_states_per_domain": self.num_init_states_per_domain,
            "num_domains": self.num_domains,
            "seed": self.seed,
        }

    def _checked_sets(self, param_sets: Any) -> torch.Tensor:
        if not isinstance(param_sets, torch.Tensor | np.ndarray):
            raise TypeError(f"param_sets must be a tensor or array (n, P), got {type(param_sets).__name__}")
        # Tensors do not support the negative strides of a reversed array.
        sets_given = np.ascontiguousarray(param_sets) if isinstance(param_sets, np.ndarray) else param_sets
        sets = torch.as_tensor(sets_given).detach().cpu().clone()
        length = self._engine.policy.acting_parameters().size
        if not length:
            raise TypeError(
                f"policy must have flat parameters to explore, {type(self.policy).__name__} has none; use a policy of "
                "metaroll or a torch module"
            )
        if sets.ndim != 2 or sets.shape[1] != length:
            raise ShapeError(f"param_sets must have shape (n, {length}), got {tuple(sets.shape)}")
        if not len(sets):
            raise ValueError("param_sets must hold at least one set of parameters, got none")
        if not sets.is_floating_point():
            raise TypeError(f"param_sets must hold floating point numbers, got {sets.dtype}")
        bad = ~torch.isfinite(sets).all(dim=1)
        if bad.any():
            raise ValueError(f"param_sets must be finite, set {int(bad.nonzero()[0])} is not")
        return sets

    def _plans(self, sets: torch.Tensor, states: list[np.ndarray | None] | None, eval: bool) -> PlanTable:
        seed = fresh_seed() if self.seed is None else self.seed
        generator = np.random.default_rng(derive_seed("domains and initial states", seed, self._count))
        domains = self._domains or Domains(self.env)
        updates = domains.draw(self.num_domains, generator)
        each, common = self.num_init_states_per_domain, self.common_noise
        starts: Sequence[np.ndarray | None]
        if states is not None:
            starts = states
        elif domains.draws_states:
            starts = domains.draw_states(updates, each, generator)
        else:
            starts, common = [None] * self.num_rollouts_per_param, True
        numbers, count = np.arange(len(sets) * len(starts)), len(starts)
        pair = numbers % count
        seeds = np.empty((len(numbers), 3), dtype=np.uint64 if seed < 2**64 else object)
        seeds[:, 0], seeds[:, 1], seeds[:, 2] = seed, self._count, pair if common else numbers
        return PlanTable.of_columns(
            seeds,
            updates=updates,
            update_of=pair // each,
            max_steps=np.full(len(numbers), NO_LIMIT if self.max_steps is None else self.max_steps),
            parameter_sets=list(np.ascontiguousarray(sets.numpy(), dtype=np.float32)),
            set_of=numbers // count,
            init_states=None if all(state is None for state in starts) else list(starts) * len(sets),
            eval=eval,
        )
