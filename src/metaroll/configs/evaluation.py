"""The settings of evaluations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from metaroll.config import Bounds, Config, UnusedWhere, Was, Whole
from metaroll.errors import option_name, option_text

__all__ = ["EvaluationConfig", "MetaEvaluationConfig"]

_MOST_EPISODES = 10**6

_RewardKey = Annotated[str | None, "Name of an env_info to sum instead of the reward."]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """Settings of the evaluation of a policy that does not adapt."""

    deterministic: Annotated[bool, "Act by the deterministic policy."] = True
    return_reward_key: _RewardKey = None
    num_episodes: Annotated[int, Bounds(1, _MOST_EPISODES), "Episodes per task."] = 20


@dataclass(frozen=True, kw_only=True)
class MetaEvaluationConfig(Config):
    """Settings of the evaluation of a learner that adapts to tasks."""

    repetitions: Annotated[Whole, "Independent repetitions of the whole procedure per task."] = 1
    deterministic: Annotated[bool, "Act with the mean action (a latent z is still sampled)."] = True
    return_reward_key: _RewardKey = None
    num_adaptation_episodes: Annotated[Whole, Was("n_exploration_traj"), "Episodes per task to adapt to."] = 10
    num_episodes: Annotated[
        Whole, Was("n_test_rollouts"), "Adapted episodes per task (episodes are counted, not steps)."
    ] = 1
    posterior_sampling: Annotated[
        bool, "Adapt again after every exploration episode (PEARL's protocol), not once after all of them."
    ] = False
    num_prior_episodes: Annotated[
        Whole,
        UnusedWhere("posterior_sampling", False),
        "Episodes under the prior before the first adaptation, with posterior_sampling.",
    ] = 1
    deterministic_exploration: Annotated[
        bool | None,
        "Whether exploration episodes are deterministic; null means the same as deterministic, but with noise for an "
        "algorithm that needs it (see AlgorithmInfo.deterministic_exploration).",
    ] = None
    adaptation_rounds: Annotated[
        Whole | None,
        "How often exploration episodes are followed by an adaptation; null means once (or num_adaptation_episodes / "
        "episodes_per_round times). Without both, an algorithm that learns to adapt in several steps "
        "(AlgorithmInfo.inner_steps) has one round for each step, from the policy and episodes of the round before. "
        "Rounds are then equally long, with perhaps a few more than num_adaptation_episodes in all.",
    ] = None
    episodes_per_round: Annotated[
        Whole | None,
        "Exploration episodes of each round; null means num_adaptation_episodes in all. If both are given, "
        "num_adaptation_episodes is their product.",
    ] = None
    adapt_from: Annotated[
        Literal["last", "all"],
        "From the second round on, 'all' adapts an exploration policy from all exploration episodes so far; 'last' "
        "adapts the policy that made the last round's episodes, from these alone (the next gradient step).",
    ] = "all"

    @classmethod
    def settled(cls, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """See ``Config``: where rounds and their episodes are known, so are all episodes."""
        numbers = [values.get(name) for name in ("adaptation_rounds", "episodes_per_round")]
        known = [int(number) for number in numbers if isinstance(number, int | np.integer) and number >= 1]
        if "num_adaptation_episodes" in given or len(known) < len(numbers):
            return {}
        return {"num_adaptation_episodes": math.prod(known)}

    def check(self) -> None:
        """See ``Config``: rounds, exploration episodes and ``posterior_sampling`` go together."""
        super().check()
        rounds, length = self.rounds()
        if not self.posterior_sampling:
            return
        if self.num_prior_episodes > rounds * length:
            most = option_text("num_adaptation_episodes", rounds * length)
            raise self.wrong("num_prior_episodes", f"be at most {most}")
        if rounds > 1 or self.adapt_from == "last":
            options = [option_name(name) for name in ("adaptation_rounds", "episodes_per_round", "adapt_from")]
            raise ValueError(
                f"{option_name('posterior_sampling')} adapts after every episode from all of them: leave "
                f"{', '.join(options)} out, or switch it off"
            )

    def rounds(self, inner_steps: int = 1) -> tuple[int, int]:
        """Number of adaptations in exploration, and episodes before each.

        Args:
            inner_steps: In how many steps an algorithm learns to adapt, which are as many rounds where none are given.
        """
        explore, rounds, episodes = self.num_adaptation_episodes, self.adaptation_rounds, self.episodes_per_round
        if rounds is None and episodes is None:
            steps = 1 if self.posterior_sampling else inner_steps
            return steps, -(-explore // steps)
        if rounds is not None and episodes is not None:
            if explore != rounds * episodes:
                product = f"{option_name('adaptation_rounds')} * {option_name('episodes_per_round')}"
                raise self.wrong("num_adaptation_episodes", f"be {product} = {rounds * episodes}, or left out")
            return rounds, episodes
        name, number = ("adaptation_rounds", rounds) if episodes is None else ("episodes_per_round", episodes)
        assert number is not None
        if explore % number:
            whole = option_text("num_adaptation_episodes", explore)
            raise self.wrong(name, f"divide {whole}", "give the other one as well")
        return (number, explore // number) if episodes is None else (explore // number, number)
