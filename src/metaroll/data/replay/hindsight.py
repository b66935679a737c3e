"""Goals in hindsight for sampled steps: a goal that was achieved later replaces the desired goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import gymnasium
import numpy as np

from metaroll.checks import check_unit_interval
from metaroll.data.replay.streams import StepStreams
from metaroll.errors import ShapeError
from metaroll.functional.replay.hindsight import hindsight_draws

__all__ = ["ACHIEVED", "DESIRED", "HindsightGoals"]

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Keys of an observation, as Gymnasium's goal environments name them."""


@final
class HindsightGoals:
    """Replaces desired goals by goals that were reached later in the episode, and recomputes the rewards.

    Args:
        observation_space: A Dict space with the keys ``achieved_goal`` and ``desired_goal``.
        compute_reward: ``compute_reward(achieved (N, ...), desired (N, ...), infos) -> (N,)``, as the environment's;
            ``infos`` is an empty dict, as no infos are kept.
        ratio: Share of the steps whose goals are replaced.
        compute_terminated: The same of whether the episode ends there, bool ``(N,)``, or one flag, of one pair then;
            ``None``: it ends where it has ended, for every goal.

    Raises:
        ValueError: The space has no goals, or the ratio is not a share.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        compute_reward: Callable[[Any, Any, Any], Any],
        ratio: float,
        compute_terminated: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        parts = observation_space.spaces if isinstance(observation_space, gymnasium.spaces.Dict) else {}
        if not {ACHIEVED, DESIRED} <= parts.keys() or parts[ACHIEVED].shape != parts[DESIRED].shape:
            raise ValueError(
                f"goals in hindsight (compute_reward) need a Dict observation space with {ACHIEVED!r} and {DESIRED!r} "
                f"of one shape, got {observation_space}; leave compute_reward out for an environment without goals"
            )
        self._compute_reward, self._ratio = compute_reward, check_unit_interval("hindsight_ratio", ratio)
        self._compute_terminated = compute_terminated

    def relabel(
        self,
        streams: StepStreams,
        window: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        generator: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose other goals for some of N steps, and give them the rewards and endings of these.

        Args:
            streams: Where they lie.
            window: Rows of each step and those that follow it, ``(N, K + 1)``.
            rewards: Rewards of the K steps, ``(N, K)``; changed.
            terminated: Whether the episode ended there, bool ``(N, K)``; changed.
            generator: Source of randomness.

        Returns:
            Which of the N ``(M,)``, and their goals ``(M, ...)``.

        Raises:
            ShapeError: ``compute_reward`` does not return a finite number for each pair, or ``compute_terminated`` no
                flag.
            ValueError: One of them cannot do without infos.
        """
        is_chosen, later = hindsight_draws(streams.steps_left(window[:, 0]), self._ratio, generator)
        chosen, count = np.flatnonzero(is_chosen), rewards.shape[1]
        if not len(chosen):
            return chosen, streams.columns.observations[ACHIEVED][:0]
        achieved = streams.columns.observations[ACHIEVED]
        goals = achieved.take(streams.ahead(window[chosen, 0], later[chosen]), axis=0)
        reached = achieved.take(window[chosen, 1:].reshape(-1), axis=0)
        wanted = np.repeat(goals, count, axis=0)
        recomputed = np.asarray(_of_goals(self._compute_reward, "compute_reward", reached, wanted), dtype=np.float32)
        if recomputed.shape != (len(reached),) or not np.isfinite(recomputed).all():
            raise ShapeError(
                f"compute_reward must return a finite number for each of {len(reached)} pairs of goals, got shape "
                f"{recomputed.shape}: {recomputed}"
            )
        rewards[chosen] = recomputed.reshape(-1, count)
        if self._compute_terminated is not None:
            ends = np.asarray(_of_goals(self._compute_terminated, "compute_terminated", reached, wanted))
            if not ends.shape:  # of Gymnasium-Robotics: one pair at a time
                pairs = zip(reached, wanted, strict=True)
                flags = [_of_goals(self._compute_terminated, "compute_terminated", *pair) for pair in pairs]
                ends = np.array(flags)
            if ends.shape != (len(reached),) or ends.dtype != bool:
                raise ShapeError(
                    f"compute_terminated must return a flag for each of {len(reached)} pairs of goals, got shape "
                    f"{ends.shape} of {ends.dtype}"
                )
            terminated[chosen] = ends.reshape(-1, count)
        return chosen, goals


def _of_goals(function: Callable[[Any, Any, Any], Any], name: str, reached: np.ndarray, wanted: np.ndarray) -> Any:
    """A function of the environment for pairs of goals, without the infos of their steps."""
    try:
        return function(reached, wanted, {})
    except KeyError as error:
        raise ValueError(
            f"{name} asks for info[{error}], and a replay buffer keeps no infos: let it do with the two goals"
        ) from error
