"""Checks whether an environment is ready to be a family of tasks, and reports what to fix."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import check_seed, check_whole
from metaroll.data.data_format import iterate_leaves
from metaroll.data.space_batches import empty_batch, flatten_batch, same_kind, write_element
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.constructors import close_env
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.lookup.registry import family_of, get_family
from metaroll.envs.lookup.source import EnvSource, is_env_instance
from metaroll.errors import InvalidValueError, NotPicklableError, RolloutError, SlotError, counted, one_line
from metaroll.lab.checking.identifiability import Identifiability
from metaroll.lab.checking.report import TaskCheck, TaskEnvReport
from metaroll.lab.checking.trials import RandomActions, difference, distinct, play, play_tasks
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.tasks.leak_guard import check_split
from metaroll.tasks.task_key import task_key
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.types import EnvSpec, EnvUpdate, flat_dim

__all__ = ["check_task_env", "tasks_do_not_differ"]

_NUM_TASKS = 6
"""Number of tasks that are set in turn."""
_MOST_STEPS = 200
_WORKER_STEPS = 20
_FITTED_STEPS = 20
_MOST_SPECS = 50
"""Maximum number of constructors that are called to compare their spaces."""
_FEW_TASKS, _FEW_STEPS = 3, 30
"""Number of tasks and steps that ``tasks_do_not_differ`` compares."""


def check_task_env(
    env: Any, tasks: Any = None, *, num_steps: int | None = None, workers: bool = True, seed: int = 0
) -> TaskEnvReport:
    """Check an environment and its tasks, with random actions.

    - ``environment``: it can be made, reset and stepped; observations fit its space, which is the same in all tasks.
    - ``tasks``: how training tasks and held-out tasks are separated; the same seed draws the same tasks.
    - ``reset(seed)``: the same seed and actions give the same rollout, whatever the state of global generators.
    - ``setting a task``: rollouts in different tasks differ.
    - ``keeping the task``: a second reset starts the same task again.
    - ``changing the task``: a previous task leaves no trace.
    - ``worker``: tasks can be sent to another process and give the same rollouts there.
    - ``first observation``: the task cannot be decoded from it, which would make adaptation unnecessary.
    - ``later steps``: no entry of later observations, or of the infos of a reset, is a number of the task.
    - ``distinguishable``: tasks are distinguishable in short rollouts with random actions.
    - ``reward``: its size, and how it differs between tasks.

    Args:
        env: A ``TaskFamily``, its name or ``module:attribute``; or an environment with tasks, or a constructor of one.
        tasks: As for ``TaskFamily.from_env``, for an environment that has no ``sample_tasks``.
        num_steps: Maximum number of steps in a rollout; ``None`` means the horizon, at most 200.
        workers: Also start a worker process and send tasks to it.
        seed: Seed of tasks, resets and actions.

    Raises:
        TypeError, ValueError: ``num_steps`` is not a whole number of at least 1, ``seed`` not one of at least 0, or
            ``env`` gives no family of tasks.
    """
    seed = check_seed("seed", seed)
    if isinstance(env, str) and tasks is None:
        family = get_family(env)
    else:
        env = EnvSource.of(env) if is_env_instance(env) else env
        family = family_of(env) if tasks is None else TaskFamily.from_env(env, tasks)
    steps = (
        min(family.horizon or _MOST_STEPS, _MOST_STEPS) if num_steps is None else check_whole("num_steps", num_steps)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings from environments are not findings
        return _Checks(family, steps, seed).report(workers)


def tasks_do_not_differ(family: TaskFamily, seed: int = 0) -> str | None:
    """A message that a few tasks give the same rollout; ``None`` if they differ or cannot be compared.

    Rollouts use the same seed and the same random actions, each in a new environment. Tasks with a sparse reward may
    still differ.

    Args:
        family: The tasks.
        seed: Seed of tasks, resets and actions.
    """
    checks = _Checks(family, min(family.horizon or _FEW_STEPS, _FEW_STEPS), seed)
    rollouts: list[StepSequence] = []
    with warnings.catch_warnings(), contextlib.suppress(Exception):  # training reports errors
        warnings.simplefilter("ignore")
        held_out = 0 if family.same_tasks else min(1, family.num_test_tasks)
        train, test = family.split(min(_FEW_TASKS - held_out, family.num_train_tasks), held_out, seed)
        rollouts = [checks.alone(update)[0] for update in [*train, *test]]
    if len(rollouts) < 2 or distinct(rollouts) > 1:
        return None
    return (
        f"{len(rollouts)} tasks give the same observations and rewards in {counted(len(rollouts[0]), 'step')} of "
        "random actions. Setting a task has no effect, or the reward is too sparse to show it"
    )


class _SetAfterReset(gymnasium.Wrapper):
    """Sets the task after each reset, so that it takes effect even if a reset forgets it."""

    def __init__(self, env: Any, update: EnvUpdate) -> None:
        super().__init__(env)
        self._update = update

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self.env = self._update(self.env)
        return result


class _Watched(gymnasium.ObservationWrapper):
    """Checks each observation as the environment returns it; one that does not fit its space is an error."""

    loose = ""
    """The observation whose type loses precision in that of the space, in words; empty if there is none."""

    def observation(self, observation: Any) -> Any:
        batch = empty_batch(self.observation_space, 1)
        write_element(self.observation_space, batch, 0, observation)
        flatten_batch(self.observation_space, batch)  # rejects invalid choices
        leaves = dict(iterate_leaves(observation))
        for path, leaf in iterate_leaves(batch):
            if path in leaves and not leaf.dtype.hasobject and not self.loose:
                dtype = np.asarray(leaves[path]).dtype
                name = "observation" + "".join(f"[{key!r}]" for key in path)
                fits = np.can_cast(dtype, leaf.dtype)
                self.loose = "" if fits else f"{name} has type {dtype}, but its space has {leaf.dtype}"
        return observation


class _Checks:
    """Runs the checks of one family; results that several checks need are kept."""

    def __init__(self, family: TaskFamily, num_steps: int, seed: int) -> None:
        self.family, self.num_steps, self.seed = family, num_steps, seed
        self.updates: list[EnvUpdate] = []
        self.deterministic = False
        self.rollouts: list[StepSequence] = []
        """One rollout in each of the first tasks, each in a new environment."""

    def report(self, workers: bool) -> TaskEnvReport:
        plan: dict[str, Callable[[], TaskCheck]] = {
            "environment": self.environment,
            "tasks": self.tasks,
            "reset(seed)": self.reset_seed,
            "setting a task": self.setting,
            "keeping the task": self.keeping,
            "changing the task": self.changing,
            **({"worker": self.worker} if workers else {}),
            "first observation": lambda: self._identifiability.first_observation,
            "later steps": lambda: self._identifiability.later_steps(),
            "distinguishable": lambda: self._identifiability.distinguishable(),
            "reward": lambda: self._identifiability.reward(),
        }
        checks: list[TaskCheck] = []
        for name, check in plan.items():
            if any(c.status == "fail" and c.name in ("environment", "tasks") for c in checks):
                checks.append(TaskCheck(name, "skip", "not checked, since the above failed"))
            else:
                result = _guarded(name, check)
                same = [c.name for c in checks if result.status == c.status == "fail" and result.value == c.value]
                echo = TaskCheck(name, "skip", f"fails in the same way as {same[0]!r}") if same else None
                checks.append(echo or result)
        return TaskEnvReport(self.family.name, tuple(checks))

    def environment(self) -> TaskCheck:
        name, horizon, hints = "environment", self.family.horizon, []
        if different := self._different_spaces():
            hint = "give all tasks the same spaces, for example by padding with zeros; or make one family per kind"
            return TaskCheck(name, "fail", different, hint)
        if loose := self._loose_type():
            hints.append(f"{loose}: return np.asarray(observation, dtype=self.observation_space.dtype)")
        if not horizon:
            hints.append("episodes may never end: give the family a horizon, or the environment a time limit")
        length = f"episodes of {counted(horizon, 'step')}" if horizon else "no time limit"
        kinds = [_kind(space) for space in (self._spec.observation_space, self._spec.action_space)]
        value = f"observations {kinds[0]}, actions {kinds[1]}, {length}"
        return TaskCheck(name, "warn" if hints else "ok", value, "; ".join(hints))

    def _different_spaces(self) -> str:
        """The first task with spaces that differ from the first one's, in words; empty if all are equal."""
        first: tuple[Any, EnvSpec] | None = None
        for update in (self.family.tasks.updates or [])[:_MOST_SPECS]:
            if not isinstance(update, NewEnvUpdate):
                break
            spec = self._spec_of(update)
            first = first or (update.task, spec)
            pairs = {
                "observation": (first[1].observation_space, spec.observation_space),
                "action": (first[1].action_space, spec.action_space),
            }
            for kind, (left, right) in pairs.items():
                if not same_kind(left, right):
                    return f"tasks have different {kind} spaces: {first[0]!r} has {left}, {update.task!r} has {right}"
        return ""

    def _loose_type(self) -> str:
        """The observations whose precision a rollout loses, in words; an error if it cannot hold them at all."""
        try:
            (update, *_), _ = self.family.split(1, 0, self.seed)
        except Exception:
            return ""  # reported by the check of the tasks
        policy = RandomActions(self._spec.action_space, [self._trial_seed], min(self.num_steps, _FITTED_STEPS))
        with isolated_rng(self.seed):
            env = update(None)
            watched = _Watched(env) if isinstance(env, gymnasium.Env) else None
            try:
                play(watched or env, policy, self._trial_seed)
            except Exception:
                self.alone(update)  # raises the error as training would, without the wrapper
                raise
            finally:
                close_env(env)
        return watched.loose if watched else ""

    def tasks(self) -> TaskCheck:
        train, test = self.family.split(seed=self.seed)
        self.updates += train
        for i, update in enumerate(() if self.family.same_tasks else test):
            self.updates.insert(5 * i + 4, update)  # one held-out task after every four
        redrawn = [update.task for tasks in self.family.split(seed=self.seed) for update in tasks]
        if list(map(task_key, redrawn)) != [task_key(update.task) for update in [*train, *test]]:
            hint = "let sample_tasks(num_tasks, generator) draw only from its generator"
            return TaskCheck("tasks", "fail", "the same seed gives different tasks", hint)
        if not self.updates:
            hint = "give the family num_train_tasks and num_test_tasks of at least 1"
            return TaskCheck("tasks", "fail", "there are none", hint)
        if not train or not test:
            value = f"{len(self.updates)} tasks, none {'held out' if train else 'to train in'}"
            hint = "learning is evaluated on separate tasks: provide some for both"
            return TaskCheck("tasks", "warn", value, hint)
        if self.family.same_tasks:
            return TaskCheck("tasks", "ok", f"{len(train)} tasks, trained on and tested on, as published")
        split = check_split(train, test, overlap="warn")
        numbers = {"nearest": split.nearest, "median": split.median, "median_in_training": split.median_in_training}
        if split.overlaps or split.near:
            hint = "split the tasks by TaskFamily.from_params or from_env, and leave out nearly equal ones"
            return TaskCheck("tasks", "fail" if split.overlaps else "warn", str(split), hint, numbers)
        return TaskCheck("tasks", "ok", str(split), numbers=numbers)

    def reset_seed(self) -> TaskCheck:
        first, other, again = (self.alone(self.updates[0], global_seed)[0] for global_seed in (1, 2, 1))
        where = difference(first, other)
        if where is None:
            self.deterministic = True
            return TaskCheck(
                "reset(seed)", "ok", f"the same seed gives the same rollout ({counted(len(first), 'step')})"
            )
        cause = (
            "global generators" if difference(first, again) is None else "a generator that reset(seed) does not seed"
        )
        value = f"rollouts with the same seed differ {where}: the environment draws from {cause}"
        hint = "call super().reset(seed=seed) in reset, and draw only from self.np_random"
        return TaskCheck("reset(seed)", "fail", value, hint)

    def setting(self) -> TaskCheck:
        name, updates = "setting a task", self.updates[:_NUM_TASKS]
        if len(updates) < 2:
            return TaskCheck(name, "skip", "there is only one task")
        if not self.deterministic:
            return TaskCheck(name, "skip", "needs rollouts that a seed reproduces; see distinguishable")
        self.rollouts += [self.alone(update)[0] for update in updates]
        kinds = distinct(self.rollouts)
        value = f"{kinds} of {len(updates)} tasks give different rollouts"
        numbers = {"different": kinds, "tasks": len(updates)}
        if kinds == len(updates):
            return TaskCheck(name, "ok", value, numbers=numbers)
        if kinds > 1:
            hint = (
                f"tasks that {self.num_steps} steps of random actions do not distinguish may be the same (or the "
                "reward is sparse)"
            )
            return TaskCheck(name, "warn", value, hint, numbers)
        if self._distinct_if_set_late > 1:
            return TaskCheck(name, "ok", "it only has an effect until the next reset", numbers=numbers)
        value = f"setting a task has no effect: {len(updates)} tasks give the same observations and rewards"
        return TaskCheck(name, "fail", value, "store the task in set_task, and use it in step and reset", numbers)

    def keeping(self) -> TaskCheck:
        name = "keeping the task"
        if len(self.rollouts) < 2:
            return TaskCheck(name, "skip", "needs different tasks, and rollouts that a seed reproduces")
        hint = "reset must not change the task: only set_task does"
        if distinct(self.rollouts) == 1:
            if self._distinct_if_set_late > 1:
                return TaskCheck(name, "fail", "reset forgets the task that was set", hint)
            return TaskCheck(name, "skip", "setting a task has no effect that could be kept")
        seconds = [self.alone(update, resets=2)[1] for update in self.updates[: len(self.rollouts)]]
        lost = sum(difference(a, b) is not None for a, b in zip(self.rollouts, seconds, strict=True))
        if not lost:
            return TaskCheck(name, "ok", "a second reset starts the same task again")
        if distinct(seconds) == 1:
            return TaskCheck(name, "fail", "a second reset forgets the task: afterwards all tasks are the same", hint)
        value = f"after a second reset with the same seed {lost} of {len(seconds)} tasks give a different rollout"
        return TaskCheck(name, "fail", value, f"{hint}, and it must undo everything that an episode has changed")

    def changing(self) -> TaskCheck:
        name, num = "changing the task", len(self.rollouts)
        if num < 2:
            return TaskCheck(name, "skip", "needs different tasks, and rollouts that a seed reproduces")
        there_and_back = [*self.updates[:num], *reversed(self.updates[:num])]
        later = [
            rollout for (rollout,) in play_tasks(self.family, there_and_back, self._policy, self._trial_seed)[num:]
        ]
        traces = sum(difference(a, b) is not None for a, b in zip(reversed(later), self.rollouts, strict=True))
        if not traces:
            return TaskCheck(name, "ok", "a previous task leaves no trace")
        value = f"{traces} of {num} tasks give a different rollout after other tasks than in a new environment"
        hint = "set_task must set everything that a task changes, from stored nominal values (mass = nominal * factor)"
        return TaskCheck(name, "fail", value, hint)

    def worker(self) -> TaskCheck:
        policy = RandomActions(self._spec.action_space, [self._trial_seed], min(self.num_steps, _WORKER_STEPS))
        run = functools.partial(play_tasks, self.family, self.updates[:2], policy, self.seed)
        try:
            with SamplerPool(1, transport="process", timeouts=PoolTimeouts(), max_retries=0) as pool:
                remote = run(pool=pool)
        except NotPicklableError as error:
            reason = str(error.__cause__ or error)
            hint = "create files, locks, viewers and connections inside the constructor, and keep them out of the task"
            return TaskCheck("worker", "fail", f"a task cannot be sent to another process: {reason}", hint)
        where = [difference(a, b) for (a,), (b,) in zip(run(), remote, strict=True)]
        different = [place for place in where if place is not None]
        if different and self.deterministic:
            value = f"in another process the same seed gives a different rollout ({different[0]})"
            hint = "do not depend on the process: environment variables, hash(), files in the current folder"
            return TaskCheck("worker", "fail", value, hint)
        text = "where rollouts are the same" if self.deterministic else "where they work"
        return TaskCheck("worker", "ok", f"tasks can be sent to another process, {text}")

    def alone(self, update: EnvUpdate, global_seed: int = 0, resets: int = 1) -> list[StepSequence]:
        """Consecutive rollouts in a new environment, with global generators in a given state."""
        with isolated_rng(global_seed):
            env = update(None)
            try:
                return [play(env, self._policy, self._trial_seed) for _ in range(resets)]
            finally:
                close_env(env)

    # -- what several checks need ------------------------------------------------------------------------------------

    @functools.cached_property
    def _identifiability(self) -> Identifiability:
        return Identifiability(self.family, self._spec, self.updates, self.num_steps, self.seed)

    @functools.cached_property
    def _spec(self) -> EnvSpec:
        return self._spec_of(self.family.env_constructor)

    def _spec_of(self, make: Callable[[], Any]) -> EnvSpec:
        with isolated_rng(self.seed):
            env = make()
            spec = EnvSpec.from_env(env)
            close_env(env)
        return spec

    @functools.cached_property
    def _policy(self) -> RandomActions:
        return RandomActions(self._spec.action_space, [derive_seed("actions", self.seed)], self.num_steps)

    @property
    def _trial_seed(self) -> int:
        return derive_seed("trial", self.seed)

    @functools.cached_property
    def _distinct_if_set_late(self) -> int:
        """Number of different rollouts if tasks are set after the reset; 1 if that is not possible."""
        rollouts = []
        for update in self.updates[:_NUM_TASKS]:
            with isolated_rng(0), contextlib.suppress(Exception):
                env = self.updates[0](None)
                try:
                    rollouts.append(play(_SetAfterReset(env, update), self._policy, self._trial_seed))
                finally:
                    close_env(env)
        return max(1, distinct(rollouts))


def _guarded(name: str, check: Callable[[], TaskCheck]) -> TaskCheck:
    """Run ``check``; an exception in it becomes a finding."""
    try:
        return check()
    except InvalidValueError as error:
        if error.what == "reward":
            return TaskCheck(name, "skip", "rollouts have NaN or infinite rewards; see reward")
        return TaskCheck(name, "fail", f"{error.what} is NaN or infinite", "return finite observations")
    except Exception as error:
        cause, where = error, ""
        while isinstance(cause, RolloutError | SlotError) and cause.__cause__ is not None:
            if isinstance(cause, RolloutError):
                where = "at the reset" if cause.step < 0 else f"after step {cause.step + 1}"
            cause = cause.__cause__
        if where and str(cause).startswith("observation"):
            return TaskCheck(
                name, "fail", f"{cause} ({where})", "make observation_space match what reset and step return"
            )
        return TaskCheck(name, "fail", one_line(cause), "the message says why")


def _kind(space: gymnasium.Space) -> str:
    """A short description of a space: bounds of many entries would fill the report."""
    if isinstance(space, gymnasium.spaces.Box):
        return f"Box{space.shape}"
    text = str(space)
    return text if len(text) <= 80 else f"{type(space).__name__} of {flat_dim(space)} numbers"
