"""``OffPolicyLearner``: live collection into a replay buffer, and updates from it."""

from __future__ import annotations

import math
import warnings
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import gymnasium
import numpy as np
import torch

from metaroll.checks import check_instance, check_seed
from metaroll.config import ConfigField, config_of
from metaroll.data.replay.replay_buffer import ReplayBatch, ReplayBuffer
from metaroll.data.replay.streams import named_leaves
from metaroll.data.replay.transitions import TransitionBatch, as_replay, tensors_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.running_episodes import RunningEpisodes
from metaroll.errors import RunWarning, SpaceError, named_as, option_name, option_text
from metaroll.learners.base import Progress, RLAlgorithm, TrainingTasks, horizon_of, train
from metaroll.learners.off_policy.configs import OffPolicyConfig, PrioritiesConfig
from metaroll.learners.off_policy.trainer import ReplayTrainer
from metaroll.option_names import frames_of_ours
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.encoders import is_image
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.state import Stateful, fingerprint_of, parts
from metaroll.types import EnvSpec, Runner

__all__ = [
    "Counts",
    "Made",
    "OffPolicyLearner",
    "require_box",
    "require_choices",
]

C = TypeVar("C", bound=OffPolicyConfig)


_DRAWN_AT_ONCE = 2**18
"""Numbers in the observations of one draw from the buffer: few enough to stay in a cache."""


class Made(NamedTuple):
    """The result of ``OffPolicyLearner.make``.

    Attributes:
        policy: The policy that is trained and evaluated.
        qf: Its action-value function.
        exploration_policy: Behavior policy; ``None`` means the policy itself.
        trainer: Networks and optimizers of a learner of this library, for ``improve``; ``None``: a subclass keeps, and
            saves, its own.
        weight_exponent: Importance-sampling exponent of prioritized replay; ``None``: the buffer has no priorities.
    """

    policy: Any
    qf: Any
    exploration_policy: Any = None
    trainer: ReplayTrainer | None = None
    weight_exponent: float | None = None


class Counts(Stateful):
    """Counters of a run, and the returns of its episodes.

    Attributes:
        cycles, env_steps, gradient_steps: Totals so far.
        cycle: Completed cycles of this epoch.
        steps_before: Gradient steps before this epoch.
    """

    state_parts = parts("cycles", "env_steps", "gradient_steps", returns="_all")  # at the end of an epoch

    def __init__(self) -> None:
        self.cycles = self.cycle = self.env_steps = self.gradient_steps = self.steps_before = 0
        self._all = (0, 0.0)  # completed episodes: count and sum of returns
        self._ended: list[tuple[float, int]] = []  # return and length of those of this epoch

    def begin_epoch(self) -> None:
        """Drop the episodes of the previous epoch."""
        self._ended, self.steps_before, self.cycle = [], self.gradient_steps, 0

    def end_cycle(self) -> None:
        """Count a cycle."""
        self.cycles, self.cycle = self.cycles + 1, self.cycle + 1

    def note(self, paths: Sequence[Mapping[str, Any]], complete: Sequence[bool]) -> None:
        """Count the episodes that ended with ``paths``."""
        for path, ends in zip(paths, complete, strict=True):
            if ends:
                self._ended.append((path["undiscounted_return"], path["running_length"]))
                self._all = (self._all[0] + 1, self._all[1] + path["undiscounted_return"])

    def average_return(self, smooth: bool) -> float:
        """Average return of all episodes, or (not ``smooth``) those of the epoch; NaN without any."""
        count, total = (
            self._all if smooth else (len(self._ended), sum(episode_return for episode_return, _ in self._ended))
        )
        return total / count if count else math.nan

    @property
    def has_ended(self) -> bool:
        """Whether any episode has ended in this epoch."""
        return bool(self._ended)

    def numbers(self) -> dict[str, float]:
        """Numbers of the epoch for the log."""
        steps = self.gradient_steps - self.steps_before
        numbers = {"gradient_steps": float(steps), "episodes": float(len(self._ended))}
        if self._ended:
            returns, lengths = zip(*self._ended, strict=True)
            numbers["return"], numbers["episode_length"] = float(np.mean(returns)), float(np.mean(lengths))
        return numbers


class OffPolicyLearner(Stateful, RLAlgorithm, ABC, Generic[C]):
    """Learns from replayed steps; rollouts continue from one call to the next.

    An epoch is ``cycles_per_epoch`` cycles. Each takes ``gradient_steps / update_to_data`` environment steps in
    ``num_envs`` parallel rollouts, stores them, and calls ``train_once``: ``sample_batch()`` draws from the buffer. A
    subclass builds its networks and its trainer in ``make``.

    Only true terminations are stored as terminal, time limits are not; the next observation of the last step of an
    episode is its final one. Exploration state is reset with each episode. Evaluations act without noise.

    Attributes:
        config_class: Class of the settings.
        config: The settings.
        device: Device of the networks.
        env_steps_per_cycle: Environment steps of each cycle, summed over rollouts.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: The policy to train and evaluate; ``None`` means the learner's default.
        qf: Its action-value function; ``None`` means the default.
        replay_buffer: A ``ReplayBuffer``, or a buffer with garage's ``add_path`` and ``sample_transitions``; ``None``
            means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: Behavior policy; ``None`` means the default.
        task_sampler: Variations of the environment to train in: a list of ``EnvUpdate``, or a sampler; ``None`` means
            the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of the networks; ``None`` means the CPU.
        options: Settings by name; they override those of ``config``.

    Raises:
        TypeError: The learner does not support the spaces, or a network has the wrong class.
        ValueError: A setting is out of range, the buffer is too small, or the steps per cycle are not whole.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = OffPolicyConfig
    state_parts = parts(
        trainer="trainer",
        collection=parts("seed", counts="_counts", episodes="_episodes", batches="_generator", tasks="_tasks"),
    )
    buffer_parts = parts(replay="_replay")

    def __init__(
        self,
        env_spec: Any,
        config: C | None = None,
        *,
        policy: Any = None,
        qf: Any = None,
        replay_buffer: Any = None,
        exploration_policy: Any = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        self.config: C = config_of(self.config_class, config, options, type(self))  # type: ignore[arg-type]  # its own class
        self.seed = fresh_seed() if seed is None else check_seed(option_name("seed"), seed)
        self.device = torch.device("cpu" if device is None else device)
        self.replay_buffer = _usual_buffer(self.env_spec, self.config) if replay_buffer is None else replay_buffer
        if exploration_policy is not None:
            expected = "an ActingPolicy such as GaussianMLPPolicy"
            check_instance("exploration_policy", exploration_policy, ActingPolicy, expected)
        made = self.make(policy, qf, exploration_policy)
        self.policy, self.qf, self.exploration_policy, self.trainer, self.weight_exponent = made
        _warn_of_integers(self.env_spec)
        self.test_env_sampler = test_env_sampler
        self._tasks = TrainingTasks(task_sampler, derive_seed("off-policy tasks", self.seed))
        self.settle(self.config)
        self._episodes = RunningEpisodes(self.config.num_envs)
        self._generator = np.random.default_rng(derive_seed("off-policy batches", self.seed))
        self._counts = Counts()
        self.init_opt()

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """Networks and trainer for ``env_spec``, ``config`` and ``seed``; by default just the arguments.

        Args:
            policy, qf, exploration_policy: Arguments of the constructor; ``None`` for the defaults.

        Raises:
            TypeError: The learner does not support the spaces, or a network has the wrong class.
        """
        return Made(policy, qf, exploration_policy)

    # Settings by their documented names; there, an epoch has ``steps_per_epoch`` cycles.
    discount = ConfigField[float](changes=True)
    max_eval_path_length = ConfigField[int | None]("max_eval_steps", changes=True)
    evaluate_every = ConfigField[int](changes=True)
    steps_per_epoch = ConfigField[int]("cycles_per_epoch", changes=True)
    n_train_steps = ConfigField[int]("gradient_steps", changes=True)
    buffer_batch_size = ConfigField[int]("batch_size", changes=True)
    min_buffer_size = ConfigField[int]("warmup_steps", changes=True)
    rollout_batch_size = ConfigField[int]("num_envs")
    reward_scale = ConfigField[float](changes=True)
    smooth_return = ConfigField[bool](changes=True)
    update_to_data = ConfigField[float](changes=True)
    n_step = ConfigField[int](changes=True)
    use_target = True
    """Whether there are target networks; the learners of this library have them."""

    def settle(self, config: C) -> None:
        """Replace the current config; raises as the constructor does, and then changes nothing."""
        horizon = horizon_of(config.max_steps, self.env_spec)
        replay = as_replay(self.replay_buffer, config.n_step)
        with named_as(config.names_given):
            _check_sizes(replay.capacity, config)
            steps = _steps_of_cycle(config)
        self.config, self._max_steps, self._replay, self.env_steps_per_cycle = config, horizon, replay, steps

    @property
    def max_path_length(self) -> int:
        """Maximum number of steps of a rollout."""
        return self._max_steps

    @max_path_length.setter
    def max_path_length(self, value: int | None) -> None:
        self.settle(config_of(type(self.config), self.config, {"max_path_length": value}))

    @property
    def task_sampler(self) -> Any:
        """Variations for training: a list of ``EnvUpdate``, a sampler, or ``None``."""
        return self._tasks.source

    @property
    def cycles_per_epoch(self) -> int:
        """Number of collect-and-update cycles per epoch."""
        return self.config.cycles_per_epoch

    @property
    def warming_up(self) -> bool:
        """Whether the buffer holds too few steps for gradient steps."""
        return not self.is_filled

    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        """Learn from the buffer, which already holds ``paths``; by default ``improve``.

        Args:
            itr: Number of calls before this one.
            paths: Newly collected pieces of rollouts, as dicts (``RunningEpisodes.paths``).

        Returns:
            ``average_return``.
        """
        return self.improve()

    def init_opt(self) -> None:
        """Prepare the optimization; does nothing by default."""

    @property
    def is_filled(self) -> bool:
        """Whether the buffer holds enough steps for gradient steps."""
        return self._replay.n_transitions_stored >= max(self.config.warmup_steps, 1)

    def sample_batch(self) -> TransitionBatch:
        """``batch_size`` steps from the buffer, with scaled rewards."""
        return self._draw()[1]

    def _draw(self, count: int = 1) -> tuple[ReplayBatch, TransitionBatch]:
        """``count`` batches, one after the other."""
        weighted = self.weight_exponent is not None
        options: dict[str, Any] = {"weight_exponent": self.weight_exponent} if weighted else {}
        options |= {"n_step": self.config.n_step, "discount": self.config.discount}
        drawn = self._replay.sample(count * self.config.batch_size, self._generator, **options)
        space, scale = self.env_spec.observation_space, self.config.reward_scale
        return drawn, self.transform_batch(tensors_of(drawn, space, self.device, scale, weighted))

    def transform_batch(self, batch: TransitionBatch) -> TransitionBatch:
        """Transform sampled steps, of one batch or several, before gradient steps use them; the identity by default."""
        return batch

    def improve(self) -> float:
        """``gradient_steps`` steps of ``trainer``, once the buffer is filled; returns ``average_return``."""
        steps, size = self.config.gradient_steps, self.config.batch_size
        if self.trainer is not None and self.is_filled:
            if self.weight_exponent is None:
                at_once = max(1, _DRAWN_AT_ONCE // (size * self.env_spec.obs_dim))
                _train_uniformly(self.trainer, self._draw, steps, size, at_once)
            else:
                for _ in range(steps):
                    drawn, batch = self._draw()
                    self._replay.update_priorities(drawn.indices, self.trainer.step(batch).cpu().numpy())
            self._counts.gradient_steps += steps
        return self.average_return

    @property
    def average_return(self) -> float:
        """Average return of completed episodes, NaN without any (see ``smooth_return``)."""
        return self._counts.average_return(self.config.smooth_return)

    @property
    def num_env_steps(self) -> int:
        """Environment steps so far."""
        return self._counts.env_steps

    @property
    def num_gradient_steps(self) -> int:
        """Gradient steps of ``improve`` so far."""
        return self._counts.gradient_steps

    @property
    def log_is_complete(self) -> bool:
        """Whether the last epoch completed episodes and took gradient steps: its log then has the numbers of both."""
        return self._counts.has_ended and (self.trainer is None or self._counts.steps_before > 0)

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.base.train``.

        Returns:
            What ``train_once`` returned in the last cycle.
        """
        self._average: float | None = None
        train(self, runner)
        if self.trainer is not None and not self.is_filled:
            _warn_unfilled(self.config.warmup_steps, self._replay.n_transitions_stored)
        return self._average

    def collect(self, runner: Runner) -> list[dict[str, Any]]:
        """Take the environment steps of one cycle and store them; returns the paths for ``train_once``."""
        exploration = None if self.trainer is None else self.trainer.exploration
        if exploration is not None:
            exploration.prepare(self._counts.env_steps)
        pieces = Rollouts.of(
            runner.advance(
                self.env_steps_per_cycle // self.config.num_envs,
                num_slots=self.config.num_envs,
                env_updates=self._tasks.source,
                parameters=None if exploration is None else exploration.vector(),
            )
        )
        self._counts.env_steps += int(pieces.bounds[-1])
        self._replay.add(pieces, None if exploration is None else exploration.stored(pieces.column("actions")))
        paths = self._episodes.paths(pieces)
        self._counts.note(paths, self.process_samples(self._counts.cycles, paths)["complete"])
        return paths

    def update(self, collected: Sequence[Mapping[str, Any]], progress: Progress | None = None) -> dict[str, float]:
        """Call ``train_once``, after each ``collect``; the numbers for the log come from ``end_epoch``.

        Args:
            collected: The paths from ``collect``.
            progress: Called as ``progress(done, total)``, in cycles.
        """
        self._average = self.train_once(self._counts.cycles, collected)
        self._counts.end_cycle()
        if progress is not None:
            progress(self._counts.cycle, self.cycles_per_epoch)
        if self._counts.cycle == self.cycles_per_epoch:
            self.log_diagnostics(collected)
        return {}

    def process_samples(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """Statistics of the episodes that the paths belong to, so far.

        Args:
            itr: Number of ``train_once`` calls before.
            paths: The argument of ``train_once``.

        Returns:
            For each path ``undiscounted_returns``, ``success_history`` (share of steps with success), and ``complete``.
        """
        return {
            "undiscounted_returns": [path["undiscounted_return"] for path in paths],
            "success_history": [path["success_count"] / path["running_length"] for path in paths],
            "complete": [bool(path["dones"][-1]) for path in paths],
        }

    def log_diagnostics(self, paths: Sequence[Mapping[str, Any]]) -> None:
        """Call ``log_diagnostics(paths)`` of the policy and the Q-function, where they have it."""
        for log in (getattr(part, "log_diagnostics", None) for part in (self.policy, self.qf)):  # the user's own
            if callable(log):
                log(paths)

    def begin_epoch(self) -> None:
        """Drop the episodes of the previous epoch."""
        self._counts.begin_epoch()

    def end_epoch(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Numbers of the episodes of the epoch, of the buffer, and of ``trainer``."""
        numbers = {**numbers, **self._counts.numbers(), "replay_steps": float(self._replay.n_transitions_stored)}
        if self.trainer is not None:
            losses = self.trainer.means.take()
            self.trainer.trained.check_finite(losses, self.config.reward_scale)
            numbers |= losses
        return numbers

    def after_restore(self) -> None:
        """Clear the buffer: its contents are restored by ``load_buffers_state_dict``, or not at all."""
        self._replay.clear()

    @property
    def arithmetic(self) -> int:
        """See ``RLAlgorithm``."""
        return 1 if self.trainer is None else self.trainer.arithmetic

    def fingerprint(self) -> str | None:
        """Class, networks and hyperparameters as a short text, which a snapshot must match."""
        if self.trainer is None:
            return None
        c = self.config
        sizes = (c.batch_size, c.warmup_steps, c.num_envs, self._replay.capacity)
        numbers = (c.discount, c.n_step, c.reward_scale, c.update_to_data, c.gradient_steps)
        texts = map(repr, (*numbers, *sizes, type(self.policy).__name__, type(self.exploration_policy).__name__))
        return fingerprint_of(self, *self.trainer.described(), *self.trainer.trained.shapes(), *texts)

    @property
    def train_tasks(self) -> list[Any] | None:
        """The training tasks, where there is a list of them."""
        listed = self._tasks.listed
        return None if listed is None else [update.task for update in listed]


def require_box(env_spec: Any, learner: str, choosing: str) -> EnvSpec:
    """The spec, if its actions are a Box.

    Args:
        env_spec: Environment or spec.
        learner: Name of the learner, for the error message.
        choosing: Hint: the learners for choices.

    Raises:
        SpaceError: The actions are choices.
    """
    spec = EnvSpec.from_env(env_spec)
    space = spec.action_space
    if not isinstance(space, gymnasium.spaces.Box):
        several = isinstance(space, gymnasium.spaces.MultiDiscrete)
        alternative = "ppo learns several choices" if several else "a wrapper can turn them into one"
        hint = choosing if isinstance(space, gymnasium.spaces.Discrete) else alternative
        raise SpaceError(f"{learner} learns actions that are a Box of numbers, got {space}: {hint}")
    return spec


def require_choices(env_spec: Any, learner: str, others: str) -> EnvSpec:
    """The spec, if its actions are Discrete.

    Args:
        env_spec: Environment or spec.
        learner: Name of the learner, for the error message.
        others: Hint: the learners for other actions.

    Raises:
        SpaceError: The actions are not Discrete.
    """
    spec = EnvSpec.from_env(env_spec)
    if not isinstance(spec.action_space, gymnasium.spaces.Discrete):
        raise SpaceError(f"{learner} learns values of Discrete actions, got {spec.action_space}: {others}")
    return spec


def _train_uniformly(
    trainer: ReplayTrainer,
    draw: Callable[[int], tuple[ReplayBatch, TransitionBatch]],
    num_steps: int,
    batch_size: int,
    at_once: int,
) -> None:
    # Nothing is stored in between, so several batches are drawn at once: the overhead of a draw is paid once.
    remaining = num_steps
    while remaining:
        count = min(remaining, at_once)
        for batch in draw(count)[1].split(batch_size):
            trainer.step(batch)
        remaining -= count


def _warn_unfilled(wanted: int, stored: int) -> None:
    warnings.warn(
        f"nothing was learned: gradient steps begin when {wanted} steps are stored "
        f"({option_text('warmup_steps')}), and there are {stored}",
        RunWarning,
        stacklevel=frames_of_ours(),
    )


def _usual_buffer(env_spec: EnvSpec, config: OffPolicyConfig) -> ReplayBuffer:
    """The default buffer, with one slot per parallel rollout."""
    return ReplayBuffer(
        env_spec.observation_space,
        env_spec.action_space,
        config.replay_size,
        num_slots=config.num_envs,
        priority_exponent=config.priority_exponent if isinstance(config, PrioritiesConfig) else None,
    )


def _check_sizes(capacity: int, config: OffPolicyConfig) -> None:
    held = f"the {capacity} steps that the replay buffer holds ({option_name('replay_size')})"
    if capacity < config.batch_size:
        raise config.wrong("batch_size", f"be at most {held}")
    if config.warmup_steps > capacity:
        raise config.wrong("warmup_steps", f"be at most {held}", "gradient steps would never begin")


def _steps_of_cycle(config: OffPolicyConfig) -> int:
    """Environment steps per cycle, a whole multiple of the number of slots."""
    wanted, ratio, num_slots = config.gradient_steps, config.update_to_data, config.num_envs
    steps = wanted / ratio
    whole = round(steps)
    if whole < 1 or abs(steps - whole) > 1e-6 * steps or whole % num_slots:
        each = ratio * num_slots
        rounds = max(1, round(wanted / each))
        fits = next((k * each for k in range(rounds, rounds + 1000) if (k * each).is_integer()), math.ceil(each))
        cycle = f"{option_name('gradient_steps')} / {option_name('update_to_data')}, the environment steps of a cycle"
        raise ValueError(
            f"{cycle}, must be a whole multiple of {config.shown('num_envs')}, got {wanted} / {ratio:g} = {steps:g}; "
            f"try {option_text('gradient_steps', int(fits))}"
        )
    return whole


_LARGE = 10
"""Observations with larger integers should be scaled before they enter networks."""


def _warn_of_integers(spec: EnvSpec) -> None:
    """Warn of large integers in observations, which would enter networks unscaled."""
    for name, part in named_leaves(spec.observation_space):
        if isinstance(part, gymnasium.spaces.Box) and part.dtype.kind in "ui" and not is_image(part):
            most = max(abs(int(part.low.min())), abs(int(part.high.max())))
            if most > _LARGE:
                warnings.warn(
                    f"{name} holds integers up to {most}, which enter networks unscaled: scale them, for example to "
                    "[0, 1] (gymnasium.wrappers.TransformObservation)",
                    stacklevel=frames_of_ours(),
                )
