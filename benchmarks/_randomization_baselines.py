"""Other ways to randomize: SimOpt, which fits a distribution to recordings, and automatic domain randomization.

`sim2real.py --baselines simopt adr` trains on both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

import metaroll
from metaroll.checks import check_number, check_whole
from metaroll.configs.inference import LoopOptions
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.inference.parameter_names import named
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.lab.inferring.inferring import segment_sampler
from metaroll.lab.inferring.sim2real import ENV, TRAINING
from metaroll.lab.results.inference_result import Inference
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import as_generator, derive_seed
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import RolloutPlan

__all__ = ["AutomaticRandomization", "sim_opt", "sim_opt_tasks", "train_adr"]

_LEAST_SPREAD = 0.02
"""Share of the prior's standard deviation; a narrower distribution would no longer change."""
_ITERATIONS = 6
_ADR = {"low": 50.0, "high": 100.0, "step": 0.34, "num_episodes": 4}
"""A policy that swings up and balances earns 200 and more. A training tries each of the ten ends about ten times."""


def sim_opt(
    simulate: Callable[[np.ndarray], Any],
    observed: np.ndarray,
    prior: Any,
    *,
    iterations: int = 6,
    num_simulations: int = 200,
    elite: float = 0.1,
    seed: int = 0,
) -> np.ndarray:
    """Draws ``(10000, d)`` of a normal distribution of parameters whose simulations look like recordings.

    SimOpt (Chebotar et al. 2019, arXiv:1810.05687): the distribution moves to parameters with small discrepancy, the
    weighted sum of absolute and squared differences of the features (its equation 3); here by the cross-entropy method
    in place of REPS, so that the share of elites limits how far one iteration goes.

    Args:
        simulate: ``thetas (B, d) -> features (B, F)``; rows with NaN have infinite cost. Columns are in the order of
            the prior, or in that of its attribute ``names``, if it has one.
        observed: Features of the recordings, ``(F,)`` or ``(1, F)``.
        prior: Where the distribution starts, and whose bounds it keeps; any form that ``as_prior`` takes.
        iterations: How often the distribution moves.
        num_simulations: Simulations per iteration.
        elite: Share of the simulations with the least cost, to which the distribution is fitted.
        seed: The same seed gives the same draws.
    """
    prior = as_prior(prior)
    simulate, generator = named(simulate, prior.names), np.random.default_rng(derive_seed("simopt", seed))
    count = max(
        2, round(check_number("elite", elite, 0.0, above_low=True) * check_whole("num_simulations", num_simulations))
    )
    target = np.asarray(observed, dtype=np.float64).reshape(-1)
    mean, spread = 0.5 * (prior.low + prior.high), prior.std
    thetas = prior.sample(num_simulations, generator)
    scale = np.ones(len(target))
    for number in range(check_whole("iterations", iterations)):
        features = np.asarray(simulate(thetas), dtype=np.float64)
        if number == 0:
            scale = np.nanstd(features, axis=0) + 1e-12
        # SimOpt's equation 3 with equal weights, (B, F) -> (B,): means of absolute and of squared differences.
        gaps = (features - target) / scale
        costs = np.abs(gaps).mean(axis=1) + np.square(gaps).mean(axis=1)
        best = thetas[np.argsort(np.where(np.isfinite(costs), costs, np.inf))[:count]]
        # Cross-entropy step: the normal distribution of the elites, (count, d) -> (d,).
        mean = best.mean(axis=0)
        spread = np.maximum(best.std(axis=0), _LEAST_SPREAD * prior.std)
        if number + 1 < iterations:
            thetas = _within(prior, mean, spread, num_simulations, generator)
    return _within(prior, mean, spread, 10_000, generator)


def _within(prior: Prior, mean: np.ndarray, spread: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    return np.clip(generator.normal(mean, spread, (num, len(mean))), prior.low, prior.high)


@final
class AutomaticRandomization:
    """Ranges that widen while the policy copes with their ends, and shrink where it does not.

    Automatic domain randomization (Akkaya et al. 2019, arXiv:1910.07113, algorithm 1): after every epoch one parameter
    is set to one end of its range, all others are drawn, and the mean return of the policy there decides which way that
    end moves. This is a callback of the runner: if the learner draws from a ``DomainRandomizer`` of these parameters
    (``randomizer`` itself, or that of the option ``randomize_param``), its ranges follow.

    Args:
        env: Simulator, as for ``RolloutEngine``.
        nominal: Name -> value at which the range starts.
        limits: Name -> lowest and highest value that they may reach.
        low, high: Mean returns below which an end moves inwards, and above which it moves outwards.
        step: How far an end moves, as a share of the distance from the nominal value to the limit.
        num_episodes: Episodes at each end.
        max_steps: Time limit of these episodes.
        seed: Seed of everything that is drawn.
    """

    def __init__(
        self,
        env: Any,
        nominal: Mapping[str, float],
        limits: Mapping[str, tuple[float, float]],
        *,
        low: float,
        high: float,
        step: float = 0.2,
        num_episodes: int = 5,
        max_steps: int | None = None,
        seed: int = 0,
    ) -> None:
        if not low <= high:
            raise ValueError(f"low must not be above high, got {low} and {high}")
        self._source, self._nominal, self._limits = EnvSource.of(env), dict(nominal), dict(limits)
        self._low, self._high = low, high
        self._step = check_number("step", step, 0.0, above_low=True)
        self._episodes, self._max_steps = check_whole("num_episodes", num_episodes), max_steps
        self._seed, self._generator = seed, as_generator(derive_seed("boundaries", seed))
        self._reach = {(name, side): 0.0 for name in limits for side in (0, 1)}
        self.randomizer = DomainRandomizer(
            *(self._param(name) for name in limits), generator=derive_seed("training domains", seed)
        )
        """Draws from the present ranges."""

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Name -> present range."""
        return {name: (self._end(name, 0), self._end(name, 1)) for name in self._limits}

    @property
    def randomize_param(self) -> list[str]:
        """The present ranges as ``metaroll.agent(..., randomize_param=)`` takes them."""
        return [f"{name}={low}:{high}" for name, (low, high) in self.ranges.items()]

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, Any]) -> None:
        """Try one end of one range, and move it."""
        name = list(self._limits)[int(self._generator.integers(len(self._limits)))]
        side = int(self._generator.integers(2))
        plans = [
            RolloutPlan(
                index,
                (derive_seed("boundary", self._seed), epoch, index),
                DomainParamUpdate({**params, name: self._end(name, side)}),
                eval=True,
                max_steps=self._max_steps,
            )
            for index, params in enumerate(self.randomizer.draw(self._episodes, self._generator))
        ]
        with RolloutEngine(self._source, runner.algo.policy) as engine:
            mean_return = float(np.mean([rollout.undiscounted_return() for rollout in engine.run(plans)]))
        change = self._step if mean_return >= self._high else -self._step if mean_return <= self._low else 0.0
        self._reach[name, side] = min(1.0, max(0.0, self._reach[name, side] + change))
        moved = self._param(name)
        for randomizer in (self.randomizer, runner.algo.task_sampler):
            randomizer.adapt_one_distr_param(name, "mean", moved.mean)
            randomizer.adapt_one_distr_param(name, "halfspan", moved.halfspan)

    def _end(self, name: str, side: int) -> float:
        """The present end of a range, which starts a thousandth of the way out."""
        reach, nominal = max(1e-3, self._reach[name, side]), self._nominal[name]
        return nominal + reach * (self._limits[name][side] - nominal)

    def _param(self, name: str) -> UniformDomainParam:
        low, high = self._end(name, 0), self._end(name, 1)
        return UniformDomainParam(name, 0.5 * (low + high), 0.5 * (high - low))


def sim_opt_tasks(rollouts: Sequence[StepSequence], inference: Inference, folder: Path) -> Path:
    """Fit SimOpt to the data of ``inference`` with as many simulations; returns ``folder``, now one of a posterior."""
    posterior, settings = inference.posterior, inference.options
    prior, description = posterior.prior, posterior.description
    with segment_sampler(ENV, rollouts, prior, settings) as sampler:
        draws = sim_opt(
            sampler,
            sampler.target_features().numpy(),
            prior,
            iterations=_ITERATIONS,
            num_simulations=(sum(description["num_simulations"]) + int(description["num_failed"])) // _ITERATIONS,
            seed=settings.seed,
        )
    Posterior(prior, draws=draws, description={"algorithm": "simopt"}).save(folder)
    return folder


def train_adr(nominal: Mapping[str, float], prior: Prior, options: LoopOptions, folder: Path, seed: int) -> Path:
    """Train a policy as the loop does, on ranges that grow from ``nominal`` to those of the prior; the run's folder.

    Args:
        nominal: Name -> value.
        prior: Prior of the unknown parameters.
        options: Sizes of the loop.
        folder: Folder of a new run; it cannot be resumed, since snapshots do not hold the ranges.
        seed: Seed of the episodes at the ends of ranges; the training itself has seed 0, like all others.
    """
    limits = dict(zip(prior.names, zip(prior.low.tolist(), prior.high.tolist(), strict=True), strict=True))
    growing = AutomaticRandomization(ENV, nominal, limits, seed=seed, **_ADR)
    epochs = {"epochs": options.epochs, "lr_decay_epochs": options.epochs}
    values = {**TRAINING, **epochs, "seed": 0, "randomize_param": growing.randomize_param}
    metaroll.agent("ppo", ENV, run_dir=folder, **values).learn(callbacks=[growing], progress=False)
    return folder
