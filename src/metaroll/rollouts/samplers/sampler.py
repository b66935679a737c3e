"""Base classes of samplers: rollouts with a minimum number of rollouts or steps, or all that an engine runs."""

from __future__ import annotations

import contextlib
import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from gymnasium.spaces.utils import flatdim

from metaroll.checks import check_seed, check_whole
from metaroll.config import parts_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import ShapeError
from metaroll.rollouts.configs import EngineConfig, ExplorationConfig, SamplerConfig
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.samplers.domains import Domains
from metaroll.rollouts.workers.pool import SamplerPool, check_shared
from metaroll.seeding import get_base_seed
from metaroll.types import EnvSpec, RolloutPlan

__all__ = ["LAST_SEED", "Closable", "EngineSampler", "SamplerBase", "SeedOption", "chosen_seed"]


class _Default(enum.Enum):
    LAST_SEED = enum.auto()

    def __repr__(self) -> str:
        return "<the seed of metaroll.set_seed>"


LAST_SEED = _Default.LAST_SEED
"""Means the last seed of ``metaroll.set_seed``, at the time of use."""

SeedOption = int | _Default | None


def chosen_seed(seed: SeedOption) -> int | None:
    """``seed``, or the one that it refers to; ``None`` means fresh entropy."""
    if isinstance(seed, _Default):
        return get_base_seed()
    return None if seed is None else check_seed("seed", seed)


class Closable(ABC):  # noqa: B024 (what is abstract differs)
    """Ends with ``close()`` or at the end of a ``with`` block."""

    def close(self) -> None:  # noqa: B027 (nothing to close by default)
        """Free the sampler's resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error while closing must not hide the error of the block.
        with contextlib.nullcontext() if error is None else contextlib.suppress(Exception):
            self.close()


class SamplerBase(Closable):
    """Generates lists of rollouts, with bounds of which at least one must be given; if both are, both are kept.

    Args:
        min_rollouts: Minimum number of complete rollouts.
        min_steps: Minimum number of steps in all rollouts together.
    """

    def __init__(self, *, min_rollouts: int | None = None, min_steps: int | None = None) -> None:
        self.min_rollouts: int | None = None
        self.min_steps: int | None = None
        self.set_min_count(min_rollouts, min_steps)

    def set_min_count(self, min_rollouts: int | None = None, min_steps: int | None = None) -> None:
        """Replace both bounds; ``None`` means there is none.

        Raises:
            ValueError: Both are ``None``, or one is below 1.
        """
        if min_rollouts is None and min_steps is None:
            raise ValueError("give min_rollouts or min_steps (or both), got None for both")
        rollouts = None if min_rollouts is None else check_whole("min_rollouts", min_rollouts)
        steps = None if min_steps is None else check_whole("min_steps", min_steps)
        self.min_rollouts, self.min_steps = rollouts, steps

    @abstractmethod
    def reinit(self, env: Any = None, policy: Any = None) -> None:
        """Take over changes that were made to the environment or the policy, or replace one of them.

        Not needed when only the policy's parameters have changed.

        Args:
            env: New environment; ``None`` keeps the old one.
            policy: New policy; ``None`` keeps the old one.
        """

    @abstractmethod
    def sample(self) -> list[StepSequence]:
        """Rollouts, at least as many as asked for."""


class EngineSampler(Closable):
    """The common part of samplers that own an engine: workers, environment and policy, numbered calls.

    A pickled sampler starts its own workers where it is unpickled, and continues with the next call.

    Args:
        env: As for ``RolloutEngine``.
        policy: As for ``RolloutEngine``.
        config: How rollouts are run; one worker works in this process.
        without_domains: Take away what randomizes the environment.
        pool: A pool to share, of ``num_workers`` workers, which ``close`` does not stop.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        config: SamplerConfig | ExplorationConfig,
        *,
        without_domains: bool,
        pool: SamplerPool | None,
    ) -> None:
        check_shared(pool, config)
        if pool is not None and pool.num_workers != config.num_workers:
            raise ValueError(f"num_workers must be that of the pool ({pool.num_workers}), got {config.num_workers}")
        self._without_domains = without_domains
        self._domains, self._source = self._taken(env)
        self.config, self.num_workers, self.max_steps = config, config.num_workers, config.max_steps
        self._count = -1
        self._mode = self._closed = False
        engine = parts_of(EngineConfig, vars(config))
        self._engine = RolloutEngine(self._source, policy, config=engine, pool=pool, record_extras=True)
        try:
            _ = self._engine.env_spec  # reject an invalid environment here, rather than in a worker later
        except BaseException:
            self._engine.close()
            raise
        self.env, self.policy = env, policy

    def reinit(self, env: Any = None, policy: Any = None) -> None:
        """Take over changes that were made to the environment or the policy, or replace one of them.

        Seed and counter stay. Not needed when only the policy's parameters or buffers have changed.

        Args:
            env: New environment; ``None`` keeps the old one. With spaces of another kind or shape it needs a policy.
            policy: New policy; ``None`` keeps the old one.

        Raises:
            ShapeError: The policy that is kept is one for other spaces. After an error the sampler keeps what it
                had.
        """
        self._check_open()
        new_env, new_policy = self.env if env is None else env, self.policy if policy is None else policy
        domains, source = self._taken(new_env)
        if env is not None:
            _check_env_fits(source, self._engine.env_spec, keeps_policy=policy is None)
        self._engine.set_env(source)
        try:
            self._engine.set_policy(new_policy)
        except BaseException:
            self._engine.set_env(self._source)
            raise
        self._domains, self._source, self.env, self.policy = domains, source, new_env, new_policy

    def close(self) -> None:
        """End the workers; the sampler cannot be used afterwards."""
        self._closed = True
        self._engine.close()

    def __reduce__(self) -> Any:
        arguments = {"num_workers": self.num_workers, "config": self.config}
        return _rebuilt, (type(self), self.env, self.policy, {**arguments, **self._own_options()}, self._count)

    # -- for samplers ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _own_options(self) -> dict[str, Any]:
        """Arguments of the constructor beside environment, policy, workers and ``config``."""

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"this {type(self).__name__} has been closed; create a new one")

    @contextlib.contextmanager
    def _acting(self, eval: bool) -> Iterator[None]:
        """The policy as it acts in evaluations, or in training."""
        with module_mode(self.policy, eval):
            if eval != self._mode:  # workers hold a torch module as it was when it was sent
                self._engine.set_policy(self.policy)
                self._mode = eval
            yield

    def _run(self, plans: Sequence[RolloutPlan], **options: Any) -> Rollouts:
        """Rollouts of the plans, which name their environment."""
        rollouts = self._engine.run(plans, **options)
        rollouts.add_info("env_spec", self._engine.env_spec)
        return rollouts

    def _taken(self, env: Any) -> tuple[Domains | None, Any]:
        """The source of domains, if the sampler draws them, and the environment for the engine."""
        if not self._without_domains:
            return None, env
        domains = Domains(env)
        return domains, domains.source


def _rebuilt(kind: type[Any], env: Any, policy: Any, arguments: dict[str, Any], count: int) -> Any:
    """A sampler from its pickle."""
    sampler = kind(env, policy, **arguments)
    sampler._count = count
    return sampler


def _check_env_fits(env: Any, known: EnvSpec, *, keeps_policy: bool) -> None:
    """Error if ``env`` makes no environment, or one that a policy for ``known`` cannot act in."""
    spec = EnvSource.of(env).spec
    spaces = {
        "observation_space": (spec.observation_space, known.observation_space),
        "action_space": (spec.action_space, known.action_space),
    }
    for name, (new, old) in spaces.items() if keeps_policy else ():
        # Bounds may follow from domain parameters.
        if type(new) is not type(old) or new.shape != old.shape or flatdim(new) != flatdim(old):
            raise ShapeError(
                f"env must have an {name} like the present one, {old}, for which the policy is, got {new}; give a "
                "policy as well: reinit(env=env, policy=policy)"
            )
