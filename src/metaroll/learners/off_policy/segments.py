"""Segments of replayed episodes as tensors, and what critics with a memory make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from metaroll.checks import check_whole
from metaroll.data.data_format import map_leaves
from metaroll.data.replay.replay_buffer import SegmentBatch
from metaroll.data.space_batches import flatten_batch
from metaroll.learners.off_policy.networks import Critics
from metaroll.policies.gru import GRUCell
from metaroll.policies.normalized import widened_spec
from metaroll.seeding import fresh_seed, torch_generator
from metaroll.types import EnvSpec

__all__ = ["RecurrentCritics", "SegmentSizes", "SegmentTensors", "features_of", "segment_tensors"]


class SegmentSizes(NamedTuple):
    """Steps of a segment: to learn from, and before these, to bring memories up."""

    length: int
    burn_in: int


class SegmentTensors(NamedTuple):
    """N segments of burn-in and T steps, and the M of these steps that were taken, which are learned from.

    Attributes:
        inputs: What memories see, observation and last action (0 at the start of an episode) side by side, of the
            burn-in, the T steps, and what follows: ``(burn_in + T + 1, N, obs_dim + act_dim)``.
        keep: 0 where an episode begins, else 1, ``(burn_in + T + 1, N, 1)``.
        rows: Where the steps lie, ``t N + n`` with t from 0 behind the burn-in, ``(M,)``; what follows a step lies N
            later.
        actions: In the policy's units, ``(M, act_dim)``.
        rewards: Scaled, ``(M,)``.
        discounts: What the value of the successor counts, 0 after a termination, ``(M,)``.
    """

    inputs: Tensor
    keep: Tensor
    rows: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor


def segment_tensors(
    batch: SegmentBatch, space: gymnasium.Space, burn_in: int, device: torch.device, reward_scale: float
) -> SegmentTensors:
    """What was drawn, on ``device``, time first.

    What was done before a segment is not known: a last action of 0 stands for it.
    """
    count, length = batch.mask.shape
    rows = map_leaves(lambda leaf, _: leaf.reshape(count * (length + 1), *leaf.shape[2:]), batch.observations)
    seen = flatten_batch(space, rows)
    acted = batch.actions.reshape(count, length, -1)
    inputs = np.zeros((length + 1, count, seen.shape[-1] + acted.shape[-1]), np.float32)
    inputs[..., : seen.shape[-1]] = seen.reshape(count, length + 1, -1).swapaxes(0, 1)
    begins = batch.starts.T
    inputs[1:, :, seen.shape[-1] :] = np.where(begins[1:, :, None], np.float32(0.0), acted.swapaxes(0, 1))
    learned = batch.mask.T[burn_in:]

    def told(column: np.ndarray) -> Tensor:
        return torch.from_numpy(column).to(device)

    def steps(column: np.ndarray) -> Tensor:
        return told(column.swapaxes(0, 1)[burn_in:][learned])

    return SegmentTensors(
        told(inputs),
        told((~begins[..., None]).astype(np.float32)),
        told(np.flatnonzero(learned)),
        steps(acted),
        steps(batch.rewards) * reward_scale,
        steps(batch.discounts),
    )


def features_of(cell: GRUCell, segments: SegmentTensors, burn_in: int) -> Tensor:
    """Memory and input of each row behind the burn-in, ``((T + 1) N, H + obs_dim + act_dim)``.

    The burn-in only brings the memory up, from an empty one; no gradient goes there (Kapturowski et al. 2019,
    "Recurrent experience replay in distributed reinforcement learning", section 3).
    """
    before, inputs = segments.inputs[:burn_in], segments.inputs[burn_in:]
    hidden = None
    if burn_in:
        with torch.no_grad():
            hidden = cell.segments(before, segments.keep[:burn_in])[-1]
    memories = cell.segments(inputs, segments.keep[burn_in:], hidden)
    return torch.cat((memories, inputs), dim=-1).flatten(0, 1)


class RecurrentCritics(nn.Module):
    """K action values ``Q_k(h, x, a)`` of a memory ``h`` that is theirs, of what it saw last, and of an action.

    Args:
        env_spec: Spaces.
        count: Number of critics K.
        hidden_size: Width H of the memory, a GRU's over observations and last actions.
        hidden_sizes: Widths of the hidden layers behind it.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        count: int = 2,
        hidden_size: int = 64,
        hidden_sizes: Sequence[int] = (64,),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        spec = EnvSpec.from_env(env_spec)
        self.hidden_size = check_whole("hidden_size", hidden_size)
        generator = torch_generator(fresh_seed()) if generator is None else generator
        self.input_size = spec.obs_dim + spec.act_dim
        self.cell = GRUCell(self.input_size, self.hidden_size, init=init, generator=generator)
        wide = widened_spec(spec, spec.act_dim + self.hidden_size)
        self.values = Critics(wide, count, hidden_sizes, hidden_nonlinearity, init=init, generator=generator)

    def forward(self, features: Tensor, actions: Tensor, *, fixed: bool = False) -> Tensor:
        """Values ``(K, M)`` of ``features_of`` M steps and ``actions (M, act_dim)`` in [-1, 1]; see ``Critics``."""
        return self.values(features, actions, fixed=fixed)
