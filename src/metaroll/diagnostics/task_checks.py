"""Is an environment ready to be a family of tasks? One report says what is wrong, and the hint."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from metaroll.diagnostics.identifiability import Identifiability, numbers_told
from metaroll.diagnostics.leaks import later_steps
from metaroll.diagnostics.report import TaskCheck, TaskEnvReport
from metaroll.diagnostics.spaces import different_spaces, loose_type, misfit
from metaroll.diagnostics.trials import Trial, close_env, play, random_actions, trial_in_worker
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.lookup.registry import family_of, get_family
from metaroll.envs.lookup.source import env_source, is_env_instance
from metaroll.errors import NotPicklableError
from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.tasks.leak_guard import check_split
from metaroll.tasks.task_key import task_key
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.types import EnvSpec, EnvUpdate, flat_dim

__all__ = ["check_task_env"]

_NUM_TASKS = 6
"""Tasks that are set in turns."""
_MOST_STEPS = 200
_WORKER_STEPS = 20
_FITTED_STEPS = 20
_MOST_SPECS = 50
"""Constructors that are called to compare their spaces."""


def check_task_env(
    env: Any, tasks: Any = None, *, num_steps: int | None = None, workers: bool = True, seed: int = 0
) -> TaskEnvReport:
    """Look at an environment and its tasks, with random actions.

    - ``environment``: it can be made, reset and stepped; observations fit its space, which is the same in all tasks.
    - ``tasks``: how training tasks and held-out tasks lie to one another; the same seed draws the same ones.
    - ``reset(seed)``: the same seed and actions give the same rollout, whatever global generators are doing.
    - ``setting a task``: rollouts in different tasks differ.
    - ``keeping the task``: a second reset starts the same task again.
    - ``changing the task``: a task that was set before leaves no trace.
    - ``worker``: tasks can be sent to another process, and give the same rollouts there.
    - ``first observation``: it does not tell the task, which then would have to be found out by nobody.
    - ``later steps``: no entry of later observations, or of the infos of a reset, is a number of the task.
    - ``telling apart``: short rollouts with random actions show which task it is.
    - ``reward``: its size, and what differs between tasks.

    Args:
        env: A ``TaskFamily``, its name or ``module:attribute``; or an environment with tasks, or what makes one.
        tasks: As for ``TaskFamily.from_env``, for an environment that has no ``sample_tasks``.
        num_steps: Longest rollout; ``None`` means the horizon, at most 200.
        workers: Start a process to send tasks to.
        seed: Of tasks, resets and actions.
    """
    family = _family(env, tasks)
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise ValueError(f"num_steps must be a whole number of at least 1, got {num_steps!r}")
    steps = min(family.horizon or _MOST_STEPS, _MOST_STEPS) if num_steps is None else int(num_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what environments warn of is no finding
        return _Kit(family, steps, seed).report(workers)


def _family(env: Any, tasks: Any) -> TaskFamily:
    if isinstance(env, str) and tasks is None:
        return get_family(env)
    if is_env_instance(env):
        env = env_source(env)
    return family_of(env) if tasks is None else TaskFamily.from_env(env, tasks)


class _Kit:
    """Makes the checks of one family; what one of them needs of another is kept."""

    def __init__(self, family: TaskFamily, num_steps: int, seed: int) -> None:
        self.family, self.num_steps, self.seed = family, num_steps, seed
        self.updates: list[EnvUpdate] = []
        self.deterministic = False
        self.trials: list[Trial] = []
        """One in each of the first tasks, in a new environment."""

    def report(self, workers: bool) -> TaskEnvReport:
        checks: list[TaskCheck] = []
        for name, check in self._plan(workers).items():
            broken = any(found.status == "fail" and found.name in ("environment", "tasks") for found in checks)
            if broken:
                checks.append(TaskCheck(name, "skip", "not looked at, since the above failed"))
            else:
                checks.append(_without_echo(_guarded(name, check), checks))
        return TaskEnvReport(self.family.name, tuple(checks))

    def _plan(self, workers: bool) -> Mapping[str, Callable[[], TaskCheck]]:
        plan: dict[str, Callable[[], TaskCheck]] = {
            "environment": self.environment,
            "tasks": self.tasks,
            "reset(seed)": self.reset_seed,
            "setting a task": self.setting,
            "keeping the task": self.keeping,
            "changing the task": self.changing,
        }
        if workers:
            plan["worker"] = self.worker
        plan["first observation"] = lambda: self._first
        plan["later steps"] = self.later
        plan["telling apart"] = lambda: self._readings.telling_apart()
        plan["reward"] = lambda: self._readings.reward()
        return plan

    @functools.cached_property
    def _readings(self) -> Identifiability:
        return Identifiability(self._spec, self.updates, self.num_steps, self.seed)

    @functools.cached_property
    def _first(self) -> TaskCheck:
        return self._readings.first_observation()

    @functools.cached_property
    def _spec(self) -> EnvSpec:
        with isolated_rng(self.seed):
            env = self.family.env_constructor()
            spec = EnvSpec.from_env(env)
            close_env(env)
        return spec

    @functools.cached_property
    def _actions(self) -> list[Any]:
        return random_actions(self._spec.action_space, self.num_steps, derive_seed("actions", self.seed))

    def environment(self) -> TaskCheck:
        spec = self._spec
        different = different_spaces(self._specs_of_tasks())
        if different is not None:
            hint = "give all tasks the same spaces, by zeros for what some have not, say; or make a family of each kind"
            return TaskCheck("environment", "fail", different, hint)
        found = self._observations_that_do_not_fit()
        if found is not None and found.status == "fail":
            return found
        horizon = self.family.horizon
        length = f"episodes of {_steps(horizon)}" if horizon else "no time limit"
        value = f"observations {_kind(spec.observation_space)}, actions {_kind(spec.action_space)}, {length}"
        hints = [] if found is None else [f"{found.value}: {found.hint}"]
        if not horizon:
            hints.append("episodes may last for ever: give the family a horizon, or the environment a time limit")
        return TaskCheck("environment", "warn" if hints else "ok", value, "; ".join(hints))

    def _specs_of_tasks(self) -> dict[Any, EnvSpec]:
        """Specs of tasks that are environments of their own."""
        specs: dict[Any, EnvSpec] = {}
        for update in (self.family.tasks.updates or [])[:_MOST_SPECS]:
            if not isinstance(update, NewEnvUpdate):
                break
            with isolated_rng(self.seed):
                env = update(None)
                specs[update.task] = EnvSpec.from_env(env)
                close_env(env)
        return specs

    def _observations_that_do_not_fit(self) -> TaskCheck | None:
        """A finding about the observations of one rollout, in a task where that can be drawn."""
        try:
            (update, *_), _ = self.family.split(1, 0, self.seed)
        except Exception:
            return None  # said of the tasks
        space = self._spec.observation_space
        with isolated_rng(self.seed):
            env = update(None)
            try:
                trial = play(env, derive_seed("fit", self.seed), self._actions[:_FITTED_STEPS])
            finally:
                close_env(env)
        loose = None
        for step, observation in enumerate(trial.observations):
            wrong = misfit(space, observation)
            if wrong is not None:
                where = "at the reset" if step == 0 else f"after step {step}"
                hint = "let observation_space say what reset and step return"
                return TaskCheck("environment", "fail", f"{wrong} ({where})", hint)
            loose = loose or loose_type(space, observation)
        hint = "return np.asarray(observation, dtype=self.observation_space.dtype)"
        return None if loose is None else TaskCheck("environment", "warn", loose, hint)

    def tasks(self) -> TaskCheck:
        train, test = self.family.split(seed=self.seed)
        self.updates += train if self.family.same_tasks else _interleaved(train, test)
        again = [update.task for tasks in self.family.split(seed=self.seed) for update in tasks]
        if list(map(task_key, again)) != [task_key(update.task) for update in [*train, *test]]:
            return TaskCheck(
                "tasks",
                "fail",
                "the same seed gives other tasks",
                "let sample_tasks(num_tasks, generator) draw from the generator that it is given",
            )
        if not self.updates:
            hint = "give the family num_train_tasks and num_test_tasks of at least 1"
            return TaskCheck("tasks", "fail", "there are none", hint)
        if not train or not test:
            side = "held out" if train else "to train in"
            value = f"{len(self.updates)} tasks, none {side}"
            return TaskCheck(
                "tasks", "warn", value, "what was learned is told in tasks of its own: have some on both sides"
            )
        if self.family.same_tasks:
            return TaskCheck("tasks", "ok", f"{len(train)} tasks, trained on and tested on, as published")
        found = check_split(train, test, overlap="warn")
        numbers = {"nearest": found.nearest, "median": found.median, "median_in_training": found.median_in_training}
        if found.overlaps or found.near:
            hint = "split the tasks by TaskFamily.from_params or from_env, and leave nearly equal ones out"
            return TaskCheck("tasks", "fail" if found.overlaps else "warn", str(found), hint, numbers)
        return TaskCheck("tasks", "ok", str(found), numbers=numbers)

    def reset_seed(self) -> TaskCheck:
        first, other, again = (self._trial(self.updates[0], global_seed)[0] for global_seed in (1, 2, 1))
        if first.same_as(other):
            self.deterministic, length = True, _steps(len(first.rewards))
            return TaskCheck("reset(seed)", "ok", f"the same seed gives the same rollout ({length})")
        where = first.first_difference(other)
        if first.same_as(again):
            value = f"rollouts of the same seed differ {where}: it draws from global generators"
        else:
            value = f"rollouts of the same seed differ {where}: it draws from a generator that reset(seed) leaves alone"
        hint = "call super().reset(seed=seed) in reset, and draw from self.np_random only"
        return TaskCheck("reset(seed)", "fail", value, hint)

    def setting(self) -> TaskCheck:
        updates = self.updates[:_NUM_TASKS]
        if len(updates) < 2:
            return TaskCheck("setting a task", "skip", "there is only one task")
        if not self.deterministic:
            return TaskCheck("setting a task", "skip", "needs rollouts that a seed repeats; see telling apart")
        self.trials += [self._trial(update)[0] for update in updates]
        kinds = _count_kinds(self.trials)
        value = f"{kinds} of {len(updates)} tasks give rollouts of their own"
        numbers = {"different": kinds, "tasks": len(updates)}
        if kinds == len(updates):
            return TaskCheck("setting a task", "ok", value, numbers=numbers)
        if kinds > 1:
            hint = (
                f"tasks that are not told apart in {self.num_steps} steps of random actions may be the same (a sparse "
                "reward hides them, too)"
            )
            return TaskCheck("setting a task", "warn", value, hint, numbers)
        if self._kinds_set_late > 1:
            value = "it has an effect only until the next reset"
            return TaskCheck("setting a task", "ok", value, numbers=numbers)
        value = f"setting a task changes nothing: {len(updates)} tasks give the same observations and rewards"
        hint = "let set_task keep the task, and step and reset use it"
        return TaskCheck("setting a task", "fail", value, hint, numbers)

    def keeping(self) -> TaskCheck:
        name = "keeping the task"
        if len(self.trials) < 2:
            return TaskCheck(name, "skip", "needs different tasks, and rollouts that a seed repeats")
        hint = "reset must leave the task alone: only set_task chooses one"
        if _count_kinds(self.trials) == 1:
            if self._kinds_set_late > 1:
                return TaskCheck(name, "fail", "reset forgets the task that was set", hint)
            return TaskCheck(name, "skip", "setting a task has no effect that could be kept")
        seconds = [self._trial(update, resets=2)[1] for update in self.updates[: len(self.trials)]]
        lost = sum(not a.same_as(b) for a, b in zip(self.trials, seconds, strict=True))
        if not lost:
            return TaskCheck(name, "ok", "a second reset starts the same task again")
        if _count_kinds(seconds) == 1:
            return TaskCheck(name, "fail", "a second reset forgets the task: then all tasks are the same", hint)
        value = f"after a second reset with the same seed {lost} of {len(seconds)} tasks give another rollout"
        return TaskCheck(name, "fail", value, f"{hint}, and all that an episode leaves behind has to be put back")

    def changing(self) -> TaskCheck:
        name = "changing the task"
        if len(self.trials) < 2:
            return TaskCheck(name, "skip", "needs different tasks, and rollouts that a seed repeats")
        traces, env = 0, None
        with isolated_rng(self.seed):
            for update in self.updates[: len(self.trials)]:
                env = update(env)
                self._play(env)
        for update, alone in reversed(list(zip(self.updates, self.trials, strict=False))):
            with isolated_rng(self.seed):
                env = update(env)
                traces += not self._play(env).same_as(alone)
        close_env(env)
        if not traces:
            return TaskCheck(name, "ok", "a task that was set before leaves no trace")
        value = f"{traces} of {len(self.trials)} tasks give another rollout after other tasks than in a new environment"
        hint = "set_task must set all that a task changes, from stored nominal values (mass = nominal * factor)"
        return TaskCheck(name, "fail", value, hint)

    def worker(self) -> TaskCheck:
        updates, actions = self.updates[:2], self._actions[:_WORKER_STEPS]
        try:
            with SamplerPool(1, transport="process", timeouts=PoolTimeouts(), max_retries=0) as pool:
                sent = [pool.invoke_all(trial_in_worker, update, self.seed, actions)[0] for update in updates]
        except NotPicklableError as error:
            reason = str(error.__cause__ or error)
            hint = "make files, locks, viewers and connections inside the constructor, and keep them out of the task"
            return TaskCheck("worker", "fail", f"a task cannot be sent to another process: {reason}", hint)
        here = [trial_in_worker(None, update, self.seed, actions) for update in updates]
        different = [a.first_difference(b) for a, b in zip(here, sent, strict=True) if not a.same_as(b)]
        if different and self.deterministic:
            value = f"in another process the same seed gives another rollout ({different[0]})"
            hint = "let nothing depend on the process: environment variables, hash(), files of the current folder"
            return TaskCheck("worker", "fail", value, hint)
        text = "the same rollouts there" if self.deterministic else "they work there"
        return TaskCheck("worker", "ok", f"tasks can be sent to another process, {text}")

    def later(self) -> TaskCheck:
        return later_steps(self._spec, self.updates, self.num_steps, self.seed, numbers_told(self._first))

    def _trial(self, update: EnvUpdate, global_seed: int = 0, resets: int = 1) -> list[Trial]:
        """Rollouts, one after the other, in a new environment, with global generators in a given state."""
        with isolated_rng(global_seed):
            env = update(None)
            try:
                return [self._play(env) for _ in range(resets)]
            finally:
                close_env(env)

    def _play(self, env: Any, between: Callable[[Any], Any] | None = None) -> Trial:
        return play(env, derive_seed("trial", self.seed), self._actions, between)

    @functools.cached_property
    def _kinds_set_late(self) -> int:
        """How many different rollouts there are if tasks are set after the reset; 1 where that cannot be done."""
        trials = []
        for update in self.updates[:_NUM_TASKS]:
            if update.builds_env:
                return 1
            with isolated_rng(0):
                env = self.updates[0](None)
                try:
                    trials.append(self._play(env, between=update))
                except Exception:
                    return 1
                finally:
                    close_env(env)
        return _count_kinds(trials)


def _without_echo(found: TaskCheck, before: Sequence[TaskCheck]) -> TaskCheck:
    """The finding; one that says what an earlier one has said only names that."""
    same = next(
        (check for check in before if found.status == check.status == "fail" and check.value == found.value), None
    )
    return found if same is None else TaskCheck(found.name, "skip", f"fails as {same.name!r} does")


def _guarded(name: str, check: Callable[[], TaskCheck]) -> TaskCheck:
    """What ``check`` finds; an exception in it is a finding, too."""
    try:
        return check()
    except Exception as error:
        message = " ".join(str(error).split())
        text = f"{type(error).__name__}: {message}" if message else type(error).__name__
        return TaskCheck(name, "fail", text if len(text) <= 400 else f"{text[:397]}...", "the message says why")


def _interleaved(train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]) -> list[EnvUpdate]:
    """Training tasks, with a held-out one after every four of them."""
    mixed: list[EnvUpdate] = []
    rest = list(test)
    for position, update in enumerate(train):
        mixed.append(update)
        if position % 4 == 3 and rest:
            mixed.append(rest.pop(0))
    return mixed + rest


def _kind(space: gymnasium.Space) -> str:
    """A space in few words: bounds of many entries would fill the report."""
    if isinstance(space, gymnasium.spaces.Box):
        return f"Box{space.shape}"
    text = str(space)
    return text if len(text) <= 80 else f"{type(space).__name__} of {flat_dim(space)} numbers"


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _count_kinds(trials: Sequence[Trial]) -> int:
    kinds: list[Trial] = []
    for trial in trials:
        if not any(trial.same_as(kind) for kind in kinds):
            kinds.append(trial)
    return len(kinds)
