"""ProMP's sample processors: from paths to the batches of a policy gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from metaroll.checks import check_unit_interval, check_whole, described
from metaroll.processing.path_columns import PathColumns, PathGroup
from metaroll.processing.task_advantages import DiceTasks, TaskAdvantages, dice_tasks, task_advantages
from metaroll.types import Baseline

__all__ = [
    "DiceMetaSampleProcessor",
    "DiceSampleProcessor",
    "MetaSampleProcessor",
    "SampleProcessor",
]

LogTo = Callable[[Mapping[str, float]], Any]


class SampleProcessor:
    """Fits a baseline to the returns of paths, and estimates generalized advantages with it.

    Paths are not modified. ``MetaSampler`` returns paths already stored as columns, which avoids copies; lists of path
    dicts or rollouts work too.

    Args:
        baseline: A reward baseline, with ``fit(paths, target_key=...)`` and ``predict(path)`` (see
            ``processing.baselines``); it is refitted at every call.
        discount: Discount factor in [0, 1].
        gae_lambda: Lambda of generalized advantage estimation, in [0, 1] (Schulman et al. 2016, arXiv:1506.02438).
        normalize_adv: Whether to normalize the advantages (mean 0, standard deviation 1).
        positive_adv: Whether to shift the (normalized) advantages so that they are all positive.
        bootstrap_truncated: Bootstrap truncated paths with the baseline's value of the last observation. By default
            the value after the end of a path is 0, as documented: right for tasks of a fixed horizon.
        log_to: Called with the logged values (e.g. ``runner.log``); ``logged`` holds them in any case.

    Attributes:
        logged: Values logged by the last call.
    """

    def __init__(
        self,
        baseline: Baseline,
        discount: float = 0.99,
        gae_lambda: float = 1,
        normalize_adv: bool = False,
        positive_adv: bool = False,
        *,
        bootstrap_truncated: bool = False,
        log_to: LogTo | None = None,
    ) -> None:
        _check_baseline("baseline", baseline)
        if log_to is not None and not callable(log_to):
            raise TypeError(f"log_to must be a function of a dict of numbers or None, got {described(log_to)}")
        self.baseline = baseline
        self.discount = check_unit_interval("discount", discount)
        self.gae_lambda = check_unit_interval("gae_lambda", gae_lambda)
        self.normalize_adv, self.positive_adv = bool(normalize_adv), bool(positive_adv)
        self.bootstrap_truncated, self.log_to = bool(bootstrap_truncated), log_to
        self.logged: dict[str, float] = {}

    def process_samples(self, paths: Any, log: bool | str = False, log_prefix: str = "") -> Any:
        """Process the paths of one task.

        Args:
            paths: At least one path dict or rollout.
            log: ``"reward"`` logs ``AverageReturn``; ``"all"`` or ``True`` logs ``AverageDiscountedReturn``,
                ``AverageReturn``, ``NumTrajs``, ``StdReturn``, ``MaxReturn``, ``MinReturn`` and ``ExplainedVariance``
                (of the baseline); ``False`` logs nothing.
            log_prefix: Comes before each of these names.

        Returns:
            Of all steps, one path after the other: ``observations (N, O)``, ``actions (N, A)``, ``rewards (N,)``,
            ``returns (N,)``, ``advantages (N,)``, and the dicts ``env_infos`` and ``agent_infos`` of ``(N, ...)``.

        Raises:
            DataError: A path lacks an entry, or infos of paths differ in theirs.
            ShapeError: A path is empty, or entries do not fit together.
            TypeError: ``paths`` is not a list of paths.
            ValueError: There is no path, a reward is NaN or infinite, or ``log`` is none of these.
        """
        (samples,) = self._processed([_one_group(paths)], log, log_prefix)
        return samples

    def _processed(self, groups: Iterable[PathGroup], log: bool | str, log_prefix: str) -> list[dict[str, Any]]:
        """The processed samples of each task."""
        check_log(log)
        estimate = task_advantages(
            groups,
            self.baseline,
            discount=self.discount,
            gae_lambda=self.gae_lambda,
            normalize_adv=self.normalize_adv,
            positive_adv=self.positive_adv,
            bootstrap_truncated=self.bootstrap_truncated,
        )
        columns = estimate.columns
        self._log(log, log_prefix, estimate, estimate.returns[columns.bounds[:-1]])
        own = {"returns": estimate.returns, "advantages": estimate.advantages}
        return _by_task(estimate, {**_recorded(columns), **own, **self._of_all_tasks(estimate)})

    def _of_all_tasks(self, estimate: TaskAdvantages | DiceTasks) -> dict[str, np.ndarray]:
        """Further columns."""
        return {}

    def _log(self, log: bool | str, prefix: str, estimate: TaskAdvantages | DiceTasks, discounted: np.ndarray) -> None:
        """Log the requested statistics; ``discounted (N,)`` are the discounted returns of the paths."""
        self.logged = {}
        if log is False:
            return
        returns = estimate.columns.returns
        numbers = {"AverageReturn": float(returns.mean())}
        if log != "reward":
            numbers = {
                "AverageDiscountedReturn": float(discounted.mean()),
                **numbers,
                "NumTrajs": float(len(returns)),
                "StdReturn": float(returns.std()),
                "MaxReturn": float(returns.max()),
                "MinReturn": float(returns.min()),
                "ExplainedVariance": float(estimate.explained_variance.mean()),
            }
        self.logged = {f"{prefix}{name}": value for name, value in numbers.items()}
        if self.log_to is not None:
            self.log_to(dict(self.logged))


@final
class MetaSampleProcessor(SampleProcessor):
    """A ``SampleProcessor`` of many tasks: the baseline is fitted per task, and keeps the fit of the last one.

    Args:
        baseline: See ``SampleProcessor``.
        discount: See ``SampleProcessor``.
        gae_lambda: See ``SampleProcessor``.
        normalize_adv: Normalize the advantages of each task.
        positive_adv: See ``SampleProcessor``.
        bootstrap_truncated, log_to: See ``SampleProcessor``.
    """

    def process_samples(  # pyright: ignore[reportIncompatibleMethodOverride] (the documented name)
        self, paths_meta_batch: Any, log: bool | str = False, log_prefix: str = ""
    ) -> list[dict[str, Any]]:
        """Process the paths of many tasks.

        Args:
            paths_meta_batch: Dict of the paths of each task, as ``MetaSampler.obtain_samples`` returns it.
            log: See ``SampleProcessor.process_samples``; all paths are logged together.
            log_prefix: Comes before each of the names.

        Returns:
            For each task, in the order of the dict, the entries of ``SampleProcessor``, and ``adj_avg_rewards (N,)``:
            rewards, normalized by mean and standard deviation over the steps of all tasks.

        Raises:
            TypeError: ``paths_meta_batch`` is not a dict.
            DataError, ShapeError, ValueError: See ``SampleProcessor.process_samples``; the task is named.
        """
        return self._processed(_groups(paths_meta_batch), log, log_prefix)

    def _of_all_tasks(self, estimate: TaskAdvantages | DiceTasks) -> dict[str, np.ndarray]:
        return {"adj_avg_rewards": estimate.adj_avg_rewards}


class DiceSampleProcessor(SampleProcessor):
    """Pads paths with zeros, and subtracts a baseline of time from discounted rewards, for DICE objectives.

    Statistics are over true steps; padding is 0 in all outputs.

    Args:
        baseline: A time-dependent reward baseline, fitted to ``discount^t r_t``.
        max_path_length: Steps of the padded paths.
        discount: Discount factor in [0, 1].
        gae_lambda: Lambda of the advantages with ``return_baseline``, in [0, 1].
        normalize_adv: Whether to normalize the adjusted rewards, and the advantages.
        positive_adv: Whether to shift them so that they are all positive.
        return_baseline: A state-dependent baseline of returns; with it, ``advantages`` are returned as well.
        bootstrap_truncated, log_to: See ``SampleProcessor``.

    Note:
        The documents swap O and A in the shapes of observations and actions.
    """

    def __init__(
        self,
        baseline: Baseline,
        max_path_length: int,
        discount: float = 0.99,
        gae_lambda: float = 1,
        normalize_adv: bool = True,
        positive_adv: bool = False,
        return_baseline: Baseline | None = None,
        *,
        bootstrap_truncated: bool = False,
        log_to: LogTo | None = None,
    ) -> None:
        options: dict[str, Any] = {"bootstrap_truncated": bootstrap_truncated, "log_to": log_to}
        super().__init__(baseline, discount, gae_lambda, normalize_adv, positive_adv, **options)
        self.max_path_length = check_whole("max_path_length", max_path_length)
        if return_baseline is not None:
            _check_baseline("return_baseline", return_baseline)
        self.return_baseline = return_baseline

    def process_samples(self, paths: Any, log: bool | str = False, log_prefix: str = "") -> Any:
        """Process the paths of one task.

        Args:
            paths: At least one path dict or rollout, of at most ``max_path_length`` steps each.
            log: See ``SampleProcessor.process_samples``.
            log_prefix: Comes before each of the names.

        Returns:
            For B paths, padded with zeros to L steps: ``mask (B, L)`` (1 at true steps), ``observations (B, L, O)``,
            ``actions (B, L, A)``, ``rewards (B, L)``, ``adjusted_rewards (B, L)``, the dicts ``env_infos`` and
            ``agent_infos`` of ``(B, L, ...)``, and ``advantages (B, L)`` with a ``return_baseline``.

        Raises:
            ShapeError: A path is longer than ``max_path_length``, or see ``SampleProcessor.process_samples``.
            DataError, TypeError, ValueError: See ``SampleProcessor.process_samples``.
        """
        (samples,) = self._processed([_one_group(paths)], log, log_prefix)
        return samples

    def _processed(self, groups: Iterable[PathGroup], log: bool | str, log_prefix: str) -> list[dict[str, Any]]:
        check_log(log)
        estimate = dice_tasks(
            groups,
            self.baseline,
            self.max_path_length,
            discount=self.discount,
            gae_lambda=self.gae_lambda,
            normalize_adv=self.normalize_adv,
            positive_adv=self.positive_adv,
            return_baseline=self.return_baseline,
            bootstrap_truncated=self.bootstrap_truncated,
        )
        columns = estimate.columns
        discounted = np.add.reduceat(self.discount**columns.times * columns.rewards, columns.bounds[:-1])
        self._log(log, log_prefix, estimate, discounted)
        samples = {"mask": estimate.mask, **{name: estimate.pad(column) for name, column in _recorded(columns).items()}}
        samples["adjusted_rewards"] = estimate.adjusted_rewards
        if estimate.advantages is not None:
            samples["advantages"] = estimate.advantages
        return _by_task(estimate, samples | self._of_all_tasks(estimate))


@final
class DiceMetaSampleProcessor(DiceSampleProcessor):
    """A ``DiceSampleProcessor`` of many tasks: baselines are fitted per task.

    Args:
        baseline: See ``DiceSampleProcessor``.
        max_path_length: See ``DiceSampleProcessor``.
        discount: See ``DiceSampleProcessor``.
        gae_lambda: See ``DiceSampleProcessor``.
        normalize_adv: Normalize the adjusted rewards and advantages of each task.
        positive_adv: See ``DiceSampleProcessor``.
        return_baseline: See ``DiceSampleProcessor``.
        bootstrap_truncated, log_to: See ``SampleProcessor``.
    """

    def process_samples(  # pyright: ignore[reportIncompatibleMethodOverride] (the documented name)
        self, paths_meta_batch: Any, log: bool | str = False, log_prefix: str = ""
    ) -> list[dict[str, Any]]:
        """Process the paths of many tasks.

        Args:
            paths_meta_batch: Dict of the paths of each task, as ``MetaSampler.obtain_samples`` returns it.
            log: See ``SampleProcessor.process_samples``; all paths are logged together.
            log_prefix: Comes before each of the names.

        Returns:
            For each task, in the order of the dict, the entries of ``DiceSampleProcessor``, and ``adj_avg_rewards
            (B, L)``: rewards, normalized by mean and standard deviation over the true steps of all tasks.

        Raises:
            TypeError: ``paths_meta_batch`` is not a dict.
            DataError, ShapeError, ValueError: See ``DiceSampleProcessor.process_samples``; the task is named.
        """
        return self._processed(_groups(paths_meta_batch), log, log_prefix)

    def _of_all_tasks(self, estimate: TaskAdvantages | DiceTasks) -> dict[str, np.ndarray]:
        return {"adj_avg_rewards": estimate.adj_avg_rewards}


def check_log(log: Any) -> None:
    """``ValueError`` unless ``log`` is one of the documented values."""
    if not isinstance(log, bool) and log not in ("reward", "all"):
        raise ValueError(f"log must be False, True, 'reward' or 'all', got {log!r}")


def _check_baseline(name: str, baseline: Any) -> None:
    for method in ("fit", "predict"):
        if isinstance(baseline, type) or not callable(getattr(baseline, method, None)):
            raise TypeError(
                f"{name} must have fit(paths, target_key=...) and predict(path), got {described(baseline)}; "
                "ZeroBaseline() expects nothing"
            )


def _recorded(columns: PathColumns) -> dict[str, Any]:
    """The columns of paths, step by step."""
    return {
        "observations": columns.observations,
        "actions": columns.actions,
        "rewards": columns.rewards,
        "env_infos": columns.infos("env_infos"),
        "agent_infos": columns.infos("agent_infos"),
    }


def _by_task(estimate: TaskAdvantages | DiceTasks, samples: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = {name: estimate.by_task(rows) for name, rows in samples.items()}
    return [{name: part[m] for name, part in parts.items()} for m in range(estimate.columns.num_tasks)]


def _one_group(paths: Any) -> Any:
    if isinstance(paths, Mapping) or not isinstance(paths, Sequence):
        hint = "; a dict of the paths of many tasks is for MetaSampleProcessor" if isinstance(paths, Mapping) else ""
        raise TypeError(f"paths must be a list of path dicts or rollouts, got {described(paths)}{hint}")
    if not len(paths):
        raise ValueError("paths must hold at least one path, got none")
    return paths


def _groups(paths_meta_batch: Any) -> list[Any]:
    if not isinstance(paths_meta_batch, Mapping):
        raise TypeError(
            "paths_meta_batch must be a dict of the paths of each task, as MetaSampler.obtain_samples returns it, got "
            f"{described(paths_meta_batch)}"
        )
    return list(paths_meta_batch.values())
