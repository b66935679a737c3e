"""Simulated systems of textbooks and laboratories: environments, their tasks, and randomizers of their parameters."""

from metaroll.exports import lazy_exports

_MODULES = {
    "envs.sims.batch": ["SimBatch"],
    "envs.sims.catalog": [
        "BallOnBeamEnv",
        "CatapultEnv",
        "Gaussian2DEnv",
        "OneMassOscillatorEnv",
        "PendulumEnv",
        "QBallBalancerEnv",
        "QCartPoleStabEnv",
        "QCartPoleSwingUpEnv",
        "QQubeStabEnv",
        "QQubeSwingUpEnv",
    ],
    "envs.sims.sim_env": ["SimEnv"],
    "envs.sims.simulator": ["SimSlots"],
    "envs.sims.tasks": [
        "AbsErr",
        "DesStateTask",
        "ExpQuadrErr",
        "FinalRewTask",
        "QuadrErr",
        "RadiallySymmDesStateTask",
        "ScaledExpQuadrErr",
    ],
    "envs.lookup.randomization": [
        "conservative_randomizer",
        "default_randomizer",
        "empty_randomizer",
        "zero_variance_randomizer",
    ],
    "envs.mujoco.definition": ["MujocoEnvDefinition"],
    "envs.mujoco.threads": ["physics_threads"],
    "envs.metaworld.benchmarks": ["make_metaworld_benchmark"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
