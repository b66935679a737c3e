"""Policies conditioned on a latent task variable z, and the Gaussian belief that z is drawn from (PEARL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import array_api_compat.torch as torch_namespace
import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.functional.distributions import gaussian_kl_to_standard, product_of_gaussians
from metaroll.policies.adapters import ContextEncoder
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLP
from metaroll.policies.parameters import FlatParameters
from metaroll.policies.scaling import ActionScaling
from metaroll.seeding import as_torch_generator, fresh_seed, torch_generator
from metaroll.types import Context, Policy, PolicyInfo, PolicyState

__all__ = ["ContextConditionedPolicy"]

_BELIEF = ("z", "z_means", "z_vars")
_INNER = "policy/"


class ContextConditionedPolicy(Policy, FlatParameters, nn.Module):
    """Inner policy on ``(obs, z)``; ``z`` is drawn from a belief, which an encoder infers from context rows.

    A context row is ``[obs, action, reward(, next_obs)]``, C numbers. The belief is a product of one Gaussian per row
    (Rakelly et al. 2019, arXiv:1903.08254). For training, use the torch methods; for acting, the engine keeps each
    slot's z in the state rows (``types.Policy``), so that many beliefs share one batched call.

    Args:
        latent_dim: Length L of z.
        context_encoder: Module ``(X, N, C) -> (X, N, 2 L)``, or ``(X, N, L)`` without bottleneck; may have ``reset()``.
        policy: ``types.Policy`` and torch module on observations ``(obs, z)``, O + L numbers.
        use_information_bottleneck: Whether z is Gaussian with an inferred variance; otherwise z is the mean embedding.
        use_next_obs: Whether context rows end with the next observation.
        seed: Seed of the default generator of methods; ``None`` means fresh entropy.
        action_space: The environment's action space, for an inner policy with actions in [-1, 1]: ``act`` and
            ``get_action`` scale its actions to the bounds of the space. ``None`` does not scale.

    Attributes:
        z, z_means, z_vars: The belief of ``num_tasks`` tasks, ``(num_tasks, L)`` (buffers, saved with the weights).
    """

    z: torch.Tensor
    z_means: torch.Tensor
    z_vars: torch.Tensor

    def __init__(
        self,
        latent_dim: int,
        context_encoder: nn.Module,
        policy: Any,
        use_information_bottleneck: bool,
        use_next_obs: bool,
        *,
        seed: int | None = None,
        action_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        super().__init__()
        if not issubclass(type(policy), Policy):
            raise TypeError(f"policy must be a Policy of metaroll, got {policy!r} of type {type(policy).__name__}")
        self.latent_dim = check_whole("latent_dim", latent_dim)
        self.use_information_bottleneck = bool(use_information_bottleneck)
        self.use_next_obs = bool(use_next_obs)
        self.context_encoder, self.policy = context_encoder, policy
        self.env_spec = policy.env_spec
        self.obs_dim = self.env_spec.obs_dim - self.latent_dim
        self._scaling = ActionScaling.of_squashed(action_space)
        self.action_bounds = None if self._scaling is None else self._scaling.bounds
        if self._scaling is not None and isinstance(policy, TanhGaussianMLPPolicy) and policy.action_bounds is not None:
            raise ValueError(
                f"policy must act in [-1, 1] where an action_space is given, got {policy.env_spec.action_space}; build "
                "it from the spec that the algorithm's augment_env_spec returns"
            )
        _check_widths(self)
        self._generator = torch_generator(fresh_seed() if seed is None else seed)
        self._context: list[torch.Tensor] = []
        for name in _BELIEF:
            self.register_buffer(name, torch.zeros(1, self.latent_dim))
        self.reset_belief()

    @property
    def networks(self) -> list[nn.Module]:
        """Context encoder and inner policy."""
        return [self.context_encoder, self.policy]

    # -- belief ------------------------------------------------------------------------------------------------------

    @property
    def context(self) -> torch.Tensor | None:
        """Rows given to ``update_context`` since the belief was reset, ``(1, n, C)``; ``None`` if there are none."""
        if not self._context:
            return None
        self._context = [torch.cat(self._context, dim=1)]
        return self._context[0]

    def reset_belief(self, num_tasks: int = 1, generator: torch.Generator | None = None) -> None:
        """Reset to the prior for ``num_tasks`` tasks: mean 0, variance 1 (0 without bottleneck); clears the context.

        Raises:
            ValueError: ``num_tasks`` is below 1.
        """
        shape = (check_whole("num_tasks", num_tasks), self.latent_dim)
        self.z_means = self.z_means.new_zeros(shape)
        self.z_vars = self.z_vars.new_full(shape, 1.0 if self.use_information_bottleneck else 0.0)
        self._context = []
        ContextEncoder(self.context_encoder).reset()
        self.sample_from_belief(generator)

    def sample_from_belief(self, generator: torch.Generator | None = None) -> None:
        """Draw ``z = mean + sqrt(var) * eps`` for every task (the mean without bottleneck), differentiably."""
        if not self.use_information_bottleneck:
            self.z = self.z_means
            return
        generator = self._generator if generator is None else as_torch_generator(generator)
        # Drawn on the generator's device: the same numbers on any device of the policy.
        noise = torch.randn(self.z_means.shape, generator=generator, device=generator.device).to(self.z_means)
        self.z = self.z_means + self.z_vars.sqrt() * noise

    def posterior(self, context: torch.Tensor | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance ``(X, L)`` given rows ``context (X, N, C)``; changes nothing. Without bottleneck var 0.

        Raises:
            ShapeError: There is no row, or rows have another width.
        """
        encoded = self.context_encoder(self._as_context(context))
        if not self.use_information_bottleneck:
            mean = encoded.mean(dim=1)
            return mean, torch.zeros_like(mean)
        # q(z | c) ~ prod_n N(z; mu_n, softplus(s_n)), (X, N, L) -> (X, L) (Rakelly et al. 2019, section 4.1)
        means, raw = encoded.split(self.latent_dim, dim=-1)
        return product_of_gaussians(means, F.softplus(raw))

    def _as_context(self, context: torch.Tensor | np.ndarray) -> torch.Tensor:
        rows = torch.as_tensor(context, dtype=self.z_means.dtype, device=self.z_means.device)
        rows = rows[None] if rows.ndim == 2 else rows
        input_dim = ContextEncoder(self.context_encoder).input_dim
        width = rows.shape[-1] if input_dim is None else input_dim
        if rows.ndim != 3 or rows.shape[-1] != width or not rows.shape[0] or not rows.shape[1]:
            raise ShapeError(f"context must be (X, N, {width}) with X and N at least 1, got {tuple(rows.shape)}")
        return rows

    @property
    def encodes_rows(self) -> bool:
        """Whether the encoder is known to encode each row independently, so that rows of many tasks can be batched."""
        return isinstance(self.context_encoder, MLP) and not ContextEncoder(self.context_encoder).recurrent

    def posterior_of_lists(self, contexts: Sequence[torch.Tensor | np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance ``(X, L)`` for X tasks with different numbers of rows, ``contexts[x] (n_x, C)``.

        The result for each task is that of ``posterior`` for it alone, up to rounding, and the prior without rows. If
        the encoder ``encodes_rows``, the rows of all tasks are encoded in one batch.
        """
        if not contexts:
            raise ValueError("contexts must hold the rows of at least one task, got none")
        # The prior, N(0, I), for tasks without rows, (X, L)
        means = self.z_means.new_zeros(len(contexts), self.latent_dim)
        variances = torch.full_like(means, 1.0 if self.use_information_bottleneck else 0.0)
        nonempty = [x for x, rows in enumerate(contexts) if len(rows)]
        rows = [self._as_context(contexts[x]) for x in nonempty]
        if not nonempty:
            return means, variances
        if self.encodes_rows:
            beliefs = [self._posterior_of_ragged(torch.cat(rows, dim=1), [part.shape[1] for part in rows])]
        else:
            beliefs = [self.posterior(part) for part in rows]
        means[nonempty], variances[nonempty] = (torch.cat(parts) for parts in zip(*beliefs, strict=True))
        return means, variances

    def _posterior_of_ragged(self, rows: torch.Tensor, lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """``posterior`` of tasks whose rows ``(1, sum of lengths, C)`` follow one another."""
        encoded = self.context_encoder(rows)[0]
        counts = torch.tensor(lengths, device=rows.device)[:, None]
        valid = torch.arange(max(lengths), device=rows.device) < counts
        means = encoded.new_zeros(*valid.shape, self.latent_dim)
        means[valid] = encoded[:, : self.latent_dim]
        if not self.use_information_bottleneck:
            mean = means.sum(dim=1) / counts
            return mean, torch.zeros_like(mean)
        variances = torch.full_like(means, torch.inf)  # padding: a factor without information
        variances[valid] = F.softplus(encoded[:, self.latent_dim :])
        return product_of_gaussians(means, variances)

    def infer_posterior(self, context: torch.Tensor | np.ndarray, generator: torch.Generator | None = None) -> None:
        """Set the belief to ``posterior(context (X, N, C))`` and draw z from it."""
        self.set_belief(*self.posterior(context), generator)

    def set_belief(
        self, means: torch.Tensor, variances: torch.Tensor, generator: torch.Generator | None = None
    ) -> None:
        """Set the belief to ``means`` and ``variances (X, L)`` and draw z from it."""
        self.z_means, self.z_vars = means, variances
        self.sample_from_belief(generator)

    def update_context(self, timestep: Any) -> None:
        """Append one transition: a ``TimeStep``, or a tuple ``(obs, action, reward[, next_obs])``.

        Raises:
            ValueError: The tuple has too few parts.
        """
        if hasattr(timestep, "observation"):
            parts = [timestep.observation, timestep.action, timestep.reward]
            if self.use_next_obs:
                parts.append(timestep.next_observation)
        else:
            wanted = 4 if self.use_next_obs else 3
            parts = list(timestep)[:wanted]
            if len(parts) < wanted:
                raise ValueError(f"timestep must be (obs, action, reward, next_obs)[:{wanted}], got {len(parts)} parts")
        row = np.concatenate([np.asarray(part, dtype=np.float32).reshape(-1) for part in parts])
        self._context.append(torch.as_tensor(row, device=self.z_means.device)[None, None])

    def compute_kl_div(self) -> torch.Tensor:
        """``KL(belief || N(0, 1))``, a scalar, summed over tasks and entries; differentiable after ``infer_posterior``.

        Raises:
            ValueError: There is no bottleneck.
        """
        if not self.use_information_bottleneck:
            raise ValueError("there is no KL divergence with use_information_bottleneck=False: z is not random")
        return gaussian_kl_to_standard(self.z_means, self.z_vars)

    # -- copies ------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> torch.Tensor:
        """State of the policy's generator: saved with ``state_dict``, so that a resumed run draws the same numbers."""
        return self._generator.get_state()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Counterpart of ``get_extra_state``."""
        self._generator.set_state(state.cpu())

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # The belief may have been of another number of tasks when it was saved.
        for name in _BELIEF:
            saved = state_dict.get(prefix + name)
            if saved is not None and saved.ndim == 2 and saved.shape[1] == self.latent_dim:
                setattr(self, name, getattr(self, name).new_zeros(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # A belief with gradient cannot be copied, and no copy could use its graph.
        state["_buffers"] = {name: getattr(self, name).detach() for name in self._buffers}
        return state

    # -- training ----------------------------------------------------------------------------------------------------

    def forward(
        self, obs: torch.Tensor, context: torch.Tensor, generator: torch.Generator | None = None
    ) -> tuple[Any, torch.Tensor]:
        """Infer X beliefs, draw one z each, and act on ``obs (X, b, O)`` with it.

        Returns:
            The inner policy's sample ``(action, mean, log_std, log_prob, pre_tanh)`` with X * b rows, which sees z
            without gradient, and the z of each row ``(X * b, L)`` with gradient to the encoder.

        Raises:
            ShapeError: Observations and context are not of the same X tasks.
        """
        if obs.ndim != 3 or len(obs) != len(context):
            raise ShapeError(
                f"obs must be (X, b, O) and context (X, N, C), got {tuple(obs.shape)} and {tuple(context.shape)}"
            )
        generator = self._generator if generator is None else as_torch_generator(generator)
        self.infer_posterior(context, generator)
        task_z = self.z.repeat_interleave(obs.shape[1], dim=0)
        rows = torch.cat((obs.reshape(-1, obs.shape[-1]), task_z.detach()), dim=-1)
        return self.policy(rows, generator=generator), task_z

    # -- acting ------------------------------------------------------------------------------------------------------

    @property
    def info(self) -> PolicyInfo:
        """As the inner policy, and z is drawn."""
        return replace(self.policy.info, draws=True)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """One z per rollout, ``{"z": (N, L)}`` and the inner policy's state.

        A context ``{"z": (L,)}`` is taken unchanged; from ``{"z_mean", "z_var"}``, or from the prior for ``None``, z is
        drawn with the rollout's generator.
        """
        z = np.empty((len(contexts), self.latent_dim), dtype=np.float32)
        for row, context, generator in zip(z, contexts, generators, strict=True):
            row[...] = _draw_z(self, context, generator)
        inner = self.policy.initial_state(contexts, generators, domain_params)
        return _joined(z, inner)

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; the inner policy acts on ``(obs, z)``; parameters and infos are its own.

        Raises:
            ShapeError: Observations have another width.
        """
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ShapeError(f"obs must have shape (N, {self.obs_dim}), got {obs.shape}")
        rows = np.empty((len(obs), self.obs_dim + self.latent_dim), dtype=np.float32)
        rows[:, : self.obs_dim] = obs
        rows[:, self.obs_dim :] = state["z"]
        if len(state) == 1:
            action, _, infos = self.policy.act(rows, {}, noise, deterministic, parameters)
            return self._within_bounds(action), state, infos
        inner = _inner_state(state)
        action, inner, infos = self.policy.act(rows, inner, noise, deterministic, parameters)
        return self._within_bounds(action), _joined(state["z"], inner), infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        rows = torch.cat([obs.to(torch.float32), state["z"]], dim=1)
        action, inner, infos = self.policy.act_on_torch(rows, _inner_state(state), noise, deterministic)
        if self._scaling is not None:
            action = self._scaling.scaled(action, torch_namespace)
        return action, _joined(state["z"], inner), infos

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """As the inner policy, in its units; ``actions (N, act_dim)``."""
        raw = actions if self._scaling is None else self._scaling.unscaled(actions)
        return _joined(state["z"], self.policy.with_actions_taken(_inner_state(state), raw))

    def _within_bounds(self, action: np.ndarray) -> np.ndarray:
        return action if self._scaling is None else self._scaling.scaled(action)

    def acting_parameters(self) -> np.ndarray:
        """Flat parameters ``(P,)`` of the inner policy; the encoder does not act."""
        return self.policy.acting_parameters()

    def acting_parameter_names(self) -> tuple[str, ...]:
        """Names of these within this module."""
        return tuple(f"policy.{name}" for name in self.policy.acting_parameter_names())

    def _flat_names(self) -> list[str]:
        return list(dict.fromkeys([*super()._flat_names(), *self.acting_parameter_names()]))

    def plan_context(self) -> dict[str, np.ndarray] | None:
        """The belief about one task as a plan's context, ``z_mean (L,)`` and ``z_var (L,)``; ``None`` is the prior.

        Raises:
            ValueError: It holds the belief of several tasks.
        """
        if len(self.z_means) != 1:
            raise ValueError(f"a plan holds the belief of one task, this policy holds {len(self.z_means)}")
        mean = self.z_means.detach()[0].cpu().numpy().copy()
        var = self.z_vars.detach()[0].cpu().numpy().copy()
        if not mean.any() and (var == (1.0 if self.use_information_bottleneck else 0.0)).all():
            return None
        return {"z_mean": mean, "z_var": var}

    def get_action(
        self, obs: np.ndarray, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Action ``(act_dim,)`` and infos for ``obs (obs_dim,)`` under the current z; deterministic: without noise.

        Raises:
            TypeError: The inner policy is recurrent.
            ValueError: It holds the belief of several tasks.
        """
        if len(self.z) != 1:
            raise ValueError(
                f"get_action needs the belief of one task, this policy holds {len(self.z)}: reset_belief()"
            )
        if self.info.recurrent:
            raise TypeError("the inner policy is recurrent: call act, which takes and returns its state")
        generator = self._generator if generator is None else as_torch_generator(generator)
        shape = (1, self.noise_dim)
        draw = torch.rand if self.noise_kind == "uniform" else torch.randn
        noise = draw(shape, generator=generator, device=generator.device).cpu().numpy()
        state = {"z": self.z.detach().cpu().numpy()}
        flat = np.asarray(obs, dtype=np.float32).reshape(1, -1)
        action, _, infos = self.act(flat, state, noise, deterministic)
        return action[0], {name: value[0] for name, value in infos.items()}


def _check_widths(policy: ContextConditionedPolicy) -> None:
    if policy.obs_dim < 0:
        raise ValueError(
            f"latent_dim must be part of the inner policy's observation of "
            f"{policy.env_spec.obs_dim} numbers (obs and z), got {policy.latent_dim}"
        )
    width = ContextEncoder(policy.context_encoder).output_dim
    expected = policy.latent_dim * (2 if policy.use_information_bottleneck else 1)
    if width is not None and width != expected:
        raise ValueError(
            f"context_encoder must output {expected} numbers (latent_dim={policy.latent_dim}, "
            f"use_information_bottleneck={policy.use_information_bottleneck}), got {width}"
        )


def _draw_z(policy: ContextConditionedPolicy, context: Context | None, generator: np.random.Generator) -> np.ndarray:
    """The z ``(L,)`` of a rollout: that of its context, or drawn from the belief there, or from the prior."""
    if context is not None and "z" in context:
        return _row(context, policy.latent_dim, "z")
    if context is not None and "z_mean" in context:
        mean, var = _row(context, policy.latent_dim, "z_mean"), _row(context, policy.latent_dim, "z_var")
        if not (var >= 0).all():
            raise ValueError(f"context['z_var'] must not be negative, got {var}")
    elif not context:
        mean = np.zeros(policy.latent_dim, dtype=np.float32)
        var = np.ones_like(mean)
    else:
        raise ValueError(f"context must hold 'z', or 'z_mean' and 'z_var', or be None, got {sorted(context)}")
    if not policy.use_information_bottleneck:
        return mean
    return mean + np.sqrt(var) * generator.standard_normal(policy.latent_dim, dtype=np.float32)


def _row(context: Context, width: int, name: str) -> np.ndarray:
    if name not in context:
        raise ValueError(f"context must also hold {name!r}, got {sorted(context)}")
    row = np.asarray(context[name], dtype=np.float32).reshape(-1)
    if len(row) != width:
        raise ShapeError(f"context[{name!r}] must have shape ({width},), got {np.shape(context[name])}")
    return row


def _inner_state(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name[len(_INNER) :]: value for name, value in state.items() if name.startswith(_INNER)}


def _joined(z: Any, inner: Mapping[str, Any]) -> dict[str, Any]:
    return {"z": z, **{_INNER + name: value for name, value in inner.items()}}
