"""Probability that a simulation with given parameters succeeds, learned from failed and successful ones."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.seeding import derive_seed, isolated_rng

__all__ = ["SuccessModel"]

_HIDDEN = 32
_VALIDATION = 0.2
_BATCH, _MOST_STEPS, _CHECKED, _PATIENCE = 1000, 1500, 10, 15
"""Rows per step, maximum steps, steps between validations, and validations without progress before it stops."""
_RATE, _DECAY = 1e-2, 1e-4


@final
class SuccessModel(nn.Module):
    """``log P(success | parameters)`` on the standard normal scale, by a small network.

    The observed rollout did not fail, so its likelihood is ``p(x, ok | theta) = P(ok | theta) p(x | theta, ok)``. An
    estimator of the likelihood learns only the second factor, since failed simulations have no features. The first is
    learned here, from all simulations, whatever the distribution of their parameters.

    Args:
        dim: d, the number of parameters.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, 1)
        )

    def forward(self, normals: Tensor) -> Tensor:
        """Log probabilities ``(...)`` of rows ``(..., d)``."""
        return nn.functional.logsigmoid(self.net(normals)[..., 0])

    @classmethod
    def fitted(cls, normals: np.ndarray, succeeded: np.ndarray, seed: int) -> SuccessModel:
        """The model of n simulations, by maximum likelihood, with early stopping on a held-out fifth.

        Args:
            normals: Parameters, ``(n, d)``.
            succeeded: Which of them have finite features, bool ``(n,)``.
            seed: Seed of the initial weights and of the held-out fifth.
        """
        generator = np.random.default_rng(derive_seed("success", seed))
        order = generator.permutation(len(normals))
        count = max(1, int(_VALIDATION * len(normals)))
        rows = torch.as_tensor(normals[order], dtype=torch.float32)
        labels = torch.as_tensor(succeeded[order], dtype=torch.float32)
        loss = nn.functional.binary_cross_entropy_with_logits
        with isolated_rng(derive_seed("success weights", seed)):
            model = cls(normals.shape[1])
            optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, weight_decay=_DECAY)
            best, kept, waited = float("inf"), model.state_dict(), 0
            for step in range(_MOST_STEPS):
                if step % _CHECKED == 0:
                    with torch.no_grad():
                        held_out = float(loss(model.net(rows[:count])[:, 0], labels[:count]))
                    waited = 0 if held_out < best else waited + 1
                    if held_out < best:
                        best, kept = held_out, {name: value.clone() for name, value in model.state_dict().items()}
                    if waited >= _PATIENCE:
                        break
                chosen = slice(count, None)
                if len(rows) - count > _BATCH:
                    chosen = torch.as_tensor(generator.integers(count, len(rows), _BATCH))
                # L = -mean(y ln p(theta) + (1 - y) ln(1 - p(theta))), () over a batch of B simulations; Adam step
                optimizer.zero_grad()
                loss(model.net(rows[chosen])[:, 0], labels[chosen]).backward()
                optimizer.step()
        model.load_state_dict(kept)
        return model.eval().requires_grad_(False)
