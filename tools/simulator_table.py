"""Writes docs/simulators.md: the simulators, with the units of their quantities.

Usage: python tools/simulator_table.py [--check]     (--check writes nothing; exit status 1 if the file is out of date)

Everything is read from the environments of metaroll.envs.sims.catalog, except units and short remarks, which are
written here. A contract test fails if the committed page is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.envs.sims.catalog import SIMS, SimEntry
from metaroll.envs.sims.model import SimModel
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.tasks import (
    AbsErr,
    DesStateTask,
    FinalRewTask,
    LowestHeightTask,
    NoTask,
    QuadrErr,
    RadiallySymmDesStateTask,
    RewardFunction,
    ScaledExpQuadrErr,
    SimTask,
)
from metaroll.tasks.domain_randomizer import RandomizationRange

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "simulators.md"

QUANTITIES = {
    "x": "m",
    "y": "m",
    "x_dot": "m/s",
    "y_dot": "m/s",
    "height": "m",
    "force": "N",
    "torque": "N m",
    "voltage": "V",
    "voltage_x": "V",
    "voltage_y": "V",
    "unused": "-",
    **dict.fromkeys(("theta", "alpha", "theta_x", "theta_y"), "rad"),
    **dict.fromkeys(("theta_dot", "alpha_dot", "theta_x_dot", "theta_y_dot"), "rad/s"),
    **{f"{axis}_{draw}": "-" for axis in "xy" for draw in range(1, 5)},
}
"""Label of a state, observation or action -> unit; sines and cosines have none."""

PARAMETERS = {
    "gravity_const": "m/s2",
    "mass": "kg",
    "stiffness": "N/m",
    "damping": "N s/m",
    "pole_mass": "kg",
    "pole_length": "m",
    "pole_damping": "N m s/rad",
    "torque_thold": "N m",
    "ball_mass": "kg",
    "ball_radius": "m",
    "beam_mass": "kg",
    "beam_length": "m",
    "beam_thickness": "m",
    "friction_coeff": "N s/m",
    "ang_offset": "rad",
    "cart_mass": "kg",
    "rail_length": "m",
    "motor_efficiency": "-",
    "gear_efficiency": "-",
    "gear_ratio": "-",
    "motor_inertia": "kg m2",
    "load_inertia": "kg m2",
    "pinion_radius": "m",
    "motor_resistance": "Ohm",
    "motor_back_emf": "V s/rad",
    "cart_friction_coeff": "-",
    "mass_rot_pole": "kg",
    "length_rot_pole": "m",
    "damping_rot_pole": "N m s/rad",
    "mass_pend_pole": "kg",
    "length_pend_pole": "m",
    "damping_pend_pole": "N m s/rad",
    "plate_length": "m",
    "arm_radius": "m",
    "ball_damping": "N s/m",
    "elongation": "m",
    "planet": "-",
    **{f"voltage_thold_{side}": "V" for side in ("neg", "pos", "x_neg", "x_pos", "y_neg", "y_pos")},
    **dict.fromkeys(("offset_th_x", "offset_th_y"), "rad"),
    **dict.fromkeys(("m_1", "m_2", "s_1", "s_2", "rho"), "-"),
}
"""Domain parameter -> unit."""

UNITS_OF = {
    ("catapult", "theta"): "m",
    ("cart-pole", "combined_damping"): "N s/m",
    ("ball balancer", "combined_damping"): "N m s/rad",
}
"""Units of names that mean something else in one system: (system, name) -> unit."""

STARTS = {
    ("ball on beam", "x"): "+-(0.7 to 0.8), at either end",
    ("ball balancer", "x"): "on a ring",
    ("ball balancer", "y"): "on a ring",
}
"""Initial values of the state that a box does not describe: (system, label) -> text."""

ANGLES = {
    "pendulum": "`theta` is 0 when the pole hangs and pi when it is upright; a positive torque increases it.",
    "cart-pole": (
        "`theta` is 0 when the pole hangs and pi when it is upright; as it increases from 0, the tip moves to "
        "positive `x`."
    ),
    "Qube": (
        "`theta` of the arm is 0 in the middle between its stops, and a positive voltage increases it. `alpha` is 0 "
        "when the pendulum hangs and pi when it is upright; as it increases from 0, the tip moves in the direction in "
        "which the end of the arm moves as `theta` increases."
    ),
    "ball on beam": "`alpha` is 0 when the beam is level; as it increases, the end at positive `x` rises.",
    "ball balancer": (
        "`theta_x` and `theta_y` are 0 when the plate is level; as one increases, the ball rolls to positive `x` or "
        "`y`."
    ),
}
"""Zero points and directions of angles."""

NOTES = {
    "ball balancer": (
        "The ball starts 0.75 to 0.8 half plates away from the middle, in any direction. `init_state` may also be "
        "`(distance, direction, x_dot, y_dot)`."
    ),
    "two-dimensional Gaussian": (
        "The initial state is four draws from the Gaussian with mean (m_1, m_2) and covariance [[a^2, r a b], "
        "[r a b, b^2]], a = s_1^2, b = s_2^2, r = tanh(rho); the step keeps them."
    ),
}
"""Notes on systems besides the tables."""

REMARKS = {
    ("pendulum", "pole_length"): "the whole rod",
    ("ball on beam", "ball_radius"): "has no effect: a rolling ball has the inertia of 7/5 of its mass",
    ("cart-pole", "pole_length"): "half of the pole",
    ("cart-pole", "cart_friction_coeff"): "not with simple_dynamics",
    ("ball balancer", "ball_damping"): "not with simple_dynamics",
}
"""Remarks on domain parameters: (system, name) -> text."""

OPTIONS = {
    ("cart-pole", "long_pole"): "the pole is 64.1 cm long, otherwise 33.65 cm",
    ("cart-pole", "simple_dynamics"): "without the friction of the cart and the dead zone of the voltage",
    ("cart-pole", "wild_init"): "the pole starts at any angle, otherwise within 2 deg of hanging",
    ("ball balancer", "simple_dynamics"): "without dead zones, friction, and motion of the plate except its slope",
    ("catapult", "planets"): (
        "the only constant is `planet`, 0 for Mars and 1 for Venus, which differ in gravity and in the spring; by "
        "default it is Venus with probability 0.7"
    ),
}
"""Meaning of the options of constructors: (system, option) -> text."""

INTRODUCTION = """# Simulators

<!-- written by tools/simulator_table.py; do not edit -->

Ten environments of control and robotics, written as formulas of arrays: a single one is a Gymnasium environment,
thousands run at once in NumPy or PyTorch, each with its own constants. How to use and randomize them:
[sim_to_real.md](sim_to_real.md).

```python
import gymnasium

import metaroll

# Or metaroll.sims.QCartPoleSwingUpEnv(); "qcp-su" on the command line.
env = gymnasium.make("metaroll/QCartPoleSwingUp-v0")
obs, info = env.reset(seed=0, options={"domain_param": {"pole_mass": 0.2}, "init_state": [0.0, 0.1, 0.0, 0.0]})
```

- **Bounds** hold for nominal constants; a note names the constants on which they depend. Actions are clipped to their
  bounds (`info["act_applied"]` is the clipped action). A state outside its bounds is a failure: the episode is
  `terminated`.
- **Rewards** depend on the state before the step and on the action before clipping; `e` is the desired minus the
  current state. A final reward is added once, at the last step.
- **Constants** (domain parameters) must lie in the allowed range. *By default* is how `default_randomizer` varies
  them: normal with this standard deviation, or uniform with this half width, relative to the nominal value if given
  in per cent. Draws are clipped to the given limits. Voltages from `voltage_thold_neg` to `voltage_thold_pos` do not
  turn the motor.
- Time step, horizon, task, constants and initial states can be set: `PendulumEnv(dt=0.01, max_steps=200,
  domain_param={"pole_mass": 1.2}, init_space=[0.1, 0.2])`.
- Constants that are set (`env.domain_param = {...}`, the options of a reset, `rollout(..., reset_kwargs=...)`) stay
  set, and setting some leaves the others unchanged. `env.get_nominal_domain_param()` returns the nominal ones."""


def unit_of(system: str, name: str) -> str:
    """Unit of a label or domain parameter of a system."""
    if name.startswith(("sin_", "cos_")):
        return "-"
    own = UNITS_OF.get((system, name))
    return own or PARAMETERS.get(name) or QUANTITIES[name]


def number(value: float) -> str:
    """A number with up to five significant digits."""
    return "inf" if math.isinf(value) else f"{value:.5g}".replace("e-0", "e-").replace("e+0", "e")


def bounds_text(low: float, high: float, unit: str) -> str:
    """An interval; that of an angle in degrees, too."""
    if math.isinf(high):
        return "any"
    if low == high:
        return number(low)
    text = f"+-{number(high)}" if low == -high else f"{number(low)} to {number(high)}"
    if unit.startswith("rad"):
        degrees = [number(math.degrees(value)) for value in (low, high)]
        text += f" (+-{degrees[1]} deg)" if low == -high else f" ({degrees[0]} to {degrees[1]} deg)"
    return text


def allowed_text(model: SimModel, name: str) -> str:
    """The allowed range of a domain parameter; a lower limit of 0 is excluded."""
    low, high = model.params[name].allowed
    limits = []
    if math.isfinite(low):
        limits.append("> 0" if low == 0 else f">= {number(0.0 if low == -math.ulp(0.0) else low)}")
    if math.isfinite(high):
        limits.append(f"<= {number(high)}")
    for lower, upper in model.ordered:
        limits += [f"<= `{upper}`"] if name == lower else [f">= `{lower}`"] if name == upper else []
    return ", ".join(limits) or "any"


def spread_text(spread: Any, unit: str) -> str:
    """How a domain parameter varies by default."""
    if spread is None:
        return "fixed"
    if not isinstance(spread, RandomizationRange):
        raise TypeError(f"no text for {spread!r}")
    size = f"{number(100 * spread.fraction)} %"
    if spread.absolute:
        size = number(spread.fraction) + (f" ({number(math.degrees(spread.fraction))} deg)" if unit == "rad" else "")
    cuts = [
        f"{sign} {number(limit)}"
        for sign, limit in ((">=", spread.clip_lo), ("<=", spread.clip_up))
        if math.isfinite(limit)
    ]
    return f"{spread.kind} {size}" + (f", {', '.join(cuts)}" if cuts else "")


def reward_text(task: SimTask, state_labels: Sequence[str], action_labels: Sequence[str]) -> str:
    """The reward of a step, and the final reward, in one line."""
    if isinstance(task, LowestHeightTask):
        return "`-|height|` after the step, which succeeds and ends the episode."
    if isinstance(task, NoTask):
        return "none; the only step ends the episode."
    if isinstance(task, FinalRewTask):
        return f"{reward_text(task.task, state_labels, action_labels)[:-1]}; {_final_text(task)}."
    if not isinstance(task, DesStateTask | RadiallySymmDesStateTask):
        raise TypeError(f"no text for {type(task).__name__}")
    desired = ", ".join("pi" if value == math.pi else number(value) for value in task.state_des)
    angles = [state_labels[i] for i in task.idcs] if isinstance(task, RadiallySymmDesStateTask) else []
    least = number(task.reward.min_reward) if isinstance(task.reward, ScaledExpQuadrErr) else ""
    scaled = f", c such that it is {least} at the bounds" if least else ""
    turned = f", {' and '.join(angles)} by the shorter way around" if angles else ""
    return (
        f"`{_formula(task.reward, state_labels, action_labels)}`{scaled}, e from the desired state ({desired}){turned}."
    )


def _formula(reward: RewardFunction, state_labels: Sequence[str], action_labels: Sequence[str]) -> str:
    names = [*(f"e_{label}" for label in state_labels), *action_labels]
    weights = (*reward.state_weights, *reward.action_weights)
    pattern = "|{}|" if isinstance(reward, AbsErr) else "{}^2"
    terms = [
        ("" if weight == 1 else f"{number(weight)} ") + pattern.format(name)
        for weight, name in zip(weights, names, strict=True)
        if weight
    ]
    total = " + ".join(terms)
    if isinstance(reward, ScaledExpQuadrErr):
        return f"exp(-c ({total}))"
    return f"-({total})" if isinstance(reward, AbsErr | QuadrErr) else f"exp(-({total}))"


def _final_text(task: FinalRewTask) -> str:
    size = "the number of remaining steps" if task.time_dependent else number(task.factor)
    if task.state_dependent:
        size += " times the absolute reward of the last state"
    return f"after a failure -{size}" if not task.time_dependent else f"after a failure minus {size}"


def bounding_parameters(env: SimEnv, bounds: Callable[[SimEnv], Iterable[np.ndarray]]) -> list[str]:
    """Domain parameters on which some bounds depend: a change of them changes the bounds."""
    before = list(bounds(env))
    names = []
    for name, value in env.get_nominal_domain_param().items():
        small = -1e-3 if name.endswith("_neg") else 1e-3  # a negative threshold must stay below the positive one
        env.domain_param = {name: 0.9 * value if value else small}
        if not all(np.array_equal(old, new) for old, new in zip(before, bounds(env), strict=True)):
            names.append(name)
        env.domain_param = {name: value}
    return names


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def quantity_rows(env: SimEnv) -> list[list[str]]:
    """A row per entry of state, observation (if it is not part of the state) and action."""
    model, spec = env.model, env.env_spec
    starts = initial_texts(env)
    rows = []
    for i, label in enumerate(model.state_labels):
        kind = "state, observation" if label in model.observation_labels else "state"
        rows.append([kind, label, *_unit_and_bounds(env, label, spec.state_space, i), starts[i]])
    for i, label in enumerate(model.observation_labels):
        if label not in model.state_labels:
            rows.append(["observation", label, *_unit_and_bounds(env, label, spec.observation_space, i), ""])
    for i, label in enumerate(model.action_labels):
        rows.append(["action", label, *_unit_and_bounds(env, label, spec.action_space, i), ""])
    return [[kind, f"`{label}`", *rest] for kind, label, *rest in rows]


def _unit_and_bounds(env: SimEnv, label: str, space: Any, position: int) -> list[str]:
    unit = unit_of(env.model.name, label)
    return [unit, bounds_text(float(space.low[position]), float(space.high[position]), unit)]


def initial_texts(env: SimEnv) -> list[str]:
    """The initial values of each entry of the state."""
    model, constants = env.model, env.config.constants()
    ends = [model.state_from_init(tuple(side), constants, np) for side in env.config.initial_bounds()]
    texts = []
    for label, low, high in zip(model.state_labels, *ends, strict=True):
        text = bounds_text(float(low), float(high), unit_of(model.name, label))
        texts.append(STARTS.get((model.name, label), "drawn" if text == "any" else text))
    return texts


def parameter_rows(env: SimEnv) -> list[list[str]]:
    """A row per domain parameter."""
    model = env.model
    return [
        [
            f"`{name}`" + (f" ({REMARKS[model.name, name]})" if (model.name, name) in REMARKS else ""),
            unit_of(model.name, name),
            number(param.nominal),
            allowed_text(model, name),
            spread_text(param.varies, unit_of(model.name, name)),
        ]
        for name, param in model.params.items()
    ]


def section(entry: SimEntry) -> list[str]:
    """The lines about one simulator."""
    constructor: Any = entry.env_type
    env: SimEnv = constructor()
    model = env.model
    seconds = "" if env.max_steps == 1 else f" of {number(env.dt)} s, {number(env.dt * env.max_steps)} s"
    steps = "1 step" if env.max_steps == 1 else f"{env.max_steps} steps"
    lines = [
        f"## {entry.description[0].upper()}{entry.description[1:]}: `{entry.short_name}`",
        "",
        f"`{entry.id}`, `{constructor.__name__}`; {steps}{seconds}.",
        "",
        *_option_lines(constructor, model.name),
        *_table(["", "entry", "unit", "bounds", "start"], quantity_rows(env)),
        "",
    ]
    names = bounding_parameters(
        env, lambda env: (env.state_space.high, env.act_space.high, *env.config.initial_bounds())
    )
    notes = [f"The bounds depend on {' and '.join(f'`{name}`' for name in names)}."] if names else []
    notes += [text[model.name] for text in (ANGLES, NOTES) if model.name in text]
    if notes:
        lines += [" ".join(notes), ""]
    lines += [f"Reward: {reward_text(env.task, model.state_labels, model.action_labels)}", ""]
    lines += _table(["constant", "unit", "nominal", "allowed", "by default"], parameter_rows(env))
    return lines


def _option_lines(constructor: type[SimEnv], system: str) -> list[str]:
    own = [
        f"- `{name}={parameter.default!r}`: {OPTIONS[system, name]}."
        for name, parameter in inspect.signature(constructor).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return [*own, ""] if own else []


def to_markdown() -> str:
    """The text of docs/simulators.md."""
    lines = [INTRODUCTION]
    for entry in SIMS:
        lines += ["", *section(entry)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description="Write docs/simulators.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is out of date")
    check = parser.parse_args(arguments).check
    text = to_markdown()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if check:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is out of date: run python tools/simulator_table.py\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
