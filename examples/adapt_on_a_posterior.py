"""A puck is to stop at a mark: PEARL learns on what a short log leaves open, and is given three tries on the table.

    python examples/adapt_on_a_posterior.py            # some minutes on two cores
    python examples/adapt_on_a_posterior.py --quick    # seconds; all steps, nothing learned

A striker pushes the puck, which glides on by itself: how far depends on its mass, on friction and on damping. All
that is known of it is where it was half a second after a gentle push: it may be light and rub much, or heavy and rub
little. The posterior (by ABC, which needs no sbi) is a folder of tasks. On the command line, in this folder:
metaroll train pearl adapt_on_a_posterior:robot --tasks FOLDER --size small. Needs pip install 'metaroll[mujoco]'.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

import metaroll
from metaroll import ABCSMC, DomainParamUpdate, LastStepEmbedding, SimRolloutSamplerForSBI
from metaroll.policies import IdlePolicy, PlaybackPolicy
from metaroll.sims import MujocoEnvDefinition

TABLE = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="striker">
      <joint name="stroke" type="slide" axis="1 0 0" range="0 0.3" limited="true" damping="1"/>
      <geom type="box" size="0.02 0.1 0.05" mass="0.5"/>
    </body>
    <body name="puck" pos="0.08 0 0">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.2" frictionloss="1.5"/>
      <geom type="box" size="0.05 0.1 0.05" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="stroke" gear="20" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""
UNKNOWN = {"body_mass:puck": (0.5, 2.0), "dof_frictionloss:slide": (0.5, 3.0), "dof_damping:slide": (0.0, 1.0)}
TRUTH = {"body_mass:puck": 0.8, "dof_frictionloss:slide": 2.4, "dof_damping:slide": 0.3}  # nobody knows


def reward(qpos):
    """The puck should be 0.8 m away, and the sooner the better."""
    return -np.abs(qpos[:, 1] - 0.8)


robot = MujocoEnvDefinition(TABLE, 20, reward, max_steps=15, reset_noise=0.0)
"""Ten decisions per second; observes positions and speeds of striker and puck."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/adapt-on-a-posterior"), help="is replaced")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)

    tasks = given.out / "posterior"
    posterior = inferred(100 if given.quick else 2000)
    print(posterior)
    posterior.save(tasks)

    sizes = {"size": "small", "epochs": 20}
    if given.quick:
        few = ("num_initial_steps", "num_steps_prior", "num_extra_rl_steps_posterior", "num_steps_per_epoch")
        sizes |= {"epochs": 1, "num_train_tasks": 4, "num_test_tasks": 2, "num_tasks_sample": 2, "meta_batch_size": 2}
        sizes |= dict.fromkeys(few, 2)
    agent = metaroll.agent("pearl", robot, tasks=tasks, run_dir=given.out / "pearl", **sizes).learn(progress=False)

    table = DomainParamUpdate(TRUTH)(robot())
    tried = agent.explore(table, episodes=3)
    adapted = agent.adapt(tried)
    end = adapted.explore(table, episodes=1)[0]
    first = ", ".join(f"{miss(rollout):.2f}" for rollout in tried)
    print(f"the puck stopped {first} m from the mark at first, and {miss(end):.2f} m after it had adapted")


def inferred(num_simulations):
    """What the end of a gentle push says of the puck."""
    spec, names = robot.env_spec, dict(enumerate(UNKNOWN))
    table, push = DomainParamUpdate(TRUTH)(robot()), PlaybackPolicy(robot.env_spec, [np.full((6, 1), 0.3)])
    log = [metaroll.rollout(table, push, seed=0, max_steps=5)]
    embedding = LastStepEmbedding(spec, dim_data=5, state_mask_labels=[1])  # the place of the puck
    with SimRolloutSamplerForSBI(
        robot, IdlePolicy(spec), names, embedding, num_segments=1, rollouts_real=log, initial_state=start_of, seed=0
    ) as simulate:
        method = ABCSMC(UNKNOWN, num_particles=num_simulations // 10, seed=0)
        return method.infer(simulate, simulate.target_features().numpy(), num_simulations)


def start_of(segment):
    """What is observed is the state."""
    return segment.observations[0]


def miss(rollout):
    """Distance from the mark at the end, in m."""
    return abs(rollout.observations[-1][1] - 0.8)


if __name__ == "__main__":
    main()
