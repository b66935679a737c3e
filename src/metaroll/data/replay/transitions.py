"""The interface of replay buffers for off-policy learners, views of garage's, and drawn transitions as tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import gymnasium
import numpy as np
import torch
from torch import Tensor

from metaroll.data.replay.replay_buffer import ReplayBatch
from metaroll.data.rollouts import Rollouts
from metaroll.data.space_batches import flatten_batch

__all__ = ["Replay", "TransitionBatch", "as_replay", "tensors_of"]


@runtime_checkable
class Replay(Protocol):
    """Steps that can be drawn; ``metaroll.ReplayBuffer`` is one."""

    @property
    def capacity(self) -> int: ...

    @property
    def n_transitions_stored(self) -> int: ...

    def add(self, rollouts: Rollouts, actions: Any = None) -> Any:
        """Store pieces of rollouts, with ``actions`` instead of theirs."""
        ...

    def sample(
        self,
        n: int,
        generator: np.random.Generator | int | None = None,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        weight_exponent: float = 0.0,
    ) -> ReplayBatch: ...

    def update_priorities(self, indices: np.ndarray, errors: np.ndarray) -> None: ...

    def state_dict(self, copy: bool = True) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def clear(self) -> None: ...


class TransitionBatch(NamedTuple):
    """B steps as tensors.

    ``observations`` and ``next_observations`` are flat, ``(B, obs_dim)``; ``actions (B, act_dim)`` in the policy's
    units, or indices ``(B,)``; ``rewards (B,)`` scaled; ``discounts (B,)`` what the value of the successor counts;
    ``weights (B,)``, or ``None`` where all count alike.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    discounts: Tensor
    weights: Tensor | None = None

    def split(self, size: int) -> Iterator[TransitionBatch]:
        """Batches of ``size`` steps that follow one another in this one."""
        parts = [itertools.repeat(None) if part is None else part.split(size) for part in self]
        return itertools.starmap(TransitionBatch, zip(*parts, strict=False))


def tensors_of(
    batch: ReplayBatch, space: gymnasium.Space[Any], device: torch.device, reward_scale: float, weighted: bool
) -> TransitionBatch:
    """The drawn transitions, on ``device``; rewards are scaled here, as they enter the update."""

    def seen(observations: Any) -> Tensor:
        rows = observations
        if rows.__class__ is not np.ndarray or rows.ndim != 2 or rows.dtype != np.float32:
            rows = flatten_batch(space, observations)
        return torch.from_numpy(rows).to(device).to(torch.float32)  # images travel as bytes

    def tensor(column: np.ndarray) -> Tensor:
        return torch.from_numpy(column).to(device)

    rewards = tensor(batch.rewards)
    return TransitionBatch(
        seen(batch.observations),
        tensor(batch.actions),
        rewards if reward_scale == 1.0 else rewards * reward_scale,
        seen(batch.next_observations),
        tensor(batch.discounts),
        tensor(batch.weights) if weighted else None,
    )


def as_replay(buffer: Any, n_step: int = 1) -> Replay:
    """``buffer`` with the contract of ``Replay``: itself, or a view of one with garage's members.

    Raises:
        TypeError: It has neither.
        ValueError: ``n_step`` is above 1, and it keeps no order of steps.
    """
    if isinstance(buffer, Replay):
        return buffer
    if not all(callable(getattr(buffer, name, None)) for name in ("add_path", "sample_transitions")):
        raise TypeError(
            "replay_buffer must be a ReplayBuffer, or have add_path(path) and sample_transitions(n), got "
            f"{type(buffer).__name__}"
        )
    if n_step != 1:
        raise ValueError(f"n_step must be 1 with a {type(buffer).__name__}, got {n_step}: use a ReplayBuffer")
    return PathReplay(buffer)


@final
class PathReplay:
    """``PathBuffer``, or another buffer with garage's members, behind the contract of ``Replay``.

    Pieces of rollouts are added as paths of the keys that garage's learners use: ``observation``, ``action``,
    ``reward``, ``next_observation`` and ``terminal``. A time limit is not stored as terminal.

    Args:
        buffer: The buffer.
    """

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    @property
    def capacity(self) -> int:
        """That of the buffer; if it has none, more than any minimum."""
        return int(getattr(self.buffer, "capacity", 2**62))

    @property
    def n_transitions_stored(self) -> int:
        return int(self.buffer.n_transitions_stored)

    def add(self, rollouts: Rollouts, actions: Any = None) -> None:
        done = np.asarray(rollouts.column("actions") if actions is None else actions)
        for seen, act, reward, terminated in zip(
            rollouts.each("observations"),
            np.split(done.reshape(len(done), -1), rollouts.bounds[1:-1]),
            rollouts.each("rewards"),
            rollouts.each("terminated"),
            strict=True,
        ):
            rows = np.asarray(seen).reshape(len(seen), -1)
            self.buffer.add_path(
                {
                    "observation": rows[:-1],
                    "action": act,
                    "reward": np.asarray(reward, np.float32)[:, None],
                    "next_observation": rows[1:],
                    "terminal": terminated[:, None],
                }
            )

    def sample(
        self,
        n: int,
        generator: np.random.Generator | int | None = None,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        weight_exponent: float = 0.0,
    ) -> ReplayBatch:
        """See ``ReplayBuffer.sample``; ``n_step`` is 1, and all weights are."""
        drawn = self.buffer.sample_transitions(n, generator)
        terminal = np.asarray(drawn["terminal"]).reshape(-1).astype(bool)
        return ReplayBatch(
            drawn["observation"],
            drawn["action"],
            np.asarray(drawn["reward"], np.float32).reshape(-1),
            drawn["next_observation"],
            np.where(terminal, 0.0, discount).astype(np.float32),
            np.arange(n),
            np.ones(n, dtype=np.float32),
        )

    def update_priorities(self, indices: np.ndarray, errors: np.ndarray) -> None:
        self._own("update_priorities")(indices, errors)

    def state_dict(self, copy: bool = True) -> Mapping[str, Any]:
        return self._own("state_dict")(copy)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._own("load_state_dict")(state)

    def clear(self) -> None:
        self._own("clear")()

    def _own(self, name: str) -> Callable[..., Any]:
        method = getattr(self.buffer, name, None)
        if not callable(method):
            raise TypeError(f"{type(self.buffer).__name__} needs {name}(), which a ReplayBuffer has")
        return method
