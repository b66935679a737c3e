"""``OffPolicyRLAlgorithm``: live collection into a replay buffer, and updates from it."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import gymnasium
import numpy as np
import torch

from metaroll.checks import check_number, check_unit_interval, check_whole
from metaroll.data.replay.replay_buffer import ReplayBatch
from metaroll.data.replay.streams import named_leaves
from metaroll.data.rollouts import Rollouts
from metaroll.errors import option_text, said
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.foreign import as_runner
from metaroll.learners.off_policy.episodes import Counts, RunningEpisodes
from metaroll.learners.off_policy.replay import TransitionBatch, as_replay, tensors_of
from metaroll.learners.off_policy.trainer import ReplayTrainer
from metaroll.learners.on_policy_training import TrainingTasks, horizon_of
from metaroll.learners.runner import Runner
from metaroll.learners.snapshots import fingerprint_of, load_or_keep
from metaroll.policies.encoders import is_image
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.types import EnvSpec

__all__ = ["CollectionOptions", "OffPolicyRLAlgorithm"]


_DRAWN_AT_ONCE = 2**18
"""Numbers in observations that are drawn at once: few enough to stay in a cache."""


class CollectionOptions(TypedDict, total=False):
    """Keyword arguments of ``OffPolicyRLAlgorithm``, where they are explained, that its learners hand on to it."""

    discount: float
    steps_per_epoch: int
    max_path_length: int | None
    max_eval_path_length: int | None
    n_train_steps: int
    buffer_batch_size: int
    min_buffer_size: int
    rollout_batch_size: int
    reward_scale: float
    smooth_return: bool
    update_to_data: float
    n_step: int
    n_eval_trajs: int | None
    evaluate_every: int
    task_sampler: Any
    test_env_sampler: Any


class OffPolicyRLAlgorithm(RLAlgorithm):
    """Learns from replayed steps, while rollouts go on from call to call.

    An epoch is ``steps_per_epoch`` cycles. Each takes ``n_train_steps / update_to_data`` environment steps in
    ``rollout_batch_size`` rollouts that go on side by side, stores them, and calls ``train_once``, where a subclass
    says how it learns: ``sample_batch()`` draws from the buffer. Its own attributes must exist before it calls the
    constructor here, which ends with ``init_opt()``.

    Only what the environment itself ends is stored as terminal, a time limit is not; the observation after the last
    step of an episode is its own. What exploration remembers begins anew with each. Evaluations act without noise.

    Attributes:
        trainer: Networks and optimizers of a learner of this library, for ``improve``; ``None``: a subclass keeps, and
            saves, its own.
        weight_exponent: How far weights make up for the priorities of a buffer that has any; ``None``: it has none.

    Args:
        env_spec: Environment or spec.
        policy: What is learned, and evaluated.
        qf: Its action values.
        replay_buffer: A ``ReplayBuffer``, or a buffer with garage's ``add_path`` and ``sample_transitions``.
        use_target: Whether to use target networks (for subclasses that can do without).
        discount: Discount factor.
        steps_per_epoch: Number of train_once calls per epoch.
        max_path_length: Maximum number of steps of a rollout; null means the environment's time limit.
        max_eval_path_length: The same in evaluations; null means max_path_length.
        n_train_steps: Gradient steps of each train_once call.
        buffer_batch_size: Replayed steps of a gradient step.
        min_buffer_size: Steps to collect before the first gradient step.
        rollout_batch_size: Number of rollouts that go on side by side.
        reward_scale: What rewards are multiplied with as they enter an update; they are stored as they are.
        smooth_return: train_once returns the average over all episodes, rather than those of the epoch (the log's).
        exploration_policy: What acts in training; ``None`` means the policy itself.
        update_to_data: Gradient steps per environment step.
        n_step: Rewards to sum before the value of an observation counts.
        n_eval_trajs: Episodes of an evaluation, where the runner was given no evaluator.
        evaluate_every: Evaluate after every so many epochs; 0 means never.
        task_sampler: Variations of the environment to train in: a list of ``EnvUpdate``, or a sampler; ``None`` means
            the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Where the networks live; ``None`` means the CPU.

    Raises:
        ValueError: An argument is out of range, the buffer is too small, or the steps of a cycle are no whole number.
    """

    trainer: ReplayTrainer | None = None
    weight_exponent: float | None = None

    def __init__(
        self,
        env_spec: Any,
        policy: Any,
        qf: Any,
        replay_buffer: Any,
        *,
        use_target: bool = False,
        discount: float = 0.99,
        steps_per_epoch: int = 20,
        max_path_length: int | None = None,
        max_eval_path_length: int | None = None,
        n_train_steps: int = 50,
        buffer_batch_size: int = 64,
        min_buffer_size: int = 10000,
        rollout_batch_size: int = 1,
        reward_scale: float = 1.0,
        smooth_return: bool = True,
        exploration_policy: Any = None,
        update_to_data: float = 1.0,
        n_step: int = 1,
        n_eval_trajs: int | None = None,
        evaluate_every: int = 1,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        _warn_of_integers(self.env_spec)
        self.policy, self.qf, self.replay_buffer = policy, qf, replay_buffer
        self.use_target, self.smooth_return = bool(use_target), bool(smooth_return)
        self.discount = check_unit_interval("discount", discount)
        self.steps_per_epoch = check_whole("steps_per_epoch", steps_per_epoch)
        self.max_path_length = horizon_of(max_path_length, self.env_spec)
        limit = max_eval_path_length
        self.max_eval_path_length = None if limit is None else check_whole("max_eval_path_length", limit)
        self.n_train_steps = check_whole("n_train_steps", n_train_steps)
        self.buffer_batch_size = check_whole("buffer_batch_size", buffer_batch_size)
        self.min_buffer_size = check_whole("min_buffer_size", min_buffer_size, 0)
        self.rollout_batch_size = check_whole("rollout_batch_size", rollout_batch_size)
        self.reward_scale = check_number("reward_scale", reward_scale, 0.0, above_low=True)
        self.exploration_policy = exploration_policy
        self.update_to_data = check_number("update_to_data", update_to_data, 0.0, above_low=True)
        self.n_step = check_whole("n_step", n_step)
        self.n_eval_trajs = None if n_eval_trajs is None else check_whole("n_eval_trajs", n_eval_trajs)
        self.evaluate_every = check_whole("evaluate_every", evaluate_every, 0)
        self.seed = fresh_seed() if seed is None else int(seed)
        self.test_env_sampler = test_env_sampler
        self._tasks = TrainingTasks(task_sampler, derive_seed("off-policy tasks", self.seed))
        self._device = torch.device("cpu" if device is None else device)
        self._replay = as_replay(replay_buffer, self.n_step)
        _check_sizes(self._replay.capacity, self.buffer_batch_size, self.min_buffer_size)
        self.env_steps_per_cycle = _steps_of_cycle(self.n_train_steps, self.update_to_data, self.rollout_batch_size)
        """Environment steps of each cycle, all rollouts together."""
        self._episodes = RunningEpisodes(self.rollout_batch_size)
        self._generator = np.random.default_rng(derive_seed("off-policy batches", self.seed))
        self._counts = Counts()
        self.init_opt()

    @abstractmethod
    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        """Learn from the buffer, which holds ``paths`` already.

        Args:
            itr: Number of calls before this one.
            paths: What was collected since: pieces of rollouts as dicts (``RunningEpisodes.paths``).

        Returns:
            ``average_return``.
        """

    def init_opt(self) -> None:
        """Prepare the optimization; nothing by default."""

    @property
    def is_filled(self) -> bool:
        """Whether there is enough in the buffer for gradient steps."""
        return self._replay.n_transitions_stored >= max(self.min_buffer_size, 1)

    def sample_batch(self) -> TransitionBatch:
        """``buffer_batch_size`` steps from the buffer, rewards scaled."""
        return self._draw()[1]

    def _draw(self, count: int = 1) -> tuple[ReplayBatch, TransitionBatch]:
        """So many batches, one after the other."""
        weighted = self.weight_exponent is not None
        options: dict[str, Any] = {"weight_exponent": self.weight_exponent} if weighted else {}
        options |= {"n_step": self.n_step, "discount": self.discount}
        drawn = self._replay.sample(count * self.buffer_batch_size, self._generator, **options)
        return drawn, tensors_of(drawn, self.env_spec.observation_space, self._device, self.reward_scale, weighted)

    def improve(self) -> float:
        """``n_train_steps`` gradient steps of ``trainer``, as soon as the buffer is filled; ``average_return``."""
        if self.trainer is not None and self.is_filled:
            if self.weight_exponent is None:
                at_once = max(1, _DRAWN_AT_ONCE // (self.buffer_batch_size * self.env_spec.obs_dim))
                _train_uniformly(self.trainer, self._draw, self.n_train_steps, self.buffer_batch_size, at_once)
            else:
                for _ in range(self.n_train_steps):
                    drawn, batch = self._draw()
                    self._replay.update_priorities(drawn.indices, self.trainer.step(batch).cpu().numpy())
            self._counts.gradient_steps += self.n_train_steps
        return self.average_return

    @property
    def average_return(self) -> float:
        """Average return of the episodes that have ended, NaN as long as none has (see ``smooth_return``)."""
        return self._counts.average_return(self.smooth_return)

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
        """Whether episodes have ended in the last epoch, and gradient steps been taken: its log tells of both."""
        return self._counts.has_ended and (self.trainer is None or self._counts.steps_before > 0)

    def train(self, runner: Runner) -> float | None:
        """Collect, store and learn, for each epoch of ``runner``.

        Returns:
            The average return in the last cycle.
        """
        runner, average, paths = as_runner(runner), None, []
        for epoch in runner.step_epochs():
            self._counts.begin_epoch()
            for cycle in range(self.steps_per_epoch):
                paths = self.collect(runner)
                average = self.train_once(self._counts.cycles, paths)
                self._counts.cycles += 1
                runner.progress("updates" if self.is_filled else "warm-up", cycle + 1, self.steps_per_epoch)
            self.log_diagnostics(paths)
            runner.log(self._numbers_of_epoch())
            if self.is_filled and self.evaluate_every and (epoch + 1) % self.evaluate_every == 0:
                runner.evaluate(self, self.test_env_sampler)
        if self.trainer is not None and not self.is_filled:
            _warn_unfilled(self.min_buffer_size, self._replay.n_transitions_stored)
        return average

    def collect(self, runner: Runner) -> list[dict[str, Any]]:
        """Take the environment steps of a cycle, and store them; the paths of ``train_once``."""
        exploration = None if self.trainer is None else self.trainer.exploration
        if exploration is not None:
            exploration.prepare(self._counts.env_steps)
        pieces = Rollouts.of(
            runner.advance(
                self.env_steps_per_cycle // self.rollout_batch_size,
                num_slots=self.rollout_batch_size,
                env_updates=self._tasks.source,
                parameters=None if exploration is None else exploration.vector(),
            )
        )
        self._counts.env_steps += int(pieces.bounds[-1])
        self._replay.add(pieces, None if exploration is None else exploration.stored(pieces.column("actions")))
        paths = self._episodes.paths(pieces)
        self._counts.note(paths, self.process_samples(self._counts.cycles, paths)["complete"])
        return paths

    def process_samples(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """What paths say of their episodes so far.

        Args:
            itr: Number of ``train_once`` calls before.
            paths: As ``train_once`` gets them.

        Returns:
            For each path ``undiscounted_returns``, ``success_history`` (share of steps with success), and ``complete``.
        """
        return {
            "undiscounted_returns": [path["undiscounted_return"] for path in paths],
            "success_history": [path["success_count"] / path["running_length"] for path in paths],
            "complete": [bool(path["dones"][-1]) for path in paths],
        }

    def log_diagnostics(self, paths: Sequence[Mapping[str, Any]]) -> None:
        """Let policy and Q function log what they want to say of ``paths``, if they have ``log_diagnostics(paths)``."""
        for tell in (getattr(part, "log_diagnostics", None) for part in (self.policy, self.qf)):  # of the user
            if callable(tell):
                tell(paths)

    def _numbers_of_epoch(self) -> dict[str, float]:
        numbers = {**self._counts.numbers(), "replay_steps": float(self._replay.n_transitions_stored)}
        if self.trainer is not None:
            losses = self.trainer.means.take()
            self.trainer.trained.check_finite(losses, self.reward_scale)
            numbers |= losses
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """``trainer``, counters, generators and the returns of half-done episodes; a subclass adds what it learns."""
        return {
            "trainer": None if self.trainer is None else self.trainer.state_dict(),
            "collection": {
                "seed": self.seed,
                "counts": self._counts.state_dict(),
                "episodes": self._episodes.state_dict(),
                "batches": self._generator.bit_generator.state,
                "tasks": self._tasks.state_dict(),
            },
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical. What the buffer held is dropped, unless it is loaded, too.

        Raises:
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        load_or_keep(type(self).__name__, self.restore_parts, tree, self.state_dict())
        self._replay.clear()

    def restore_parts(self, tree: Mapping[str, Any]) -> None:
        """Restore the parts of ``state_dict`` one after the other; a subclass restores its own, too."""
        if self.trainer is not None:
            self.trainer.load_state_dict(tree["trainer"])
        told = tree["collection"]
        self.seed = int(told["seed"])
        self._counts.load_state_dict(told["counts"])
        self._episodes.load_state_dict(told["episodes"])
        self._generator.bit_generator.state = told["batches"]
        self._tasks.load_state_dict(told["tasks"])

    @property
    def arithmetic(self) -> int:
        """See ``RLAlgorithm``."""
        return 1 if self.trainer is None else self.trainer.arithmetic

    def fingerprint(self) -> str | None:
        """Class, networks and hyperparameters as a short text; a snapshot fits a learner with the same one."""
        if self.trainer is None:
            return None
        sizes = (self.buffer_batch_size, self.min_buffer_size, self.rollout_batch_size, self._replay.capacity)
        numbers = (self.discount, self.n_step, self.reward_scale, self.update_to_data, self.n_train_steps)
        told = map(repr, (*numbers, *sizes, type(self.policy).__name__, type(self.exploration_policy).__name__))
        return fingerprint_of(self, *self.trainer.described(), *self.trainer.trained.shapes(), *told)

    def buffers_state_dict(self, copy: bool = True) -> Mapping[str, Any]:
        """What the replay buffer holds."""
        return {"replay": self._replay.state_dict(copy)}

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``buffers_state_dict``."""
        self._replay.load_state_dict(tree["replay"])

    @property
    def train_tasks(self) -> list[Any] | None:
        """Tasks that it learns in, where there is a list of them."""
        listed = self._tasks.listed
        return None if listed is None else [update.task for update in listed]


def _train_uniformly(
    trainer: ReplayTrainer,
    draw: Callable[[int], tuple[ReplayBatch, TransitionBatch]],
    num_steps: int,
    batch_size: int,
    at_once: int,
) -> None:
    # Nothing is stored meanwhile: what costs as much for a batch as for many is done once for many.
    left = num_steps
    while left:
        count = min(left, at_once)
        for batch in draw(count)[1].split(batch_size):
            trainer.step(batch)
        left -= count


def _warn_unfilled(wanted: int, stored: int) -> None:
    warnings.warn(
        f"nothing was learned: gradient steps begin when {wanted} steps are stored "
        f"({option_text('min_buffer_size')}), and there are {stored}",
        RuntimeWarning,
        stacklevel=3,
    )


def _capacity_option() -> str:
    """How the capacity of a buffer is set."""
    return said("replay_size=..., or of replay_buffer=", "--replay-size")


def _check_sizes(capacity: int, batch_size: int, min_buffer_size: int) -> None:
    if capacity < batch_size:
        raise ValueError(
            f"the replay buffer must hold at least one batch, buffer_batch_size={batch_size} steps, got a capacity of "
            f"{capacity} ({_capacity_option()})"
        )
    if min_buffer_size > capacity:
        raise ValueError(
            f"min_buffer_size must be at most the capacity of the replay buffer, {capacity} ({_capacity_option()}), "
            f"got {min_buffer_size}: gradient steps would never begin"
        )


def _steps_of_cycle(n_train_steps: int, update_to_data: float, num_slots: int) -> int:
    """Environment steps of a cycle, a whole multiple of the number of slots."""
    steps = n_train_steps / update_to_data
    whole = round(steps)
    if whole < 1 or abs(steps - whole) > 1e-6 * steps or whole % num_slots:
        each = update_to_data * num_slots
        rounds = max(1, round(n_train_steps / each))
        fits = next((k * each for k in range(rounds, rounds + 1000) if (k * each).is_integer()), math.ceil(each))
        raise ValueError(
            f"n_train_steps / update_to_data, the environment steps of a cycle, must be a whole multiple of "
            f"rollout_batch_size={num_slots}, got {n_train_steps} / {update_to_data:g} = {steps:g}; try "
            f"{option_text('n_train_steps', int(fits))}"
        )
    return whole


_LARGE = 10
"""Larger integers should be scaled before networks see them."""


def _warn_of_integers(spec: EnvSpec) -> None:
    """Warn of large integers in observations, which networks would see as they are."""
    for name, part in named_leaves(spec.observation_space):
        if isinstance(part, gymnasium.spaces.Box) and part.dtype.kind in "ui" and not is_image(part):
            most = max(abs(int(part.low.min())), abs(int(part.high.max())))
            if most > _LARGE:
                warnings.warn(
                    f"{name} holds integers up to {most}, which enter networks as they are: scale them, to [0, 1] say "
                    "(gymnasium.wrappers.TransformObservation)",
                    stacklevel=4,
                )
