"""Sources of environments: one object for every way to name an environment, which makes them one by one or as slots."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import VectorEnv

from metaroll.checks import check_whole
from metaroll.envs.base.batching import has_simulator, is_batched, without_checks
from metaroll.envs.base.constructors import (
    Constructor,
    CopiedEnv,
    NamedEnv,
    SharedEnv,
    close_env,
    constructor_of,
    is_env_instance,
    make_env,
    with_render_mode,
)
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.classic_control.simulators import classic_simulator, is_classic
from metaroll.envs.lookup.registry import KnownName
from metaroll.envs.mujoco.gymnasium_envs import gymnasium_simulator, is_gymnasium_id
from metaroll.envs.slots.gym_slots import GymSlots, env_name
from metaroll.envs.slots.vector_slots import VectorEnvSlots
from metaroll.tasks.plan_table import distinct_updates
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, Slots, SlotsKind

__all__ = ["EnvSource", "env_kind", "is_env_instance", "make_env", "make_slots"]


@dataclass(frozen=True, eq=False, repr=False)
class EnvSource:
    """Makes environments, always alike; frozen, and picklable if its constructor is.

    A name, a class, an instance or a family becomes one where it comes in, and is handed on as that: its name is looked
    up once, however often it is needed. A constructor is called for every environment, and what it makes is
    never copied. A given environment is copied (see ``copy_env``). A given vector environment is used itself.

    Attributes:
        constructor: Makes one environment.
    """

    constructor: Constructor

    @classmethod
    def of(cls, env: Any) -> EnvSource:
        """The source for ``env``.

        Args:
            env: An id (``"point-robot"``, ``"HalfCheetah-v5"``, ``"module:attribute"``), the ``EnvSpec`` of a
                registered environment, a class or function without arguments, an environment, a vector environment or
                what makes one, or an ``EnvSource``.

        Raises:
            TypeError: It is none of these, or an environment that cannot be copied.
            ValueError: A copy of the environment is configured otherwise.
        """
        if isinstance(env, EnvSource):
            return env
        if isinstance(env, TaskFamily):
            raise TypeError(
                "env must make environments, got a TaskFamily, whose family.env_constructor does; its tasks "
                "(family.split(), family.samplers()) are the env_update of plans"
            )
        if isinstance(env, Slots):
            raise TypeError(
                "env must make environments; step Slots of your own with metaroll.rollouts.engine.slot_loop.SlotLoop"
            )
        return cls(constructor_of(env))

    @property
    def known(self) -> KnownName:
        """The meaning of its name."""
        return self.constructor.known if isinstance(self.constructor, NamedEnv) else _UNNAMED

    @property
    def name(self) -> str:
        """The name in ``config.yaml`` and messages; empty if there is none."""
        return self.known.name

    @property
    def is_varied(self) -> bool:
        """Whether it means many tasks, for algorithms that do not adapt, too; see ``KnownName``."""
        return self.known.is_varied

    @property
    def family(self) -> TaskFamily:
        """Its tasks.

        Raises:
            UnknownNameError: It has none.
            ImportError: It needs a package that is not installed.
        """
        return self.known.family

    def make(self) -> Any:
        """A new environment (a given vector environment itself).

        Raises:
            UnknownNameError: There is no environment of this name.
            TypeError: What was made has not the methods of an environment.
        """
        return make_env(self.constructor)

    __call__ = make

    def close(self, env: Any) -> None:
        """Close ``env``, which ``make`` has given, unless it is the caller's own."""
        if not isinstance(self.constructor, SharedEnv):
            close_env(env)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, labels and time limit; an environment is made to ask it, and closed."""
        env = self.make()
        try:
            return EnvSpec.from_env(env)
        finally:
            self.close(env)

    def kind(self, plans: Sequence[RolloutPlan] = (), env: Any = None) -> SlotsKind:
        """Which kind of slots can run ``plans``.

        Args:
            plans: The plans that will be run, as far as known.
            env: An environment that ``make`` has given; without it one is made (and closed) if the kind cannot be
                determined otherwise. Ids and classes suffice, a function has to be called.
        """
        if env is not None:
            return _kind_of_env(env, plans)
        kind = _kind_of_constructor(self.constructor, plans)
        if kind is not None:
            return kind
        env = self.make()
        try:
            return _kind_of_env(env, plans)
        finally:
            self.close(env)

    def slots(
        self,
        num_slots: int,
        plans: Sequence[RolloutPlan] = (),
        *,
        env: Any = None,
        kind: SlotsKind | None = None,
        reachable: bool = False,
    ) -> Slots:
        """``num_slots`` environments that are stepped together (a vector environment has its own number).

        Args:
            num_slots: How many.
            plans: The plans that will be run, as far as known.
            env: An environment that ``make`` has given, of which a simulator is made; the caller closes it after the
                slots. Without it, what is made here is closed with the slots.
            kind: Kind of slots, if the caller knows it already.
            reachable: Step classic control as a list, whose environments can be asked for, and given, attributes.

        Raises:
            TypeError, ValueError: ``num_slots`` is not an integer of at least 1.
        """
        check_whole("num_slots", num_slots)
        if kind is None and env is None:
            kind = _kind_of_constructor(self.constructor, plans)
        if kind == "list":
            return GymSlots(self.constructor, num_slots)
        made = self.make() if env is None else env
        kind = _kind_of_env(made, plans) if kind is None else kind
        if kind == "vector":
            return VectorEnvSlots(made, owned=env is None and not isinstance(self.constructor, SharedEnv))
        form = None if kind == "list" else _batched_form(made)
        if form is None or (reachable and form.is_list_too):
            if env is None:
                made.close()
            return GymSlots(self.constructor, num_slots)
        slots = form.slots(int(num_slots))
        slots.info = replace(slots.info, name=env_name(made))  # as in a list
        if env is None:
            weakref.finalize(slots, made.close)
        return slots

    def drawable(self, mode: str = "rgb_array") -> EnvSource:
        """A source of the same environment that draws, where its constructor takes ``render_mode``."""
        return EnvSource(with_render_mode(self.constructor, mode))

    def __repr__(self) -> str:
        return repr(self.constructor)

    def __str__(self) -> str:
        return self.name or repr(self)


_UNNAMED = KnownName("")


class _BatchedForm(NamedTuple):
    """The form in which many copies of an environment are stepped as arrays."""

    kind: SlotsKind
    accepts: Callable[[Sequence[RolloutPlan]], bool]
    slots: Callable[[int], Slots]
    is_list_too: bool = False


def make_slots(
    source: Any,
    num_slots: int,
    *,
    share: bool = False,
    reachable: bool = False,
    plans: Sequence[RolloutPlan] = (),
) -> Slots:
    """``num_slots`` environments as ``Slots``.

    An environment announces a batched simulator with a method ``batched_slots(num_slots) -> Slots``, and with
    ``accepts_update(update) -> bool`` which updates that can apply. It is used where the environment accepts the
    updates of all ``plans``, and is not wrapped, or only by wrappers that announce the same
    (``metaroll.envs.wrappers``). Gymnasium's own MuJoCo environments of version 5 are stepped together, too
    (``metaroll.envs.mujoco``), in as many threads as ``physics_threads`` sets, and so is its classic control
    (``metaroll.envs.classic_control``). The rollouts are the same either way.

    Args:
        source: An id (``"point-robot"``, ``"Pendulum-v1"``), a class or function that makes an environment, an
            environment (copied), a vector environment or a function that makes one, or ``Slots``, which are returned
            unchanged.
        num_slots: How many.
        share: Step the given environment itself, in the one slot there is.
        reachable: Step classic control as a list, whose environments can be asked for, and given, attributes.
        plans: The plans that will be run, as far as known.

    Raises:
        TypeError: ``source`` makes no environment, or cannot be copied.
        ValueError: A wrong number of slots, or a copy of the environment is configured otherwise.
    """
    if isinstance(source, Slots):
        if source.num_slots != num_slots:
            raise ValueError(f"num_slots must be {source.num_slots}, as the given Slots have, got {num_slots}")
        return source
    if share and isinstance(source, VectorEnv):
        raise ValueError(
            f"env must be one environment here, got the vector environment {type(source).__name__}; give it to a "
            "RolloutEngine, which runs many rollouts in it"
        )
    if share and is_env_instance(source):
        return GymSlots(source, num_slots, share=True)
    return EnvSource.of(source).slots(num_slots, plans, reachable=reachable)


def env_kind(source: Any, plans: Sequence[RolloutPlan] = ()) -> SlotsKind:
    """Which kind of ``Slots`` ``make_slots`` makes of ``source`` for ``plans``.

    "physics" are batched simulators whose steps cost much, so that a few dozen are enough (MuJoCo's). "vector"
    environments have a fixed number of slots, for any request.
    """
    return source.info.kind if isinstance(source, Slots) else EnvSource.of(source).kind(plans)


def _kind_of_constructor(constructor: Constructor, plans: Sequence[RolloutPlan]) -> SlotsKind | None:
    """The kind, if it can be determined without making an environment; otherwise ``None``."""
    if isinstance(constructor, CopiedEnv | SharedEnv):
        return _kind_of_env(constructor.env, plans)
    name = None
    if isinstance(constructor, NamedEnv):
        name, constructor = constructor.name, constructor.constructor() or constructor
    if isinstance(constructor, NamedEnv):
        if is_gymnasium_id(str(name)):
            return None if distinct_updates(plans) else "physics"
        return None if is_classic(str(name)) else "list"
    if not isinstance(constructor, type) or is_classic(constructor):
        return None
    if not has_simulator(constructor):
        return "vector" if issubclass(constructor, VectorEnv) else "list"
    known = not distinct_updates(plans) and not issubclass(constructor, gymnasium.Wrapper)
    return _kind_of_simulator(constructor) if known else None


def _kind_of_env(env: Any, plans: Sequence[RolloutPlan]) -> SlotsKind:
    if isinstance(env, VectorEnv):
        return "vector"
    form = _batched_form(env)
    return form.kind if form is not None and form.accepts(plans) else "list"


def _batched_form(env: Any) -> _BatchedForm | None:
    """The batched simulator of ``env``: its own, or one that replaces Gymnasium's environment."""
    if is_batched(env):
        inner = without_checks(env)
        kind = _kind_of_simulator(getattr(env, "unwrapped", env))
        return _BatchedForm(kind, lambda plans: _all_accepted(inner.accepts_update, plans), inner.batched_slots)
    simulator = gymnasium_simulator(env) or classic_simulator(env)
    if simulator is None:
        return None
    kind: SlotsKind = "physics" if simulator.is_physics else "batched"
    slots = lambda n: SimulatorSlots(n, simulator)  # noqa: E731
    return _BatchedForm(kind, simulator.accepts_plans, slots, is_list_too=not simulator.is_physics)


def _kind_of_simulator(env: Any) -> SlotsKind:
    """An environment (or class) with an attribute ``is_physics`` that is true brings an expensive simulator."""
    return "physics" if getattr(env, "is_physics", False) else "batched"


def _all_accepted(accepts: Callable[[EnvUpdate], bool], plans: Sequence[RolloutPlan]) -> bool:
    return all(accepts(update) for update in distinct_updates(plans))
