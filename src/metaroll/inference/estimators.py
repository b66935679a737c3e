"""The interface to sbi: its density estimators, built and trained on the scale where the prior is standard normal.

Everything here is on that scale (``Prior.to_normal``), where no posterior has bounds; ``neural.py`` and
``posterior.py`` convert. sbi uses global random generators, so it runs with those seeded, and they are restored
afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.checks import described
from metaroll.errors import MissingPackageError, PosteriorError, install_text
from metaroll.functional.posteriors.calibration import latent_normal, mixture_factor
from metaroll.functional.posteriors.flat_scale import EDGE, flat_of_normal, log_flat_slope, normal_of_flat
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.feature_map import FeatureMap
from metaroll.inference.flow_bases import base_is_fitted, with_fitted_base, with_full_base_weights
from metaroll.inference.success import SuccessModel
from metaroll.seeding import derive_seed, isolated_rng, torch_generator

if TYPE_CHECKING:
    from sbi.inference.trainers.npe.npe_base import PosteriorEstimatorTrainer

__all__ = [
    "Fit",
    "NeuralEstimator",
    "NeuralTrainer",
    "require_sbi",
]

_NEEDS_SBI = "neural posteriors need sbi, which is not installed"
_MODELS = {"nsf": "nsf", "maf": "zuko_maf", "autoregressive_nsf": "zuko_nsf", "mdn": "mdn"}
"""Our names of densities, and sbi's. Its own ``maf`` is not used: the first parameter of each of its layers does not
depend on the observation, so with few layers one parameter keeps its prior."""
_NUM_COMPARED = 100
"""Number of observations, and of draws each, for comparisons of ensemble members."""
_MIN_VALIDATION = 10
"""Minimum number of validation simulations to compare regressions with features."""
_ROWS_AT_A_TIME = 50_000
_BUILDING_ROWS = 16


class _Silent:
    """A tracker for sbi that writes nothing; without one, sbi creates a folder for TensorBoard."""

    log_dir: str | None = None

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        pass

    def log_params(self, params: dict[str, Any]) -> None:
        pass

    def add_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        pass

    def flush(self) -> None:
        pass


def require_sbi() -> None:
    """Raise ``MissingPackageError`` if sbi is not installed; does not import it."""
    if importlib.util.find_spec("sbi") is None:
        raise MissingPackageError(f"{_NEEDS_SBI}: {install_text('sbi')}")


def _import_sbi() -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import sbi.inference  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(f"{_NEEDS_SBI}: {install_text('sbi')} ({error})") from error


@contextlib.contextmanager
def _sbi_at_work(seed: int) -> Iterator[None]:
    """Seeds global generators, and silences sbi's warnings and output, which are not about the user's calls."""
    with isolated_rng(seed), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class _StandardNormal(torch.distributions.MultivariateNormal):
    """The prior in the form of sbi; times the probability that a simulation succeeds, if that was learned."""

    success: SuccessModel | None = None

    def log_prob(self, value: Tensor) -> Tensor:
        logs = super().log_prob(value)
        return logs if self.success is None else logs + self.success(value)


def _standard_normal(dim: int, device: str, success: SuccessModel | None = None) -> _StandardNormal:
    prior = _StandardNormal(torch.zeros(dim, device=device), torch.eye(dim, device=device))
    prior.success = success
    return prior


def _builder(config: EstimatorConfig, embedding_net: nn.Module | None) -> Any:
    """Sbi's function ``(normals, seen) -> network``."""
    from sbi.neural_nets import likelihood_nn, posterior_flow_nn, posterior_nn

    # Features are already scaled; inputs of an embedding are not.
    common: dict[str, Any] = {"z_score_theta": "independent", "hidden_features": config.hidden_features}
    common["z_score_x"] = "none" if embedding_net is None else "structured"
    if embedding_net is not None:
        common["embedding_net"] = embedding_net
    flow: dict[str, Any] = {"num_transforms": config.num_transforms, "num_bins": config.num_bins}
    flow["num_components"] = config.num_components
    if config.method == "fmpe":
        return posterior_flow_nn("mlp", **common)
    if config.method == "nle":
        return likelihood_nn(_MODELS[config.model], **{**common, "z_score_x": "independent"}, **flow)
    return posterior_nn(_MODELS[config.model], **common, **flow)


def _sbi_trainer(config: EstimatorConfig, prior: _StandardNormal, embedding_net: nn.Module | None, device: str) -> Any:
    from sbi.inference import FMPE, NLE, NPE

    build = _builder(config, embedding_net)
    common: dict[str, Any] = {"tracker": _Silent(), "show_progress_bars": False, "device": device}
    if config.method == "fmpe":
        return FMPE(prior, vf_estimator=build, **common)
    if config.method == "nle":
        return NLE(prior, density_estimator=build, **common)
    return NPE(prior, density_estimator=build, **common)


class Fit(NamedTuple):
    """Summary of a training.

    Attributes:
        epochs: Epochs of each ensemble member.
        losses: Best validation loss of each, the negative log density per simulation (before ``latent_normal``).
        regressed: Whether networks get regressions of the parameters instead of features.
    """

    epochs: list[int]
    losses: list[float]
    regressed: bool = False


@final
class NeuralEstimator:
    """Trained networks for the distribution of parameters given features, on the standard normal scale.

    Args:
        config: Settings of the networks and their training.
        dim: d, the number of parameters.
        members: The networks of the ensemble.
        feature_map: Transformation of features for the networks; ``None`` with an embedding, which gets raw features.
        event_shape: Shape of the features of one simulation.
        success: With ``"nle"``, the probability of success, if some simulations have failed: the posterior is the prior
            times this times the likelihood of successful simulations.
        flat: With ``"npe"``, columns of parameters that the networks get on the flat scale of their bounds
            (functional/posteriors/flat_scale.py), not on the normal one; ``()`` means none.
    """

    def __init__(
        self,
        config: EstimatorConfig,
        dim: int,
        members: Sequence[Any],
        feature_map: FeatureMap | None,
        event_shape: tuple[int, ...],
        success: SuccessModel | None = None,
        flat: Sequence[int] = (),
    ) -> None:
        self.config, self.dim, self.event_shape = config, dim, event_shape
        self.flat = tuple(flat)
        self.feature_map, self._success = feature_map, success
        self._members = list(members)
        for member in self._members:
            member.eval()
        device = next(self._members[0].parameters()).device
        self._is_flat = torch.tensor([column in self.flat for column in range(dim)], device=device)

    # ---- use -------------------------------------------------------------------------------------------------------

    def sample(self, num: int, features: np.ndarray, seed: int) -> np.ndarray:
        """``num`` draws for each of m observations, ``(m, num, d)``, in equal parts from each member.

        Args:
            num: Number of draws.
            features: ``(m, *event_shape)``.
            seed: The same seed gives the same draws.
        """
        seen = self._seen(features)
        share, rest = divmod(num, len(self._members))
        parts = []
        with _sbi_at_work(derive_seed("posterior draws", seed)), torch.no_grad():
            for position, member in enumerate(self._members):
                count = share + (position < rest)
                step = max(1, _ROWS_AT_A_TIME // max(count, 1))
                if count:
                    blocks = [self._draws(member, count, seen[i : i + step]) for i in range(0, len(seen), step)]
                    parts.append(torch.cat(blocks))
        return torch.cat(parts, dim=1).to(torch.float64).cpu().numpy()

    def log_prob(self, normals: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Log density of each of n points for m observations, ``(m, n)``; for ``"nle"`` up to a constant.

        Args:
            normals: ``(n, d)``, the same for all observations, or ``(m, n, d)``.
            features: ``(m, *event_shape)``.
        """
        seen = self._seen(features)
        points = torch.as_tensor(np.asarray(normals), dtype=torch.float32, device=seen.device)
        points = points.expand(len(seen), *points.shape) if points.ndim == 2 else points
        logs = []
        with _sbi_at_work(0), torch.no_grad():
            for member in range(len(self._members)):
                rows = [self._log_density(member, points[i], seen[i : i + 1]) for i in range(len(seen))]
                logs.append(torch.stack(rows).to(torch.float64))
        # Mixture of the ensemble: ln (1/E) sum_e q_e(theta | x), (m, n)
        mixed = torch.logsumexp(torch.stack(logs), dim=0) - math.log(len(logs))
        return mixed.cpu().numpy()

    def _seen(self, features: np.ndarray) -> Tensor:
        rows = torch.as_tensor(np.asarray(features))
        if self.feature_map is not None:
            rows = self.feature_map(rows)
        device = next(self._members[0].parameters()).device
        return rows.to(device, torch.float32)

    def _draws(self, member: Any, num: int, seen: Tensor) -> Tensor:
        """``(m, num, d)``."""
        if self.config.method == "npe":
            return normal_of_flat(member.sample((num,), condition=seen).transpose(0, 1), self._is_flat)
        posterior = self._sbi_posterior(member)
        return torch.stack([posterior.sample((num,), x=row[None], show_progress_bars=False) for row in seen])

    def _log_density(self, position: int, points: Tensor, row: Tensor) -> Tensor:
        """``(n,)`` for one observation."""
        parts, member = [], self._members[position]
        for start in range(0, len(points), _ROWS_AT_A_TIME):
            some = points[start : start + _ROWS_AT_A_TIME]
            if self.config.method == "npe":
                flat = flat_of_normal(some, self._is_flat)
                logs = member.log_prob(flat.to(torch.float32)[:, None], condition=row)[:, 0]
                parts.append(logs + log_flat_slope(some, flat, self._is_flat))
            elif self.config.method == "nle":
                repeated = row.expand(len(some), *row.shape[1:])
                likelihood = member.log_prob(repeated[None], condition=some)[0]
                parts.append(likelihood + _standard_normal(self.dim, str(some.device), self._success).log_prob(some))
            else:
                parts.append(self._sbi_posterior(member).log_prob(some, x=row))
        return torch.cat(parts)

    def _sbi_posterior(self, member: Any) -> Any:
        """Sbi's sampler of a likelihood (slice sampling in 20 chains) or a vector field (its ODE)."""
        from sbi.inference.posteriors.posterior_parameters import MCMCPosteriorParameters

        device = str(next(member.parameters()).device)
        trainer = _sbi_trainer(self.config, _standard_normal(self.dim, device, self._success), None, device)
        if self.config.method == "fmpe":
            return trainer.build_posterior(member, sample_with="ode")
        chains = MCMCPosteriorParameters(
            method="slice_np_vectorized", num_chains=20, warmup_steps=50, thin=2, init_strategy="resample"
        )
        return trainer.build_posterior(member, sample_with="mcmc", posterior_parameters=chains)

    # ---- on disk ---------------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """All weights and buffers by name."""
        named = {} if self.feature_map is None else {f"map.{k}": v for k, v in self.feature_map.state_dict().items()}
        for position, member in enumerate(self._members):
            named.update({f"{position}.{name}": value for name, value in member.state_dict().items()})
        if self._success is not None:
            named.update({f"success.{name}": value for name, value in self._success.state_dict().items()})
        return named

    def to_plain(self) -> dict[str, Any]:
        """Everything besides the weights that is needed to rebuild it."""
        mapped = self.feature_map is not None
        plain = {"config": self.config.to_plain(), "event_shape": list(self.event_shape), "embedding_net": not mapped}
        return {**plain, "flat": list(self.flat), "edge": EDGE} if self.flat else plain

    @classmethod
    def from_weights(
        cls, dim: int, plain: Mapping[str, Any], weights: Mapping[str, Tensor], embedding_net: nn.Module | None = None
    ) -> NeuralEstimator:
        """The estimator rebuilt from ``to_plain`` and ``weights``.

        Args:
            dim: d, the number of parameters.
            plain: The result of ``to_plain``.
            weights: The result of ``weights``.
            embedding_net: A network with the architecture of the embedding that it was trained with, if any.

        Raises:
            MissingPackageError: sbi is not installed.
            PosteriorError: Weights and description do not match, or the embedding is missing.
        """
        _import_sbi()
        if plain["embedding_net"] and embedding_net is None:
            raise PosteriorError(
                "the posterior was trained with an embedding network, whose class is not stored: load it with "
                "embedding_net= a network of the same architecture"
            )
        if plain.get("flat") and plain.get("edge") != EDGE:
            raise PosteriorError(
                f"the networks must see bounded parameters on the flat scale with edges of {EDGE}, got edges of "
                f"{plain.get('edge')!r}: they were trained with another version of metaroll; infer again"
            )
        config, event_shape = EstimatorConfig.from_plain(plain["config"]), tuple(plain["event_shape"])
        try:
            feature_map = None
            if not plain["embedding_net"]:
                frequencies, regressions = weights["map.frequencies"], weights.get("map.offset", ())
                feature_map = FeatureMap(event_shape[0], frequencies.shape[1], frequencies.shape[0], len(regressions))
                feature_map.load_state_dict(_below("map.", weights))
            members = []
            with _sbi_at_work(0):
                generator = torch_generator(0)
                rows = tuple(
                    torch.randn(_BUILDING_ROWS, *shape, generator=generator) for shape in ((dim,), event_shape)
                )
                seen = rows[1] if feature_map is None else feature_map(rows[1])
                embedding_net = copy.deepcopy(embedding_net)  # its weights are those of this estimator
                for position in range(config.ensemble):
                    member, saved = _builder(config, embedding_net)(rows[0], seen), _below(f"{position}.", weights)
                    if base_is_fitted(config.method, config.model):
                        member, saved = with_fitted_base(member, dim), with_full_base_weights(saved)
                    member.load_state_dict(saved)
                    members.append(member)
                success = None
                if _below("success.", weights):
                    success = SuccessModel(dim).eval().requires_grad_(False)
                    success.load_state_dict(_below("success.", weights))
        except (RuntimeError, KeyError, IndexError, TypeError) as error:
            raise PosteriorError(
                f"the weights do not fit the description of the estimator ({type(error).__name__}: {error}); restore "
                "the folder from a copy, or use the versions named in posterior.json"
            ) from error
        return cls(config, dim, members, feature_map, event_shape, success, plain.get("flat", ()))


def _below(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


@final
class NeuralTrainer:
    """Trains estimators, round by round.

    Args:
        config: Settings of networks and training.
        dim: d, the number of parameters.
        seed: Seed of the initial weights, and of all randomness of training.
        embedding_net: Network that maps the simulator's output to features, trained with the density.
        device: ``"cpu"`` or ``"cuda"``.
        flat: Columns of parameters that networks of ``"npe"`` get on a flat scale (``NeuralEstimator``); ``fit_more``
            needs the normal one, on which the prior has no bounds.

    Raises:
        MissingPackageError: sbi is not installed.
    """

    def __init__(
        self,
        config: EstimatorConfig,
        dim: int,
        seed: int,
        embedding_net: nn.Module | None = None,
        device: str = "cpu",
        flat: Sequence[int] = (),
    ) -> None:
        _import_sbi()
        if embedding_net is not None and not isinstance(embedding_net, nn.Module):
            raise TypeError(f"embedding_net must be a torch.nn.Module, got {described(embedding_net)}")
        transforms = config.num_random_features or config.regressions
        if embedding_net is not None and (config.method == "nle" or transforms or config.ensemble > 1):
            raise ValueError(
                "embedding_net must be left out with method 'nle' (which needs the density of the features), random "
                "features, regressions, and an ensemble"
            )
        self._config, self._dim, self._seed = config, dim, seed
        self._flat = tuple(flat) if config.method == "npe" else ()
        self._embedding_net, self._device = embedding_net, device
        self._map: FeatureMap | None = None
        self._trainers: list[PosteriorEstimatorTrainer] = []
        self._priors: list[_StandardNormal] = []
        self._success: SuccessModel | None = None
        self._rounds = 0

    def learn_success(self, normals: np.ndarray, succeeded: np.ndarray) -> None:
        """Learn the probability of success from all simulations, failed ones included; used by later fits.

        Posterior estimators trained by maximum likelihood do not need it: for successful simulations, drawn from the
        prior p (or p within a region), parameters and features are distributed as ``p(theta) P(ok | theta) p(x | theta,
        ok)``, whose conditional is the posterior given success. The same holds for flow matching. A likelihood
        estimator learns ``p(x | theta, ok)`` and lacks ``P(ok | theta)``; so does the atomic loss, which compares
        parameters with those of other successes, where ``P(ok | theta)`` cancels (see ``fit_more``).

        Args:
            normals: Parameters of all simulations, ``(n, d)``.
            succeeded: Whether their features are finite, bool ``(n,)``.
        """
        self._success = None
        if not succeeded.all():
            self._success = SuccessModel.fitted(normals, succeeded, self._seed).to(self._device)

    def fit(self, normals: np.ndarray, features: np.ndarray, continues: bool = False) -> tuple[NeuralEstimator, Fit]:
        """An estimator from simulations with parameters drawn from the prior, or from the prior within a region.

        It is trained from new weights by maximum likelihood, ``mean ln q(theta | x)``, which is valid if the region
        holds the posterior (truncated proposals, Deistler, Goncalves and Macke 2022, section 3), for any share of
        failing simulations.

        Overfitted networks are overconfident: the base distribution of each autoregressive flow of ``"npe"`` gets the
        width that fits the validation simulations, and remaining mean and correlations are removed (``latent_normal``);
        members of an ensemble are narrowed by the width that their mixture adds (``mixture_factor``).

        Args:
            normals: Parameters on the standard normal scale, ``(n, d)``.
            features: ``(n, *event_shape)``, finite.
            continues: ``fit_more`` follows, with the networks themselves as proposal: these corrections are then not
                applied.
        """
        if self._embedding_net is None:
            self._map = FeatureMap.fitted(features, self._config.num_random_features, self._seed)
        self._priors = [_standard_normal(self._dim, self._device) for _ in range(self._config.ensemble)]
        with _sbi_at_work(0):  # sbi samples from the prior to check it
            self._trainers = [self._new_trainer(prior) for prior in self._priors]
        return self._trained(normals, features, continues=continues)

    def fit_more(self, normals: np.ndarray, features: np.ndarray, observed: np.ndarray) -> tuple[NeuralEstimator, Fit]:
        """The estimator after further simulations, with parameters drawn from the last estimator at ``observed``.

        Training continues from the weights of the last round with the atomic loss, or the exact one of a mixture of
        Gaussians (automatic posterior transformation, Greenberg, Nonnenmacher and Macke 2019).

        All atoms in the loss are parameters of successful simulations, equally likely: the optimal network is
        ``q(theta | x) / prior(theta) ~ p(x | theta, ok)``. With the prior times ``P(ok | theta)`` as prior in the loss,
        q is the posterior again. The loss of a mixture of Gaussians uses the density of the proposal instead of other
        successes, where nothing cancels, and needs no correction.
        """
        if self._config.method != "npe":
            raise ValueError(f"posterior proposals need method 'npe', got {self._config.method!r}; use 'truncated'")
        if self._flat:
            raise ValueError("flat must be empty for posterior proposals, got columns")
        for prior in self._priors:
            prior.success = self._success
        return self._trained(normals, features, observed)

    def _new_trainer(self, prior: _StandardNormal) -> Any:
        return _sbi_trainer(self._config, prior, copy.deepcopy(self._embedding_net), self._device)

    def _trained(
        self,
        normals: np.ndarray,
        features: np.ndarray,
        observed: np.ndarray | None = None,
        continues: bool = True,
    ) -> tuple[NeuralEstimator, Fit]:
        config = self._config
        is_flat = torch.tensor([column in self._flat for column in range(self._dim)])
        points = flat_of_normal(torch.as_tensor(np.asarray(normals, dtype=np.float64)), is_flat)
        thetas, seen = points.to(torch.float32), self._seen(features)
        nets, regressed = [self._net(0, thetas, seen, observed)], False
        enough = config.validation_fraction * len(normals) >= _MIN_VALIDATION
        if config.regressions and enough and not continues and self._map is not None:
            regressions = self._map.regressed(
                features, points.numpy(), derive_seed("regressions", self._seed, self._rounds)
            )
            if regressions is not None:
                first, loss = self._trainers[0], self._loss(0)
                with _sbi_at_work(0):
                    self._trainers[0] = self._new_trainer(self._priors[0])
                other = self._net(0, thetas, regressions[1], observed)
                regressed = self._loss(0) < loss
                if regressed:
                    (self._map, seen), nets = regressions, [other]
                else:
                    self._trainers[0] = first
        nets += [self._net(position, thetas, seen, observed) for position in range(1, len(self._trainers))]
        self._rounds += 1
        members = [copy.deepcopy(net) for net in nets]
        if base_is_fitted(config.method, config.model):
            members = [with_fitted_base(member, self._dim) for member in members]
            if not continues:
                self._fit_bases(members, thetas, seen)
        epochs = [int(trainer.summary["epochs_trained"][-1]) for trainer in self._trainers]
        fit = Fit(epochs, [self._loss(position) for position in range(len(self._trainers))], regressed)
        event_shape = tuple(np.shape(features)[1:])
        success = self._success if config.method == "nle" else None
        return NeuralEstimator(config, self._dim, members, self._map, event_shape, success, self._flat), fit

    def _net(self, position: int, thetas: Tensor, seen: Tensor, observed: np.ndarray | None) -> Any:
        """The network that trainer ``position`` fits to parameters ``(n, d)`` and network inputs ``seen (n, ...)``."""
        config, trainer = self._config, self._trainers[position]
        proposal: dict[str, Any] = {}
        with _sbi_at_work(derive_seed("estimator", self._seed, position, self._rounds)):
            if observed is not None:
                proposal["proposal"] = trainer.build_posterior().set_default_x(self._seen(observed[None]))
            # Adam on -mean ln q(theta | x) ("npe"), -mean ln q(x | theta) ("nle") or the flow-matching loss ("fmpe");
            # with a proposal, on the loss corrected for it (see fit_more)
            return trainer.append_simulations(thetas, seen, **proposal).train(
                training_batch_size=config.batch_size,
                learning_rate=config.learning_rate,
                validation_fraction=config.validation_fraction,
                stop_after_epochs=config.stop_after_epochs,
                max_num_epochs=config.max_epochs,
            )

    def _loss(self, position: int) -> float:
        """Best validation loss of the last training."""
        return float(self._trainers[position].summary["best_validation_loss"][-1])

    def _fit_bases(self, members: Sequence[Any], thetas: Tensor, seen: Tensor) -> None:
        with torch.no_grad():
            for member, trainer in zip(members, self._trainers, strict=True):
                parts = []
                for rows in torch.arange(len(seen)).split(_ROWS_AT_A_TIME // 10):
                    context = member.embedding_net(seen[rows].to(self._device))
                    parts.append(member.net.transform(context)(thetas[rows].to(self._device)).cpu())
                latents = torch.cat(parts).to(torch.float64).numpy()
                if not np.isfinite(latents).all():  # keep it as trained: there is no data to estimate from
                    continue
                # Base N(mean, root root^T) from latents z = T(theta; x), (n, d): the width from validation data
                mean, root = latent_normal(latents, latents[np.asarray(trainer.val_indices)])
                member.net.base.loc.copy_(torch.as_tensor(mean, dtype=torch.float32))
                member.net.base.scale_tril.copy_(torch.as_tensor(root, dtype=torch.float32))
            if len(members) > 1:
                compared = seen[:: max(1, len(seen) // _NUM_COMPARED)].to(self._device)
                with _sbi_at_work(derive_seed("mixture", self._seed, self._rounds)):
                    drawn = [
                        member.sample((_NUM_COMPARED,), condition=compared).transpose(0, 1).cpu() for member in members
                    ]
                factor = mixture_factor(torch.stack(drawn).to(torch.float64).numpy())
                for member in members:
                    member.net.base.scale_tril.mul_(factor)

    def _seen(self, features: np.ndarray) -> Tensor:
        rows = torch.as_tensor(np.asarray(features))
        return rows.to(torch.float32) if self._map is None else self._map(rows)
