"""Search over the parameters of a policy: CEM, CMA-ES, and any other search of ``functional.search``."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, final

import numpy as np

from metaroll import state
from metaroll.checks import check_seed
from metaroll.config import ConfigField, config_of, described, parts_of
from metaroll.data.rollouts import Rollouts
from metaroll.errors import InvalidValueError, ShapeError, option_name
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.functional.running_moments import add_rows
from metaroll.functional.search.averaging import AveragedMean
from metaroll.functional.search.base import Search, restored_search
from metaroll.functional.search.cem import CEM as CEMSearch
from metaroll.functional.search.cma import CMA
from metaroll.functional.search.hill_climbing import HillClimb
from metaroll.functional.search.multi_start import MultiStart, Starts
from metaroll.functional.search.restarts import RestartedCMA
from metaroll.functional.search.reviewing import Reviewed
from metaroll.learners.base import Progress, RLAlgorithm, TrainingTasks, columns_read, horizon_of, reads, train
from metaroll.learners.evolution_configs import (
    CEMLearnerConfig,
    CMAESLearnerConfig,
    HillClimbingConfig,
    SearchConfig,
)
from metaroll.learners.trials import Trials, normalized_for, searched_places
from metaroll.policies.acting import ActingPolicy
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.state import Part, Stateful, check_entries, fingerprint_of, parts
from metaroll.types import EnvSpec, Runner

__all__ = ["CEM", "CMAES", "Evolution", "HillClimbing", "SearchLearner"]

_LOG = logging.getLogger(__name__)

C = TypeVar("C", bound=SearchConfig | HillClimbingConfig)


class SearchLearner(Stateful, RLAlgorithm, Generic[C]):
    """Evaluates the candidates of a search as parameters of a policy; the returns are their fitness.

    The search covers parameters that require a gradient, not statistics or scales. All candidates of an epoch are one
    batch of rollouts. After every epoch the policy gets the parameters that the search recommends: its mean (averaged:
    ``Trials.mean_epochs``), or, for a search with restarts, the final mean of its best run (``Reviewed``).

    Without ``train``: ``sets = algo.ask()``, then for each of them ``algo.train_once(itr, paths)`` with its rollouts.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: The policy to train; its parameters that require a gradient are searched.
        trials: Evaluation of candidates; ``None`` means ``Trials()``.
        starts: Number of starts of the search, of which the best continues; ``None`` means one.
        task_sampler: Variations to evaluate candidates in: a list of ``EnvUpdate``, or a sampler; ``None`` means the
            nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        options: Settings by name; they override those of ``config``.

    Attributes:
        config_class: Class of the settings.
        config: The settings.
        stream: Name of the random stream of the candidates, derived from the seed.
        num_domains: Number of random domains per candidate, for an environment with domain randomization. All
            candidates of an epoch get the same domains and the same initial states (``Trials.common_random_numbers``).
    """

    config_class: ClassVar[type[SearchConfig | HillClimbingConfig]] = SearchConfig
    stream: ClassVar[str] = "search"
    num_domains = cast("int", 1)

    state_parts = parts(
        search=Part(
            write=lambda learner: state.tree_of(learner._state),
            restore=lambda learner, tree: learner._restore_search(tree),
        ),
        asked=Part(
            write=lambda learner: learner._asked_tree(),
            restore=lambda learner, tree: learner._restore_asked(tree),
        ),
        parameters="_parameters",
        moments="_moments",
        tasks="_tasks",
        generator="_generator",
        seed="_seed",
    )

    def __init__(
        self,
        env_spec: Any,
        config: C | None = None,
        *,
        policy: ActingPolicy,
        trials: Trials | None = None,
        starts: Starts | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self.config: C = config_of(self.config_class, config, options, type(self))  # type: ignore[arg-type]  # its own class
        self.env_spec = EnvSpec.from_env(env_spec)
        self._horizon, self.test_env_sampler = horizon_of(self.config.max_steps, self.env_spec), test_env_sampler
        _check_kinds(trials, starts)
        self.trials = Trials() if trials is None else trials
        """Evaluation of candidates."""
        self.starts = Starts() if starts is None else starts
        """Starts of the search."""
        self._seed = fresh_seed() if seed is None else check_seed(option_name("seed"), seed)
        self.policy = normalized_for(policy, self.trials)
        """The policy, with the recommended parameters."""
        self._places = searched_places(self.policy)
        self._parameters = self.policy.acting_parameters()
        self._moments = self.policy.observation_moments(0)
        self._tasks = TrainingTasks(task_sampler, derive_seed("search tasks", self.seed))
        self._in_tasks = task_sampler is not None
        self._generator = np.random.default_rng(derive_seed(self.stream, self.seed))
        self._plain = self._make_search()
        self._search = _composed(self._plain, self.trials, self.starts)
        # The seed is part of the state: a learner with another seed may load the snapshot.
        initial = self._search.start(self._parameters[self._places])
        self._state: Any = self._search.seeded(initial, derive_seed("restarts", self.seed))
        self._asked = np.zeros((0, len(self._places)))
        self._scores: list[float] = []
        self._returns: list[float] = []  # average return of each candidate with a score
        self._metrics: dict[str, float] = {}

    discount = ConfigField[float]()
    max_path_length = ConfigField[int]("max_steps", shown=lambda learner: learner._horizon)
    evaluate_every = ConfigField[int](shown=lambda learner: learner.trials.evaluate_every)
    seed = ConfigField[int](shown=lambda learner: learner._seed)

    @abstractmethod
    def _make_search(self) -> Search[Any]:
        """The search, built from ``config``."""

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def task_sampler(self) -> Any:
        """Variations to evaluate candidates in: a list of ``EnvUpdate``, a sampler, or ``None``."""
        return self._tasks.source

    @property
    def num_candidates(self) -> int:
        """Number of candidates of the next epoch."""
        return self._search.num_candidates(self._state)

    @property
    def num_epochs(self) -> int:
        """Number of epochs so far."""
        return self._state.generation

    @property
    def best_return(self) -> float:
        """Highest fitness of any candidate so far; with random tasks or initial states, partly by chance."""
        return self._state.best_fitness

    @property
    def best_parameters(self) -> np.ndarray:
        """Flat parameters of the policy ``(P,)`` of that candidate."""
        return self._sets(self._state.best[None])[0]

    @property
    def cur_mean(self) -> np.ndarray:
        """Mean of the next candidates ``(P,)``, over the searched parameters."""
        return self._search.leading(self._state).mean.copy()

    @property
    def spread(self) -> float:
        """Standard deviation of the next candidates (root mean square over the parameters)."""
        return self._search.spread(self._state)

    @property
    def stop_reasons(self) -> tuple[str, ...]:
        """Why the search has ended; empty while it continues."""
        return self._search.stop(self._state)

    @property
    def converged(self) -> bool:
        """Whether the search has ended."""
        return bool(self.stop_reasons)

    # -- training ------------------------------------------------------------------------------------------------------

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.base.train``; the return of training is that of the best candidate."""
        return train(self, runner)

    def collect(self, runner: Runner) -> list[Sequence[Any]]:
        """Rollouts of each candidate of a new ``ask``.

        If observations, rewards or actions are not finite, each candidate is evaluated alone: the failing ones have no
        rollouts, and rank last.
        """
        sets = self.ask()
        updates: list[Any] = self._tasks.draw(self.trials.tasks_per_epoch) if self._in_tasks else [None]
        try:
            return self._evaluated(runner, sets, updates)
        except InvalidValueError as error:
            groups = [self._evaluated_alone(runner, row, updates) for row in sets[:, None]]
            if not any(map(len, groups)):
                raise error
            return groups

    @property
    def _read_columns(self) -> tuple[str, ...] | None:
        """Columns that ``train_once`` reads, plus observations where their moments are needed; ``None``: all."""
        columns = columns_read(type(self).train_once)
        if columns is None or not self.policy.normalize_observations:
            return columns
        return (*columns, "observations")

    def _evaluated_alone(self, runner: Runner, sets: np.ndarray, updates: list[Any]) -> Sequence[Any]:
        try:
            return self._evaluated(runner, sets, updates)[0]
        except InvalidValueError:
            return []

    def _evaluated(self, runner: Runner, sets: np.ndarray, updates: list[Any]) -> list[Sequence[Any]]:
        """Rollouts of each of ``sets`` (``num_candidates`` of them, or one) in the tasks ``updates``."""
        trials = self.trials
        rollouts = trials.rollouts_per_candidate
        if rollouts is not None:
            rollouts = math.ceil(rollouts * self._search.repetitions(self._state))
        # Candidates that are evaluated twice to measure noise must not get the same noise.
        common = trials.common_random_numbers and not self._in_tasks and not self._search.measures_noise
        if rollouts is not None and common:
            return runner.sample_parameters(
                sets,
                num_domains=self.num_domains,
                num_init_states_per_domain=rollouts,
                deterministic=trials.deterministic,
                fields=self._read_columns,
            )
        return _evaluated_in_tasks(runner, sets, updates, rollouts, trials.deterministic)

    def update(self, rollouts: Sequence[Sequence[Any]], progress: Progress | None = None) -> dict[str, float]:
        """``tell``."""
        return self.tell(rollouts)

    def ask(self) -> np.ndarray:
        """Candidates of the next epoch: flat parameters of the policy, float32 ``(K, P)``."""
        self._asked, self._scores = self._search.ask(self._state, self._generator), []
        self._returns = []
        self._metrics = {"episodes": 0.0, "discounted_return": 0.0}
        return self._sets(self._asked)

    def tell(self, rollouts: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Call ``train_once`` for each candidate of the last ``ask``, in order; returns numbers for the log.

        Args:
            rollouts: Rollouts of each candidate.
        """
        self._require_asked("tell")
        if len(rollouts) != len(self._asked):
            raise ShapeError(
                f"rollouts must hold a list for each of {len(self._asked)} candidates, got {len(rollouts)} lists"
            )
        first = self._state.evaluations
        for number, group in enumerate(rollouts):
            self.train_once(first + number, group)
        return self._metrics

    def _require_asked(self, name: str) -> None:
        if not len(self._asked):
            raise ValueError(f"{name} needs candidates to evaluate: call ask() first, once per epoch")

    @reads("rewards")
    def train_once(self, itr: int, paths: Sequence[Any]) -> float:
        """Process the rollouts of one candidate; the candidates of an epoch come in the order of ``ask``.

        After the last one, the search updates its distribution, and the policy gets the new recommended parameters.

        Args:
            itr: Number of the candidate, counted over all epochs.
            paths: Its rollouts: path dicts, ``StepSequence`` or ``TrajectoryBatch``.

        Returns:
            Fitness of this candidate (NaN if it has no rollout); after the last one of an epoch, that of the best.
        """
        self._require_asked("train_once")
        number = len(self._scores)
        score = self._fitness(paths)
        if math.isnan(score):
            epoch = self.num_epochs
            _LOG.warning("candidate %d of epoch %d has no finite return: it ranks last", number, epoch)
        self._scores.append(score)
        return score if len(self._scores) < len(self._asked) else self._finish_epoch()

    def _fitness(self, paths: Sequence[Any]) -> float:
        self._returns.append(math.nan)
        if not len(paths):
            return math.nan
        returns, discounted, observations = _returns_of(paths, self.discount, self.policy.normalize_observations)
        if not all(np.isfinite(rows).all() for rows in observations):
            return math.nan  # a row of NaN would stay in the moments forever
        self._metrics["discounted_return"] += discounted
        self._metrics["episodes"] += len(returns)
        for rows in observations:
            self._moments = add_rows(self._moments, rows.reshape(len(rows), -1))
        if not np.isfinite(returns).all():
            return math.nan
        self._returns[-1] = float(returns.mean())
        return conditional_value_at_risk(returns, self.trials.epsilon)

    def _finish_epoch(self) -> float:
        fitness, returns = np.array(self._scores), self._returns
        self._scores, self._returns = [], []
        spread, numbers = self.spread, self._search.numbers(self._state)
        # Update of the search distribution from candidates (K, P) and fitness (K,); see the search for its equations
        self._state = self._search.tell(self._state, self._asked, fitness)
        self._asked = self._asked[:0]
        self._set_policy()
        self._metrics = {**self._numbers(fitness, returns, spread), **numbers}
        return float(np.nanmax(fitness))

    def _numbers(self, fitness: np.ndarray, returns: Sequence[float], spread: float) -> dict[str, float]:
        """Metrics of an epoch.

        Args:
            fitness: Fitness of its candidates ``(K,)``.
            returns: Their average returns.
            spread: Standard deviation that they were drawn with.
        """
        return {
            "return": float(np.nanmax(fitness)),
            "return_mean_of_epoch": float(np.nanmean(fitness)),
            "return_median_of_epoch": float(np.nanmedian(fitness)),
            "candidates": float(len(fitness)),
            "candidates_without_return": float(np.isnan(fitness).sum()),
            "best_return": self.best_return,
            "spread": spread,
            "episodes": self._metrics["episodes"],
            "discounted_return": self._metrics["discounted_return"] / len(fitness),
        }

    def _sets(self, rows: np.ndarray) -> np.ndarray:
        """Flat parameters of the policy, with ``rows`` in place of the searched ones."""
        sets = np.repeat(self._parameters[None], len(rows), axis=0)
        sets[:, self._places] = rows
        return sets

    def _set_policy(self) -> None:
        if self.policy.normalize_observations and self._moments.num_rows:
            self.policy.set_observation_moments(self._moments.mean, self._moments.std)
            self._parameters = self.policy.acting_parameters()
        self._parameters = self._sets(self._search.recommended(self._state)[None])[0]
        self.policy.parameter_layout().assign(self.policy, self._parameters)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @property
    def arithmetic(self) -> int:
        """2 where final means of runs are evaluated again, since version 0.2 (``Reviewed``), else 1."""
        return 2 if self._plain.begins_again else 1

    def fingerprint(self) -> str:
        """Class, search, trials and policy as a short text, which a snapshot must match."""
        layout, trials = self.policy.parameter_layout(), replace(self.trials, evaluate_every=0)
        kinds = [type(self.policy.policy).__name__, *layout.names, *layout.shapes, self.policy.action_bounds]
        kinds += [self.max_path_length, self.discount]
        search = [type(self._plain).__name__, self._plain.described()]
        starts = [] if self.starts.starts == 1 else [described(self.starts)]
        return fingerprint_of(self, *search, described(trials), *map(repr, kinds), *starts)

    def after_restore(self) -> None:
        """Write the parameters into the policy."""
        self.policy.parameter_layout().assign(self.policy, self._parameters)

    def _restore_search(self, tree: Mapping[str, Any]) -> None:
        self._state = restored_search(self._state, tree)

    def _asked_tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {"candidates": self._asked.copy(), "scores": np.array(self._scores, dtype=np.float64)}
        if self._scores:  # only within an epoch, so that states between epochs keep their format
            tree |= {"returns": np.array(self._returns, dtype=np.float64), "metrics": dict(self._metrics)}
        return tree

    def _restore_asked(self, tree: Mapping[str, Any]) -> None:
        """Restore the candidates under evaluation, of which the first ones have scores."""
        asked, scores = (np.array(tree[name], dtype=np.float64) for name in ("candidates", "scores"))
        if asked.ndim != 2 or asked.shape[1] != len(self._places):
            raise ShapeError(f"candidates must have shape (K, {len(self._places)}), got {asked.shape}")
        if scores.ndim != 1 or (len(scores) and len(scores) >= len(asked)):
            raise ShapeError(f"scores must be those of fewer than {len(asked)} candidates, got shape {scores.shape}")
        self._asked, self._scores = asked, scores.tolist()
        self._returns = np.array(tree.get("returns", np.full(len(scores), math.nan)), dtype=np.float64).tolist()
        self._metrics = dict(tree.get("metrics", {"episodes": 0.0, "discounted_return": 0.0}))


@final
class Evolution(SearchLearner[SearchConfig]):
    """Trains a policy with any search: ``ARS``, ``OpenAIES``, ``PGPE``, ``SNES`` or another of ``functional.search``.

    Args:
        env_spec: Environment or spec.
        search: The search; its candidates are values of the policy's parameters that require a gradient.
        policy: The policy to train.
        config: Length and discount of rollouts; ``None`` means the defaults.
        trials, starts, task_sampler, test_env_sampler, seed: See ``SearchLearner``.
        options: Settings by name; they override those of ``config``.
    """

    def __init__(
        self,
        env_spec: Any,
        search: Search[Any],
        *,
        policy: ActingPolicy,
        config: SearchConfig | None = None,
        trials: Trials | None = None,
        starts: Starts | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(search, Search):
            raise TypeError(f"search must be a Search, such as ARS() or SNES(), got {search!r}")
        self._given = search
        super().__init__(
            env_spec,
            config,
            policy=policy,
            trials=trials,
            starts=starts,
            task_sampler=task_sampler,
            test_env_sampler=test_env_sampler,
            seed=seed,
            **options,
        )

    def _make_search(self) -> Search[Any]:
        return self._given


class CEM(SearchLearner[CEMLearnerConfig]):
    """Cross-entropy method: a normal distribution of policy parameters, fitted to the best of its samples.

    Each epoch evaluates ``population`` parameter vectors and fits mean and deviation to the ``n_best`` ones with the
    highest average return. Candidate 0 of the first epoch is the initial policy.

    Attributes:
        baseline: Argument of the documented constructor; not used.
    """

    config_class = CEMLearnerConfig
    baseline: Any = None
    n_samples = ConfigField[int]("population")
    init_std = ConfigField[float]("init_sigma")
    best_frac = ConfigField[float]()
    extra_std = ConfigField[float]()
    extra_decay_time = ConfigField[float]()
    covariance = ConfigField[Literal["diagonal", "full"]]()
    mirrored = ConfigField[bool]()
    elitism = ConfigField[bool]()

    def _make_search(self) -> Search[Any]:
        return parts_of(CEMSearch, vars(self.config))

    def train(self, runner: Runner) -> float | None:
        if self.n_best == 1:  # not in the constructor: an agent creates the learner once more for its run
            _LOG.warning("a single best candidate has no deviation: only the extra noise explores, and it decays")
        return super().train(runner)

    @property
    def n_best(self) -> int:
        """Number of candidates that the distribution is fitted to."""
        return self.config.num_best

    @property
    def cur_std(self) -> np.ndarray:
        """Standard deviation of each searched parameter ``(P,)``, before the extra noise."""
        return self._search.leading(self._state).std.copy()


class CMAES(SearchLearner[CMAESLearnerConfig]):
    """Covariance matrix adaptation evolution strategy over the parameters of a policy.

    Attributes:
        baseline: Argument of the documented constructor; not used.
    """

    config_class = CMAESLearnerConfig
    baseline: Any = None
    n_samples = ConfigField[int | None]("population")
    sigma0 = ConfigField[float]("init_sigma")
    separable = ConfigField[bool | None]()
    active = ConfigField[bool]()
    mirrored = ConfigField[bool]()
    elitism = ConfigField[bool]()
    lower = ConfigField[float | None]()
    upper = ConfigField[float | None]()
    restarts = ConfigField[Literal["none", "ipop", "bipop"]]()
    max_restarts = ConfigField[int]()
    reevaluated = ConfigField[int]()
    max_repetitions = ConfigField[float]()
    target = ConfigField[float | None]()

    def _make_search(self) -> Search[Any]:
        config, names = self.config, {field.name for field in fields(CMA)}
        shared = {name: value for name, value in vars(config).items() if name in names}
        search = CMA(sigma=config.init_sigma, **shared)
        if config.separable is None and search.is_separable(len(self._places)):
            _LOG.info("%d parameters: only the diagonal of their covariance is learned", len(self._places))
        if config.restarts == "none":
            return search
        return RestartedCMA(cma=search, rule=config.restarts, max_restarts=config.max_restarts)

    @property
    def is_separable(self) -> bool:
        """Whether only the diagonal of the covariance is learned."""
        return self._search.leading(self._state).covariance.ndim == 1


@final
class HillClimbing(SearchLearner[HillClimbingConfig]):
    """Evaluates parameter vectors around a mean, and moves to the best one if it is better than the mean itself.

    All vectors of an epoch, starting with the mean, act deterministically in the same domains and initial states, so
    that their returns are comparable. After a success the next ones are closer to the mean, otherwise farther away
    (``HillClimb``).

    Without ``train``: ``sets = algo.ask()``, ``result = sampler.sample(sets, eval=True)`` with a
    ``ParameterExplorationSampler``, ``algo.tell([sample.rollouts for sample in result])``.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: The policy to train; its parameters that require a gradient are searched.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        options: Settings by name; they override those of ``config``.
    """

    config_class = HillClimbingConfig
    stream = "hill climbing"
    num_domains = ConfigField[int]()

    def __init__(
        self,
        env_spec: Any,
        config: HillClimbingConfig | None = None,
        *,
        policy: ActingPolicy,
        test_env_sampler: Any = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        config = config_of(HillClimbingConfig, config, options, type(self))
        trial_options = {**vars(config), "rollouts_per_candidate": config.num_init_states_per_domain}
        trials = parts_of(Trials, trial_options)
        super().__init__(env_spec, config, policy=policy, trials=trials, test_env_sampler=test_env_sampler, seed=seed)

    def _make_search(self) -> Search[Any]:
        return parts_of(HillClimb, vars(self.config))

    @property
    def pop_size(self) -> int:
        """Number of candidates per epoch, besides the mean."""
        return self.num_candidates - 1

    def _numbers(self, fitness: np.ndarray, returns: Sequence[float], spread: float) -> dict[str, float]:
        best = int(np.nanargmax(fitness))
        return {
            "return": returns[0],
            "score": float(fitness[0]),
            "score_best_of_epoch": float(fitness[best]),
            "score_median_of_epoch": float(np.nanmedian(fitness)),
            "best_return": self.best_return,
            "improved": float(best > 0),
            "spread": spread,
            "episodes": self._metrics["episodes"],
        }

    def fingerprint(self) -> str:
        """Class, policy and settings as a short text, which a snapshot must match."""
        c = self.config
        settings = [c.noise, self.pop_size, c.init_sigma, c.min_sigma, c.max_sigma, c.sigma_factor, c.epsilon]
        settings += [c.num_domains, c.num_init_states_per_domain, self.max_path_length]
        layout = self.policy.parameter_layout()
        kinds = [type(self.policy.policy).__name__, *layout.names, *layout.shapes, self.policy.action_bounds]
        return fingerprint_of(self, *map(repr, [*settings, *kinds]))

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert a state from before version 0.3, with all parameters of the policy instead of the searched ones."""
        if "mean" not in tree:
            return tree
        check_entries(type(self).__name__, tree, ("mean", "best", "spread", "returns", "generator", "counters"))
        mean, best = (state.restored(self._parameters, values) for values in (tree["mean"], tree["best"]["parameters"]))
        epochs = int(tree["counters"]["epochs"])
        search = replace(
            self._state,
            mean=mean[self._places].astype(np.float64),
            best=best[self._places].astype(np.float64),
            best_fitness=float(tree["best"]["return"]),
            generation=epochs,
            evaluations=epochs * self.num_candidates,
            reach=float(tree["spread"]),
            recent=np.array(tree["returns"], dtype=np.float64),
        )
        return {
            **self.state_dict(),
            "search": state.tree_of(search),
            "asked": {"candidates": self._asked[:0], "scores": []},
            "parameters": mean,
            "generator": tree["generator"],
            "seed": tree["counters"]["seed"],
        }


def _composed(search: Search[Any], trials: Trials, starts: Starts) -> Search[Any]:
    """``search`` with averaged means, a review of its runs and several starts, as configured."""
    if trials.mean_epochs > 1:
        search = AveragedMean(search=search, window=trials.mean_epochs)
    if search.begins_again:
        search = Reviewed(search=search)
    return search if starts.starts == 1 else MultiStart(search=search, rules=starts)


def _check_kinds(trials: Any, starts: Any) -> None:
    for name, value, kind in (("trials", trials, Trials), ("starts", starts, Starts)):
        if not isinstance(value, kind | None):
            raise TypeError(f"{name} must be a {kind.__name__}, {kind.__name__}(...), or None, got {value!r}")


def _evaluated_in_tasks(
    runner: Runner, sets: np.ndarray, updates: list[Any], rollouts: int | None, deterministic: bool
) -> list[Sequence[Any]]:
    """Rollouts of each of ``sets``, in each of the tasks."""
    each = len(updates)
    groups = runner.obtain_samples(
        runner.step_itr,
        env_update=updates * len(sets),
        num_rollouts=rollouts,
        deterministic=deterministic,
        parameters=np.repeat(sets, each, axis=0),
    )
    return [Rollouts.joined(groups[i : i + each]) for i in range(0, len(groups), each)]


def _returns_of(
    paths: Sequence[Any], discount: float, with_observations: bool
) -> tuple[np.ndarray, float, list[np.ndarray]]:
    """Return of each path ``(n,)``, mean discounted return, and observations ``(N, ...)`` if they are needed."""
    if isinstance(paths[0], Mapping):
        rewards = [np.asarray(path["rewards"], dtype=np.float64) for path in paths]
        discounted = float(np.mean([each @ discount ** np.arange(len(each)) for each in rewards]))
        observations = [np.asarray(path["observations"]) for path in paths] if with_observations else []
        return np.array([each.sum() for each in rewards]), discounted, observations
    rollouts = Rollouts.of(paths)
    observations = [rollouts.steps_and_final("observations")[0]] if with_observations else []
    return rollouts.returns, float(rollouts.discounted_sums(discount).mean()), observations
