"""Rollouts on torch tensors: with torch on the CPU, beside NumPy; on CUDA where there is one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch.utils._python_dispatch import TorchDispatchMode

from metaroll.data.data_format import iterate_leaves
from metaroll.envs.base.batched_env import BatchedEnv
from metaroll.envs.base.simulator import NextState, TaskSimulator, map_rows
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.point.plane import PointRows, clipped, plane_spec
from metaroll.errors import InvalidValueError, RolloutError
from metaroll.functional.linear import RowProducts
from metaroll.functional.philox import normals, stream_keys, torch_normals, torch_uniforms, uniforms
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.rollouts.engine import device_block
from metaroll.rollouts.engine.device_block import DeviceLoop, run_block
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.requests import Kept, SampleRequest
from metaroll.seeding import torch_generator
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import PlanTable
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, RolloutPlan

PENDULUM = "metaroll/Pendulum-v0"
EXACT = ("terminated", "truncated", "done")


def spec_of(env):
    return EnvSource.of(env).spec


def mlp(env):
    spec = spec_of(env)
    kind = GaussianMLPPolicy if isinstance(spec.action_space, Box) else CategoricalMLPPolicy
    return kind(spec, hidden_sizes=(32, 32), generator=torch_generator(3))


def gru(env):
    spec = spec_of(env)
    kind = GRUGaussianPolicy if isinstance(spec.action_space, Box) else CategoricalGRUPolicy
    return kind(spec, hidden_size=24, generator=torch_generator(4))


def tanh(env):
    return TanhGaussianMLPPolicy(spec_of(env), hidden_sizes=(32, 32), generator=torch_generator(5))


def normalized(env):
    policy = NormalizedPolicy(mlp(env))
    policy.set_observation_moments(np.full(policy.obs_dim, 0.1), np.full(policy.obs_dim, 1.3))
    return policy


def last_action(env):
    spec = spec_of(env)
    kind = GRUGaussianPolicy if isinstance(spec.action_space, Box) else CategoricalGRUPolicy
    return LastActionPolicy(kind(widened_spec(spec, spec.act_dim), 16, generator=torch_generator(6)), spec)


def privileged(env):
    spec = spec_of(env)
    inner = GaussianMLPPolicy(widened_spec(spec, 1), hidden_sizes=(16,), generator=torch_generator(7))
    return NormalizedPolicy(inner, domain_params=("pole_mass",), env_spec=spec)


def conditioned(env):
    spec = spec_of(env)
    unit = EnvSpec(widened_spec(spec, 3).observation_space, Box(-1.0, 1.0, spec.action_space.shape), 100)
    inner = TanhGaussianMLPPolicy(unit, hidden_sizes=(32,), generator=torch_generator(8))
    width = spec.obs_dim + spec.act_dim + 1
    encoder = MLPEncoder(width, 6, (16,), generator=torch_generator(9))
    return ContextConditionedPolicy(3, encoder, inner, True, False, seed=0, action_space=spec.action_space)


def plans_of(count, max_steps=None, **more):
    return [RolloutPlan(index=i, seed=(11, 2, i), max_steps=max_steps, **more) for i in range(count)]


def leaves(rollouts, name):
    return {path: leaf for path, leaf in iterate_leaves(rollouts.column(name))}


def check_same(ours, numpys, atol=2e-5):
    """Integers, masks and lengths are equal, numbers nearly so, and everything has the same name, type and shape."""
    np.testing.assert_array_equal(ours.lengths, numpys.lengths)
    np.testing.assert_array_equal(ours.indices, numpys.indices)
    for name in ("observations", "actions", "rewards", "policy_infos", "env_infos", "states", "actions_applied"):
        has_none = not any(name in rollout.data_names for rollout in numpys)
        assert has_none == (not any(name in rollout.data_names for rollout in ours))
        if has_none:
            continue
        found, expected = leaves(ours, name), leaves(numpys, name)
        assert found.keys() == expected.keys()
        for path, leaf in expected.items():
            assert (found[path].dtype, found[path].shape) == (leaf.dtype, leaf.shape)
            if leaf.dtype.kind in "biu":
                np.testing.assert_array_equal(found[path], leaf)
            else:
                np.testing.assert_allclose(found[path], leaf, rtol=1e-4, atol=atol)
    np.testing.assert_array_equal(ours.terminated, numpys.terminated)
    np.testing.assert_array_equal(ours.truncated, numpys.truncated)
    for a, b in zip(ours, numpys, strict=True):
        np.testing.assert_array_equal(a.done, b.done)
        info = {name: value for name, value in a.rollout_info.items() if name != "provenance"}
        assert repr(info) == repr({name: value for name, value in b.rollout_info.items() if name != "provenance"})


def both(env, policy, plans, **options):
    with RolloutEngine(env, policy, device="cpu", **options) as ours, RolloutEngine(env, policy, **options) as numpys:
        found, expected = ours.run(plans), numpys.run(plans)
        first, second = ([(d.plan.index, d.step, d.what) for d in engine.dropped] for engine in (ours, numpys))
        assert sorted(first) == sorted(second)
    return found, expected


def test_numbers_by_position_are_those_of_numpy():
    keys = stream_keys(np.array([[5, i, 2**40 + i] for i in range(70)]))
    start = np.arange(70) * 13 + (np.arange(70) % 7) * 2**35
    on_torch = torch.as_tensor(keys.astype(np.int64)), 3, torch.as_tensor(start), 21
    for dtype, own in ((np.float32, torch.float32), (np.float64, torch.float64)):
        drawn = torch_uniforms(*on_torch, own).numpy().T
        assert drawn.dtype == dtype
        np.testing.assert_array_equal(drawn, uniforms(keys, 3, start, 21, dtype))
    np.testing.assert_allclose(torch_normals(*on_torch).numpy().T, normals(keys, 3, start, 21), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("env", "steps"),
    [
        ("point-robot", None),
        ("sparse-point-robot", None),
        ("point-navigation", None),
        ("point-corners", 40),
        ("point-momentum", 40),
        ("point-walls", 40),
        ("bandit-5", None),
        ("random-mdp", None),
        ("CartPole-v1", None),
        (PENDULUM, 60),
        ("metaroll/QQubeSwingUp-v0", 40),
        ("metaroll/QCartPoleSwingUp-v0", 40),
        ("metaroll/QBallBalancer-v0", 40),
        ("metaroll/BallOnBeam-v0", 40),
        ("metaroll/OneMassOscillator-v0", 40),
        ("metaroll/Catapult-v0", None),
    ],
)
def test_integers_masks_and_lengths_are_those_of_numpy(env, steps):
    """Fewer rows than plans, so that rows get new plans and are left behind in the end."""
    policy = mlp(env)
    ours, numpys = both(env, policy, plans_of(150, steps), record_extras=True, slots_per_unit=90)
    check_same(ours, numpys)
    told = ours[0].rollout_info["provenance"]
    assert told["device"] == "torch on cpu" and told["torch"] == torch.__version__


@pytest.mark.parametrize("make", [mlp, gru, tanh, normalized, last_action, conditioned, privileged])
def test_policies_act_as_in_numpy(make):
    """Deterministic ones and others side by side."""
    plans = [plan.with_(deterministic=bool(plan.index % 3)) for plan in plans_of(40, 50)]
    env = "metaroll/QCartPoleSwingUp-v0" if make is privileged else PENDULUM
    check_same(*both(env, make(env), plans, record_extras=True), atol=1e-4)


@pytest.mark.parametrize("make", [gru, last_action, normalized])
def test_policies_choose_as_in_numpy(make):
    plans = [plan.with_(deterministic=bool(plan.index % 2)) for plan in plans_of(70, 30)]
    check_same(*both("CartPole-v1", make("CartPole-v1"), plans, record_extras=True))


def test_plans_with_all_that_they_may_bring():
    masses = (0.2, 0.5, 1.0)
    plans = []
    for plan in plans_of(90):
        i = plan.index
        update = DomainParamUpdate({"pole_mass": masses[i % 3]}) if i % 4 else None
        init = np.array([0.3, 0.01 * i]) if i % 5 == 0 else None
        plans.append(plan.with_(env_update=update, init_state=init, max_steps=5 + 7 * (i % 6), stop_on_done=i % 2 == 0))
    ours, numpys = both(PENDULUM, mlp(PENDULUM), plans, record_extras=True, slots_per_unit=64)
    check_same(ours, numpys)


def test_bits_do_not_depend_on_the_number_of_rows():
    for env, policy in ((PENDULUM, gru(PENDULUM)), ("CartPole-v1", mlp("CartPole-v1")), ("bandit-5", gru("bandit-5"))):
        plans, found = plans_of(300, 18), []  # a block of steps, and some of another
        for width, count in ((300, 300), (256, 300), (64, 150), (37, 100)):
            with RolloutEngine(env, policy, device="cpu", slots_per_unit=width, record_extras=True) as engine:
                found.append(engine.run(plans[:count]))
        with RolloutEngine(env, policy, device="cpu", record_extras=True) as engine:
            alone = [engine.run([plans[i]])[0] for i in (0, 100, 255)]
        for others in found[1:]:
            for name in ("observations", "actions", "rewards", "policy_infos"):
                expected = leaves(found[0][: len(others)], name)
                for path, leaf in leaves(others, name).items():
                    assert leaf.tobytes() == expected[path].tobytes(), (env, name, path)
        for i, rollout in zip((0, 100, 255), alone, strict=True):
            assert rollout.actions.tobytes() == found[0][i].actions.tobytes()
            assert rollout.rewards.tobytes() == found[0][i].rewards.tobytes()


@pytest.mark.parametrize("make", [mlp, gru, tanh, normalized, last_action])
def test_plans_that_bring_parameters_act_with_them(make):
    """In bits that do not depend on what runs beside them."""
    policy = make(PENDULUM)
    own = policy.acting_parameters()
    sets = [own * np.float32(1.0 + 0.1 * i) for i in range(7)]
    plans = [plan.with_(parameters=sets[plan.index % 7]) for plan in plans_of(100, 18)]
    plans[3] = plans[3].with_(max_steps=4, deterministic=True)
    ours, numpys = both(PENDULUM, policy, plans, record_extras=True, slots_per_unit=40)
    check_same(ours, numpys, atol=1e-4)
    with RolloutEngine(PENDULUM, policy, device="cpu") as engine:
        wide, alone = engine.run(plans), [engine.run([plans[i]])[0] for i in (0, 3, 99)]
    assert wide.column("actions").tobytes() == ours.column("actions").tobytes()
    assert [rollout.rewards.tobytes() for rollout in alone] == [wide[i].rewards.tobytes() for i in (0, 3, 99)]


@pytest.mark.parametrize(("num_in", "num_out"), [(3, 32), (32, 2), (5, 7), (7, 1), (64, 64), (300, 200)])
def test_rows_of_products_do_not_depend_on_their_place(num_in, num_out):
    generator = torch_generator(2)
    weight, bias, x = (
        torch.randn(*shape, generator=generator) for shape in ((num_out, num_in), (num_out,), (61, num_in))
    )
    order = torch.randperm(61, generator=generator)
    with torch.no_grad(), RowProducts():
        found = torch.nn.functional.linear(x, weight, bias)
        elsewhere = torch.nn.functional.linear(x[order], weight, bias)
        alone = torch.nn.functional.linear(x[7:8].clone(), weight, bias)
        many = torch.vmap(torch.nn.functional.linear)(
            x[:56].reshape(7, 8, -1), weight.repeat(7, 1, 1), bias.repeat(7, 1)
        )
        bare = x @ weight.T
    np.testing.assert_allclose(found, x.numpy() @ weight.numpy().T + bias.numpy(), rtol=1e-4, atol=1e-4)
    assert torch.equal(found[order], elsewhere)
    assert torch.equal(found[7:8], alone)
    assert torch.equal(found[:56], many.reshape(56, -1))
    assert torch.equal(bare + bias, found)


def test_parameters_of_each_task():
    policy = mlp("CartPole-v1")
    sets = np.stack([policy.acting_parameters() * np.float32(scale) for scale in (0.5, 1.0, 2.0)])
    with RolloutEngine("CartPole-v1", policy, device="cpu") as ours, RolloutEngine("CartPole-v1", policy) as numpys:
        groups = [
            engine.run_groups(SampleRequest(updates=[None] * 3, seed=1, num_rollouts=9, max_steps=60, parameters=sets))
            for engine in (ours, numpys)
        ]
    for found, expected in zip(*groups, strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.actions, b.actions)


def started(env, policy, own=False):
    """A loop of which a block has run, a short one."""
    slots = EnvSource.of(env).slots(70)
    sets = [policy.acting_parameters() * np.float32(scale) for scale in (0.9, 1.1)]
    plans = [plan.with_(parameters=sets[plan.index % 2] if own else None) for plan in plans_of(70, 40)]
    loop = DeviceLoop(slots, policy, PlanTable(plans), torch.device("cpu"), kept=Kept(extras=True))
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_block, "_LOCK_STEPS", 4)
        loop._fill()
        loop._block()
    return slots.simulator, loop


class _Watch(TorchDispatchMode):
    """Notes what would wait for a device: numbers that are asked for, and shapes that hang on them."""

    waits = ("_local_scalar_dense", "nonzero", "aten.equal.", "is_nonzero", "unique", "masked_select")

    def __init__(self):
        super().__init__()
        self.found, self.calls = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        name = str(func)
        indices = args[1] if name.startswith("aten.index") and isinstance(args[1], list | tuple) else ()
        by_mask = any(isinstance(index, torch.Tensor) and index.dtype is torch.bool for index in indices)
        filled = name.startswith("aten.index_put") and args[2].ndim == 0  # which is a masked_fill
        if any(wait in name for wait in self.waits) or (by_mask and not filled):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


CASES = [
    (PENDULUM, gru),
    ("metaroll/QQubeSwingUp-v0", tanh),
    ("metaroll/QBallBalancer-v0", normalized),
    ("metaroll/QCartPoleSwingUp-v0", mlp),
    ("point-robot", conditioned),
    ("point-corners", mlp),
    ("point-walls", mlp),
    ("point-momentum", mlp),
    ("bandit-5", gru),
    ("random-mdp", mlp),
    ("CartPole-v1", last_action),
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("env", "make"), CASES)
def test_a_block_waits_for_nothing(env, make, own):
    simulator, loop = started(env, make(env), own)
    with torch.no_grad(), _Watch() as watch:
        run_block(simulator, loop._twin, loop._rows, 6, loop._settings)
    assert watch.calls > 100 and watch.found == []


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("env", "make"), CASES)
def test_a_block_stays_on_its_device(env, make, own):
    """Tensors that hold nothing but say where they are: a number that is asked for, or a mix of devices, raises."""
    simulator, loop = started(env, make(env), own)
    hollow = lambda tensor: torch.empty_like(tensor, device="meta")  # noqa: E731
    for module in loop._twin.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = torch.nn.Parameter(hollow(parameter), requires_grad=False)
    sets = None if loop._settings.sets is None else map_rows(hollow, loop._settings.sets)
    with torch.no_grad():
        settings = dataclasses.replace(loop._settings, sets=sets)
        done = run_block(simulator, loop._twin, map_rows(hollow, loop._rows), 3, settings)
    assert {tensor.device.type for tensor in (*done.arrays.values(), done.summary)} == {"meta"}
    assert done.summary.shape == (3, len(loop._rows.live))


def test_one_look_per_block_and_one_transfer_per_unit(monkeypatch):
    """Every tensor that becomes an array."""
    looks = []
    fetch = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: looks.append(tuple(self.shape)) or fetch(self))
    with RolloutEngine("point-robot", mlp("point-robot"), device="cpu", slots_per_unit=64) as engine:
        engine.policy.acting_parameters()
        looks.clear()
        rollouts = engine.run(plans_of(128, 20), parameters=engine.policy.acting_parameters())
    assert len(rollouts) == 128
    small = [shape for shape in looks if shape == (3, 256)]
    flat = [shape for shape in looks if len(shape) == 1 and shape[0] > 256]
    assert len(small) == 4 and len(flat) == 1  # two cohorts of two blocks


class _Breaking(PointRows, TaskSimulator):
    """Points that go to the right, and break beyond the goal: what they see, or their reward."""

    def step(self, state, actions, constants, noise, xp):
        following = state[0] + 0.1 + 0.0 * clipped(actions, xp)
        beyond, by_reward = following[:, 0] > constants["goal"][:, 0], constants["goal"][:, 1] > 0.0
        reward = xp.where(beyond & by_reward, math.nan, following[:, 0])
        return NextState((xp.where((beyond & ~by_reward)[:, None], math.nan, following),), reward)


class _BreakingEnv(BatchedEnv):
    def __init__(self, render_mode=None):
        super().__init__(_Breaking(type(self), plane_spec(30), {"goal": np.array([9.0, 0.0])}), render_mode)


def test_nan_is_found_where_numpy_finds_it():
    plans = plans_of(80)
    for i, goal in ((5, (1.75, 1.0)), (41, (0.35, 0.0)), (60, (0.35, 0.0)), (70, (2.85, 1.0)), (79, (0.05, 1.0))):
        plans[i] = plans[i].with_(env_update=SetTaskUpdate(_BreakingEnv, {"goal": np.array(goal)}))
    policy = mlp(_BreakingEnv)
    ours, numpys = both(_BreakingEnv, policy, plans, on_invalid="drop", slots_per_unit=64)
    assert len(ours) == 75
    check_same(ours, numpys)
    found = []
    plans = [plan for plan in plans if plan.index not in (41, 60, 70, 79)]
    for device in ("cpu", None):
        with (
            RolloutEngine(_BreakingEnv, policy, device=device) as engine,
            pytest.raises(InvalidValueError, match=r"not finite at step \d+ of rollout") as caught,
        ):
            engine.run(plans)
        error = caught.value
        found.append((error.plan.index, error.step, error.what, str(error)))
    assert found[0] == found[1]


def test_parameters_that_are_not_numbers_are_told():
    policy = mlp("point-robot")
    broken = np.full_like(policy.acting_parameters(), np.nan)
    with RolloutEngine("point-robot", policy, device="cpu") as engine:
        with pytest.raises(InvalidValueError, match="action is not finite at step 0 of rollout 0"):
            engine.run(plans_of(5), parameters=broken)
        assert len(engine.run(plans_of(5))) == 5


def test_a_plan_that_cannot_be_simulated_is_told_or_dropped():
    plans = [*plans_of(5, 10), RolloutPlan(5, (1, 2, 3), init_state=np.array([1.0, 2.0, 3.0]), max_steps=10)]
    with (
        RolloutEngine(PENDULUM, mlp(PENDULUM), device="cpu") as engine,
        pytest.raises(RolloutError, match="while resetting rollout 5"),
    ):
        engine.run(plans)
    ours, numpys = both(PENDULUM, mlp(PENDULUM), plans, on_error="drop")
    check_same(ours, numpys)
    assert len(ours) == 5


def test_reduced_rows_and_groups():
    lengths = lambda columns, bounds: np.add.reduceat(columns["rewards"], bounds[:-1])  # noqa: E731
    updates = [DomainParamUpdate({"pole_mass": mass}) for mass in (0.5, 1.0)]
    with RolloutEngine(PENDULUM, mlp(PENDULUM), device="cpu") as ours, RolloutEngine(PENDULUM, mlp(PENDULUM)) as numpys:
        found = [engine.run_reduced(plans_of(9, 15), lengths) for engine in (ours, numpys)]
        np.testing.assert_allclose(*found, rtol=1e-5)
        groups = [
            engine.run_groups(SampleRequest(updates=updates, seed=3, min_steps=100, max_steps=30))
            for engine in (ours, numpys)
        ]
    assert [[len(rollout) for rollout in group] for group in groups[0]] == [
        [len(rollout) for rollout in group] for group in groups[1]
    ]


class _Halved(GaussianMLPPolicy):
    """A policy that acts otherwise in NumPy than the one that it comes from."""

    def act(self, *args, **kwargs):
        action, state, infos = super().act(*args, **kwargs)
        return action / 2, state, infos


def test_what_cannot_run_on_a_device_says_so(shared_pools):
    policy = mlp("point-robot")
    cases = [
        (ValueError, "device must be None.*'cpu'.*'cuda', got 'gpu'", {"device": "gpu"}),
        (ValueError, "device must be None.*got 7", {"device": "7"}),
        (ValueError, "device must be None.*got 'meta'", {"device": "meta"}),
        (ValueError, "num_workers must be 1 .*device='cpu'.*got 2", {"device": "cpu", "num_workers": 2}),
        (ValueError, "^transport must be .*device='cpu'.*got 'process'", {"device": "cpu", "transport": "process"}),
    ]
    if not torch.cuda.is_available():
        cases.append((ValueError, "device 'cuda' is not there: torch .* sees 0 CUDA devices", {"device": "cuda"}))
    for kind, message, options in cases:
        message = message.replace("got 7", "got '7'")
        with pytest.raises(kind, match=message):
            RolloutEngine("point-robot", policy, **options)
    with pytest.raises(ValueError, match=r"^pool must run in this process .*device='cpu'.*leave device out"):
        RolloutEngine("point-robot", policy, device="cpu", pool=shared_pools[1])
    others = [
        ("point-robot", lambda obs: np.zeros(2), "acts in NumPy"),
        ("point-robot", _Halved(spec_of("point-robot")), "_Halved, which acts in NumPy"),
        (
            "point-robot",
            GaussianMLPPolicy(spec_of("point-robot")).double(),
            r"float32 on a device.*float64.*float\(\)",
        ),
        ("Pendulum-v1", mlp("Pendulum-v1"), "env must be stepped as arrays.*Pendulum.*device=None"),
        ("MountainCarContinuous-v0", mlp("MountainCarContinuous-v0"), "env must be stepped as arrays"),
    ]
    for env, actor, message in others:
        with pytest.raises(TypeError, match=message):
            RolloutEngine(env, actor, device="cpu")


def test_an_engine_on_a_device_goes_on_after_an_error():
    with RolloutEngine("point-robot", mlp("point-robot"), device="cpu") as engine:
        with pytest.raises(ValueError, match="device must be None to open a collection, got 'cpu'"):
            engine.open(lambda n: RolloutPlan(n, (0, 0, n)), 4)
        with pytest.raises(TypeError, match="acts in NumPy"):
            engine.set_policy(lambda obs: np.zeros(2))
        with pytest.raises(TypeError, match="env must be stepped as arrays"):
            engine.set_env("Pendulum-v1")
        with pytest.raises(TypeError, match="in variations that they apply themselves"):
            engine.run([RolloutPlan(0, (0, 0, 0), env_update=DomainParamUpdate({"friction": 1.0}))])
        endless = [RolloutPlan(0, (0, 0, 0), stop_on_done=False)]
        assert len(engine.run(endless)[0]) == 20
        assert len(engine.run(plans_of(3))) == 3


def test_float64_actions_are_refused():
    class Doubled(GaussianMLPPolicy):
        def act(self, *args, **kwargs):
            raise NotImplementedError

        def act_on_torch(self, obs, state, noise, deterministic=False):
            action, state, infos = super().act_on_torch(obs, state, noise, deterministic)
            return action.double(), state, infos

    policy = Doubled(spec_of("point-robot"))
    with (
        RolloutEngine("point-robot", policy, device="cpu") as engine,
        pytest.raises(TypeError, match="on a device, got float64 from Doubled"),
    ):
        engine.run(plans_of(3))


def test_what_changes_between_calls_is_followed():
    policy = mlp(PENDULUM)
    with RolloutEngine(PENDULUM, policy, device="cpu") as engine:
        before = engine.run(plans_of(3, 10)).column("actions")
        policy.set_param_values(policy.get_param_values() * 0.5)
        after = engine.run(plans_of(3, 10))
    with RolloutEngine(PENDULUM, policy) as engine:
        check_same(after, engine.run(plans_of(3, 10)))
    assert not np.allclose(before, after.column("actions"))


def test_torch_threads_are_as_before():
    before = torch.get_num_threads()
    with RolloutEngine("bandit-5", mlp("bandit-5"), device="cpu") as engine:
        engine.run(plans_of(3))
    assert torch.get_num_threads() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("env", "make"), CASES)
def test_rollouts_on_cuda(env, make):
    plans = plans_of(200, 30)
    policy = make(env)
    with RolloutEngine(env, policy, device="cuda") as one, RolloutEngine(env, policy) as numpys:
        ours, expected = one.run(plans), numpys.run(plans)
    with RolloutEngine(env, policy, device="cuda", slots_per_unit=37) as engine:
        narrow = engine.run(plans)
    check_same(ours, expected, atol=1e-3)
    for name in ("observations", "actions", "rewards"):
        assert ours.column(name).tobytes() == narrow.column(name).tobytes()
    assert ours[0].rollout_info["provenance"]["device"].startswith("cuda (")
