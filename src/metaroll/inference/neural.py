"""Posteriors over simulator parameters by neural density estimation: NPDR and BayesSim, in one round or several."""

from __future__ import annotations

import functools
import math
from abc import ABC
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
from torch import nn

from metaroll.checks import check_path, check_seed, check_whole, described
from metaroll.config import config_of, understands
from metaroll.errors import ShapeError, option_name
from metaroll.inference.configs import FEWEST_SIMULATIONS, EstimatorConfig, check_num_simulations
from metaroll.inference.estimators import Fit, NeuralEstimator, NeuralTrainer
from metaroll.inference.parameter_names import named
from metaroll.inference.posterior import BORDER, Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.regions import NUM_DRAWS, Estimator, Region, find_region
from metaroll.inference.simulations import Simulate, Simulations, SimulationStore, fingerprint
from metaroll.seeding import derive_seed

__all__ = ["NPDR", "BayesSim", "InferenceProgress", "NeuralInference"]

_MIXTURE = EstimatorConfig(ensemble=3, batch_size=50, learning_rate=2e-3)
"""For mixtures of Gaussians, which would stop training too early with the settings of flows (benchmarks/README.md)."""
_DRAWN_BY = "chains, from networks of the region whose bases are fitted, half of all in the last round"
"""Part of the fingerprint of a round, so that simulations truncated in another way are not reused."""


class InferenceProgress(NamedTuple):
    """Argument of a progress callback.

    Attributes:
        phase: ``"simulate"``, and, when they start, ``"train"``, ``"draw"`` or (of ``metaroll infer``) ``"check"``.
        round_number: From 1.
        rounds: Number of rounds.
        done: Completed simulations of the round.
        total: Simulations of the round.
        failed: Number of failed simulations among those.
    """

    phase: Literal["simulate", "train", "draw", "check"]
    round_number: int
    rounds: int
    done: int
    total: int
    failed: int = 0


class NeuralInference(ABC):  # noqa: B024 (its two kinds differ in their settings alone)
    """Base class of NPDR and BayesSim; see there."""

    def __init__(
        self,
        prior: Any,
        config: EstimatorConfig,
        *,
        rounds: int,
        proposal: Literal["truncated", "posterior"],
        seed: int,
        batch_size: int,
        run_dir: str | Path | None,
        simulator: Mapping[str, Any] | str,
        embedding_net: nn.Module | None,
        device: str,
        progress: Callable[[InferenceProgress], None] | None,
    ) -> None:
        self.prior: Prior = as_prior(prior)
        """The prior."""
        self.config = config
        """Settings of the density estimator."""
        if proposal not in ("truncated", "posterior"):
            raise ValueError(f"proposal must be 'truncated' or 'posterior', got {proposal!r}")
        if proposal == "posterior" and config.method != "npe" and rounds > 1:
            raise ValueError(f"proposal 'posterior' needs method 'npe', got {config.method!r}; use 'truncated'")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of an InferenceProgress, got {described(progress)}")
        self._rounds, self._proposal = check_whole(option_name("rounds"), rounds), proposal
        self._seed, self._batch_size = check_seed(option_name("seed"), seed), check_whole("batch_size", batch_size)
        self._run_dir = None if run_dir is None else check_path("run_dir", run_dir)
        self._simulator = dict(simulator) if isinstance(simulator, Mapping) else str(simulator)
        self._embedding_net, self._device = embedding_net, device
        self._progress = progress

    @final
    def infer(
        self,
        simulate: Simulate,
        observed: Any = None,
        num_simulations: int = 1000,
        enough: Callable[[Posterior], bool] | None = None,
    ) -> Posterior:
        """The posterior of the parameters.

        Simulations in ``run_dir/simulations`` are reused: an interrupted call continues, and one with more simulations
        adds to them.

        Args:
            simulate: ``thetas (B, d) -> features (B, F)``; NaN in a row means that its simulation failed. Columns are
                in the order of the prior, or of the function's attribute ``names``, if it has one.
            observed: Observed features, ``(F,)`` or ``(1, F)``; ``None`` (in one round) returns a posterior for use
                with ``at(features)``.
            num_simulations: Total over all rounds.
            enough: Called with the posterior. If it returns false after several rounds, one more round is made, as
                large as the last one; its posterior is passed to ``enough`` again, and returned whatever the answer.
                (If too few simulations of that round are usable, the first posterior is returned, and its description
                has their number as ``num_unlearned``.)

        Raises:
            MissingPackageError: sbi is not installed.
            ShapeError: ``simulate`` returns another shape, or ``observed`` does not have the shape of its features.
            ValueError: Too few simulations gave finite features, several rounds have no observation, or ``simulate``
                and the prior have different parameters.
        """
        simulate = named(simulate, self.prior.names)
        total = check_whole("num_simulations", num_simulations)
        check_num_simulations(total, self._rounds)
        if observed is None and self._rounds > 1:
            raise ValueError("observed must be given with rounds above 1, which target it")
        target = None if observed is None else np.asarray(observed, dtype=np.float64)
        flat = () if self._proposal == "posterior" and self._rounds > 1 else self.prior.flat_columns
        trainer = NeuralTrainer(
            self.config, self.prior.dim, derive_seed("training", self._seed), self._embedding_net, self._device, flat
        )
        store = SimulationStore(self.prior, None if self._run_dir is None else self._run_dir / "simulations")
        rounds: list[Simulations] = []
        tried: list[Simulations] = []
        fits: list[Fit] = []
        estimator: NeuralEstimator | None = None
        region: Callable[[], Region] | None = None
        posterior: Posterior | None = None
        number = 0
        while True:
            number += 1
            if estimator is not None and target is not None and self._proposal == "truncated":
                seed = derive_seed("region", self._seed, number)
                # Computed on demand: sampling from a likelihood is slow, and not needed for stored simulations.
                region = functools.cache(functools.partial(find_region, estimator, self.prior.dim, target, seed))
            within = min(number, self._rounds)  # an extra round is as large as the last one
            share = self._simulations_until(within, total) - self._simulations_until(within - 1, total)
            made = self._simulated(store, simulate, number, share, total, estimator, target, region)
            if made.num_usable < FEWEST_SIMULATIONS:
                if posterior is not None:
                    posterior.description.update(num_failed=store.num_failed, num_unlearned=made.num_usable)
                    return posterior
                raise ValueError(
                    f"only {made.num_usable} of {share} simulations of round {number} gave finite "
                    "features, too few to learn from; check why they fail, or exclude parameters that cannot be "
                    "simulated from the prior"
                )
            tried.append(made)
            rounds.append(made.usable)
            if target is not None:
                target = _like_features(target, rounds[0].features.shape[1:])
            self._report("train", number, share, share, tried[-1].num_failed)
            self._learn_success(trainer, tried)
            estimator, fit = self._trained(trainer, rounds, target, region)
            fits.append(fit)
            if number < self._rounds:
                continue
            posterior = self._posterior(estimator, target, region, self._description(store, tried, fits))
            if enough is None or enough(posterior) or number > self._rounds or self._rounds == 1:
                return posterior

    def _posterior(
        self,
        estimator: NeuralEstimator,
        target: np.ndarray | None,
        region: Callable[[], Region] | None,
        description: dict[str, Any],
    ) -> Posterior:
        """The posterior of the last round, with its draws."""
        self._report("draw", description["rounds"], NUM_DRAWS, NUM_DRAWS)
        cut = region() if region is not None and self._within_region else None
        posterior = Posterior(
            self.prior, target, estimator=estimator, description=description, seed=self._seed, region=cut
        )
        if target is not None and cut is None and self._rounds > 1:
            normals = self.prior.to_normal(posterior.draws)  # stored, so that checks find the same region
            last = find_region(estimator, self.prior.dim, target, derive_seed("region", self._seed), normals)
            posterior.description[BORDER] = last.border
        elif target is not None:
            _ = posterior.draws  # drawn now, as reported to progress
        return posterior

    def _simulations_until(self, number: int, total: int) -> int:
        """Number of simulations up to and including a round; the last one, with the narrowest region, has half."""
        return total if number == self._rounds else total * number // max(1, 2 * (self._rounds - 1))

    @property
    def _within_region(self) -> bool:
        """Whether truncated rounds learn only from simulations within their region.

        A posterior lies within its region, and only simulations from there have the right scale. A likelihood is
        evaluated everywhere.
        """
        return self.config.method != "nle"

    def _simulated(
        self,
        store: SimulationStore,
        simulate: Simulate,
        number: int,
        share: int,
        total: int,
        estimator: Estimator | None,
        target: np.ndarray | None,
        region: Callable[[], Region] | None,
    ) -> Simulations:
        """The simulations of a round."""
        inputs: list[Any] = [self.prior.to_plain(), self._seed, self._simulator, self._batch_size]
        if number > 1:  # the earlier rounds depend on these, and they determine the parameters of this one
            inputs += [
                self.config.to_plain(),
                total,
                self._rounds,
                self._proposal,
                None if target is None else target.tolist(),
                _DRAWN_BY,
            ]
        mark = fingerprint(*inputs)

        def draw(block: int, count: int) -> np.ndarray:
            seed = derive_seed("parameters", self._seed, number, block)
            if estimator is None or target is None:
                return self.prior.sample(self._batch_size, seed)[:count]
            if region is None:
                normals = estimator.sample(self._batch_size, target[None], seed)[0]
            else:
                normals = region().sample(self._batch_size, self.prior.dim, seed)
            return self.prior.from_normal(normals)[:count]

        def report(done: int, total: int, failed: int) -> None:
            self._report("simulate", number, done, total, failed)

        report(0, share, 0)
        return store.run(simulate, number, share, mark, draw, self._batch_size, report)

    def _learn_success(self, trainer: NeuralTrainer, tried: list[Simulations]) -> None:
        """Learn the probability of success, for methods that need it (``NeuralTrainer.learn_success``)."""
        if self.config.method == "nle" or (self._proposal == "posterior" and len(tried) > 1):
            thetas = np.concatenate([made.thetas for made in tried])
            trainer.learn_success(self.prior.to_normal(thetas), np.concatenate([made.succeeded for made in tried]))

    def _trained(
        self,
        trainer: NeuralTrainer,
        rounds: list[Simulations],
        target: np.ndarray | None,
        region: Callable[[], Region] | None,
    ) -> tuple[NeuralEstimator, Fit]:
        # Proposal "posterior": the last round only, with a corrected loss (Greenberg et al. 2019); theta (n, d)
        if len(rounds) > 1 and self._proposal == "posterior":
            assert target is not None
            return trainer.fit_more(self.prior.to_normal(rounds[-1].thetas), rounds[-1].features, target)
        # Proposal "truncated": all rounds, by maximum likelihood, mean ln q(theta | x), theta (n, d), x (n, F)
        normals = self.prior.to_normal(np.concatenate([made.thetas for made in rounds]))
        features = np.concatenate([made.features for made in rounds])
        if region is not None and self._within_region:
            # (The last round lies within the region, even if it was read from disk and the networks differ.)
            inside = np.ones(len(normals), dtype=bool)
            before = len(normals) - len(rounds[-1].thetas)
            inside[:before] = region().holds(normals[:before])
            normals, features = normals[inside], features[inside]
        return trainer.fit(normals, features, continues=self._proposal == "posterior" and self._rounds > 1)

    def _report(
        self, phase: Literal["simulate", "train", "draw"], number: int, done: int, total: int, failed: int = 0
    ) -> None:
        if self._progress is not None:
            self._progress(InferenceProgress(phase, number, max(number, self._rounds), done, total, failed))

    def _description(self, store: SimulationStore, tried: list[Simulations], fits: list[Fit]) -> dict[str, Any]:
        return {
            "algorithm": type(self).__name__,
            "rounds": len(tried),
            "proposal": self._proposal,
            "seed": self._seed,
            "simulator": self._simulator,
            "num_simulations": [made.num_usable for made in tried],
            "num_failed": store.num_failed,
            "num_failed_in_rounds": [made.num_failed for made in tried],
            "num_reused": store.num_reused,
            "num_foreign_parts": store.num_foreign_parts,
            "epochs": [fit.epochs for fit in fits],
            "regressed": [fit.regressed for fit in fits],
            "validation_losses": [[loss if math.isfinite(loss) else None for loss in fit.losses] for fit in fits],
        }


@final
class NPDR(NeuralInference):
    """Neural posterior domain randomization (Muratore et al. 2021): sequential neural posterior estimation with flows.

    Each round simulates parameters from the region of the posterior, and learns from all simulations in that region.
    One round is amortized: its posterior is valid for every observation, ``posterior.at(features)``.

    The posterior is conditional on success of the simulation: parameters with frequent failures are less likely. With
    failures, maximum likelihood of ``"npe"`` and ``"fmpe"`` learns exactly that from the successful simulations,
    truncated or not; for ``"nle"``, and for ``proposal="posterior"``, the probability of success is learned as well
    (``NeuralTrainer.learn_success``).

    Args:
        prior: The prior: ``{"mass": (0.5, 2.0), ...}``, or another argument of ``as_prior``.
        config: Settings of the density estimator: model, networks, training, ensemble, and ``method`` ``"nle"`` or
            ``"fmpe"`` instead of ``"npe"``.
        rounds: Number of rounds; the last one has half of the simulations.
        proposal: Proposal of later rounds: ``"truncated"`` (the prior within the region that holds all but 1e-4 of the
            posterior; keeps maximum likelihood) or ``"posterior"`` (the posterior itself, corrected for in the loss).
        seed: Seed of all randomness.
        batch_size: Simulations per call of the simulator.
        run_dir: Folder in which simulations are kept and reused; ``None`` keeps them in memory.
        simulator: Identifies the simulator, text or JSON types: simulations of another one are not reused.
        embedding_net: Network trained with the density, which maps the simulator's output to features.
        device: ``"cpu"`` or ``"cuda"``, for training.
        progress: Called for every batch of simulations and every training.
        options: Settings by name; they override those of ``config``.
    """

    @understands(own=["batch_size"])
    def __init__(
        self,
        prior: Any,
        config: EstimatorConfig | None = None,
        *,
        rounds: int = 1,
        proposal: Literal["truncated", "posterior"] = "truncated",
        seed: int = 0,
        batch_size: int = 1000,
        run_dir: str | Path | None = None,
        simulator: Mapping[str, Any] | str = "",
        embedding_net: nn.Module | None = None,
        device: str = "cpu",
        progress: Callable[[InferenceProgress], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            prior,
            config_of(EstimatorConfig, config, options, type(self)),
            rounds=rounds,
            proposal=proposal,
            seed=seed,
            batch_size=batch_size,
            run_dir=run_dir,
            simulator=simulator,
            embedding_net=embedding_net,
            device=device,
            progress=progress,
        )


@final
class BayesSim(NeuralInference):
    """BayesSim (Ramos, Possas and Fox 2019): a mixture density network, in one round by default.

    Args:
        prior: See ``NPDR``.
        num_components: Gaussians of the mixture.
        num_random_features: Number of frequencies of quasi-random Fourier features of a Matern 5/2 kernel; 0 means that
            the network gets the features themselves.
        config: Further settings; method and model are fixed. ``None`` means an ensemble of three mixtures, trained with
            learning rate 2e-3 and batches of 50 simulations.
        rounds: See ``NPDR``.
        proposal: See ``NPDR``; the correction for ``"posterior"`` is exact for a mixture.
        seed: See ``NPDR``.
        batch_size: See ``NPDR``.
        run_dir: See ``NPDR``.
        simulator: See ``NPDR``.
        device: See ``NPDR``.
        progress: See ``NPDR``.
        options: See ``NPDR``.
    """

    @understands(EstimatorConfig, own=["batch_size"])
    def __init__(
        self,
        prior: Any,
        num_components: int = 5,
        num_random_features: int = 0,
        config: EstimatorConfig | None = None,
        *,
        rounds: int = 1,
        proposal: Literal["truncated", "posterior"] = "truncated",
        seed: int = 0,
        batch_size: int = 1000,
        run_dir: str | Path | None = None,
        simulator: Mapping[str, Any] | str = "",
        device: str = "cpu",
        progress: Callable[[InferenceProgress], None] | None = None,
        **options: Any,
    ) -> None:
        config = config_of(EstimatorConfig, _MIXTURE if config is None else config, options, type(self))
        if own := options.keys() & {"method", "model"}:
            raise ValueError(f"{' and '.join(sorted(own))} of BayesSim cannot be chosen: use NPDR")
        changed = {"num_components": num_components, "num_random_features": num_random_features}
        super().__init__(
            prior,
            config_of(EstimatorConfig, config, {"method": "npe", "model": "mdn", **changed}),
            rounds=rounds,
            proposal=proposal,
            seed=seed,
            batch_size=batch_size,
            run_dir=run_dir,
            simulator=simulator,
            embedding_net=None,
            device=device,
            progress=progress,
        )


def _like_features(observed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``observed`` in the shape of one simulation's features."""
    single = observed[0] if observed.shape == (1, *shape) else observed
    if single.shape != shape:
        raise ShapeError(f"observed must have the shape of simulated features, {shape}, got {observed.shape}")
    if not np.isfinite(single).all():
        raise ValueError("observed must be finite: the observed features hold NaN or infinity")
    return single
