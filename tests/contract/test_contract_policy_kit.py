"""``check_policy`` passes on every policy of the library, and fails on planted faults with the promise named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

import metaroll
from metaroll.policies import (
    BallBalancerController,
    CartPoleController,
    CategoricalGRUPolicy,
    CategoricalMLPPolicy,
    ContextConditionedPolicy,
    DeterministicMLPPolicy,
    DummyPolicy,
    EpsilonGreedyPolicy,
    GaussianMLPPolicy,
    GaussianNoisePolicy,
    GreedyQPolicy,
    GRUGaussianPolicy,
    IdlePolicy,
    LastActionPolicy,
    MLPEncoder,
    NormalizedPolicy,
    OrnsteinUhlenbeckPolicy,
    PlaybackPolicy,
    QubeController,
    ScriptedPolicy,
    TanhGaussianGRUPolicy,
    TanhGaussianMLPPolicy,
    TimePolicy,
    UniformFirstPolicy,
)
from metaroll.policies.encoders import ObservationEncoder
from metaroll.seeding import isolated_rng, torch_generator
from metaroll.sims import QBallBalancerEnv, QCartPoleStabEnv, QQubeSwingUpEnv
from metaroll.testing import ConformanceError, check_policy
from metaroll.types import EnvSpec, Policy, PolicyInfo

SPEC = EnvSpec(Box(-2.0, 2.0, (5,)), Box(-1.5, 0.5, (2,)))
CHOICES = EnvSpec(Box(-2.0, 2.0, (4,)), Discrete(3))
PICTURES = EnvSpec(Dict({"image": Box(0, 255, (36, 36, 3), np.uint8), "speed": Box(-1, 1, (2,))}), SPEC.action_space)


def _gaussian(**options: Any) -> GaussianMLPPolicy:
    return GaussianMLPPolicy(SPEC, (8,), generator=torch_generator(1), **options)


def _categorical(spec: EnvSpec = CHOICES) -> CategoricalMLPPolicy:
    return CategoricalMLPPolicy(spec, (8,), generator=torch_generator(1))


def _with_encoder() -> TanhGaussianMLPPolicy:
    encoder = ObservationEncoder(PICTURES.observation_space, generator=torch_generator(2))
    return TanhGaussianMLPPolicy(PICTURES, (8,), encoder=encoder, generator=torch_generator(1))


def _context(inner: Callable[[EnvSpec], Any]) -> ContextConditionedPolicy:
    wide = EnvSpec(Box(-np.inf, np.inf, (7,)), Box(-1.0, 1.0, (2,)))
    encoder = MLPEncoder(8, 4, (6,), generator=torch_generator(2))
    return ContextConditionedPolicy(2, encoder, inner(wide), True, False, seed=0, action_space=SPEC.action_space)


def _tanh(spec: EnvSpec = SPEC) -> TanhGaussianMLPPolicy:
    return TanhGaussianMLPPolicy(spec, (8,), generator=torch_generator(1))


class OfOthers(nn.Module):
    """A module of torch that knows nothing of metaroll."""

    def __init__(self) -> None:
        super().__init__()
        with isolated_rng(3):
            self.layer = nn.Linear(5, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(obs))


class Walker:
    """An agent that draws from the global generator, and remembers."""

    def reset(self) -> None:
        self.place = np.random.normal()

    def get_action(self, obs: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        self.place += np.random.normal()
        return np.clip(obs[:2] + self.place, -1.5, 0.5).astype(np.float32), {"place": np.array(self.place)}


def _with_last_action() -> LastActionPolicy:
    wide = EnvSpec(Box(-2.0, 2.0, (7,)), SPEC.action_space)
    return LastActionPolicy(_tanh(wide), SPEC)


def _uniform_first() -> UniformFirstPolicy:
    policy = UniformFirstPolicy(_tanh())
    policy.set_uniform(True)
    return policy


def params_of(env: type[Any]) -> list[dict[str, float]]:
    """Two systems that differ in all constants."""
    nominal = env().domain_param
    return [nominal, {name: 1.1 * value for name, value in nominal.items()}]


RECORDINGS = [np.arange(8.0).reshape(4, 2) / 8.0, np.ones((2, 2))]
CASES: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "BallBalancerController": (
        BallBalancerController,
        QBallBalancerEnv,
        {"domain_params": params_of(QBallBalancerEnv)},
    ),
    "CartPoleController": (CartPoleController, QCartPoleStabEnv, {"domain_params": params_of(QCartPoleStabEnv)}),
    "CategoricalGRUPolicy": (lambda: CategoricalGRUPolicy(CHOICES, 7, generator=torch_generator(1)), CHOICES, {}),
    "CategoricalMLPPolicy": (_categorical, CHOICES, {}),
    "ContextConditionedPolicy": (
        lambda: _context(_tanh),
        SPEC,
        {"contexts": [None, {"z": np.array([0.5, -1.0], np.float32)}]},
    ),
    "ContextConditionedPolicy, GRU": (
        lambda: _context(lambda spec: GRUGaussianPolicy(spec, 6, generator=torch_generator(1))),
        SPEC,
        {},
    ),
    "DeterministicMLPPolicy": (lambda: DeterministicMLPPolicy(SPEC, (8,), generator=torch_generator(1)), SPEC, {}),
    "DummyPolicy": (lambda: DummyPolicy(SPEC), SPEC, {}),
    "DummyPolicy, choices": (lambda: DummyPolicy(CHOICES), CHOICES, {}),
    "EpsilonGreedyPolicy": (lambda: EpsilonGreedyPolicy(_greedy(), 0.5), CHOICES, {}),
    "GRUGaussianPolicy": (lambda: GRUGaussianPolicy(SPEC, 7, generator=torch_generator(1)), SPEC, {}),
    "GaussianMLPPolicy": (_gaussian, SPEC, {}),
    "GaussianMLPPolicy, wide": (
        lambda: GaussianMLPPolicy(SPEC, (120, 300), "elu", "tanh", generator=torch_generator(1)),
        SPEC,
        {},
    ),
    "GaussianNoisePolicy": (lambda: GaussianNoisePolicy(_deterministic()), SPEC, {}),
    "GreedyQPolicy": (lambda: _greedy(), CHOICES, {}),
    "IdlePolicy": (lambda: IdlePolicy(SPEC), SPEC, {}),
    "LastActionPolicy": (_with_last_action, SPEC, {}),
    "NormalizedPolicy": (lambda: NormalizedPolicy(_gaussian()), SPEC, {}),
    "NormalizedPolicy, GRU": (
        lambda: NormalizedPolicy(GRUGaussianPolicy(SPEC, 7, generator=torch_generator(1))),
        SPEC,
        {},
    ),
    "OrnsteinUhlenbeckPolicy": (lambda: OrnsteinUhlenbeckPolicy(_deterministic()), SPEC, {}),
    "PlaybackPolicy": (
        lambda: PlaybackPolicy(SPEC, RECORDINGS),
        SPEC,
        {"contexts": [{"recording": 1, "start": 1}, {"recording": 0, "start": 0}]},
    ),
    "QubeController": (QubeController, QQubeSwingUpEnv, {"domain_params": params_of(QQubeSwingUpEnv)}),
    "ScriptedPolicy": (
        lambda: ScriptedPolicy(lambda obs, contexts: contexts["goal"] - obs[:, :2], SPEC),
        SPEC,
        {"contexts": [{"goal": np.array([1.0, 0.0])}, {"goal": np.array([0.0, 1.0])}]},
    ),
    "TanhGaussianGRUPolicy": (lambda: TanhGaussianGRUPolicy(SPEC, 7, generator=torch_generator(1)), SPEC, {}),
    "TanhGaussianMLPPolicy": (_tanh, SPEC, {}),
    "TanhGaussianMLPPolicy, pictures": (_with_encoder, PICTURES, {"num_rows": 9, "num_steps": 2}),
    "TimePolicy": (lambda: TimePolicy(SPEC, lambda t: [t, -t], 0.1), SPEC, {}),
    "UniformFirstPolicy": (lambda: _uniform_first(), SPEC, {}),
    "of others: function": (lambda: lambda obs: np.clip(obs[:2], -1.5, 0.5), SPEC, {"num_rows": 9}),
    "of others: module": (OfOthers, SPEC, {"num_rows": 9}),
    "of others: agent": (Walker, SPEC, {"num_rows": 9}),
}
"""Policy -> what makes it, what it acts in, arguments of the kit."""


def _deterministic() -> DeterministicMLPPolicy:
    return DeterministicMLPPolicy(SPEC, (8,), generator=torch_generator(1))


def _greedy() -> GreedyQPolicy:
    return GreedyQPolicy(CHOICES, (8,), dueling=True, generator=torch_generator(1))


@pytest.mark.parametrize("name", CASES)
def test_policies_keep_their_promises(name: str) -> None:
    make, env, options = CASES[name]
    check_policy(make, env, **options)


def test_every_public_policy_has_a_case() -> None:
    public = {name: getattr(room, name) for room in (metaroll, metaroll.policies) for name in room.__all__}
    policies = {name for name, value in public.items() if isinstance(value, type) and issubclass(value, Policy)}
    assert policies - {name.partition(",")[0] for name in CASES} == set()


# ---- planted faults --------------------------------------------------------------------------------------------------


class Linear(Policy):
    """Honest: ``obs @ weights`` and noise, and a sum of the actions so far."""

    info = PolicyInfo(noise_dim=2, draws=False)

    def __init__(self) -> None:
        self.weights = np.linspace(-1.0, 1.0, 10, dtype=np.float32).reshape(5, 2)

    def initial_state(self, contexts: Any, generators: Any, domain_params: Any = None) -> dict[str, np.ndarray]:
        return {"sum": np.zeros((len(contexts), 2), np.float32)}

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        weights = self.weights if parameters is None else parameters.reshape(*parameters.shape[:-1], 5, 2)
        weights = np.broadcast_to(weights, (len(obs), 5, 2))
        mean = sum(obs[:, i, None] * weights[:, i] for i in range(5)).astype(np.float32)  # no BLAS, so no widths
        quiet = np.broadcast_to(deterministic, len(obs))[:, None]
        action = np.where(quiet, mean, mean + noise) + np.float32(0.1) * state["sum"]
        return action, {"sum": state["sum"] + action}, {"mean": mean}

    def acting_parameters(self) -> np.ndarray:
        return self.weights.ravel().copy()


class SharedGenerator(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        drawn = self.generator.normal(size=noise.shape).astype(np.float32)
        return super().act(obs, state, drawn, deterministic, parameters)


class GlobalGenerator(Linear):
    """Draws numbers that change nothing, here."""

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        np.random.normal(), torch.rand(1)
        return super().act(obs, state, noise, deterministic, parameters)


class Counts(Linear):
    """Remembers in itself how often it has acted."""

    calls = 0

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        self.calls += 1
        return super().act(obs, state, noise + np.float32(self.calls), deterministic, parameters)


class OneDrawForAll(Linear):
    """The first rollout's generator starts all of them."""

    def initial_state(self, contexts: Any, generators: Any, domain_params: Any = None) -> dict[str, np.ndarray]:
        return {"sum": generators[0].normal(size=(len(contexts), 2)).astype(np.float32)}


class StartsWhereItEnded(Linear):
    last: Any = None

    def initial_state(self, contexts: Any, generators: Any, domain_params: Any = None) -> dict[str, np.ndarray]:
        state = super().initial_state(contexts, generators)
        return state if self.last is None else {"sum": np.repeat(self.last[:1], len(contexts), axis=0)}

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        self.last = action
        return action, state, infos


class OneBuffer(Linear):
    """Hands out the same memory in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[int, np.ndarray] = {}

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        buffer = self.buffers.setdefault(len(action), np.empty_like(action))
        buffer[:] = action
        return buffer, state, infos


class ReturnsObservations(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        return obs[:, :2], state, {}


class ClipsInPlace(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        np.clip(obs, -0.5, 0.5, out=obs)
        return super().act(obs, state, noise, deterministic, parameters)


class AddsInPlace(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, _, infos = super().act(obs, state, noise, deterministic, parameters)
        state["sum"] += action
        return action, state, infos


class ByWidth(Linear):
    """As a product of matrices does that BLAS computes in another order: one bit, by the number of rows."""

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return np.nextafter(action, np.float32(np.inf)) if len(obs) < 8 else action, state, infos


class ByNeighbors(Linear):
    """Normalizes over the batch; honest about widths, and not about the rows of a block."""

    info = PolicyInfo(noise_dim=2, draws=False, width_independent=False)

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        return super().act(obs - obs.mean(axis=0), state, noise, deterministic, parameters)


class NoisyMean(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        return super().act(obs, state, noise, False, parameters)


class NotFinite(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        with np.errstate(invalid="ignore"):
            return np.log(action), state, infos


class OneRow(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return action, state, {"mean": infos["mean"][0]}


class IgnoresParameters(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        return super().act(obs, state, noise, deterministic)

    def acting_parameters(self) -> np.ndarray:
        return self.weights.ravel()


class KeepsParameters(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        if parameters is not None and parameters.ndim == 1:
            self.weights = parameters.reshape(5, 2)
        return super().act(obs, state, noise, deterministic, parameters)


class ActsByACopy(GaussianMLPPolicy):
    """Copies its parameters in its first call, and does not see a training step."""

    def __init__(self) -> None:
        super().__init__(SPEC, (8,), generator=torch_generator(1))
        self.kept: np.ndarray | None = None

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        if self.kept is None:
            self.kept = self.acting_parameters()
        return super().act(obs, state, noise, deterministic, self.kept if parameters is None else parameters)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "kept": None}


class FirstOfStack(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        first = parameters[0] if parameters is not None and parameters.ndim == 2 else parameters
        return super().act(obs, state, noise, deterministic, first)


class LosesWhenPickled(Linear):
    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.gain = 2.0

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return action * np.float32(self.gain), state, infos

    def __getstate__(self) -> dict[str, Any]:
        return {"weights": self.weights}


class RaisesOnNaN(Linear):
    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        if np.isnan(obs).any():
            raise ArithmeticError("NaN")
        return super().act(obs, state, noise, deterministic, parameters)


class NotRegistered(GaussianMLPPolicy):
    """What it learned beside its parameters is in no state_dict."""

    made = 0

    def __init__(self) -> None:
        super().__init__(SPEC, (8,), generator=torch_generator(1))
        NotRegistered.made += 1
        self.gain = float(NotRegistered.made)

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return action * np.float32(self.gain), state, infos


class PlainTensor(GaussianMLPPolicy):
    """A tensor that it acts with is in no state_dict, and the same in all that are made."""

    def __init__(self) -> None:
        super().__init__(SPEC, (8,), generator=torch_generator(1))
        self.gains = self.kept(torch.tensor([2.0, 0.25]))

    def kept(self, gains: torch.Tensor) -> Any:
        return gains

    def read(self) -> torch.Tensor:
        return self.gains

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return action * self.read().numpy(), state, infos


class PlainTensorInside(PlainTensor):
    """The same, in a list in a dict."""

    def kept(self, gains: torch.Tensor) -> Any:
        return {"gains": [gains]}

    def read(self) -> torch.Tensor:
        return self.gains["gains"][0]


class ForgottenModules(PlainTensor):
    """The same, in a module in a list that is no ModuleList."""

    def kept(self, gains: torch.Tensor) -> Any:
        holder = torch.nn.Module()
        holder.register_buffer("gains", gains)
        return [holder]

    def read(self) -> torch.Tensor:
        return self.gains[0].gains


class Constant(PlainTensor):
    """The way out for what is the same in all that are made: a buffer that is not saved."""

    def kept(self, gains: torch.Tensor) -> Any:
        self.register_buffer("constant", gains, persistent=False)
        return ()

    def read(self) -> torch.Tensor:
        return self.constant


class PlainTensorOfOthers(OfOthers):
    """The same in a module that knows nothing of metaroll."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = torch.tensor([2.0, 0.25])

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return super().forward(obs) * self.gains


class OtherChoices(Linear):
    """Counts from one."""

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        return np.full(len(obs), 3), state, {}


PLANTED: dict[type[Any], str] = {
    SharedGenerator: "determinism",
    GlobalGenerator: "globals",
    Counts: "determinism",
    OneDrawForAll: "reset",
    StartsWhereItEnded: "reset",
    OneBuffer: "memory",
    ReturnsObservations: "memory",
    ClipsInPlace: "memory",
    AddsInPlace: "memory",
    ByWidth: "rows",
    ByNeighbors: "rows",
    NoisyMean: "noise",
    NotFinite: "space",
    OtherChoices: "space",
    OneRow: "form",
    IgnoresParameters: "parameters",
    ActsByACopy: "parameters",
    KeepsParameters: "parameters",
    FirstOfStack: "parameters",
    LosesWhenPickled: "copies",
    NotRegistered: "state_dict",
    PlainTensor: "state_dict",
    PlainTensorInside: "state_dict",
    ForgottenModules: "state_dict",
    PlainTensorOfOthers: "state_dict",
    RaisesOnNaN: "bad_numbers",
}


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_planted_faults_are_named(kind: type[Any]) -> None:
    spec = EnvSpec(SPEC.observation_space, Discrete(3)) if kind is OtherChoices else SPEC
    before = np.random.get_state(), torch.get_rng_state()
    with pytest.raises(ConformanceError, match=f"^{PLANTED[kind]}: ") as caught:
        check_policy(kind, spec)
    assert caught.value.rule == PLANTED[kind] and not re.search(r"\bnp\.|\n", caught.value.seen), "plain and short"
    np.random.set_state(before[0])
    torch.set_rng_state(before[1])


def test_a_constant_may_be_a_buffer_that_is_not_saved() -> None:
    check_policy(Constant, SPEC)


def test_a_tensor_that_is_not_registered_is_named() -> None:
    with pytest.raises(ConformanceError, match=r"tensors that are neither: gains\['gains'\]\[0\]$"):
        check_policy(PlainTensorInside, SPEC)


def test_a_correct_policy_passes_and_wrong_arguments_are_errors() -> None:
    check_policy(Linear, SPEC)
    with pytest.raises(TypeError, match=r"make must be a function that makes a policy, got 'ppo'"):
        check_policy("ppo", SPEC)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="policy must be"):
        check_policy(lambda: 3, SPEC)
    with pytest.raises(ValueError, match="num_rows"):
        check_policy(Linear, SPEC, num_rows=1)
