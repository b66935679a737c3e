"""A two-link arm of your own with a hidden target: a family of tasks, in two forms that differ in their actions only.

    cd examples
    metaroll check two_link_arm:family
    metaroll train pearl two_link_arm:family --size small     # some minutes on two cores
    metaroll evaluate runs/pearl-two_link_arm-family-0        # does it adapt?

Actions of `family` lie in [-2, 2], those of `slow_family`, which mean the same, in [-0.1, 0.1]. PEARL acts within the
bounds of the environment, so that both learn alike.
"""

import gymnasium
import numpy as np

from metaroll import TaskFamily


class Arm(gymnasium.Env):
    """Two links of half a meter are to bring the tip of the arm to a target that is not observed.

    Observations: cosines and sines of both joint angles, and the place of the tip. Reward: minus the distance of the
    tip from the target.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
    bound = 2.0
    target_x, target_y = 0.5, 0.0

    def __init__(self):
        self.action_space = gymnasium.spaces.Box(-self.bound, self.bound, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angles = np.array([0.0, 0.5 * np.pi]) + self.np_random.uniform(-0.05, 0.05, size=2)
        return self._observation(), {}

    def step(self, action):
        self.angles = self.angles + 0.25 * np.asarray(action, np.float64) / self.bound
        distance = float(np.linalg.norm(self._tip() - (self.target_x, self.target_y)))
        return self._observation(), -distance, False, False, {}

    def _tip(self):
        first, second = self.angles[0], self.angles.sum()
        return 0.5 * np.array([np.cos(first) + np.cos(second), np.sin(first) + np.sin(second)])

    def _observation(self):
        return np.array([*np.cos(self.angles), *np.sin(self.angles), *self._tip()], np.float32)


class SlowArm(Arm):
    """The same arm with other units of its actions."""

    bound = 0.1


TARGETS = {"target_x": (-0.7, 0.7), "target_y": (-0.7, 0.7)}

family = TaskFamily.from_params(Arm, TARGETS, horizon=20, name="two-link-arm")
slow_family = TaskFamily.from_params(SlowArm, TARGETS, horizon=20, name="two-link-arm-slow")
