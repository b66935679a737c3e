"""PEARL on an environment of your own, with numbers so small that it ends in seconds.

    python examples/pearl_on_your_env.py

For numbers that learn something see `metaroll train pearl point-robot --help`.
"""

import gymnasium
import numpy as np
import torch

from metaroll import PEARL, EnvSpec, LocalRunner, SetTaskSampler
from metaroll.policies import QFunction, TanhGaussianMLPPolicy


class Line(gymnasium.Env):
    """A point on a line is to find a place that it is not told."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def sample_tasks(self, num_tasks, generator=None):
        places = np.random.default_rng(generator).uniform(-1, 1, num_tasks)
        return [{"place": float(place)} for place in places]

    def set_task(self, task):
        self.place = task["place"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += 0.2 * float(action[0])
        return np.array([self.x], np.float32), -abs(self.x - self.place), False, False, {}


LATENT_DIM, SIZES = 3, (32, 32)
train_tasks = SetTaskSampler(Line, generator=np.random.default_rng(0)).sample(20)
test_sampler = SetTaskSampler(Line, generator=np.random.default_rng(1))

spec = EnvSpec.from_env(Line())
with_latent = PEARL.augment_env_spec(spec, LATENT_DIM)  # the policy and Q see observation and latent
init = torch.Generator().manual_seed(0)
algo = PEARL(
    env=train_tasks,
    inner_policy=TanhGaussianMLPPolicy(with_latent, hidden_sizes=SIZES, generator=init),
    qf=QFunction(with_latent, hidden_sizes=SIZES, generator=init),
    vf=QFunction(PEARL.get_env_spec(spec, LATENT_DIM, "vf"), hidden_sizes=SIZES, generator=init),
    num_train_tasks=len(train_tasks),
    num_test_tasks=5,
    latent_dim=LATENT_DIM,
    encoder_hidden_sizes=[32, 32],
    test_env_sampler=test_sampler,
    max_path_length=10,
    meta_batch_size=4,
    batch_size=32,
    embedding_batch_size=32,
    embedding_mini_batch_size=32,
    num_initial_steps=50,
    num_tasks_sample=5,
    num_steps_prior=50,
    num_extra_rl_steps_posterior=50,
    num_steps_per_epoch=20,
    seed=0,
)
evaluation = {"n_exploration_traj": 2, "posterior_sampling": True}
with LocalRunner(seed=0, num_workers=2, evaluator=evaluation) as runner:  # run_dir="runs/line" would save it
    runner.setup(algo, Line)
    average_return = runner.train(n_epochs=2)
    print(f"{runner.total_env_steps} steps, return on tasks it never saw {average_return:.2f}")
