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

"""Usable simulations below which nothing can be trained."""
_MIXTURE = EstimatorConfig(ensemble=3, batch_size=50, learning_rate=2e-3)
"""Mixtures of Gaussians that learn as flows do stop before they are half as good (benchmarks/README.md)."""
_DRAWN_BY = "chains, from networks of the region whose bases are fitted, half of all in the last round"
"""How rounds are truncated: simulations of a round that was drawn in another way are not used again."""


class InferenceProgress(NamedTuple):
    """What a progress callback is told.

    Attributes:
        phase: ``"simulate"``, and, at their beginning, ``"train"``, ``"draw"`` or (of ``metaroll infer``) ``"check"``.
        round_number: From 1.
        rounds: How many there are.
        done: Simulations of the round that are done.
        total: Simulations of the round.
        failed: Of those that are done, how many have failed.
    """

    phase: Literal["simulate", "train", "draw", "check"]
    round_number: int
    rounds: int
    done: int
    total: int
    failed: int = 0


class NeuralInference(ABC):  # noqa: B024 (its two kinds differ in their settings alone)
    """What NPDR and BayesSim have in common; see there."""

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
        """What is known before."""
        self.config = config
        """How the posterior is learned."""
        if proposal not in ("truncated", "posterior"):
            raise ValueError(f"proposal must be 'truncated' or 'posterior', got {proposal!r}")
        if proposal == "posterior" and config.method != "npe" and rounds > 1:
            raise ValueError(f"proposal 'posterior' needs method 'npe', got {config.method!r}; take 'truncated'")
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

        Simulations that stand in ``run_dir/simulations`` are not made again: a call that was interrupted goes on, and
        one with more simulations adds to them.

        Args:
            simulate: ``thetas (B, d) -> features (B, F)``; NaN in a row says that its simulation failed. Columns are
                in the order of the prior, or in that of its attribute ``names``, if it has one.
            observed: Features of what was observed, ``(F,)`` or ``(1, F)``; ``None`` (in one round) gives a posterior
                that ``at(features)`` asks later.
            num_simulations: In all rounds together.
            enough: Asked of the posterior. Where it says no after several rounds, one more is made, as large as the
                last one, and it is asked again, of the posterior that comes of that one and is returned in any case
                (without being asked, the first one, if too few simulations of that round are usable: its description
                tells by ``num_unlearned`` how many).

        Raises:
            MissingPackageError: sbi is not installed.
            ShapeError: ``simulate`` returns something else, or ``observed`` has not the shape of its features.
            ValueError: Too few simulations gave finite features, several rounds have no observation, or ``simulate``
                is of other parameters than the prior.
        """
        simulate = named(simulate, self.prior.names)
        total = check_whole("num_simulations", num_simulations)
        check_num_simulations(total, self._rounds)
        if observed is None and self._rounds > 1:
            raise ValueError("observed must be given with rounds above 1, which are directed to it")
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
                # Found where it is needed: a likelihood draws slowly, and whatever it drew may be there already.
                region = functools.cache(functools.partial(find_region, estimator, self.prior.dim, target, seed))
            within = min(number, self._rounds)  # one more round is as large as the last one
            share = self._simulations_until(within, total) - self._simulations_until(within - 1, total)
            made = self._simulated(store, simulate, number, share, total, estimator, target, region)
            if made.num_usable < FEWEST_SIMULATIONS:
                if posterior is not None:
                    posterior.description.update(num_failed=store.num_failed, num_unlearned=made.num_usable)
                    return posterior
                raise ValueError(
                    f"only {made.num_usable} of {share} simulations of round {number} gave finite "
                    "features, too few to learn from; look why they fail, or let the prior exclude parameters that "
                    "cannot be simulated"
                )
            tried.append(made)
            rounds.append(made.usable)
            if target is not None:
                target = _like_features(target, rounds[0].features.shape[1:])
            self._tell("train", number, share, share, tried[-1].num_failed)
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
        """What the last round has learned, with its draws."""
        self._tell("draw", description["rounds"], NUM_DRAWS, NUM_DRAWS)
        cut = region() if region is not None and self._within_region else None
        posterior = Posterior(
            self.prior, target, estimator=estimator, description=description, seed=self._seed, region=cut
        )
        if target is not None and cut is None and self._rounds > 1:
            normals = self.prior.to_normal(posterior.draws)  # told, so that it is found again where it is judged
            last = find_region(estimator, self.prior.dim, target, derive_seed("region", self._seed), normals)
            posterior.description[BORDER] = last.border
        elif target is not None:
            _ = posterior.draws  # made while progress says so
        return posterior

    def _simulations_until(self, number: int, total: int) -> int:
        """How many a round and those before have: the last one, whose region is the narrowest, has half of all."""
        return total if number == self._rounds else total * number // max(1, 2 * (self._rounds - 1))

    @property
    def _within_region(self) -> bool:
        """Whether rounds that are truncated are learned from simulations within their region alone.

        A posterior lies within its region, whose simulations alone tell networks of what size things are there. A
        likelihood is asked everywhere.
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
        told: list[Any] = [self.prior.to_plain(), self._seed, self._simulator, self._batch_size]
        if number > 1:  # what the earlier rounds, from which this one's parameters follow, depend on
            told += [
                self.config.to_plain(),
                total,
                self._rounds,
                self._proposal,
                None if target is None else target.tolist(),
                _DRAWN_BY,
            ]
        mark = fingerprint(*told)

        def draw(block: int, count: int) -> np.ndarray:
            seed = derive_seed("parameters", self._seed, number, block)
            if estimator is None or target is None:
                return self.prior.sample(self._batch_size, seed)[:count]
            if region is None:
                normals = estimator.sample(self._batch_size, target[None], seed)[0]
            else:
                normals = region().sample(self._batch_size, self.prior.dim, seed)
            return self.prior.from_normal(normals)[:count]

        def tell(done: int, of: int, failed: int) -> None:
            self._tell("simulate", number, done, of, failed)

        tell(0, share, 0)
        return store.run(simulate, number, share, mark, draw, self._batch_size, tell)

    def _learn_success(self, trainer: NeuralTrainer, tried: list[Simulations]) -> None:
        """Where what is trained cannot learn it by itself (``NeuralTrainer.learn_success``)."""
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
        if len(rounds) > 1 and self._proposal == "posterior":
            assert target is not None
            return trainer.fit_more(self.prior.to_normal(rounds[-1].thetas), rounds[-1].features, target)
        normals = self.prior.to_normal(np.concatenate([made.thetas for made in rounds]))
        features = np.concatenate([made.features for made in rounds])
        if region is not None and self._within_region:
            # (The last round lies there, also where it was read and networks differ.)
            inside = np.ones(len(normals), dtype=bool)
            before = len(normals) - len(rounds[-1].thetas)
            inside[:before] = region().holds(normals[:before])
            normals, features = normals[inside], features[inside]
        return trainer.fit(normals, features, goes_on=self._proposal == "posterior" and self._rounds > 1)

    def _tell(
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

    Each round simulates parameters where the posterior of the observation lies, and learns from all simulations that
    lie there. One round is amortized: its posterior holds for every observation, ``posterior.at(features)``.

    The posterior is that of an observation that has not failed: parameters with which simulations often fail are less
    likely by that. Where only some parameters fail, that is what maximum likelihood of ``"npe"`` and ``"fmpe"`` learns
    from the others, truncated or not; for ``"nle"``, and for ``proposal="posterior"``, how likely a simulation succeeds
    is learned as well (``NeuralTrainer.learn_success``).

    Args:
        prior: What is known before: ``{"mass": (0.5, 2.0), ...}``, or another form that ``as_prior`` takes.
        config: How the posterior is learned: model, networks, training, ensemble, and ``method`` ``"nle"`` or
            ``"fmpe"`` instead of ``"npe"``.
        rounds: In how many rounds the simulations are made; the last one has half of them.
        proposal: Where later rounds draw: ``"truncated"`` (the prior within the region that holds all but 1e-4 of the
            posterior; keeps maximum likelihood) or ``"posterior"`` (the posterior itself, corrected for in the loss).
        seed: Of all randomness.
        batch_size: Simulations in one call of the simulator.
        run_dir: Folder in which simulations are kept, and found again; ``None`` keeps them in memory.
        simulator: What tells simulators apart, text or JSON types: simulations of another one are not used again.
        embedding_net: Network trained with the density, which makes features of what the simulator returns.
        device: ``"cpu"`` or ``"cuda"``, where networks are trained.
        progress: Told of every batch of simulations and every training.
        options: Settings by name, in place of those of ``config``.
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
    """BayesSim (Ramos, Possas and Fox 2019): a mixture density network, in one round unless more are asked for.

    Args:
        prior: As of ``NPDR``.
        num_components: Gaussians of the mixture.
        num_random_features: Frequencies of its quasi-random Fourier features of a Matern 5/2 kernel; 0 means that a
            network sees the features themselves.
        config: Further settings, of which method and model are set here; ``None`` means three mixtures that are
            averaged, learned in steps of 2e-3 from 50 simulations each.
        rounds: As of ``NPDR``.
        proposal: As of ``NPDR``; the correction for ``"posterior"`` is exact for a mixture.
        seed: As of ``NPDR``.
        batch_size: As of ``NPDR``.
        run_dir: As of ``NPDR``.
        simulator: As of ``NPDR``.
        device: As of ``NPDR``.
        progress: As of ``NPDR``.
        options: As of ``NPDR``.
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
            raise ValueError(f"{' and '.join(sorted(own))} of BayesSim cannot be chosen: take NPDR")
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
        raise ValueError("observed must be finite: the features of what was observed hold NaN or infinity")
    return single
