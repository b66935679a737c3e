"""Hill climbing in the space of policy parameters."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.config import config_of, parts_of
from metaroll.data.rollouts import Rollouts
from metaroll.errors import InvalidValueError, ShapeError
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.functional.search.hill_climbing import HillClimb
from metaroll.learners.evolution import SearchLearner
from metaroll.learners.evolution_configs import HillClimbingConfig
from metaroll.learners.runner import Runner
from metaroll.learners.snapshots import fingerprint_of
from metaroll.learners.trials import Trials
from metaroll.policies.acting import ActingPolicy

__all__ = ["HillClimbing"]

_LOG = logging.getLogger(__name__)


@final
class HillClimbing(SearchLearner[HillClimbingConfig]):
    """Tries sets of policy parameters around a mean, and moves there if one of them is better than the mean itself.

    All sets of an epoch, the mean among them, are deterministic in the same domains and initial states, so that their
    returns can be compared. After a success the next sets lie nearer to the mean, otherwise farther away
    (``functional.parameter_noise``). Nothing is differentiated: the policy may be anything with flat parameters, and
    the return as rugged as it likes.

    By hand: ``sets = algo.ask()``, ``result = sampler.sample(sets, eval=True)`` with a ``ParameterExplorationSampler``,
    ``algo.tell([sample.rollouts for sample in result])``.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: What is trained, with the parameters that require a gradient.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        options: Settings by name, in place of those of ``config``.
    """

    config_class = HillClimbingConfig
    stream: ClassVar[str] = "hill climbing"

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
        super().__init__(
            env_spec,
            config,
            policy=policy,
            trials=Trials(
                rollouts_per_candidate=config.num_init_states_per_domain,
                epsilon=config.epsilon,
                scale_actions=config.scale_actions,
                evaluate_every=config.evaluate_every,
            ),
            test_env_sampler=test_env_sampler,
            seed=seed,
        )
        self.pop_size = self.num_candidates - 1
        self._returns: list[float] = []

    def _make_search(self) -> HillClimb:
        return parts_of(HillClimb, vars(self.config))

    @property
    def converged(self) -> bool:
        """Whether the returns of the last means are so alike that the training ends (see ``stop_std``)."""
        if self.config.stop_std is None or len(self._returns) < self.config.stop_window:
            return False
        return float(np.std(self._returns)) < self.config.stop_std

    def _tried(self, runner: Runner, sets: np.ndarray, updates: list[Any]) -> list[Sequence[Any]]:
        return runner.sample_parameters(
            sets,
            num_domains=self.config.num_domains,
            num_init_states_per_domain=self.config.num_init_states_per_domain,
            fields=("rewards",),
        )

    def tell(self, rollouts: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Move to the best set if it is better than the mean; numbers for the log.

        Args:
            rollouts: Rollouts of each set of the last ``ask``, in its order; a set without any ranks last.
        """
        if not len(self._asked):
            raise ValueError("tell needs sets that have been tried: call ask() first, once for each tell")
        if len(rollouts) != len(self._asked) or not any(len(group) for group in rollouts):
            raise ShapeError(
                f"rollouts must hold a list for each of the {len(self._asked)} sets, and some rollouts, got lists of "
                f"{[len(group) for group in rollouts]}"
            )
        scores, mean_return = np.full(len(rollouts), np.nan), math.nan
        for number, group in enumerate(rollouts):
            if not len(group):
                _LOG.warning("set %d of epoch %d has no rollout: it ranks last", number, self.num_epochs)
                continue
            returns = Rollouts.of(group).returns
            if not np.isfinite(returns).all():
                raise InvalidValueError(f"the returns of set {number} are not finite")
            scores[number] = conditional_value_at_risk(returns, self.trials.epsilon)
            mean_return = float(returns.mean()) if number == 0 else mean_return
        best, used = int(np.nanargmax(scores)), self.spread  # the mean itself, where nothing is better
        self._learn(scores)
        return {
            "return": mean_return,
            "score": float(scores[0]),
            "score_best_of_epoch": float(scores[best]),
            "score_median_of_epoch": float(np.nanmedian(scores)),
            "best_return": self.best_return,
            "improved": float(best > 0),
            "spread": used,
            "episodes": float(sum(map(len, rollouts))),
        }

    def _learn(self, fitness: np.ndarray) -> None:
        super()._learn(fitness)
        self._returns = [*self._returns, float(fitness[0])][-self.config.stop_window :]

    def fingerprint(self) -> str:
        """Class, policy and settings as a short text; a snapshot fits a learner with the same one."""
        of = self.config
        settings = [of.noise, self.pop_size, of.init_sigma, of.min_sigma, of.max_sigma, of.sigma_factor, of.epsilon]
        settings += [of.num_domains, of.num_init_states_per_domain, self.max_path_length]
        layout = self.policy.parameter_layout()
        kinds = [type(self.policy.policy).__name__, *layout.names, *layout.shapes, self.policy.action_bounds]
        return fingerprint_of(self, *map(repr, [*settings, *kinds]))

    def state_dict(self) -> dict[str, Any]:
        """Mean, best set, spread, returns of the last means, and generator."""
        return {
            "mean": self._parameters.copy(),
            "best": {"parameters": self.best_parameters, "return": self.best_return},
            "spread": self.spread,
            "returns": list(self._returns),
            "generator": self._generator.bit_generator.state,
            "counters": {"seed": self.seed, "epochs": self.num_epochs},
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical.

        Raises:
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        asked = self._asked
        super().load_state_dict(tree)
        self._asked = asked[:0]

    def restore_parts(self, tree: Mapping[str, Any]) -> None:
        """See ``Stateful``."""
        mean, best = (self._checked_set(found) for found in (tree["mean"], tree["best"]["parameters"]))
        epochs = int(tree["counters"]["epochs"])
        self._state = replace(
            self._state,
            mean=mean[self._places].astype(np.float64),
            best=best[self._places].astype(np.float64),
            best_fitness=float(tree["best"]["return"]),
            generation=epochs,
            evaluations=epochs * (self.pop_size + 1),
            reach=float(tree["spread"]),
        )
        self._parameters = mean
        self._returns = [float(value) for value in tree["returns"]]
        self._generator.bit_generator.state = tree["generator"]
        self._seed = int(tree["counters"]["seed"])

    def _checked_set(self, values: Any) -> np.ndarray:
        found = np.array(values, dtype=np.float32)
        if found.shape != self._parameters.shape:
            raise ShapeError(f"parameter vectors must have shape {self._parameters.shape}, got {found.shape}")
        return found
