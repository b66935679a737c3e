"""The public names of metaroll.sims, and where they are defined; written by tools/stubs.py."""

from metaroll.envs.lookup.randomization import (
    conservative_randomizer,
    default_randomizer,
    empty_randomizer,
    zero_variance_randomizer,
)
from metaroll.envs.metaworld.benchmarks import make_metaworld_benchmark
from metaroll.envs.mujoco.definition import MujocoEnvDefinition
from metaroll.envs.mujoco.threads import physics_threads
from metaroll.envs.sims.batch import SimBatch
from metaroll.envs.sims.catalog import (
    BallOnBeamEnv,
    CatapultEnv,
    Gaussian2DEnv,
    OneMassOscillatorEnv,
    PendulumEnv,
    QBallBalancerEnv,
    QCartPoleStabEnv,
    QCartPoleSwingUpEnv,
    QQubeStabEnv,
    QQubeSwingUpEnv,
)
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.simulator import SimSlots
from metaroll.envs.sims.tasks import (
    AbsErr,
    DesStateTask,
    ExpQuadrErr,
    FinalRewTask,
    QuadrErr,
    RadiallySymmDesStateTask,
    ScaledExpQuadrErr,
)

__all__ = [
    "AbsErr",
    "BallOnBeamEnv",
    "CatapultEnv",
    "DesStateTask",
    "ExpQuadrErr",
    "FinalRewTask",
    "Gaussian2DEnv",
    "MujocoEnvDefinition",
    "OneMassOscillatorEnv",
    "PendulumEnv",
    "QBallBalancerEnv",
    "QCartPoleStabEnv",
    "QCartPoleSwingUpEnv",
    "QQubeStabEnv",
    "QQubeSwingUpEnv",
    "QuadrErr",
    "RadiallySymmDesStateTask",
    "ScaledExpQuadrErr",
    "SimBatch",
    "SimEnv",
    "SimSlots",
    "conservative_randomizer",
    "default_randomizer",
    "empty_randomizer",
    "make_metaworld_benchmark",
    "physics_threads",
    "zero_variance_randomizer",
]
