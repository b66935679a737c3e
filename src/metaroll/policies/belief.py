"""A Gaussian belief over a latent task variable z, inferred from transitions (PEARL)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from metaroll.errors import ShapeError
from metaroll.functional.distributions import gaussian_kl_to_standard, product_of_gaussians
from metaroll.policies.parameters import FlatParameters
from metaroll.seeding import fresh_seed, torch_generator

__all__ = ["TaskBelief"]

_BELIEF = ("z", "z_means", "z_vars")


class TaskBelief(FlatParameters, nn.Module):
    """What is known about one or more tasks: a Gaussian per task, the product of one per transition.

    Source: Rakelly et al. 2019, arXiv:1903.08254, eq. 4. Base of ``ContextConditionedPolicy``, which documents the
    arguments.

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
        use_information_bottleneck: bool,
        use_next_obs: bool,
        seed: int | None,
    ) -> None:
        super().__init__()
        self.latent_dim = int(latent_dim)
        self.use_information_bottleneck = bool(use_information_bottleneck)
        self.use_next_obs = bool(use_next_obs)
        self.context_encoder = context_encoder
        self._generator = torch_generator(fresh_seed() if seed is None else seed)
        self._context: list[torch.Tensor] = []
        if self.latent_dim < 1:
            raise ValueError(f"latent_dim must be at least 1, got {latent_dim}")
        for name in _BELIEF:
            self.register_buffer(name, torch.zeros(1, self.latent_dim))
        self.reset_belief()

    @property
    def context(self) -> torch.Tensor | None:
        """Rows given to ``update_context`` since the belief was reset, ``(1, n, C)``; ``None`` if there are none."""
        if not self._context:
            return None
        self._context = [torch.cat(self._context, dim=1)]
        return self._context[0]

    def reset_belief(self, num_tasks: int = 1, generator: torch.Generator | None = None) -> None:
        """Back to the prior for ``num_tasks`` tasks: mean 0, variance 1 (0 without bottleneck); forget the context."""
        if num_tasks < 1:
            raise ValueError(f"num_tasks must be at least 1, got {num_tasks}")
        shape = (int(num_tasks), self.latent_dim)
        self.z_means = self.z_means.new_zeros(shape)
        self.z_vars = self.z_vars.new_full(shape, 1.0 if self.use_information_bottleneck else 0.0)
        self._context = []
        reset_encoder = getattr(self.context_encoder, "reset", None)
        if reset_encoder is not None:
            reset_encoder()
        self.sample_from_belief(generator)

    def sample_from_belief(self, generator: torch.Generator | None = None) -> None:
        """Draw ``z = mean + sqrt(var) * eps`` for every task (the mean without bottleneck); gradients pass."""
        if self.use_information_bottleneck:
            self.z = self.z_means + self.z_vars.sqrt() * self._normal(self.z_means.shape, generator)
        else:
            self.z = self.z_means

    def posterior(self, context: torch.Tensor | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance ``(X, L)`` given rows ``context (X, N, C)``; changes nothing. Without bottleneck var 0."""
        context = self._as_context(context)
        encoded = self.context_encoder(context)
        if not self.use_information_bottleneck:
            mean = encoded.mean(dim=1)
            return mean, torch.zeros_like(mean)
        means, raw = encoded.split(self.latent_dim, dim=-1)
        return product_of_gaussians(means, F.softplus(raw))

    def posterior_of_lists(self, contexts: Sequence[torch.Tensor | np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance ``(X, L)`` for X tasks with different numbers of rows, ``contexts[x] (n_x, C)``.

        Each task's numbers are those that ``posterior`` gives for it alone; without rows they are the prior.
        """
        prior_var = 1.0 if self.use_information_bottleneck else 0.0
        pairs = []
        for rows in contexts:
            if len(rows):
                pairs.append(self.posterior(rows))
            else:
                zeros = self.z_means.new_zeros(1, self.latent_dim)
                pairs.append((zeros, torch.full_like(zeros, prior_var)))
        if not pairs:
            raise ValueError("contexts must hold the rows of at least one task, got none")
        return torch.cat([mean for mean, _ in pairs]), torch.cat([var for _, var in pairs])

    def infer_posterior(self, context: torch.Tensor | np.ndarray, generator: torch.Generator | None = None) -> None:
        """Set the belief to ``posterior(context (X, N, C))`` and draw z from it."""
        self.z_means, self.z_vars = self.posterior(context)
        self.sample_from_belief(generator)

    def adapt_from_prior(self, context: torch.Tensor | np.ndarray, generator: torch.Generator | None = None) -> Self:
        """Forget the belief, infer it anew from one task's rows ``(n, C)`` (n = 0: the prior); returns this policy."""
        self.reset_belief(generator=generator)
        if np.size(context) if isinstance(context, np.ndarray) else context.numel():
            with torch.no_grad():
                self.infer_posterior(context, generator)
        return self

    def update_context(self, timestep: Any) -> None:
        """Append one transition: a ``TimeStep``, or a tuple ``(obs, action, reward[, next_obs])``."""
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
        """``KL(belief || N(0, 1))``, summed over tasks and entries of z; differentiable after ``infer_posterior``."""
        if not self.use_information_bottleneck:
            raise ValueError("there is no KL divergence with use_information_bottleneck=False: z is not random")
        return gaussian_kl_to_standard(self.z_means, self.z_vars)

    # -- copies ------------------------------------------------------------------------------------------------------

    def fresh_copy(self, seed: int | None = None) -> Self:
        """A policy at the prior that shares the networks of this one but has belief, context and generator of its own.

        Cheap (no network is copied): it sees later training of the shared networks, and nothing done to it changes this
        policy. A copy that shall not see it is ``copy.deepcopy``.

        Args:
            seed: Seed of the copy's generator; ``None`` means fresh entropy.
        """
        twin = copy.copy(self)
        # nn.Module keeps these in dicts, which a shallow copy would share.
        twin.__dict__.update(
            _modules=dict(self._modules),
            _parameters=dict(self._parameters),
            _buffers=dict(self._buffers),
            _context=[],
            _generator=torch_generator(fresh_seed() if seed is None else seed),
        )
        twin.reset_belief()
        return twin

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

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _normal(self, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
        generator = self._generator if generator is None else generator
        # Drawn on the generator's device: the same numbers wherever the policy lives.
        return torch.randn(shape, generator=generator, device=generator.device).to(self.z_means)

    def _as_context(self, context: torch.Tensor | np.ndarray) -> torch.Tensor:
        rows = torch.as_tensor(context, dtype=self.z_means.dtype, device=self.z_means.device)
        rows = rows[None] if rows.ndim == 2 else rows
        width = getattr(self.context_encoder, "input_dim", rows.shape[-1])
        if rows.ndim != 3 or rows.shape[-1] != width or not rows.shape[0] or not rows.shape[1]:
            raise ShapeError(f"context must be (X, N, {width}) with X and N at least 1, got {tuple(rows.shape)}")
        return rows
