"""What else is written: recordings, logs of robots, inferences, posteriors, kept simulations, replay memories."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

import metaroll
from corpus.archives import write_json
from corpus.runs import RUNS, flags_of, run_command
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.inference.configs import EstimatorConfig
from metaroll.lab.real.packets import Packet
from metaroll.lab.real.real_env import RealEnv
from metaroll.policies.playback import DummyPolicy
from metaroll.training.store.files import save_tree

FORMATS = (".npz", ".csv", ".parquet")

# -- recordings --------------------------------------------------------------------------------------------------------


class Rooms(gymnasium.Env):
    """Pictures, numbers and a choice: spaces of several kinds, and episodes of several lengths."""

    observation_space = Dict(
        {"picture": Box(0, 255, (4, 4, 3), np.uint8), "room": Discrete(5), "speed": Box(-1.0, 1.0, (2,), np.float32)}
    )
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        draw = self.np_random
        return {
            "picture": draw.integers(0, 256, (4, 4, 3), np.uint8),
            "room": int(draw.integers(5)),
            "speed": draw.uniform(-1.0, 1.0, 2).astype(np.float32),
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), float(self.np_random.normal()), self.steps > 2 + int(action), False, {"note": self.steps}


def pendulum_rollouts(num: int, length: int = 60) -> list[metaroll.StepSequence]:
    """Rollouts of a pendulum with parameters of its own, pushed at random."""
    robot = PendulumEnv(domain_param={"pole_mass": 0.8, "pole_length": 1.2}, max_steps=length)
    torques = np.random.default_rng(0).uniform(-1.0, 1.0, (num, length))

    def push(number: int) -> Callable[[Any], list[float]]:
        steps = iter(torques[number])
        return lambda obs: [next(steps)]

    return [metaroll.rollout(robot, push(number), seed=0, sub_seed=number) for number in range(num)]


def recorded() -> dict[str, metaroll.StepSequence]:
    """Rollouts by name: of a simulator with states, of spaces of several kinds, and two of these joined."""
    rooms = [metaroll.rollout(Rooms(), lambda obs: int(obs["room"]) % 3, seed=1, sub_seed=i) for i in range(2)]
    return {
        "pendulum": pendulum_rollouts(1, 20)[0],
        "rooms": rooms[0],
        "joined": metaroll.StepSequence.concat(rooms),
    }


def content(rollout: metaroll.StepSequence) -> dict[str, Any]:
    """Length, return, and of each field dtype, shape and checksum, as JSON."""
    fields: dict[str, Any] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, part in value.items():
                add(f"{name}.{key}", part)
        else:
            array = np.ascontiguousarray(value)
            kind = str(array.dtype)
            fields[name] = [kind, list(array.shape), zlib.crc32(array.tobytes()) if kind != "object" else None]

    for name in sorted(rollout.data_names):
        add(name, getattr(rollout, name))
    return {"length": len(rollout), "return": float(rollout.rewards.sum()), "fields": fields}


def write_recordings() -> None:
    """Rollouts in each format that rollouts are recorded in."""
    for suffix in FORMATS:
        for name, rollout in recorded().items():
            metaroll.save_rollout(rollout, f"{name}{suffix}")
    metaroll.save_rollouts(pendulum_rollouts(2, 10), "folder")
    write_json(Path("expected.json"), {name: content(rollout) for name, rollout in recorded().items()})


# -- logs of robots ----------------------------------------------------------------------------------------------------

MAPPING = """\
time: {column: t_ms, unit: ms}
observations:
  sin_theta: {column: angle, unit: deg, function: sin}
  cos_theta: {column: angle, unit: deg, function: cos}
  theta_dot: {column: speed, unit: deg/s}
actions:
  torque: {column: torque, unit: mN m}
max_gap: 0.02
"""


class Clock:
    """Time passes where somebody waits."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class Device(RealEnv):
    """Shows how many actions it was sent, and the last of them."""

    def __init__(self, log_dir: str) -> None:
        spec = metaroll.EnvSpec(
            Box(-np.inf, np.inf, (2,), np.float64),
            Box(-1.0, 1.0, (1,), np.float64),
            observation_labels=("count", "action"),
            action_labels=("force",),
        )
        self.own_clock, self.count, self.coming = Clock(), 0, list[Packet]()
        super().__init__(spec, 0.1, watchdog=None, clock=self.own_clock, sync=False, log_dir=log_dir)

    def prepare(self) -> None:
        self.count, self.coming = 0, [Packet([0.0, 0.0], 0)]

    def send(self, action: np.ndarray) -> None:
        self.count += 1
        self.coming.append(Packet([float(self.count), float(action[0])], self.count))

    def receive(self, timeout: float) -> Packet | None:
        if self.coming:
            return self.coming.pop(0)
        self.own_clock.sleep(timeout)
        return None


def write_robot_logs() -> None:
    """A table with its mapping and the rollouts that were imported of it, and the log of a real device."""
    truth = PendulumEnv(dt=0.005, domain_param={"pole_mass": 1.2}, init_space=[1.0, 0.0])
    made = metaroll.rollout(truth, lambda obs: [np.sign(obs[2])], max_steps=80)
    angle = np.degrees(made.states[:, 0]) % 360.0
    columns = (1000 * made.time, angle, np.degrees(made.states[:, 1]), np.append(1000 * made.actions, np.nan))
    rows = "\n".join(f"{t:.3f},{a:.6f},{v:.6f},{u:.3f}" for t, a, v, u in zip(*columns, strict=True))
    Path("swing.csv").write_text(f"t_ms,angle,speed,torque\n{rows}\n")
    Path("swing.yaml").write_text(MAPPING)
    run_command("import-log", "swing.csv", "--mapping", "swing.yaml", "--env", "pend", "--out", "imported")
    device = Device("device")
    live = metaroll.rollout(device, lambda obs: [0.1 * obs[0]], max_steps=6)
    device.close()
    [imported] = metaroll.load_rollouts("imported")
    write_json(Path("expected.json"), {"imported": content(imported), "device": live.observations.tolist()})


# -- inference ---------------------------------------------------------------------------------------------------------

PRIOR = {"length": (0.5, 1.5), "friction": ("log-uniform", 0.01, 1.0)}
OBSERVED = (0.9, 0.1)
NUM_SIMULATIONS = 120
QUICK = {"max_epochs": 3, "hidden_features": 6, "num_transforms": 1, "num_bins": 4, "num_components": 2}
POSTERIORS: Mapping[str, Mapping[str, Any]] = {
    "npe-maf": {"method": "npe", "model": "maf"},
    "npe-nsf": {"method": "npe", "model": "nsf", "ensemble": 2},
    "npe-mdn": {"method": "npe", "model": "mdn", "num_random_features": 4},
    "nle": {"method": "nle", "model": "maf"},
    "fmpe": {"method": "fmpe"},
}


def oscillations(thetas: np.ndarray) -> np.ndarray:
    """Features ``(B, 4)`` of oscillators with parameters ``(B, 2)``; of every seventh there are none."""
    length, friction = thetas.T
    seen = [np.exp(-friction * time) * np.cos(time / np.sqrt(length)) for time in (0.5, 1.0, 2.0, 4.0)]
    features = np.stack(seen, axis=1)
    features[np.floor(1e6 * thetas[:, 0]).astype(int) % 7 == 0] = np.nan
    return features


def observed() -> np.ndarray:
    """Features of ``OBSERVED``, ``(4,)``."""
    return np.nan_to_num(oscillations(np.array([OBSERVED]))[0])


def of_posterior(posterior: metaroll.Posterior) -> dict[str, Any]:
    """Draws and densities, as JSON."""
    draws = posterior.draws[:3]
    log_prob = posterior.log_prob(draws).tolist() if posterior.has_estimator else None
    return {"names": list(posterior.names), "draws": draws.tolist(), "log_prob": log_prob}


def abc(run_dir: str) -> metaroll.ABCSMC:
    """Inference without networks that keeps its simulations in a folder."""
    return metaroll.ABCSMC(PRIOR, 20, seed=1, batch_size=50, run_dir=run_dir, simulator="oscillator")


def npdr(run_dir: str, **settings: Any) -> metaroll.NPDR:
    """Inference with networks that keeps its simulations in a folder."""
    config = EstimatorConfig(**{**QUICK, **settings})
    return metaroll.NPDR(PRIOR, config, seed=1, batch_size=50, run_dir=run_dir, simulator="oscillator")


def save_some(posterior: metaroll.Posterior, name: str) -> dict[str, Any]:
    """Save a posterior with few of its draws, which would be most of the corpus; its draws and densities."""
    estimator = posterior.estimator if posterior.has_estimator else None
    about: dict[str, Any] = {"estimator": estimator, "description": posterior.description}
    metaroll.Posterior(posterior.prior, posterior.observed, posterior.draws[:40], **about).save(name)
    return of_posterior(metaroll.Posterior.load(name))


def write_posteriors() -> None:
    """Posteriors of each way to infer one, with draws and densities; the simulations that they were made of."""
    found: dict[str, Any] = {}
    for name, settings in POSTERIORS.items():
        posterior = npdr("neural", **settings).infer(oscillations, observed(), NUM_SIMULATIONS)
        found[name] = save_some(posterior, name)
    found["abc"] = save_some(abc("abc-run").infer(oscillations, observed(), 200), "abc")
    posterior = metaroll.identify(oscillations, observed(), PRIOR, num_simulations=100, seed=1).posterior()
    found["laplace"] = save_some(posterior, "laplace")
    write_json(Path("expected.json"), found)


def write_inference() -> None:
    """What ``metaroll infer`` leaves, and a run that was trained on it."""
    metaroll.save_rollouts(pendulum_rollouts(3), "swings")
    params = ["--param", "pole_mass=0.5:1.5", "--param", "pole_length=0.5:1.5"]
    small = ["--num-simulations", "120", "--rounds", "1", "--method", "bayessim"]
    run_command("infer", "pend", "--data", "swings", *params, *small, "--out", "inferred")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its checks say not to train on it
        options = {**RUNS["ppo"][2], "epochs": 2, "steps_per_epoch": 60, "num_test_tasks": 2}
        run_command("train", "ppo", "pend", "--tasks", "inferred", "--out", "run", *flags_of(options))
    write_json(Path("expected.json"), of_posterior(metaroll.Posterior.load("inferred/posterior")))


# -- replay ------------------------------------------------------------------------------------------------------------


def replay_buffers() -> dict[str, metaroll.ReplayBuffer]:
    """Empty buffers: of arrays, drawn by priorities, and of pictures and numbers."""
    box, action = Box(-1.0, 1.0, (3,), np.float32), Box(-2.0, 2.0, (1,), np.float32)
    return {
        "arrays": metaroll.ReplayBuffer(box, action, 20, num_slots=2),
        "priorities": metaroll.ReplayBuffer(box, action, 20, priority_exponent=0.6),
        "rooms": metaroll.ReplayBuffer(Rooms.observation_space, Rooms.action_space, 12),
    }


def write_replay() -> None:
    """Replay memories by themselves, fuller than full, and what is sampled from them."""
    buffers, found = replay_buffers(), {}
    policy = DummyPolicy(metaroll.EnvSpec.from_env(gymnasium.make("Pendulum-v1")))
    with metaroll.RolloutEngine("Pendulum-v1", policy) as engine:
        rollouts = engine.run([metaroll.RolloutPlan(index=i, seed=(0, 0, i), max_steps=13) for i in range(2)])
    for name in ("arrays", "priorities"):
        buffers[name].add(rollouts)
    buffers["priorities"].update_priorities(np.arange(4), np.array([0.1, 2.0, 0.5, 1.0]))
    buffers["rooms"].add([metaroll.rollout(Rooms(), lambda obs: 2, seed=1, sub_seed=i) for i in range(4)])
    for name, buffer in buffers.items():
        save_tree(Path(), name, buffer.state_dict())
        found[name] = sampled(buffer)
    paths = PathBuffer(12)
    for seed in range(4):
        draw = np.random.default_rng(seed)
        paths.add_path({"observation": draw.normal(size=(4 + seed, 2)), "reward": draw.normal(size=(4 + seed, 1))})
    save_tree(Path(), "paths", paths.state_dict())
    found["paths"] = {key: value.tolist() for key, value in paths.sample_transitions(5, 0).items()}
    write_json(Path("expected.json"), found)


def sampled(buffer: metaroll.ReplayBuffer) -> dict[str, Any]:
    """Rewards, discounts and actions of steps that are drawn, as JSON."""
    batch = buffer.sample(6, n_step=2, discount=0.9, generator=0)
    found = {"rewards": batch.rewards, "discounts": batch.discounts, "actions": batch.actions}
    return {"steps": len(buffer), **{name: np.asarray(value).tolist() for name, value in found.items()}}


PARTS: Mapping[str, tuple[str, Callable[[], None]]] = {
    "recordings": ("recordings", write_recordings),
    "robot-logs": ("robot logs", write_robot_logs),
    "posteriors": ("posteriors", write_posteriors),
    "inference": ("inference", write_inference),
    "replay": ("replay", write_replay),
}
