"""Laboratory systems: Lagrangians, energy, symmetry, array libraries (specs/sampling.md 17.3-17.7, 23)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from metaroll.envs.sims.ball_balancer import BallBalancerModel
from metaroll.envs.sims.ball_on_beam import BallOnBeamModel
from metaroll.envs.sims.cart_pole import CartPoleModel
from metaroll.envs.sims.catapult import CatapultModel
from metaroll.envs.sims.gaussian_2d import Gaussian2DModel
from metaroll.envs.sims.model import SCALARS, SimModel
from metaroll.envs.sims.qube import QubeModel

MODELS: list[SimModel] = [
    BallOnBeamModel(),
    CartPoleModel(swing_up=True),
    CartPoleModel(swing_up=False),
    QubeModel(),
    BallBalancerModel(),
    BallBalancerModel(simple_dynamics=True),
    CatapultModel(),
    CatapultModel(planets=True),
    Gaussian2DModel(),
]
IDS = [f"{index}-{model.name}" for index, model in enumerate(MODELS)]

Lagrangian = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def drawn_params(model: SimModel, generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Nominal values, 10 % off, ``(count,)`` each."""
    return {name: value * generator.uniform(0.9, 1.1, count) for name, value in model.nominal.items()}


def run(model: SimModel, state: Any, constants: Any, num_steps: int, dt: float, action: Any = None) -> list[Any]:
    """States from ``state`` on, without friction of the motor unless ``action`` is given."""
    memory = model.initial_memory(state, constants, np)
    action = tuple(0.0 * state[0] for _ in model.action_labels) if action is None else action
    states = [state]
    for _ in range(num_steps):
        state, memory = model.step(state, memory, action, constants, dt, np)
        states.append(state)
    return states


def lagrangian_acceleration(lagrangian: Lagrangian, q: np.ndarray, v: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Accelerations (n,) that d/dt dL/dv - dL/dq = force demands; derivatives by autograd."""
    q_, v_ = torch.tensor(q), torch.tensor(v)
    mass = hessian(lambda speed: lagrangian(q_, speed), v_)
    slope = jacobian(lambda place: lagrangian(place, v_), q_)

    def momentum(place: torch.Tensor) -> torch.Tensor:
        return jacobian(lambda speed: lagrangian(place, speed), v_, create_graph=True)

    drift = jacobian(momentum, q_) @ v_
    return torch.linalg.solve(mass, torch.tensor(force) + slope - drift).numpy()


# -- equations of motion --------------------------------------------------------------------------------------------


def test_ball_on_beam_follows_from_its_lagrangian():
    """specs/sampling.md 17.3."""
    model, generator = BallOnBeamModel(), np.random.default_rng(0)
    for _ in range(20):
        params = {name: float(value[0]) for name, value in drawn_params(model, generator, 1).items()}
        params["ang_offset"] = 0.01
        mass, inertia = (
            params["ball_mass"],
            params["beam_mass"] / 12 * (params["beam_length"] ** 2 + params["beam_thickness"] ** 2),
        )
        q, v, torque = generator.normal(size=2), generator.normal(size=2), generator.normal()

        def lagrangian(q: torch.Tensor, v: torch.Tensor, mass=mass, inertia=inertia, params=params) -> torch.Tensor:
            angle = q[1] + params["ang_offset"]
            velocity = torch.stack(
                [
                    v[0] * torch.cos(angle) - q[0] * v[1] * torch.sin(angle),
                    v[0] * torch.sin(angle) + q[0] * v[1] * torch.cos(angle),
                ]
            )
            rolling = 0.5 * (0.4 * mass * params["ball_radius"] ** 2) * (v[0] / params["ball_radius"]) ** 2
            height = q[0] * torch.sin(angle)
            return (
                0.5 * mass * velocity @ velocity
                + rolling
                + 0.5 * inertia * v[1] ** 2
                - mass * params["gravity_const"] * height
            )

        expected = lagrangian_acceleration(lagrangian, q, v, np.array([-params["friction_coeff"] * v[0], torque]))
        following, _ = model.step(
            (*q.tolist(), *v.tolist()), (), (torque,), model.constants(params, SCALARS), 1.0, SCALARS
        )
        np.testing.assert_allclose(np.array(following[2:]) - v, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("long_pole", [False, True])
def test_cart_pole_follows_from_its_lagrangian(long_pole: bool):
    """specs/sampling.md 17.4: the centrifugal sign is +, the motor's efficiency acts on the voltage alone."""
    model, generator = CartPoleModel(long_pole=long_pole), np.random.default_rng(1)
    for _ in range(20):
        p = {name: float(value[0]) for name, value in drawn_params(model, generator, 1).items()}
        mass, half = p["pole_mass"], p["pole_length"]
        q, v, voltage, previous = generator.normal(size=2), generator.normal(size=2), 3.0 * generator.normal(), 2.0
        rotor = p["gear_efficiency"] * p["gear_ratio"] ** 2 * p["motor_inertia"] / p["pinion_radius"] ** 2

        def lagrangian(q: torch.Tensor, v: torch.Tensor, p=p, mass=mass, half=half, rotor=rotor) -> torch.Tensor:
            velocity = torch.stack([v[0] + half * torch.cos(q[1]) * v[1], half * torch.sin(q[1]) * v[1]])
            turning = 0.5 * (mass * (2 * half) ** 2 / 12) * v[1] ** 2
            kinetic = 0.5 * (p["cart_mass"] + rotor) * v[0] ** 2 + 0.5 * mass * velocity @ velocity + turning
            return kinetic + mass * p["gravity_const"] * half * torch.cos(q[1])

        current = (
            p["motor_efficiency"] * voltage - p["gear_ratio"] * p["motor_back_emf"] * v[0] / p["pinion_radius"]
        ) / p["motor_resistance"]
        motor = p["gear_efficiency"] * p["gear_ratio"] * p["motor_back_emf"] * current / p["pinion_radius"]
        # what carries the pole, which is lifted with the vertical acceleration of its middle
        lift = half * (math.sin(q[1]) * previous + math.cos(q[1]) * v[1] ** 2)
        normal = (p["cart_mass"] + mass) * p["gravity_const"] + mass * lift
        assert normal > 0
        friction = p["cart_friction_coeff"] * normal * math.copysign(1.0, v[0])
        force = np.array([motor - friction - p["combined_damping"] * v[0], -p["pole_damping"] * v[1]])
        expected = lagrangian_acceleration(lagrangian, q, v, force)
        constants = model.constants(p, SCALARS)
        following, memory = model.step((*q.tolist(), *v.tolist()), (previous,), (voltage,), constants, 1.0, SCALARS)
        np.testing.assert_allclose(np.array(following[2:]) - v, expected, rtol=1e-8, atol=1e-8)
        assert memory[0] == pytest.approx(expected[1])


def test_qube_follows_from_its_lagrangian():
    """specs/sampling.md 17.5, 23: the pendulum as a point mass at its middle, with its own inertia for its swing."""
    model, generator = QubeModel(), np.random.default_rng(2)
    for _ in range(20):
        p = {name: float(value[0]) for name, value in drawn_params(model, generator, 1).items()}
        q, v, voltage = generator.normal(size=2), 3.0 * generator.normal(size=2), generator.normal()
        arm, half, mass = p["length_rot_pole"], p["length_pend_pole"] / 2, p["mass_pend_pole"]

        def lagrangian(q: torch.Tensor, v: torch.Tensor, p=p, arm=arm, half=half, mass=mass) -> torch.Tensor:
            radial = torch.stack([torch.cos(q[0]), torch.sin(q[0])])
            sideways = torch.stack([-torch.sin(q[0]), torch.cos(q[0])])
            velocity = arm * v[0] * sideways + half * (
                torch.cos(q[1]) * v[1] * sideways - torch.sin(q[1]) * v[0] * radial
            )
            upward = half * torch.sin(q[1]) * v[1]
            turning = p["mass_rot_pole"] * arm**2 / 12 * v[0] ** 2 + mass * (2 * half) ** 2 / 12 * v[1] ** 2
            kinetic = 0.5 * (mass * (velocity @ velocity + upward**2) + turning)
            return kinetic + mass * p["gravity_const"] * half * torch.cos(q[1])

        torque = p["motor_back_emf"] * (voltage - p["motor_back_emf"] * v[0]) / p["motor_resistance"]
        force = np.array([torque - p["damping_rot_pole"] * v[0], -p["damping_pend_pole"] * v[1]])
        expected = lagrangian_acceleration(lagrangian, q, v, force)
        constants = model.constants(p, SCALARS)

        def slope(dt: float, q=q, v=v, voltage=voltage, constants=constants) -> np.ndarray:
            ahead, _ = model.step((*q.tolist(), *v.tolist()), (), (voltage,), constants, dt, SCALARS)
            back, _ = model.step((*q.tolist(), *v.tolist()), (), (voltage,), constants, -dt, SCALARS)
            return (np.array(ahead[2:]) - np.array(back[2:])) / (2 * dt)

        acceleration = (4 * slope(5e-5) - slope(1e-4)) / 3  # the differences' error of second order falls out
        np.testing.assert_allclose(acceleration, expected, rtol=1e-8, atol=1e-8)


def test_ball_balancer_follows_from_the_lagrangian_of_a_ball_on_a_tilting_plate():
    """specs/sampling.md 17.6, 23: either axis."""
    model, generator = BallBalancerModel(), np.random.default_rng(3)
    for axis, name in enumerate("xy"):
        p = {name: float(value[0]) for name, value in drawn_params(model, generator, 1).items()}
        p[f"offset_th_{name}"] = 0.05
        theta, place, theta_dot, place_dot = 0.3, 0.05, 4.0, -0.1
        state, action = [0.0] * 8, [0.0, 0.0]
        state[axis], state[2 + axis], state[4 + axis], state[6 + axis] = theta, place, theta_dot, place_dot
        action[axis] = 2.0
        geared = (
            p["gear_efficiency"] * p["gear_ratio"] * p["motor_efficiency"] * p["motor_back_emf"] / p["motor_resistance"]
        )
        drag = geared * p["gear_ratio"] * p["motor_back_emf"] + p["combined_damping"]
        inertia = p["gear_efficiency"] * p["gear_ratio"] ** 2 * p["motor_inertia"] + p["load_inertia"]
        theta_acc = (geared * 2.0 - drag * theta_dot) / inertia

        t = torch.zeros((), dtype=torch.float64, requires_grad=True)
        servo = theta + 0.05 + theta_dot * t + 0.5 * theta_acc * t**2
        angle = torch.asin(2 * p["arm_radius"] / p["plate_length"] * torch.sin(servo))
        (angle_dot,) = torch.autograd.grad(angle, t, create_graph=True)
        (angle_acc,) = torch.autograd.grad(angle_dot, t)
        mass, radius = p["ball_mass"], p["ball_radius"]
        spin = 0.4 * mass * radius**2
        # L = m (x'^2 + x^2 a'^2) / 2 + J (a' + x' / r)^2 / 2 + m g x sin a, with a(t) given
        force = (
            mass * place * angle_dot**2 + mass * p["gravity_const"] * torch.sin(angle) - p["ball_damping"] * place_dot
        )
        expected = ((force - spin / radius * angle_acc) / (mass + spin / radius**2)).item()
        constants = model.constants(p, SCALARS)
        memory = [0.0, 0.0]
        memory[axis] = angle.item()
        following, _ = model.step(tuple(state), tuple(memory), tuple(action), constants, 1.0, SCALARS)
        assert following[4 + axis] - theta_dot == pytest.approx(theta_acc, rel=1e-10)
        assert following[6 + axis] - place_dot == pytest.approx(expected, rel=1e-8)


def test_constants_of_the_nominal_qube():
    """specs/sampling.md 17.5: golden numbers."""
    constants = QubeModel().constants(QubeModel().nominal, SCALARS)
    expected = (2.30598e-4, 9.9846e-5, 1.3158e-4, 1.33128e-4, 1.518588e-2)
    assert [constants[f"c{i}"] for i in range(5)] == pytest.approx(expected, rel=1e-5)


def test_constants_of_the_cart_pole_worked_by_hand():
    """0.38 + 0.9 * 3.71^2 * 3.9e-7 / 0.00635^2 = 0.49982 kg; 0.9 * 0.9 * 3.71 * 0.00767 / (2.6 * 0.00635) N/V."""
    constants = CartPoleModel().constants(CartPoleModel().nominal, SCALARS)
    assert constants["rail_mass"] == pytest.approx(0.499813, rel=1e-5)
    assert constants["force_per_volt"] == pytest.approx(1.396081, rel=1e-5)


def test_the_long_pole_is_nominal_where_it_is_chosen():
    """specs/sampling.md 17.4 (d)."""
    assert CartPoleModel(swing_up=False).nominal["pole_length"] == pytest.approx(0.3205)
    assert CartPoleModel(swing_up=False).nominal["pole_mass"] == 0.23
    assert CartPoleModel(swing_up=True).nominal["pole_length"] == pytest.approx(0.16825)
    assert CartPoleModel(swing_up=True, long_pole=True).nominal["pole_mass"] == 0.23


# -- energy ---------------------------------------------------------------------------------------------------------

WITHOUT_FRICTION = {
    "ball on beam": {"friction_coeff": 0.0},
    "cart-pole": {"pole_damping": 0.0, "combined_damping": 0.0, "motor_back_emf": 1e-12, "cart_friction_coeff": 0.0},
    "Qube": {"damping_rot_pole": 0.0, "damping_pend_pole": 0.0, "motor_back_emf": 1e-12},
    "ball balancer": {"ball_damping": 0.0, "offset_th_x": 0.2, "offset_th_y": -0.1},
}
START = {
    "ball on beam": (0.3, 0.1, 0.1, -0.2),
    "cart-pole": (0.0, 2.0, 0.3, 0.0),
    "Qube": (0.0, 2.0, 0.0, 0.0),
    "ball balancer": (0.0, 0.0, 0.05, 0.02, 0.0, 0.0, 0.1, -0.2),
}


SECONDS = {"ball on beam": 0.6, "cart-pole": 2.0, "Qube": 2.0, "ball balancer": 0.5}


def energies(model: SimModel, dt: float) -> np.ndarray:
    """Energy after each step of a run without friction, shape (T + 1,)."""
    constants = model.constants({**model.nominal, **WITHOUT_FRICTION[model.name]}, np)
    start = tuple(np.array([value]) for value in START[model.name])
    states = run(model, start, constants, round(SECONDS[model.name] / dt), dt)
    return np.array([model.energy(state, constants, np)[0] for state in states])


@pytest.mark.parametrize("model", [BallOnBeamModel(), CartPoleModel(), BallBalancerModel()], ids=lambda m: m.name)
def test_energy_is_conserved_without_friction(model: SimModel):
    """specs/sampling.md 22 (9): semi-implicit Euler errs in proportion to the step, and the physics itself not at all.

    Half the step halves the error, and extrapolated to no step at all the energy stays what it was.
    """
    coarse, fine = energies(model, 1e-3), energies(model, 5e-4)[::2]
    assert np.ptp(coarse) < 0.02 * abs(coarse[0])
    assert np.abs(2 * fine - coarse - coarse[0]).max() < 0.01 * np.ptp(coarse)  # an error of second order remains
    assert np.ptp(fine) == pytest.approx(0.5 * np.ptp(coarse), rel=0.02)


def test_energy_of_the_qube_is_conserved_by_runge_kutta():
    """specs/sampling.md 17.5 (d), 21 (26): 38 % with accelerations of one state only; of fourth order here."""
    ranges = {dt: np.ptp(energies(QubeModel(), dt)) / energies(QubeModel(), dt)[0] for dt in (0.004, 0.002)}
    assert ranges[0.004] < 7e-5
    assert ranges[0.002] < 2.5e-6
    assert ranges[0.004] / ranges[0.002] > 2**4


# -- the ball balancer's axes ----------------------------------------------------------------------------------------


def swapped(columns: Any) -> Any:
    return tuple(column for i in range(0, len(columns), 2) for column in (columns[i + 1], columns[i]))


def symmetric_balancer() -> tuple[BallBalancerModel, dict[str, float]]:
    model = BallBalancerModel()
    return model, {**model.nominal, "voltage_thold_y_neg": -0.10, "offset_th_x": 0.03, "offset_th_y": 0.03}


def test_swapping_the_axes_of_the_ball_balancer_swaps_the_motion():
    """specs/sampling.md 23: either axis obeys the same equations."""
    model, params = symmetric_balancer()
    constants = model.constants(params, np)
    generator = np.random.default_rng(4)
    state = tuple(np.array([value]) for value in 0.1 * generator.normal(size=8))
    action = (np.array([2.0]), np.array([-1.0]))
    one = run(model, state, constants, 200, 0.01, action)[-1]
    other = run(model, swapped(state), constants, 200, 0.01, swapped(action))[-1]
    np.testing.assert_array_equal(swapped(one), other)


def test_mirroring_an_axis_of_the_ball_balancer_mirrors_the_motion():
    model = BallBalancerModel()
    thresholds = {"voltage_thold_x_pos": 0.2, "voltage_thold_x_neg": -0.2}
    constants = model.constants({**model.nominal, **thresholds}, np)
    state = tuple(np.array([value]) for value in (0.0, 0.2, 0.05, -0.03, 1.0, 2.0, 0.1, 0.2))
    sign = (-1, 1, -1, 1, -1, 1, -1, 1)
    one = run(model, state, constants, 200, 0.01, (np.array([2.0]), np.array([-1.0])))[-1]
    mirrored = tuple(s * column for s, column in zip(sign, state, strict=True))
    other = run(model, mirrored, constants, 200, 0.01, (np.array([-2.0]), np.array([-1.0])))[-1]
    np.testing.assert_allclose(other, np.array(sign)[:, None] * np.array(one), rtol=1e-12, atol=1e-15)


def test_plate_angle_is_where_rod_and_plate_meet():
    """specs/sampling.md 17.6: level at 0; else its edge is 10 cm from the arm's tip."""
    model = BallBalancerModel()
    constants = model.constants(model.nominal, np)
    theta = np.linspace(-0.7, 0.7, 15)
    zero = np.zeros_like(theta)
    alpha, beta = model.initial_memory((theta, theta, *[zero] * 6), constants, np)
    np.testing.assert_array_equal(alpha, beta)
    assert alpha[7] == pytest.approx(0.0, abs=1e-15)
    assert np.all(np.diff(alpha) > 0)
    arm, half = 0.0254, 0.1375
    edge = np.stack([arm + half - half * np.cos(alpha), 0.1 + half * np.sin(alpha)])
    tip = arm * np.stack([np.cos(theta), np.sin(theta)])
    np.testing.assert_allclose(np.linalg.norm(edge - tip, axis=0), 0.10, rtol=1e-12)


def test_dead_zone_swallows_small_voltages():
    """specs/sampling.md 17.6: between -0.1 and 0.28 V along x nothing moves, and the caller's actions stay."""
    model = BallBalancerModel()
    constants = model.constants(model.nominal, np)
    state = tuple(np.zeros(3) for _ in range(8))
    action = (np.array([0.28, 0.29, -0.1]), np.array([0.0, 0.0, -0.08]))
    kept = [voltage.copy() for voltage in action]
    following = run(model, state, constants, 1, 0.01, action)[-1]
    assert (following[4] == 0).tolist() == [True, False, True]
    assert (following[5] == 0).tolist() == [True, True, False]
    np.testing.assert_array_equal(action, kept)


# -- one-step problems -----------------------------------------------------------------------------------------------


def test_catapult_throws_as_high_as_the_spring_allows():
    """specs/sampling.md 17.7: 2000 / (2 * 70 * 9.81) * (3 - 1)^2 = 5.8250 m."""
    model = CatapultModel()
    (height,), _ = model.step((0.0,), (), (3.0,), model.constants(model.nominal, SCALARS), 1.0, SCALARS)
    assert height == pytest.approx(5.824960, rel=1e-6)


def test_best_stretch_for_both_planets():
    """specs/sampling.md 17.7: (x_M c_M + x_V c_V) / (c_M + c_V), c_M = n_M k_M g_V, c_V = n_V k_V g_M."""
    model = CatapultModel(planets=True)
    planet = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    constants = model.constants({"planet": planet}, np)
    c_mars, c_venus = 3 * 1e3 * 8.87, 7 * 3e3 * 3.71
    best = (0.5 * c_mars + 1.5 * c_venus) / (c_mars + c_venus)
    stretches = np.array([best - 1e-3, best, best + 1e-3])
    mean = [model.step((0 * planet,), (), (0 * planet + x,), constants, 1.0, np)[0][0].mean() for x in stretches]
    assert mean[1] < min(mean[0], mean[2])


def test_draws_of_the_gaussian_have_its_mean_and_covariance():
    """specs/sampling.md 17.7: standard deviations 1 and 0.81, correlation tanh(0.6) = 0.537."""
    model = Gaussian2DModel()
    uniforms = tuple(np.random.default_rng(5).random((8, 50_000)))
    state = model.initial_state(uniforms, model.constants(model.nominal, np), np)
    draws = np.concatenate([np.stack(state[i : i + 2]) for i in range(0, 8, 2)], axis=1)  # (2, 200 000)
    np.testing.assert_allclose(draws.mean(axis=1), [0.7, -1.5], atol=0.01)
    mixed = math.tanh(0.6) * 0.81
    np.testing.assert_allclose(np.cov(draws), [[1.0, mixed], [mixed, 0.81**2]], atol=0.02)
    edge = model.initial_state((np.float32([1 - 2**-24]),) * 8, model.constants(model.nominal, np), np)
    assert np.isfinite(edge).all()


# -- the same on every array library -----------------------------------------------------------------------------------


def rollout_of(model: SimModel, columns: Callable[[np.ndarray], Any], xp: Any, row: int | None = None) -> np.ndarray:
    """States and observations of 20 random steps, (20, S + O, N) or, for one row, (20, S + O)."""
    generator = np.random.default_rng(6)
    params = drawn_params(model, generator, 5)
    uniforms = generator.random((model.num_uniforms, 5))
    noise = generator.random((20, len(model.action_labels), 5))

    def pick(values: np.ndarray) -> Any:
        return columns(values) if row is None else float(values[row])

    constants = model.constants({name: pick(values) for name, values in params.items()}, xp)
    state = model.initial_state(tuple(pick(u) for u in uniforms), constants, xp)
    memory = model.initial_memory(state, constants, xp)
    low, high = model.action_bounds(constants)
    found = []
    for step in range(20):
        action = tuple(lo + (hi - lo) * pick(u) for lo, hi, u in zip(low, high, noise[step], strict=True))
        state, memory = model.step(state, memory, action, constants, model.dt, xp)
        found.append([*state, *model.observe(state, xp), *memory])
    return np.array([[np.asarray(value) for value in step] for step in found])


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_numpy_torch_and_plain_numbers_agree(model: SimModel):
    """specs/sampling.md 22 (9): to 1e-12 of the largest value."""
    expected = rollout_of(model, lambda values: values, np)
    assert np.isfinite(expected).all()
    atol = 1e-12 * max(1.0, np.abs(expected).max())
    by_torch = rollout_of(model, torch.tensor, array_api_compat.array_namespace(torch.zeros(1)))
    np.testing.assert_allclose(by_torch, expected, rtol=1e-12, atol=atol)
    for row in range(5):
        alone = rollout_of(model, np.array, SCALARS, row)
        np.testing.assert_allclose(alone, expected[..., row], rtol=1e-12, atol=atol)


@pytest.mark.parametrize("model", [m for m in MODELS if m.memory_labels or m.name == "Qube"], ids=lambda m: m.name)
def test_gradients_flow_through_a_step(model: SimModel):
    """Autograd against differences: of the next state with respect to state and parameters."""
    xp = array_api_compat.array_namespace(torch.zeros(1))
    names = [name for name in model.nominal if "thold" not in name]
    generator = torch.Generator().manual_seed(7)
    state = 0.3 * torch.rand(len(model.state_labels), 1, dtype=torch.float64, generator=generator) + 0.1
    values = torch.tensor([[model.nominal[name]] for name in names], dtype=torch.float64)

    def following(state: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        nominal = {name: torch.full((1,), value, dtype=torch.float64) for name, value in model.nominal.items()}
        constants = model.constants(nominal | dict(zip(names, values, strict=True)), xp)
        columns = tuple(state)
        memory = model.initial_memory(columns, constants, xp)
        action = tuple(torch.full((1,), 1.5, dtype=torch.float64) for _ in model.action_labels)
        return torch.stack(model.step(columns, memory, action, constants, model.dt, xp)[0])

    ours = jacobian(following, (state, values))
    for place, (argument, gradient) in enumerate(zip((state, values), ours, strict=True)):
        for entry in range(len(argument)):
            size = 1e-6 * max(float(argument[entry].abs()), 1e-3)
            ahead, back = [argument.clone(), argument.clone()]
            ahead[entry] += size
            back[entry] -= size
            pair = [
                following(*(values if i != place else moved for i, values in enumerate((state, values))))
                for moved in (ahead, back)
            ]
            slope = (pair[0] - pair[1]) / (2 * size)
            torch.testing.assert_close(
                gradient[:, :, entry, 0], slope, rtol=1e-5, atol=1e-6 * max(1.0, float(slope.abs().max()))
            )


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_float32_stays_float32(model: SimModel):
    """Nothing turns a batch of single precision into another: speed, and memory on a GPU."""
    params = {name: np.full(3, value, np.float32) for name, value in model.nominal.items()}
    constants = model.constants(params, np)
    state = model.initial_state(tuple(np.full((model.num_uniforms, 3), 0.3, np.float32)), constants, np)
    memory = model.initial_memory(state, constants, np)
    action = tuple(np.ones(3, np.float32) for _ in model.action_labels)
    following, memory = model.step(state, memory, action, constants, model.dt, np)
    columns = [*constants.values(), *state, *following, *memory, *model.observe(following, np)]
    assert {column.dtype for column in columns} == {np.dtype(np.float32)}


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_initial_states_lie_within_bounds(model: SimModel):
    generator = np.random.default_rng(8)
    constants = model.constants({name: np.full(1000, value) for name, value in model.nominal.items()}, np)
    state = model.initial_state(tuple(generator.random((model.num_uniforms, 1000))), constants, np)
    low, high = model.state_bounds(constants)
    assert len(state) == len(model.state_labels) == len(low) == len(high)
    for column, least, most in zip(state, low, high, strict=True):
        assert column.shape == (1000,)
        assert np.all((column >= least) & (column <= most))


def test_the_ball_starts_near_either_end_of_the_beam():
    """specs/sampling.md 17.3: 0.7 to 0.8 of the way, on either side."""
    model = BallOnBeamModel()
    constants = model.constants({name: np.full(1000, value) for name, value in model.nominal.items()}, np)
    x = model.initial_state(tuple(np.random.default_rng(9).random((4, 1000))), constants, np)[0]
    assert np.abs(x).min() == pytest.approx(0.7, abs=1e-3)
    assert np.abs(x).max() == pytest.approx(0.8, abs=1e-3)
    assert 400 < (x > 0).sum() < 600


def test_the_ball_starts_on_a_ring_around_the_plates_middle():
    """specs/sampling.md 17.6: 0.75 to 0.8 of the way to the edge, in any direction."""
    model = BallBalancerModel()
    constants = model.constants({name: np.full(1000, value) for name, value in model.nominal.items()}, np)
    state = model.initial_state(tuple(np.random.default_rng(10).random((4, 1000))), constants, np)
    distance = np.hypot(state[2], state[3]) / 0.1375
    assert distance.min() >= 0.75 and distance.max() <= 0.8
    assert np.ptp(np.arctan2(state[3], state[2])) > 6.2
