"""A hopper of MuJoCo that differs from its data sheet: a few logged rollouts tell how, and a policy is trained for it.

    python examples/hopper_from_logs.py            # some minutes on two cores
    python examples/hopper_from_logs.py --quick    # seconds; all steps, nothing learned

A simulation with hidden masses, friction and damping plays the robot. A policy that was trained on the data sheet falls
on it, and is logged. The log gives a posterior over what is unknown, in `OUT/inference`, with a page. A policy that is
trained on the posterior is compared with the first one on the robot. Needs pip install 'metaroll[mujoco,sbi]'.
"""

import argparse
import shutil
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

import metaroll
from metaroll import DomainParamUpdate, RolloutEngine, RolloutPlan, StepSequence
from metaroll.configs import InferenceOptions
from metaroll.lab import infer
from metaroll.lab.report.inference_page import write_inference_page

ENV = "Hopper-v5"
ROBOT = {"body_mass:torso": 2.5, "body_mass:thigh": 2.5, "geom_friction:*": 0.6, "dof_damping:*": 0.5}  # nobody knows
PRIOR = {
    "body_mass:torso": (1.5, 6.5),  # kg; 3.7 says the data sheet
    "body_mass:thigh": (1.5, 6.5),  # kg; 4.1
    "geom_friction:*": (0.4, 1.6),  # all, times this factor
    "dof_damping:*": (0.2, 2.0),
}
PPO = {"learning_rate": 1e-3, "batch_size": 400, "hidden_sizes": (64, 64), "evaluate_every": 0, "torch_threads": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hopper-from-logs"), help="is replaced")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    sizes = {"epochs": 60, "lr_decay_epochs": 60, "steps_per_epoch": 4000, "max_path_length": 400}
    length, simulations = 60, 500
    if given.quick:
        sizes = {"epochs": 1, "steps_per_epoch": 100, "num_passes": 1, "max_path_length": 50, "num_episodes": 1}
        length, simulations = 10, 50

    first = metaroll.agent("ppo", ENV, run_dir=given.out / "nominal", **PPO, **sizes).learn(progress=False)
    print(f"the robot earns {earned(first.policy):.0f} with a policy trained on the data sheet")

    log = logged(first.policy, length)
    features = {"features": "delta-steps", "every": 5, "segment_length": 10}
    options = InferenceOptions(num_simulations=simulations, rounds=1, checks=not given.quick, **features)
    found = infer(ENV, log, PRIOR, given.out / "inference", options)
    for row in found.rows():
        print(f"{row['name']:16} {row['mean']:5.2f} +- {row['std']:.2f}, in truth {ROBOT[row['name']]}")
    print(f"page {write_inference_page(found, given.out / 'report.html', ROBOT)}")

    second = metaroll.agent("ppo", ENV, tasks=found.folder, run_dir=given.out / "posterior", **PPO, **sizes)
    second.learn(progress=False)
    print(f"the robot earns {earned(second.policy):.0f} with a policy trained on the posterior")


def logged(policy, length):
    """Four logs of the robot, of ``length`` steps, by plain Gymnasium and MuJoCo: observations and actions."""
    env, log, seed = robot(), [], 0
    while len(log) < 4:
        observation, _ = env.reset(seed=seed)
        rows, seed = [], seed + 1
        for _ in range(length):
            action = policy.get_action(observation, generator=env.np_random)[0] + env.np_random.normal(0.0, 0.2, 3)
            rows.append((observation, np.clip(action, -1.0, 1.0)))
            observation, _, fallen, _, _ = env.step(rows[-1][1])
            if fallen:
                break
        else:
            observations, actions = map(np.array, zip(*rows, strict=True))
            shown = np.concatenate([observations, observation[None]])
            log.append(StepSequence(rewards=np.zeros(length), observations=shown, actions=actions))
    return log


def robot():
    """A hopper that differs from the data sheet."""
    env = gymnasium.make(ENV)
    model = env.unwrapped.model
    for body in ("torso", "thigh"):
        model.body(body).mass = ROBOT[f"body_mass:{body}"]
    model.geom_friction *= ROBOT["geom_friction:*"]
    model.dof_damping *= ROBOT["dof_damping:*"]
    mujoco.mj_setConst(model, env.unwrapped.data)
    return env


def earned(policy):
    """Mean return of ten episodes of the robot."""
    plans = [RolloutPlan(i, (2, 0, i), DomainParamUpdate(ROBOT), eval=True, max_steps=400) for i in range(10)]
    with RolloutEngine(ENV, policy) as engine:
        return np.mean([rollout.undiscounted_return() for rollout in engine.run(plans)])


if __name__ == "__main__":
    main()
