"""A policy conditioned on a latent task variable z (PEARL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.errors import ShapeError
from metaroll.policies.belief import TaskBelief
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.scaling import ActionScaling
from metaroll.types import Context, Policy, PolicyInfo, PolicyState

__all__ = ["ContextConditionedPolicy"]

_INNER = "policy/"


class ContextConditionedPolicy(TaskBelief, Policy):
    """Inner policy that sees ``(obs, z)``; ``z`` is drawn from a belief, which an encoder infers from context rows.

    A context row is ``[obs, action, reward(, next_obs)]``, C numbers. The belief is a product of one Gaussian per row
    (Rakelly et al. 2019, arXiv:1903.08254). For training, use the torch methods; for acting, the engine keeps each
    slot's z in the state rows (``types.Policy``), so that many beliefs act in one batched call.

    Args:
        latent_dim: Length L of z.
        context_encoder: Module ``(X, N, C) -> (X, N, 2 L)``, or ``(X, N, L)`` without bottleneck; may have ``reset()``.
        policy: ``types.Policy`` and torch module on observations ``(obs, z)``, O + L numbers.
        use_information_bottleneck: Whether z is random with a variance of its own; otherwise z is the mean embedding.
        use_next_obs: Whether context rows end with the next observation.
        seed: Seed of the generator that draws where a method gets none; ``None`` means fresh entropy.
        action_space: Space of the environment's actions, for an inner policy that acts in [-1, 1]: ``act`` and
            ``get_action`` bring its actions to the bounds of the space. ``None`` leaves them as they are.

    Attributes:
        z, z_means, z_vars: The belief of ``num_tasks`` tasks, ``(num_tasks, L)`` (buffers, saved with the weights).
    """

    def __init__(
        self,
        latent_dim: int,
        context_encoder: nn.Module,
        policy: Any,
        use_information_bottleneck: bool,
        use_next_obs: bool,
        *,
        seed: int | None = None,
        action_space: gymnasium.Space | None = None,
    ) -> None:
        super().__init__(latent_dim, context_encoder, use_information_bottleneck, use_next_obs, seed)
        self.policy = policy
        self.env_spec = policy.env_spec
        self.obs_dim = self.env_spec.obs_dim - self.latent_dim
        self._scaling = ActionScaling.of_squashed(action_space)
        self.action_bounds = None if self._scaling is None else self._scaling.bounds
        if self._scaling is not None and isinstance(policy, TanhGaussianMLPPolicy) and policy.action_bounds is not None:
            raise ValueError(
                f"policy must act in [-1, 1] where an action_space is given, got {policy.env_spec.action_space}; build "
                "it from PEARL.augment_env_spec"
            )
        self._check_widths()

    def _check_widths(self) -> None:
        if self.latent_dim < 1 or self.obs_dim < 0:
            raise ValueError(
                f"latent_dim must be at least 1 and part of the inner policy's observation of "
                f"{self.env_spec.obs_dim} numbers (obs and z), got {self.latent_dim}"
            )
        width = getattr(self.context_encoder, "output_dim", None)
        expected = self.latent_dim * (2 if self.use_information_bottleneck else 1)
        if width is not None and width != expected:
            raise ValueError(
                f"context_encoder must put out {expected} numbers (latent_dim={self.latent_dim}, "
                f"use_information_bottleneck={self.use_information_bottleneck}), got {width}"
            )

    @property
    def networks(self) -> list[nn.Module]:
        """Context encoder and inner policy."""
        return [self.context_encoder, self.policy]

    # -- training ----------------------------------------------------------------------------------------------------

    def forward(
        self, obs: torch.Tensor, context: torch.Tensor, generator: torch.Generator | None = None
    ) -> tuple[Any, torch.Tensor]:
        """Infer X beliefs, draw one z each, and act on ``obs (X, b, O)`` with it.

        Returns:
            The inner policy's sample ``(action, mean, log_std, log_prob, pre_tanh)`` with X * b rows, which sees z
            without gradient, and the z of each row ``(X * b, L)`` with gradient to the encoder.
        """
        if obs.ndim != 3 or len(obs) != len(context):
            raise ShapeError(
                f"obs must be (X, b, O) and context (X, N, C), got {tuple(obs.shape)} and {tuple(context.shape)}"
            )
        generator = self._generator if generator is None else generator
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

        A context ``{"z": (L,)}`` is taken as it is; from ``{"z_mean", "z_var"}``, or from the prior for ``None``, z is
        drawn with the rollout's generator.
        """
        z = np.empty((len(contexts), self.latent_dim), dtype=np.float32)
        for row, context, generator in zip(z, contexts, generators, strict=True):
            row[...] = self._draw_z(context, generator)
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
        """See ``types.Policy.act``; the inner policy acts on ``(obs, z)``; parameters and infos are its own."""
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ShapeError(f"obs must have shape (N, {self.obs_dim}), got {obs.shape}")
        rows = np.empty((len(obs), self.obs_dim + self.latent_dim), dtype=np.float32)
        rows[:, : self.obs_dim] = obs
        rows[:, self.obs_dim :] = state["z"]
        if len(state) == 1:
            action, _, infos = self.policy.act(rows, {}, noise, deterministic, parameters)
            return self._within_bounds(action), state, infos
        inner = self._inner_state(state)
        action, inner, infos = self.policy.act(rows, inner, noise, deterministic, parameters)
        return self._within_bounds(action), _joined(state["z"], inner), infos

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """As the inner policy, in its units."""
        raw = actions if self._scaling is None else self._scaling.unscaled(actions)
        return _joined(state["z"], self.policy.with_actions_taken(self._inner_state(state), raw))

    @staticmethod
    def _inner_state(state: PolicyState) -> PolicyState:
        return {name[len(_INNER) :]: value for name, value in state.items() if name.startswith(_INNER)}

    def _within_bounds(self, action: np.ndarray) -> np.ndarray:
        return action if self._scaling is None else self._scaling.scaled(action)

    def acting_parameters(self) -> np.ndarray:
        """Flat parameters ``(P,)`` of the inner policy; the encoder does not act."""
        return self.policy.acting_parameters()

    def acting_parameter_names(self) -> tuple[str, ...]:
        """Names of these within this module."""
        return tuple(f"policy.{name}" for name in self.policy.acting_parameter_names())

    def plan_context(self) -> dict[str, np.ndarray] | None:
        """The belief of a one-task policy as a plan's context; ``None`` (the prior) if nothing was inferred."""
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
        """Action and infos for one observation under the current z (one task); deterministic: no action noise."""
        if len(self.z) != 1:
            raise ValueError(
                f"get_action needs the belief of one task, this policy holds {len(self.z)}: reset_belief()"
            )
        if self.info.recurrent:
            raise TypeError("the inner policy remembers: call act, which takes and returns its state")
        generator = self._generator if generator is None else generator
        shape = (1, self.noise_dim)
        draw = torch.rand if self.noise_kind == "uniform" else torch.randn
        noise = draw(shape, generator=generator, device=generator.device).cpu().numpy()
        state = {"z": self.z.detach().cpu().numpy()}
        flat = np.asarray(obs, dtype=np.float32).reshape(1, -1)
        action, _, infos = self.act(flat, state, noise, deterministic)
        return action[0], {name: value[0] for name, value in infos.items()}

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _draw_z(self, context: Context | None, generator: np.random.Generator) -> np.ndarray:
        if context is not None and "z" in context:
            return self._row(context, "z")
        if context is not None and "z_mean" in context:
            mean, var = self._row(context, "z_mean"), self._row(context, "z_var")
            if not (var >= 0).all():
                raise ValueError(f"context['z_var'] must not be negative, got {var}")
        elif not context:
            mean = np.zeros(self.latent_dim, dtype=np.float32)
            var = np.ones_like(mean)
        else:
            raise ValueError(f"context must hold 'z', or 'z_mean' and 'z_var', or be None, got {sorted(context)}")
        if not self.use_information_bottleneck:
            return mean
        return mean + np.sqrt(var) * generator.standard_normal(self.latent_dim, dtype=np.float32)

    def _row(self, context: Context, name: str) -> np.ndarray:
        if name not in context:
            raise ValueError(f"context must hold {name!r} beside {sorted(context)}")
        row = np.asarray(context[name], dtype=np.float32).reshape(-1)
        if len(row) != self.latent_dim:
            raise ShapeError(f"context[{name!r}] must have shape ({self.latent_dim},), got {np.shape(context[name])}")
        return row


def _joined(z: np.ndarray, inner: PolicyState) -> PolicyState:
    return {"z": z, **{_INNER + name: value for name, value in inner.items()}}
