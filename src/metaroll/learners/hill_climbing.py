"""Hill climbing in the space of policy parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.data.rollouts import Rollouts
from metaroll.errors import InvalidValueError, ShapeError, unknown_name
from metaroll.functional.cvar import check_epsilon, conditional_value_at_risk
from metaroll.functional.parameter_noise import NOISES, adapted_spread, default_population, noisy_sets
from metaroll.learners.on_policy_training import EpochLearner, Progress, horizon_of
from metaroll.learners.snapshots import fingerprint_of, load_or_keep
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.types import EnvSpec, Runner

__all__ = ["HillClimbing"]


class HillClimbing(EpochLearner):
    """Tries sets of policy parameters around a mean, and moves there if one of them is better than the mean itself.

    All sets of an epoch, the mean among them, are deterministic in the same domains and initial states, so that their
    returns can be compared. After a success the next sets lie nearer to the mean, otherwise farther away
    (``functional.parameter_noise``). Nothing is differentiated: the policy may be anything with flat parameters, and
    the return as rugged as it likes.

    By hand: ``sets = algo.ask()``, ``result = sampler.sample(sets, eval=True)`` with a ``ParameterExplorationSampler``,
    ``algo.tell([sample.rollouts for sample in result])``.

    Args:
        env_spec: Environment or spec.
        policy: What is trained, with the parameters that require a gradient.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        noise: How sets are drawn: normal (independent noise on each parameter) or sphere (all at one distance from the
            mean, in any direction).
        pop_size: Number of sets per epoch beside the mean; ``None`` means 4 + int(3 ln P) for P parameters.
        spread: Standard deviation of the noise, or radius of the sphere, at first.
        spread_min, spread_max: Bounds of both; a radius beyond them begins anew.
        spread_factor: After a success the spread is divided by its square, otherwise multiplied by it.
        num_domains: Number of domains that each set acts in, of an environment that is randomized.
        num_init_states_per_domain: Number of initial states in each domain.
        epsilon: Share of the worst returns of a set whose mean is compared (CVaR), in (0, 1]; 1 means all of them.
        max_path_length: Maximum number of steps of a rollout; ``None`` means the environment's time limit.
        scale_actions: Bring actions from [-1, 1] to the bounds of the action space, and clip them there.
        stop_std: End the training when the returns of the last ``stop_window`` means have a standard deviation below
            this; ``None`` never does.
        stop_window: Number of newest means that ``stop_std`` looks at.
        evaluate_every: Evaluate after every so many epochs; 0 means never.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
    """

    def __init__(
        self,
        env_spec: Any,
        policy: ActingPolicy,
        *,
        test_env_sampler: Any = None,
        noise: Literal["normal", "sphere"] = "normal",
        pop_size: int | None = None,
        spread: float = 0.5,
        spread_min: float = 0.01,
        spread_max: float = 2.0,
        spread_factor: float = 1.05,
        num_domains: int = 1,
        num_init_states_per_domain: int = 4,
        epsilon: float = 1.0,
        max_path_length: int | None = None,
        scale_actions: bool = True,
        stop_std: float | None = None,
        stop_window: int = 20,
        evaluate_every: int = 10,
        seed: int | None = None,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        self.max_path_length = horizon_of(max_path_length, self.env_spec)
        self.policy = policy if isinstance(policy, NormalizedPolicy) else NormalizedPolicy(policy, False, scale_actions)
        """What acts: with the parameters of the mean."""
        self._places = _explored(self.policy)
        if noise not in NOISES:
            raise unknown_name("noise", str(noise), NOISES)
        self.pop_size = default_population(len(self._places)) if pop_size is None else pop_size
        for name, value, least in (
            ("pop_size", self.pop_size, 1),
            ("num_domains", num_domains, 1),
            ("num_init_states_per_domain", num_init_states_per_domain, 1),
            ("stop_window", stop_window, 2),
            ("evaluate_every", evaluate_every, 0),
        ):
            check_whole(name, value, least)
        check_number("spread_min", spread_min, 0.0, above_low=True)
        check_number("spread_max", spread_max, spread_min)
        check_number("spread", spread, spread_min, spread_max)
        check_number("spread_factor", spread_factor, 1.0)
        if stop_std is not None:
            check_number("stop_std", stop_std, 0.0, above_low=True)
        self.noise, self.epsilon = noise, check_epsilon(epsilon)
        self.num_domains, self.num_init_states_per_domain = num_domains, num_init_states_per_domain
        self.evaluate_every, self.test_env_sampler = evaluate_every, test_env_sampler
        self._initial_spread, self._bounds, self._factor = float(spread), (spread_min, spread_max), spread_factor
        self._stop_std, self._stop_window = stop_std, stop_window
        self.seed = fresh_seed() if seed is None else int(seed)

        self._generator = np.random.default_rng(derive_seed("hill climbing", self.seed))
        self._flat = self.policy.acting_parameters()
        self._asked: np.ndarray | None = None
        self._spread = self._initial_spread
        self._returns: list[float] = []
        self._num_epochs = 0
        self.best_return = -math.inf
        """Highest return of any set so far; with random domains or states luck is in it."""
        self.best_parameters = self._flat.copy()
        """Flat parameters of the policy ``(P,)`` with which that was reached."""

    @property
    def spread(self) -> float:
        """Standard deviation of the next noise, or radius of the next sphere."""
        return self._spread

    @property
    def num_epochs(self) -> int:
        """Number of epochs so far."""
        return self._num_epochs

    @property
    def converged(self) -> bool:
        """Whether the returns of the last means are so alike that the training ends (see ``stop_std``)."""
        if self._stop_std is None or len(self._returns) < self._stop_window:
            return False
        return float(np.std(self._returns)) < self._stop_std

    def collect(self, runner: Runner) -> list[Any]:
        """Rollouts of each set of a new ``ask``."""
        return runner.sample_parameters(
            self.ask(),
            num_domains=self.num_domains,
            num_init_states_per_domain=self.num_init_states_per_domain,
        )

    def update(self, rollouts: Sequence[Sequence[Any]], progress: Progress | None = None) -> dict[str, float]:
        """``tell``."""
        return self.tell(rollouts)

    def ask(self) -> np.ndarray:
        """Flat parameters of the policy to try, float32 ``(pop_size + 1, P)``; the first set is the mean."""
        sets = np.repeat(self._flat[None], self.pop_size + 1, axis=0)
        mean = self._flat[self._places]
        sets[1:, self._places] = noisy_sets(mean, self._spread, self.pop_size, self.noise, self._generator)
        self._asked = sets
        return sets.copy()

    def tell(self, rollouts: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Move to the best set if it is better than the mean; numbers for the log.

        Args:
            rollouts: Rollouts of each set of the last ``ask``, in its order.
        """
        if self._asked is None:
            raise ValueError("tell needs sets that have been tried: call ask() first, once for each tell")
        if len(rollouts) != len(self._asked) or not all(len(group) for group in rollouts):
            raise ShapeError(
                f"rollouts must hold a list for each of the {len(self._asked)} sets, with at least one rollout, got "
                f"lists of {[len(group) for group in rollouts]}"
            )
        returns = [np.array([each.sum() for each in Rollouts.of(group).each("rewards")]) for group in rollouts]
        scores = np.array([conditional_value_at_risk(each, self.epsilon) for each in returns])
        if not np.isfinite(scores).all():
            raise InvalidValueError(f"the returns of set {int(np.flatnonzero(~np.isfinite(scores))[0])} are not finite")
        best = int(scores.argmax())  # the mean itself, where nothing is better
        if scores[best] > self.best_return:
            self.best_return, self.best_parameters = float(scores[best]), self._asked[best].copy()
        used = self._spread
        self._flat, self._asked = self._asked[best].copy(), None
        self.policy.parameter_layout().assign(self.policy, self._flat)
        self._spread = adapted_spread(
            self._spread, best > 0, self._factor, self._bounds, self.noise, self._initial_spread
        )
        self._returns = [*self._returns, float(scores[0])][-self._stop_window :]
        self._num_epochs += 1
        return {
            "return": float(returns[0].mean()),
            "score": float(scores[0]),
            "score_best_of_epoch": float(scores[best]),
            "score_median_of_epoch": float(np.median(scores)),
            "best_return": self.best_return,
            "improved": float(best > 0),
            "spread": used,
            "episodes": float(sum(map(len, rollouts))),
        }

    def fingerprint(self) -> str:
        """Class, policy and settings as a short text; a snapshot fits a learner with the same one."""
        settings = [self.noise, self.pop_size, self._initial_spread, *self._bounds, self._factor, self.epsilon]
        settings += [self.num_domains, self.num_init_states_per_domain, self.max_path_length]
        layout = self.policy.parameter_layout()
        kinds = [type(self.policy.policy).__name__, *layout.names, *layout.shapes, self.policy.action_bounds]
        return fingerprint_of(self, *map(repr, [*settings, *kinds]))

    def state_dict(self) -> dict[str, Any]:
        """Mean, best set, spread, returns of the last means, and generator."""
        return {
            "mean": self._flat.copy(),
            "best": {"parameters": self.best_parameters.copy(), "return": self.best_return},
            "spread": self._spread,
            "returns": list(self._returns),
            "generator": self._generator.bit_generator.state,
            "counters": {"seed": self.seed, "epochs": self._num_epochs},
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical.

        Raises:
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        load_or_keep(type(self).__name__, self._load, tree, self.state_dict())
        self._asked = None

    def _load(self, tree: Mapping[str, Any]) -> None:
        self._flat, self.best_parameters = (
            self._checked_set(found) for found in (tree["mean"], tree["best"]["parameters"])
        )
        self.best_return = float(tree["best"]["return"])
        self.policy.parameter_layout().assign(self.policy, self._flat)
        self._spread, self._returns = float(tree["spread"]), [float(value) for value in tree["returns"]]
        self._generator.bit_generator.state = tree["generator"]
        self.seed, self._num_epochs = int(tree["counters"]["seed"]), int(tree["counters"]["epochs"])

    def _checked_set(self, values: Any) -> np.ndarray:
        found = np.array(values, dtype=np.float32)
        if found.shape != self._flat.shape:
            raise ShapeError(f"parameter vectors must have shape {self._flat.shape}, got {found.shape}")
        return found


def _explored(policy: NormalizedPolicy) -> np.ndarray:
    """Places in the flat vector of the parameters that require a gradient: the others are no weights."""
    layout, parameters = policy.parameter_layout(), dict(policy.named_parameters())
    wanted = [
        np.full(math.prod(shape), parameters[name].requires_grad)
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    ]
    places = np.flatnonzero(np.concatenate(wanted)) if wanted else np.zeros(0, dtype=int)
    if not len(places):
        raise ValueError(
            f"policy must have parameters that require a gradient, {type(policy.policy).__name__} has none"
        )
    return places
