"""Every algorithm in three lines of Python: ``metaroll.agent``, ``learn``, ``save``; ``metaroll.load``, ``act``.

They do the same as the command line: a run made here is a run there, with the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Never, final

from packaging.version import InvalidVersion, Version

from metaroll.checks import check_flag, check_path, check_whole, described
from metaroll.config import understands
from metaroll.configs.table import run_options
from metaroll.data.folders.atomic_files import temporary_path
from metaroll.data.folders.contents import copy_folder, move_folder, remove_folder, replace_folder
from metaroll.data.folders.kinds import (
    AGENT,
    CONFIG_FILE,
    EVALUATION_FILE,
    RUN,
    SNAPSHOT,
    SNAPSHOTS,
    SUMMARY_FILE,
    TASK_SPLIT_FILE,
    TENSORBOARD,
)
from metaroll.data.folders.links import remove_file, truncate_to
from metaroll.data.folders.taking import take, write_mark
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.names import AT, simulator_and_posterior
from metaroll.envs.lookup.posteriors import posterior_name
from metaroll.envs.lookup.registry import name_given
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import RunExistsError, SnapshotError, UnknownNameError, counted, named_as
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.option_names import GIVEN
from metaroll.own_code import held, is_given, is_named
from metaroll.policies.actor import Actor
from metaroll.policies.adapters import as_policy
from metaroll.seeding import derive_seed
from metaroll.training.algorithms import own_networks, plugin_lookup
from metaroll.training.algorithms.algorithm import Algorithm
from metaroll.training.algorithms.other_names import swapped_names, unknown_argument, unknown_attribute
from metaroll.training.algorithms.plugin_rows import hint_for
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, get_algorithm, require_known
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator, fresh_policies
from metaroll.training.run.views import View, console_view
from metaroll.training.session import experiments, sessions
from metaroll.training.session.adapting import AdaptedAgent, TaskProtocol
from metaroll.training.session.run_config import default_run_dir
from metaroll.training.store import run_folder
from metaroll.training.store.metrics_log import FILE_NAME
from metaroll.training.store.run_store import check_metrics, check_results_folder, results_after
from metaroll.training.store.run_values import adapts
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot, snapshots_of
from metaroll.types import EnvSpec, EnvUpdate, Policy

__all__ = ["Agent", "agent", "load"]

_OF_ALL_EPOCHS = (CONFIG_FILE, TASK_SPLIT_FILE, FILE_NAME, SUMMARY_FILE, EVALUATION_FILE)
"""Files that a run of fewer epochs has, too; results only if they are as old."""
_WHERE_EVALUATED = ("env", "test_task_sampler")
"""Keywords of evaluators that replace the environment of the run, or its held-out tasks."""
_EVENTS = ("on_epoch_end", "on_evaluation", "on_progress", "on_train_end", "before_save")


@understands()
def agent(
    algo: str | Algorithm | type[Any],
    env: Any,
    *,
    seed: int = 0,
    run_dir: str | Path | None = None,
    tasks: str | Path | None = None,
    **options: Any,
) -> Agent:
    """Create an agent that can learn; networks and values come from the environment's preset, as on the command line.

    Args:
        algo: Name of the algorithm, such as ``ppo`` (``metaroll list`` shows all),  ``"module:attribute"`` of
            one of yours, its ``Algorithm`` itself, or a class of searches.
        env: A Gymnasium id or a built-in name, ``"module:attribute"``, a ``TaskFamily``, an environment (which is
            copied), or a class or function that makes one.
        seed: Seed of everything.
        run_dir: Folder that ``learn`` writes the run to; by default ``runs/ALGO-ENV-SEED``, with a number appended if
            it exists already.
        tasks: Folder of a posterior (``metaroll infer``, ``Posterior.save``): learn in the simulator ``env`` with
            parameters drawn from it.
        options: Options of ``metaroll train ALGO ENV`` with underscores: ``hidden_sizes=(64, 64)``, ``size="small"``.
            ``policy`` is your own network, in place of the hidden layers of the policy: a ``torch.nn.Module``, a
            class or function that makes one from an ``EnvSpec``, or ``"module:attribute"``.

    Raises:
        UnknownNameError: There is no such algorithm, environment or option; the message lists the nearest ones, and
            the equivalents of names from Stable-Baselines3.
        TypeError: ``algo`` or ``run_dir`` is not a string, or an option has another type.
        ValueError: An option has an invalid value, or the algorithm cannot learn in the environment.
    """
    _check_algo(algo, "metaroll.agent(algo, env)")
    algo = algo if isinstance(algo, str) else plugin_lookup.name_given(algo)
    if isinstance(env, str) and (swapped := swapped_names([algo, env], ALGORITHM_NAMES)):
        raise UnknownNameError(f"unknown algorithm {algo!r}; {swapped}")
    values = {"seed": seed, **options}
    if options.get("policy") is not None:
        values["policy"] = own_networks.name_given(options["policy"])
    if run_dir is not None:
        run_dir = check_path("run_dir", run_dir)
        with named_as({"run_dir": "run_dir"}):
            run_folder.refuse_existing(run_dir)
    name = name_given(env)
    name = name if tasks is None else posterior_name(name, check_path("tasks", tasks))
    return Agent._made(algo, EnvSource.of(name), values, run_dir)


@understands()
def load(
    path: str | Path,
    env: Any = None,
    *,
    algo: str | Algorithm | type[Any] | None = None,
    policy: Any = None,
    from_epoch: int | str | None = None,
    trust: bool = False,
) -> Agent:
    """Load the agent of a run: one that was saved, or one that the command line has trained.

    Args:
        path: Folder of ``Agent.save``, or of a run.
        env: The environment, for an agent that was made with one that its configuration cannot name (``given:...``):
            the environment, a constructor, or a name; its spaces must be those that the agent has learned in.
        algo: Name of the expected algorithm; for an agent that was made with an ``Algorithm`` that its configuration
            cannot name (``given:...``) that object, or its ``"module:attribute"``.
        policy: The network, for an agent that was made with one that its configuration cannot name (``given:...``):
            the module or its constructor; its weights are replaced by those learned.
        from_epoch: Load the agent from after this number of epochs, ``"best"`` (see ``KeepBest``) or ``"first"``;
            ``None`` means the newest. Its ``learn`` continues from there.
        trust: Import the modules that it names (``module:attribute``) although this installation did not create the
            run. The content of the folder itself is never executed.

    Returns:
        The agent. The folder is not changed: ``learn`` continues in a copy, in a new folder (``run_dir``).
        ``metaroll resume RUN`` continues in the folder itself.

    Raises:
        FileNotFoundError: There is no run in ``path``; the message names those beside it.
        TypeError: ``path`` is not a path, or ``algo`` not an algorithm.
        SnapshotError: It cannot be read (by this version), or has no snapshot.
        UntrustedRunError: It would import a module, this installation did not create it, and ``trust`` is not set.
        ValueError: It belongs to another algorithm.
    """
    if algo is not None:
        _check_algo(algo, "metaroll.load(run, algo=...)")
    trust = check_flag("trust", trust)
    folder = run_folder.find_run(check_path("path", path))
    config = run_folder.read_config(folder)
    written = str((config.get("versions") or {}).get("metaroll", "0"))
    here = run_folder.package_versions()["metaroll"]
    with contextlib.suppress(InvalidVersion):
        if Version(written) > Version(here):
            raise SnapshotError(
                f"{folder} was written by metaroll {written}, and this is {here}: install the newer one"
            )
    saved = config["algo"]
    if algo is not None and (not isinstance(algo, str) or (is_given(saved) and is_named(algo))):
        algo = plugin_lookup.name_given(algo, saved if is_given(saved) else None)
    if algo is not None and saved != require_known(algo):
        hint = "give the Algorithm that it was made with" if is_given(saved) else "load it without algo"
        raise ValueError(f"{folder} holds an agent of {saved!r}, expected {algo!r}: {hint}")
    if env is not None:
        saved = config["env"]
        simulator, posterior = simulator_and_posterior(saved)
        named = name_given(env, simulator if is_given(simulator) else None)
        config["env"] = f"{named}{AT}{posterior}" if posterior else named
        if config["env"] != saved:
            raise ValueError(f"{folder} holds an agent of {saved!r}, got env {config['env']!r}: load it without env")
    if policy is not None:
        saved = config["algorithm"].get("policy")
        name = own_networks.name_given(policy, saved if is_given(saved) else None)
        if name != saved:
            kind = "the usual networks" if saved is None else f"policy {saved!r}"
            raise ValueError(f"{folder} holds an agent with {kind}, got policy {name!r}: load it without policy")
    if latest(folder) is None:
        raise SnapshotError(f"{folder} holds no snapshot: its run ended before the first, or kept none; train again")
    return Agent._of_run(config, folder, from_epoch, trust, env is not None)


def _check_algo(algo: Any, use: str) -> None:
    """``TypeError`` unless ``algo`` is a name, or something that defines an algorithm; ``use`` shows the call."""
    if not (isinstance(algo, str) or plugin_lookup.is_row(algo)):
        raise TypeError(
            f"algo must be the name of an algorithm, or an Algorithm, got {described(algo)}: "
            + (hint_for(algo) if isinstance(algo, type) else use)
        )


@final
class Agent(Actor):
    """An algorithm with its environment and its learned state; made by ``metaroll.agent`` and ``metaroll.load``.

    ``act`` is for algorithms that do not adapt; if it adapts, ``explore`` and ``adapt`` give an agent for a task.

    Attributes:
        config: The complete configuration, as in ``config.yaml``.
        run_dir: Folder of the run; ``None`` before the first ``learn``.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        experiment: experiments.Experiment,
        options: Mapping[str, Any] = MappingProxyType({}),
        run_dir: Path | None = None,
        *,
        owned: bool = True,
    ) -> None:
        if not isinstance(config, Mapping):
            raise TypeError(
                f"metaroll.agent(algo, env) makes an Agent, metaroll.load(folder) too; got {described(config)}"
            )
        spec = experiment.algo.env_spec
        seed, limit = derive_seed("acting", config["run"]["seed"]), config["algorithm"].get("max_steps")
        super().__init__(_spec_of(experiment) if spec is None else spec, seed, limit)
        self.config, self.run_dir = dict(config), run_dir
        self._built, self._options = experiment, dict(options)
        self._held = held(_names_in(self.config))
        self._wanted: Path | None = None
        self._names: Mapping[str, str] = {}
        self._owned = owned
        """Whether this agent may continue in ``run_dir``: the folder of a loaded one is not changed."""
        self._trust, self._env_given = True, False
        """See ``check_run``: true for an agent made in this process; ``_of_run`` sets them for a loaded one."""
        self._from_epoch: int | None = None
        """Epochs of the snapshot that an agent was loaded from, if not the newest."""
        self._explored = 0
        self._policy: Policy | None = None
        self._adapts = adapts(config)

    @classmethod
    def _made(cls, algo: str, env: EnvSource, options: Mapping[str, Any], run_dir: str | Path | None) -> Agent:
        config = _resolved(algo, env, options)
        names = experiments.names_given(algo, [(GIVEN, options)])
        with named_as(names):
            made = cls(config, experiments.build(config, env=env), options)
        made._wanted, made._names = None if run_dir is None else Path(run_dir), names
        return made

    @classmethod
    def _of_run(
        cls, config: Mapping[str, Any], folder: Path, from_epoch: int | str | None, trust: bool, env_given: bool
    ) -> Agent:
        run = sessions.restored_run(config, folder, from_epoch, trust, env_given=env_given)
        with run as (checked, experiment, epoch):
            loaded = cls(checked, experiment, {}, folder, owned=False)
            loaded._trust, loaded._env_given = trust, env_given
            loaded._from_epoch = None if from_epoch is None else epoch
            return loaded

    @property
    def _experiment(self) -> experiments.Experiment:
        """The experiment; the objects that its names refer to are registered again first."""
        for hold in self._held:
            hold()
        return self._built

    # -- properties ---------------------------------------------------------------------------------------------------

    @property
    def algo(self) -> Any:
        """The algorithm (``PPO``, ``PEARL``, ...)."""
        return self._experiment.algo

    @property
    def policy(self) -> Policy:
        """The behavior policy.

        Raises:
            ValueError: The algorithm adapts: its policy depends on the task.
        """
        if self._adapts:
            raise ValueError(
                f"{self.config['algo']} acts after it has adapted to a task: adapted = "
                "agent.adapt(agent.explore(env)), then adapted.act(obs)"
            )
        if self._policy is None:
            self._policy = as_policy(self.algo.policy, self.env_spec)
        return self._policy

    @property
    def train_tasks(self) -> list[EnvUpdate]:
        """Training tasks, each a callable that makes its environment; empty if new tasks are drawn in every epoch."""
        tasks = experiments.split_tasks(self.config, self._experiment.source)[0]
        return list(tasks) if isinstance(tasks, list) else []

    @property
    def test_tasks(self) -> list[EnvUpdate]:
        """Tasks held out for evaluation, each a callable that makes its environment."""
        return list(experiments.split_tasks(self.config, self._experiment.source)[1])

    def __repr__(self) -> str:
        """One line: algorithm and environment, training so far, folder, and a hint at the next step."""
        head = f"Agent({self.config['algo']!r}, {self.config['env']!r}, seed={self.config['run']['seed']}"
        if self.run_dir is None:
            return f"{head}): nothing learned yet, call learn()"
        done = latest(self.run_dir) if self._from_epoch is None else self._from_epoch
        learned = "no snapshot" if done is None else f"{counted(done, 'epoch')} learned"
        acts = "adapt(explore(env)).act(obs)" if self._adapts else "act(obs)"
        return f"{head}): {learned}, in {self.run_dir}; next: {acts}"

    if not TYPE_CHECKING:  # or every attribute would exist for type checkers

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(unknown_attribute(name), name=name, obj=self)

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn(
        self,
        env_steps: float | None = None,
        *,
        epochs: int | None = None,
        callbacks: Sequence[Any] = (),
        progress: bool = True,
        **others: Never,
    ) -> Agent:
        """Learn, or continue to learn if called again. Results are on disk, in ``run_dir``, after every epoch.

        The first ``learn`` of a loaded agent copies its run to a new folder, which is its ``run_dir`` from then on.
        After Ctrl-C or an error in a callback, the agent is that of its newest snapshot: it can act and learn on.

        Args:
            env_steps: Minimum number of environment steps in this call: epochs are never cut short, and more of them
                are run if episodes end early. A schedule that follows the epochs has ended by then.
            epochs: The number of epochs instead; by default that of the preset.
            callbacks: Objects with any of ``on_epoch_end(runner, epoch, metrics)``, ``on_evaluation(runner, result)``,
                ``on_train_end(runner)`` and ``on_progress(runner, phase, done, total)``, see ``LocalRunner``.
                Learning ends if ``on_epoch_end`` returns ``False``.
            progress: Show the progress and the remaining time.
            others: None are accepted; the error for a name from another library says what it is called here.

        Returns:
            This agent.

        Raises:
            TypeError: There is no such argument.
            ValueError: ``env_steps`` or ``epochs`` is below 1, or both are given.
        """
        if others:
            known, options = ("env_steps", "epochs", "callbacks", "progress"), run_options(self.config["algo"])
            raise TypeError(unknown_argument(next(iter(others)), known, options))
        if env_steps is not None and epochs is not None:
            raise ValueError(f"give env_steps or epochs, got both ({env_steps}, {epochs})")
        env_steps = int(env_steps) if isinstance(env_steps, float) and env_steps.is_integer() else env_steps  # 1e6
        for name, value in (("env_steps", env_steps), ("epochs", epochs)):
            if value is not None:
                check_whole(name, value)
        _check_callbacks(callbacks)
        view = console_view(quiet=not progress)
        env = self._experiment.source
        settings: dict[str, Any] = {"callbacks": tuple(callbacks), "built": self._use, "env_steps": env_steps}
        settings["env"] = env
        if self.run_dir is None:
            config = _config_for(self.config, env, self._options, env_steps, epochs)
            folder = self._wanted or _free_folder(config, env)
            before = self._experiment
            try:
                self._go(sessions.start, config, folder, view, settings)
            except BaseException:
                if latest(folder) is None:
                    self._use(before)  # nothing was started
                raise
        else:
            folder = self.run_dir if self._owned else self._copy_of_run()
            config = _config_further(self.config, folder, env_steps, epochs)
            settings |= {"trust": self._trust, "env_given": self._env_given}
            self._go(sessions.continue_run, config, folder, view, settings)
        return self

    def _go(self, run: Any, config: dict[str, Any], folder: Path, view: View, settings: Mapping[str, Any]) -> None:
        try:
            with named_as(self._names):
                run(config, folder, view, **settings)
        except BaseException:
            if latest(folder) is not None:  # the interrupted epoch is discarded
                self._adopt(folder)
                env = self._experiment.source
                restored = sessions.restored_run(self.config, folder, None, self._trust, env, self._env_given)
                with restored as (_, experiment, _):
                    self._use(experiment)
                view.message(_stopped_text(self.config, folder))
            raise
        self._adopt(folder)

    def _adopt(self, folder: Path) -> None:
        self.run_dir, self._owned, self._from_epoch = folder, True, None
        self.config = run_folder.read_config(folder)

    def _use(self, experiment: experiments.Experiment) -> None:
        self._built, self._policy = experiment, None
        self.reset()

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Save the learned state, everything needed to continue, and the history of the run.

        Args:
            path: Folder; an agent saved there is replaced.

        Returns:
            The folder.

        Raises:
            RunExistsError: The folder holds something else.
            ValueError: Nothing has been learned, or the folder lies in that of the run.
        """
        folder = check_path("path", path)
        if self.run_dir is None:
            raise ValueError("nothing has been learned, so there is nothing to save: call agent.learn(...) first")
        if folder.exists() and folder.resolve() == self.run_dir.resolve():
            if self._from_epoch is not None and self._from_epoch < (latest(folder) or 0):
                raise RunExistsError(
                    f"{folder} holds later epochs of this agent, which was loaded from after epoch {self._from_epoch}: "
                    "save under another name"
                )
            return folder
        if folder.resolve().is_relative_to(self.run_dir.resolve()):
            raise ValueError(
                f"path must not lie in the run that is saved, {self.run_dir}, got {folder}: save beside it"
            )
        run_folder.refuse_unsaved(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        copy = _copied(self.run_dir, temporary_path(folder.resolve()), self._from_epoch)
        try:
            write_mark(copy, AGENT)
            with contextlib.ExitStack() as stack:
                if folder.exists():
                    stack.enter_context(take(folder, AGENT))
                return replace_folder(copy, folder, AGENT.layout)
        finally:
            remove_folder(copy, AGENT.layout)  # after an error; otherwise it has been renamed

    def _copy_of_run(self) -> Path:
        if self.run_dir is None:
            raise ValueError("there is no run to continue")
        folder = _free_folder(self.config, self._experiment.source)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return move_folder(_copied(self.run_dir, temporary_path(folder), self._from_epoch), folder)

    # -- judging -------------------------------------------------------------------------------------------------------

    def evaluate(
        self, num_tasks: int | None = None, *, out: str | Path | None = None, progress: bool = True, **changes: Any
    ) -> Any:
        """Evaluate the agent, on held-out tasks if there are any; the episodes do not count as training.

        For an algorithm that adapts, with the verdict of ``metaroll evaluate``: whether, by how much, and why.

        Args:
            num_tasks: Number of held-out tasks; ``None`` means as in the configuration.
            out: Folder to write ``evaluation.json`` to, as ``metaroll evaluate`` does.
            progress: Show the progress if it takes long.
            changes: Other settings and keywords of the evaluator, such as ``num_adaptation_episodes=3`` or
                ``num_episodes=50``.

        Returns:
            An ``EvaluationResult`` before and after adaptation, with its ``verdict``, or a ``PolicyEvaluation``;
            both print as a summary.

        Raises:
            TypeError: ``out`` is not a path.
            NotADirectoryError: ``out`` is a file.
            UnknownNameError: The evaluator has no such argument.
            ValueError: ``num_tasks`` is below 1, there are no held-out tasks, or ``out`` is a run, whose results are of
                its own environment and tasks, and other ones are given.
            RunExistsError: ``out`` is a run of another agent, or holds an ``evaluation.json`` of something else.
        """
        view = console_view(quiet=not progress)
        env = self._experiment.source
        tasks = _tasks_of(self.config, env, num_tasks, changes, view)
        folder = None if out is None else check_path("out", out)
        if folder is not None:
            check_results_folder(folder, self.run_dir)
            others = [name for name in _WHERE_EVALUATED if changes.get(name) is not None]
            if others and (folder / run_folder.CONFIG_FILE).exists():
                raise ValueError(
                    f"out must not be a run with {others[0]}=..., got {folder}: lists and comparisons would take the "
                    "result for one in the environment and tasks of that run; choose another folder"
                )
        with contextlib.closing(experiments.build_evaluator(self.config, env, tasks, **changes)) as evaluator:
            measured = sessions.measure(evaluator, self.algo, view, shots=[0] if folder is None else None)
            if folder is not None:
                epoch = self._from_epoch or 0
                if self.run_dir is not None and self._from_epoch is None:
                    epoch = latest(self.run_dir) or 0
                sessions.write_evaluation(self.config, self._experiment, evaluator, measured, epoch, folder)
        return measured[0]

    # -- adapting ------------------------------------------------------------------------------------------------------

    def _task(self, method: str) -> TaskProtocol:
        algo, evaluator = self.algo, self._experiment.evaluator
        if not isinstance(algo, MetaRLAlgorithm) or not isinstance(evaluator, MetaEvaluator):
            raise ValueError(
                f"{method} is for algorithms that adapt, and {self.config['algo']} does not: act with agent.act(obs), "
                "or take one that adapts (metaroll list)"
            )
        row = get_algorithm(self.config["algo"])
        return TaskProtocol(row, algo, self.config, evaluator, self.env_spec, lambda: self.test_tasks)

    def explore(
        self, env: Any, episodes: int | None = None, *, seed: int | None = None, max_steps: int | None = None
    ) -> list[StepSequence]:
        """Collect episodes in one task, whose data reveal which task it is.

        Args:
            env: The environment of the task (not copied, and left open), a constructor, or a task of ``test_tasks``.
            episodes: Number of episodes; ``None`` means as in one round of the run's evaluations.
            seed: Seed of the episodes; ``None`` means a new one at every call.
            max_steps: Maximum number of steps of an episode; ``None`` means as in training.

        Returns:
            The episodes, for ``adapt``.

        Raises:
            ShapeError: The environment has other spaces than those that the agent has learned in, or other bounds of
                actions, where these do not belong to the tasks.
            ValueError: The algorithm does not adapt.
        """
        task = self._task("explore")
        seed = derive_seed("exploring", task.seed, self._explored) if seed is None else seed
        self._explored += 1
        return task.explore(env, fresh_policies(task.algo, 1, seed)[0], (), episodes, seed, max_steps)

    def adapt(self, rollouts: Any) -> AdaptedAgent:
        """An agent adapted to the task that the rollouts come from.

        With MAML, ProMP and DICE after one gradient step; ``adapt`` of the returned agent takes the next one.

        Args:
            rollouts: Episodes of ``explore``, or any other episodes in the task.

        Raises:
            ShapeError: They come from an environment with other spaces, or other bounds of actions.
            ValueError: There are none, or the algorithm does not adapt.
        """
        task = self._task("adapt")
        episodes = task.checked(rollouts)
        return AdaptedAgent(task, task.adapted(episodes, task.seed), episodes, self.max_path_length)


def _config_for(
    config: dict[str, Any], env: EnvSource, options: Mapping[str, Any], env_steps: float | None, epochs: int | None
) -> dict[str, Any]:
    """The configuration of a run of this length; schedules that follow the epochs are adjusted."""
    if env_steps is not None:
        epochs = get_algorithm(config["algo"]).work(config["algorithm"]).epochs_for(int(env_steps))
    if epochs is None:
        return config
    return _resolved(config["algo"], env, {**options, "epochs": epochs})


def _config_further(
    config: Mapping[str, Any], folder: Path, env_steps: float | None, epochs: int | None
) -> dict[str, Any]:
    done = load_snapshot(folder, "last").iteration
    if env_steps is not None:
        work = get_algorithm(config["algo"]).work(config["algorithm"])
        epochs = max(1, -(-int(env_steps) // work.epoch_steps))
    further = config["run"]["epochs"] if epochs is None else epochs
    if epochs is None and done < config["run"]["epochs"]:
        further = config["run"]["epochs"] - done  # it was interrupted
    before, values, total = config["run"]["epochs"], dict(config["algorithm"]), done + further
    # Extend schedules that lasted for all epochs of the run: nothing is learned after they have ended.
    follows = get_algorithm(config["algo"]).follows_epochs
    values |= {name: total for name in follows if values[name] == before}
    return {**config, "run": {**config["run"], "epochs": total}, "algorithm": values}


def _tasks_of(
    config: Mapping[str, Any], env: EnvSource, num_tasks: int | None, changes: Mapping[str, Any], view: View
) -> list[EnvUpdate]:
    """Held-out tasks of an evaluation, whose other arguments are ``changes``."""
    if num_tasks is not None:
        check_whole("num_tasks", num_tasks)
    view.evaluation_begins(experiments.episodes_of_evaluation(config, num_tasks, changes))
    tasks = experiments.split_tasks(config, env, num_tasks)[1]
    if num_tasks is not None and not tasks:
        raise ValueError(f"num_tasks is for held-out tasks, and {config['env']} has none: use num_episodes")
    return tasks


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a list of objects, got {type(callbacks).__name__}: callbacks=[mine]")
    for callback in callbacks:
        if not any(callable(getattr(callback, name, None)) for name in _EVENTS):
            raise TypeError(
                f"callbacks must have {' or '.join(_EVENTS)}, got {callback!r}: on_epoch_end(self, runner, epoch, "
                "metrics) is called after every epoch"
            )


def _resolved(algo: str, env: EnvSource, options: Mapping[str, Any]) -> dict[str, Any]:
    return experiments.resolve(algo, env, [(GIVEN, options)])


def _spec_of(experiment: experiments.Experiment) -> EnvSpec:
    return EnvSource.of(experiment.env).spec


def _free_folder(config: Mapping[str, Any], env: EnvSource) -> Path:
    """The default folder of a run, with a number appended if it is taken."""
    usual = default_run_dir(config["algo"], env, config["run"]["seed"])
    numbered = (usual.with_name(f"{usual.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in itertools.chain([usual], numbered) if not folder.exists())


def _copied(run: Path, folder: Path, epochs: int | None = None) -> Path:
    """A copy of a run, without unrelated files; if given, only what was known after ``epochs``."""
    older = None if epochs is None or epochs >= (latest(run) or 0) else load_snapshot(run, epochs)
    if older is not None:
        check_metrics(run, older)
    try:
        copy_folder(run, folder, RUN.layout)
        run_folder.copy_config(run, folder)
        if older is not None:
            _forget_after(folder, older)
        return folder
    except BaseException:
        with contextlib.suppress(OSError):
            remove_folder(folder, RUN.layout)
        raise


def _forget_after(run: Path, snapshot: Snapshot) -> None:
    """Remove what later training has left in a run: snapshots, numbers, results, and what was drawn from them."""
    kept = [path for iteration, path in snapshots_of(run).items() if iteration <= snapshot.iteration]
    for path in (run / SNAPSHOTS).iterdir():
        if path not in kept:  # abandoned ones, too
            remove_folder(path, SNAPSHOT)
    if (run / FILE_NAME).exists():
        truncate_to(run / FILE_NAME, snapshot.manifest["metrics_offset"])
    late = results_after(run, snapshot.iteration)
    for path in run.iterdir():
        if path in late or (path.is_file() and path.name not in _OF_ALL_EPOCHS):
            remove_file(path)
    remove_folder(run / TENSORBOARD, RUN.layout.folder(TENSORBOARD) or RUN.layout)


def _names_in(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Argument of ``load`` -> the name in a configuration that it replaces."""
    simulator, _ = simulator_and_posterior(config["env"])
    return {"env": simulator, "algo": config["algo"], "policy": config["algorithm"].get("policy")}


def _stopped_text(config: Mapping[str, Any], folder: Path) -> str:
    """The results of a run that was stopped, and how to continue."""
    done = load_snapshot(folder, "last").iteration
    if done == 0:
        return f"stopped before the first epoch was finished: nothing is learned yet; learn() continues in {folder}"
    asked = [f", {argument}=..." for argument, name in _names_in(config).items() if is_given(name)]
    load = f"metaroll.load({str(folder)!r}{''.join(asked)})"
    epochs = counted(done, "finished epoch")
    return (
        f"stopped; what was learned in {epochs} is in {folder}: learn() continues, save(...) copies it, {load} reads it"
    )
