"""The public names of metaroll.policies, and where they are defined; written by tools/stubs.py."""

from metaroll.policies.adapters import ScriptedPolicy, as_policy
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.controllers import BallBalancerController, CartPoleController, QubeController
from metaroll.policies.exploration import (
    EpsilonGreedyPolicy,
    GaussianNoisePolicy,
    OrnsteinUhlenbeckPolicy,
    UniformFirstPolicy,
)
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUCritic, GRUGaussianPolicy, TanhGaussianGRUPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.networks import Critics, MLPEncoder, QFunction
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.playback import DummyPolicy, IdlePolicy, PlaybackPolicy, TimePolicy

__all__ = [
    "BallBalancerController",
    "CartPoleController",
    "CategoricalGRUPolicy",
    "CategoricalMLPPolicy",
    "ContextConditionedPolicy",
    "Critics",
    "DeterministicMLPPolicy",
    "DummyPolicy",
    "EpsilonGreedyPolicy",
    "GRUCritic",
    "GRUGaussianPolicy",
    "GaussianMLPPolicy",
    "GaussianNoisePolicy",
    "GreedyQPolicy",
    "IdlePolicy",
    "LastActionPolicy",
    "MLPEncoder",
    "NormalizedPolicy",
    "OrnsteinUhlenbeckPolicy",
    "PlaybackPolicy",
    "QFunction",
    "QubeController",
    "ScriptedPolicy",
    "TanhGaussianGRUPolicy",
    "TanhGaussianMLPPolicy",
    "TimePolicy",
    "UniformFirstPolicy",
    "as_policy",
]
