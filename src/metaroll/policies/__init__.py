"""Policies: torch modules with a fast NumPy acting path, controllers, and adapters for foreign policies."""

from metaroll.exports import lazy_exports

_MODULES = {
    "policies.exploration": [
        "EpsilonGreedyPolicy",
        "GaussianNoisePolicy",
        "OrnsteinUhlenbeckPolicy",
        "UniformFirstPolicy",
    ],
    "policies.gaussian": ["CategoricalMLPPolicy", "GaussianMLPPolicy", "TanhGaussianMLPPolicy"],
    "policies.greedy": ["DeterministicMLPPolicy", "GreedyQPolicy"],
    "policies.gru": ["CategoricalGRUPolicy", "GRUCritic", "GRUGaussianPolicy", "TanhGaussianGRUPolicy"],
    "policies.last_action": ["LastActionPolicy"],
    "policies.normalized": ["NormalizedPolicy"],
    "policies.networks": ["Critics", "MLPEncoder", "QFunction"],
    "policies.context": ["ContextConditionedPolicy"],
    "policies.adapters": ["ScriptedPolicy", "as_policy"],
    "policies.controllers": ["BallBalancerController", "CartPoleController", "QubeController"],
    "policies.playback": ["DummyPolicy", "IdlePolicy", "PlaybackPolicy", "TimePolicy"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
