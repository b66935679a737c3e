"""The nouns that every layer shares: specs, plans, and the contracts of policies, slots and runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, Self

import gymnasium
import numpy as np

from metaroll.checks import check_limit, check_seed, described
from metaroll.errors import LARGEST_COUNT, LARGEST_SEED, shortened

__all__ = [
    "Baseline",
    "Context",
    "Device",
    "EnvSpec",
    "EnvUpdate",
    "InOutSpec",
    "PartsRunner",
    "Policy",
    "PolicyInfo",
    "PolicyState",
    "RenderMode",
    "RolloutPlan",
    "Runner",
    "SlotStep",
    "Slots",
    "SlotsInfo",
    "SlotsKind",
    "TaskNote",
    "flat_dim",
]

Context = Mapping[str, np.ndarray]
"""A policy's knowledge of its task: name -> array of one row, e.g. ``{"z": (latent_dim,)}``."""

PolicyState = dict[str, np.ndarray]
"""The memory of a policy: name -> array ``(N, ...)`` with one row per slot."""


def flat_dim(space: gymnasium.Space[Any]) -> int:
    """Length of a flattened element: entries of a Box, choices of Discrete spaces, sums for structures.

    Parts without numbers (Text, Sequence, Graph, spaces that Gymnasium does not know) count nothing.
    """
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Dict):
        return sum(flat_dim(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(flat_dim(part) for part in space.spaces)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return int(spaces.flatdim(space))
    return 0


@dataclass(frozen=True)
class EnvSpec:
    """Observation, action and state spaces of an environment, and its step limit.

    Labels name the entries of a flat space (``("x", "theta", "x_dot", "theta_dot")``), for tables, plots and masks.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    max_episode_length: int | None = None
    state_space: gymnasium.Space[Any] | None = None
    observation_labels: tuple[str, ...] | None = None
    action_labels: tuple[str, ...] | None = None
    state_labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for kind in ("observation", "action", "state"):
            labels, space = getattr(self, f"{kind}_labels"), getattr(self, f"{kind}_space")
            if labels is None:
                continue
            if space is None or len(labels) != flat_dim(space):
                raise ValueError(
                    f"{kind}_labels must name every entry of {kind}_space {space}, got {len(labels)} labels: {labels}"
                )
            if len(set(labels)) != len(labels):
                raise ValueError(f"{kind}_labels must differ from one another, got {labels}")

    @classmethod
    def from_env(cls, env: Any) -> EnvSpec:
        """Spec of a Gymnasium-like environment (its own ``env_spec`` if it has one); a spec is returned unchanged."""
        if isinstance(env, EnvSpec):
            return env
        own = getattr(env, "env_spec", None)
        if isinstance(own, EnvSpec):
            return own
        limit = getattr(getattr(env, "spec", None), "max_episode_steps", None) or _time_limit(env)
        if hasattr(env, "single_observation_space"):  # a vector environment: that of one of its parts
            return cls(env.single_observation_space, env.single_action_space, limit)
        if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
            raise TypeError(
                f"env must have observation_space and action_space (the Gymnasium API), got {type(env).__name__}"
                + (f" {env!r}: metaroll.agent(algo, env) takes names" if isinstance(env, str) else "")
            )
        return cls(env.observation_space, env.action_space, limit)

    @property
    def obs_space(self) -> gymnasium.Space[Any]:
        return self.observation_space

    @property
    def act_space(self) -> gymnasium.Space[Any]:
        return self.action_space

    @property
    def obs_dim(self) -> int:
        """Length of a flattened observation."""
        return flat_dim(self.observation_space)

    @property
    def act_dim(self) -> int:
        """Length of a flattened action (number of choices for a Discrete space)."""
        return flat_dim(self.action_space)


def _time_limit(env: Any) -> int | None:
    """Steps of the tightest of Gymnasium's ``TimeLimit`` around an environment that is not registered."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(int(env._max_episode_steps))  # there is no public name of it
        env = env.env
    return min(limits, default=None)


@dataclass(frozen=True)
class InOutSpec:
    """Input and output space of a network."""

    input_space: gymnasium.Space[Any]
    output_space: gymnasium.Space[Any]


class RenderMode(NamedTuple):
    """Displays of ``rollout`` while it runs; all off by default."""

    text: bool = False
    video: bool = False
    render: bool = False


class Device(ABC):
    """A real device behind an environment, or a layer of one: it continues with its last command."""

    @abstractmethod
    def halt(self, reason: str = "halted") -> None:
        """Stop the device and end the episode; nothing happens where none runs."""


class EnvUpdate(ABC):
    """A change to an environment: a picklable callable ``env -> env`` that knows its ``task``.

    It is called with an environment that no update has changed, or with one that an update has changed which it
    ``replaces``.

    Attributes:
        task: The task, for logs, batched simulators and overlap checks.
        builds_env: Whether it builds its environment itself, so that there need not be one to be changed.
    """

    task: Any = None
    builds_env: bool = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse instances of the abstract class, with an error that names the concrete ones."""
        if cls is EnvUpdate:
            raise TypeError(
                "EnvUpdate is the class that updates derive from: make a SetTaskUpdate, a NewEnvUpdate, an "
                "ExistingEnvUpdate or a DomainParamUpdate"
            )
        return super().__new__(cls)

    @abstractmethod
    def __call__(self, old_env: Any = None) -> Any:
        """``old_env`` with the change, or another environment; ``None`` means that there is none yet."""

    def replaces(self, previous: EnvUpdate) -> bool:
        """Whether it overwrites all that ``previous`` did, and so can be applied on top of it."""
        return False


class TaskNote(EnvUpdate):
    """Changes nothing: records which task has been set in the environment already.

    Args:
        task: The task.
    """

    def __init__(self, task: Any = None) -> None:
        self.task = task

    def __call__(self, old_env: Any = None) -> Any:
        return old_env


SeedTriple = tuple[int, int, int]


def _check_seed_triple(seed: Any) -> None:
    """Error unless ``seed`` are three seeds, of which some may be ``None``, which counts as 0."""
    expected = "seed of a RolloutPlan must be three integers of at least 0 (seed, sub_seed, sub_sub_seed) or None"
    if not isinstance(seed, tuple | list):
        hint = (
            f"; write ({seed}, 0, 0)"
            if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
            else ""
        )
        raise TypeError(f"{expected}, got {described(seed)}{hint}")
    if len(seed) != 3:
        raise ValueError(f"{expected}, got {shortened(seed)}")
    for part in seed:
        if part is not None and (type(part) is not int or not 0 <= part <= LARGEST_SEED):
            try:
                check_seed("seed", part)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{expected}, got {shortened(seed)}") from error


@dataclass(frozen=True, eq=False)
class RolloutPlan:
    """Everything that can vary in one rollout; equal plans give bit-identical rollouts.

    Attributes:
        index: Position of the rollout in its batch.
        seed: ``(seed, sub_seed, sub_sub_seed)``, the source of all randomness of this rollout; ``None`` lets the engine
            draw (and record) fresh entropy.
        env_update: Variation of the environment; ``None`` means the environment as it was given.
        init_state: Initial state handed to the environment's reset, shape ``(state_dim,)``.
        parameters: Flat policy parameters ``(P,)``; ``None`` means the last ones of the engine.
        context: The policy's knowledge of the task, e.g. ``{"z": (latent_dim,)}``; ``None`` means its own
            belief (``Policy.plan_context``), which is written here when the plan runs; an empty one carries no
            information.
        max_steps: Truncate after this many steps.
        eval: Evaluation mode: randomization of environments is off unless requested.
        deterministic: Act with the mean of the policy; ``None`` means "as ``eval``".
        stop_on_done: End at the environment's own ending.
        extras: Notes of the plan's maker: ``name`` is what errors call the rollout, instead of its index and seed;
            ``domain_param`` are domain parameters that have been set in the environment already.
    """

    index: int = 0
    seed: SeedTriple | None = None
    env_update: EnvUpdate | None = None
    init_state: np.ndarray | None = None
    parameters: np.ndarray | None = None
    context: Context | None = None
    max_steps: int | None = None
    eval: bool = False
    deterministic: bool | None = None
    stop_on_done: bool = True
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.index, bool) or not isinstance(self.index, int | np.integer):
            raise TypeError(f"index of a RolloutPlan must be a whole number, got {self.index!r}")
        if self.index < 0:
            raise ValueError(f"index of a RolloutPlan must be at least 0, got {self.index}")
        if self.env_update is not None and not isinstance(self.env_update, EnvUpdate):
            raise TypeError(
                f"env_update of a RolloutPlan must be an EnvUpdate, got {self.env_update!r}; SetTaskUpdate(env_type, "
                "task) and NewEnvUpdate(constructor) make one, or derive your own"
            )
        if self.context is not None and not isinstance(self.context, Mapping):
            raise TypeError(
                f"context of a RolloutPlan must be a dict of arrays, got {type(self.context).__name__}; give "
                'each array a name, e.g. {"z": array}'
            )
        limit = self.max_steps
        if limit is not None and (type(limit) is not int or not 1 <= limit <= LARGEST_COUNT):
            check_limit("max_steps of a RolloutPlan", limit)
        if self.seed is not None:
            _check_seed_triple(self.seed)
        if type(self.extras) is not dict and not isinstance(self.extras, Mapping):
            raise TypeError(f"extras of a RolloutPlan must be a dict, got {described(self.extras)}")

    @property
    def task(self) -> Any:
        return None if self.env_update is None else self.env_update.task

    @property
    def acts_deterministically(self) -> bool:
        return self.eval if self.deterministic is None else self.deterministic

    def with_(self, **changes: Any) -> RolloutPlan:
        """A copy with some fields replaced."""
        return replace(self, **changes)


class SlotStep(NamedTuple):
    """The result of one step of all slots; rows of frozen slots repeat the observation, with reward 0 and no ending.

    ``observations (E, ...)``, ``rewards (E,)`` float64, ``terminated (E,)`` and ``truncated (E,)`` bool, and ``infos``:
    either name -> array ``(E, ...)`` (batched simulators) or a list of E dicts (lists of environments).
    The true last observation is in ``observations`` also where an episode ends: nothing resets itself.
    ``states`` are those after the step, where ``Slots.attach`` requested them and they are known: ``(E, S)``, or a list
    of E arrays ``(S,)`` (``None`` where an environment does not report its state).
    """

    observations: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: Mapping[str, np.ndarray] | Sequence[Mapping[str, Any]]
    states: np.ndarray | Sequence[np.ndarray | None] | None = None


SlotsKind = Literal["list", "batched", "physics", "vector"]
"""A list of environments, a cheap simulator of rows, an expensive one, a vector environment of others."""

SlotsResume = Literal["state", "replay", "nothing"]
"""How a half-done rollout continues elsewhere: its state is set; its actions are taken again; not at all."""


@dataclass(frozen=True)
class SlotsInfo:
    """Properties of slots.

    Attributes:
        name: Name of the environment in rollouts.
        kind: Decides how many slots a unit of work has.
        steps_past_end: A slot may be stepped after its rollout has ended, at no harm and little cost, and what it does
            then is ignored: the loop checks for endings at the end of a block of lock-steps only. Otherwise a slot is
            never stepped past an ending.
        resets_together: Slots can only be reset all at once.
        can_keep: ``keep`` is offered.
        resumes: How a half-done rollout continues in other slots, with the same bits: ``"state"`` where
            ``running_state`` and ``resume`` are offered, ``"replay"`` where a reset with its plan and its actions lead
            to the same again, ``"nothing"`` where neither does (e.g. generators that no plan seeds).
    """

    name: str
    kind: SlotsKind = "list"
    steps_past_end: bool = False
    resets_together: bool = False
    can_keep: bool = False
    resumes: SlotsResume = "replay"


class Slots(ABC):
    """Many environments that are stepped together; a slot without a plan is frozen.

    Attributes:
        num_slots: Number of slots, E.
        env_spec: Spaces, labels and time limit, the same for all.
        info: Properties of these slots.
        record_states: Whether ``SlotStep.states`` are wanted (see ``attach``).
        shows: Whether ``SlotStep.observations`` are wanted (see ``attach``).
        beat: Called with ``"reset"`` or ``"step"`` now and then where single environments are slow (see ``attach``).
    """

    num_slots: int
    env_spec: EnvSpec
    info: SlotsInfo
    record_states: bool = False
    shows: bool = True
    beat: Callable[[str], None] | None = None

    def attach(
        self, *, beat: Callable[[str], None] | None = None, record_states: bool = False, shows: bool = True
    ) -> None:
        """Set the heartbeat, whether states are reported with every step, and whether observations are.

        Without ``shows``, observations are read only by the NaN check: slots that report their states as an array, and
        may be stepped past an ending, need not compute them (``SlotStep.observations`` is ``None`` then).
        """
        self.beat, self.record_states, self.shows = beat, record_states, shows

    @abstractmethod
    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)`` (fresh memory)."""

    @abstractmethod
    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step the slots where ``active (E,)`` is true with their rows of ``actions``; results are fresh memory."""

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only (``(k,)``, increasing): slot ``i`` becomes ``slots[i]``, E becomes ``k``."""
        raise NotImplementedError(f"{self.info.name} keeps all its slots")

    def running_state(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """All it takes to continue with the rollouts in ``slots (k,)``, name -> ``(k, ...)`` (``resumes="state"``)."""
        raise NotImplementedError(f"{self.info.name} does not report its whole state")

    def resume(self, slots: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Continue in ``slots (k,)``, already reset with the same plans, from the result of ``running_state``."""
        raise NotImplementedError(f"{self.info.name} does not take its whole state")

    def states(self) -> np.ndarray | Sequence[np.ndarray | None] | None:
        """States now, as in ``SlotStep.states``; ``None`` if unknown."""
        return None

    def time_step(self, slot: int) -> float | None:
        """Seconds per step in a slot, where they are known."""
        return None

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        """Domain parameters of the rollout in a slot, where its environment reports them."""
        return None

    def alike(self, slots: np.ndarray) -> Sequence[Hashable] | None:
        """An entry for each of ``slots (k,)``. Two are equal where their slots have the same name, seconds per step,
        domain parameters and ``provenance``. ``None``: each slot has to be queried.
        """
        return None

    def name_of(self, slot: int) -> str:
        """The name of the environment in a slot."""
        return self.info.name

    def provenance(self, slot: int) -> dict[str, Any] | None:
        """The versions and rules of the environment in a slot."""
        return None

    def reset_info(self, slot: int) -> Mapping[str, Any]:
        """The info of the environment in a slot at its last reset."""
        return {}

    def environments(self, *, make: bool = False) -> list[Any]:
        """The environments of a list, one per slot (``None`` where it has not been made); empty for simulators.

        Args:
            make: Make those that have not been used yet.
        """
        return []

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Free the slots' resources."""


@dataclass(frozen=True)
class PolicyInfo:
    """Properties of a policy, for the engine that runs it.

    Attributes:
        noise_dim: Random numbers per row and step. They come from the generator of the rollout's plan; rollouts that
            act deterministically get none, their rows are zeros (but see ``always_random``).
        noise_kind: Distribution of these numbers: standard normal, or uniform on [0, 1).
        width_independent: A row of the result does not depend on how many rows there are. Other policies are called
            with blocks of fixed width.
        parameter_blocks: ``act`` also takes parameters ``(N / 8, P)``, one set for every eight consecutive rows; rows
            are then sorted by their parameters.
        parameter_columns: Parameters ``(N, P)`` should lie in memory one number of all rows after the other.
        structured: ``act`` sees observations as the environment's own batch (dicts, images in uint8), not as flat rows.
        row_by_row: ``act`` is called with the rows of running rollouts only.
        recurrent: Actions depend on earlier observations, through the state rows.
        slow: The policy runs row by row in Python.
        takes_domain_params: ``initial_state`` is given the domain parameters of each rollout's environment.
        looks: ``act`` reads observations; else any will do.
        draws: ``initial_state`` may draw from its generators; if not, none need to be made.
        always_random: It knows no deterministic way to act: rollouts that act deterministically get noise as well.
        runs_on_torch: It is a torch module with ``act_on_torch``, which does what ``act`` does, on any device.
    """

    noise_dim: int = 0
    noise_kind: Literal["normal", "uniform"] = "normal"
    width_independent: bool = True
    parameter_blocks: bool = False
    parameter_columns: bool = False
    structured: bool = False
    row_by_row: bool = False
    recurrent: bool = False
    slow: bool = False
    takes_domain_params: bool = False
    looks: bool = True
    draws: bool = True
    always_random: bool = False
    runs_on_torch: bool = False


class Policy(ABC):
    """Maps observations to actions. All that differs between slots lives in ``state`` (one row per slot), never in the
    policy.

    Objects of other libraries and functions become policies by ``as_policy``.
    """

    @property
    @abstractmethod
    def info(self) -> PolicyInfo:
        """Properties of the policy, which never change."""

    @abstractmethod
    def act(
        self,
        obs: Any,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[Any, PolicyState, Mapping[str, np.ndarray]]:
        """Actions of N rows; neither ``state`` nor any other argument is changed.

        Args:
            obs: Flat observations ``(N, obs_dim)``, or the environment's own batch for a ``structured`` policy.
            state: State from ``initial_state`` or the last call, name -> ``(N, ...)``.
            noise: Random numbers ``(N, noise_dim)``, see ``PolicyInfo``.
            deterministic: One flag, or one per row ``(N,)``.
            parameters: Flat ``(P,)``, stacked ``(N, P)`` (a different policy in every row), blocks ``(N / 8, P)`` (see
                ``PolicyInfo.parameter_blocks``), or ``None`` for the policy's own.

        Returns:
            Actions ``(N, act_dim)`` (``(N,)`` integers for Discrete), next state, and infos ``(N, ...)``, which may be
            computed on first access.
        """

    @abstractmethod
    def acting_parameters(self) -> np.ndarray:
        """The flat parameters ``(P,)`` that ``act`` uses, on the CPU, in their own memory; ``(0,)`` without any."""

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of N rollouts that start; by default nothing is remembered.

        Args:
            contexts: Context of each rollout, or ``None``.
            generators: Source of each rollout's draws (e.g. a latent z).
            domain_params: Domain parameters of each rollout's environment (``None`` if unknown), for
                policies with ``info.takes_domain_params``.
        """
        return {}

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """``act`` on tensors, with the parameters of the module, where it is (see ``PolicyInfo.runs_on_torch``).

        It does not wait for the device. The numbers are those of ``act`` but for the last bits.

        Args:
            obs: Flat observations, a tensor ``(N, obs_dim)``.
            state: Tensors ``(N, ...)``.
            noise: Random numbers ``(N, noise_dim)``, float32.
            deterministic: One flag, or one per row, bool ``(N,)``.

        Raises:
            TypeError: The policy acts in NumPy only.
        """
        raise TypeError(f"{type(self).__name__} acts in NumPy only: it has no act_on_torch")

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        """The state rows after ``act``, had ``actions`` been taken instead of those that it chose.

        Args:
            state: State rows that ``act`` returned, name -> ``(N, ...)``.
            actions: Actions ``(N, act_dim)``, or ``(N,)`` integers, in the form in which ``act`` returns them.
        """
        return state

    def plan_context(self) -> Context | None:
        """The policy's belief about its task: the context of rollouts whose plans bring none."""
        return None

    @property
    def noise_dim(self) -> int:
        """Random numbers per row and step: ``info.noise_dim``."""
        return self.info.noise_dim

    @property
    def noise_kind(self) -> Literal["normal", "uniform"]:
        """Distribution of these numbers: ``info.noise_kind``."""
        return self.info.noise_kind

    @property
    def width_independent(self) -> bool:
        """Whether a row of the result does not depend on the number of rows: ``info.width_independent``."""
        return self.info.width_independent


class Runner(Protocol):
    """All that an algorithm may ask of its driver. No attributes are assigned on it."""

    @property
    def step_itr(self) -> int:
        """Number of calls of ``obtain_samples`` and ``sample_parameters`` so far."""
        ...

    @property
    def total_env_steps(self) -> int: ...

    def step_epochs(self) -> Iterator[int]:
        """Epochs to run; after each body the runner logs and saves a snapshot."""
        ...

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: Any = None,
        env_update: EnvUpdate | Sequence[EnvUpdate] | None = None,
        *,
        contexts: Sequence[Context | None] | None = None,
        num_rollouts: int | None = None,
        deterministic: bool = False,
        parameters: np.ndarray | None = None,
    ) -> Sequence[Any]:
        """Whole rollouts with at least ``batch_size`` steps (or exactly ``num_rollouts``).

        With one ``env_update`` (or none) the result is a sequence of StepSequences. With a sequence of M updates (and M
        ``contexts``) it is M such sequences, ``batch_size`` or ``num_rollouts`` holding for each. ``parameters (M, P)``
        are those of the policy in each variation, ``(P,)`` those in all of them.
        """
        ...

    def advance(
        self,
        num_steps: int,
        *,
        num_slots: int = 1,
        env_updates: Any = None,
        parameters: np.ndarray | None = None,
        actions: Any = None,
        deterministic: bool = False,
    ) -> Sequence[Any]:
        """Up to ``num_steps`` steps in each of ``num_slots`` rollouts that continue from call to call.

        For algorithms that do not wait for the end of an episode. The result is ``Rollouts``: pieces of rollouts, as
        columns, in the order of the rollouts' numbers (``plans[i].index``). A piece with ``done[-1]`` ends with its
        rollout; the last observation of any other is the first one of the next piece, and nothing ends there.

        Args:
            num_steps: Steps in each slot; fewer are taken in one whose rollout ends (the next begins a little later).
            num_slots: Rollouts at a time; the same in all calls of a run.
            env_updates: Variations of the environment: a list, or a sampler of tasks or domains (one that draws by a
                given generator). Each new rollout gets one, drawn from the run's seed and its number. The same in all
                calls of a run.
            parameters: Flat policy parameters ``(P,)``; ``None`` means those that the algorithm's policy has now.
            actions: Actions ``(num_slots, ...)`` for all of these steps, instead of those of the policy, which is not
                asked (what it remembers does not change).
            deterministic: Act by the deterministic policy; the same in all calls of a run.
        """
        ...

    def sample_parameters(
        self,
        param_sets: np.ndarray,
        *,
        num_domains: int = 1,
        num_init_states_per_domain: int = 1,
        deterministic: bool = True,
        fields: tuple[str, ...] | None = None,
    ) -> list[Sequence[Any]]:
        """Whole rollouts of the policy with each set of flat parameters ``(n, P)``: n sequences of StepSequences.

        All sets act in the same ``num_domains * num_init_states_per_domain`` pairs of a domain and an initial state.

        Args:
            param_sets: The sets.
            num_domains: Domains of each.
            num_init_states_per_domain: Rollouts in each domain.
            deterministic: Act by the deterministic policy.
            fields: Names of the columns that the algorithm reads, e.g. ``("rewards",)``, if it needs no more: others
                are not recorded then (unless paths are stored). ``None``: all.
        """
        ...

    def evaluate(self, algo: Any, task_sampler: Any) -> float:
        """Run the meta-test protocol of ``algo`` on tasks of ``task_sampler``; average return after adaptation."""
        ...

    def log(self, metrics: Mapping[str, float]) -> None: ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Report the progress of a phase: ``"warm-up"`` or ``"sampling"`` (environment steps, which the runner goes on
        counting itself), ``"updates"`` (gradient steps) or ``"evaluation"`` (episodes). It is cheap, and changes no
        result.
        """
        ...


class PartsRunner(Runner, Protocol):
    """A runner that also collects in parts, between which it can save its state."""

    def obtain_in_parts(
        self,
        itr: int,
        batch_size: int,
        env_updates: Sequence[EnvUpdate],
        *,
        contexts: Sequence[Context | None] | None = None,
        missing: Sequence[int] | None = None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
        """The result of one call of ``obtain_samples``, some variations at a time: positions, and a list for each.

        How they are divided changes no bit. Between two parts the runner may save a snapshot: the algorithm stores each
        part before it asks for the next, and after a resume it asks for what it still lacks.

        Args:
            itr, batch_size, contexts: As for ``obtain_samples``.
            env_updates: All M variations.
            missing: Positions of those that are wanted; ``None`` means all.
        """
        ...


class Baseline(Protocol):
    """Predicts returns from a path dict; fitted on many."""

    def fit(self, paths: Sequence[Mapping[str, Any]], target_key: str = "returns") -> None: ...

    def predict(self, path: Mapping[str, Any]) -> np.ndarray: ...
