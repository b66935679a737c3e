"""Gradient steps of off-policy learners have the gradients that autograd finds of the formulas in the papers.

By hand or by autograd: there is one text of a step. The losses below are written down once more, with all their graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from metaroll.contrib import TQC, DiscreteSAC
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.learners.off_policy import nets
from metaroll.learners.off_policy.choosing import DQN
from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.soft import SAC
from metaroll.policies.gaussian import CategoricalMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.networks import Critics
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

SEES = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
BOX, CHOICES = (
    EnvSpec(SEES, gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)),
    EnvSpec(SEES, gymnasium.spaces.Discrete(3)),
)
SIZES, ROWS, DISCOUNT = (16, 8), 32, 0.9
POLICIES: dict[Any, Any] = {
    SAC: TanhGaussianMLPPolicy,
    TQC: TanhGaussianMLPPolicy,
    TD3: DeterministicMLPPolicy,
    DDPG: DeterministicMLPPolicy,
    DiscreteSAC: CategoricalMLPPolicy,
    DQN: GreedyQPolicy,
}
COUNTS = {SAC: 2, TQC: 3, TD3: 2, DDPG: 1, DiscreteSAC: 2}


def learner_of(kind: Any, activation: str, dtype: torch.dtype, **options: Any) -> Any:
    generator = torch_generator(0)
    spec = CHOICES if kind in (DQN, DiscreteSAC) else BOX
    of_policy: dict[str, Any] = {"log_std_bounds": (-0.1, 0.1)} if POLICIES[kind] is TanhGaussianMLPPolicy else {}
    if kind is DQN:
        of_policy = {"dueling": options.pop("dueling", False)}
    policy = POLICIES[kind](spec, SIZES, activation, generator=generator, **of_policy).to(dtype)
    given: dict[str, Any] = {"policy": policy}
    if kind is not DQN:
        atoms = {"num_atoms": 5} if kind is TQC else {}
        given["qf"] = Critics(spec, COUNTS[kind], SIZES, activation, generator=generator, **atoms).to(dtype)
    if kind is TQC:
        options |= {"num_critics": 3, "num_atoms": 5}
    options |= {"buffer_batch_size": ROWS, "replay_size": 100, "min_buffer_size": ROWS, "max_path_length": 5, "seed": 0}
    return kind(spec, **given, **options)


def batch_of(kind: Any, seed: int, weighted: bool, dtype: torch.dtype) -> TransitionBatch:
    generator = torch_generator(seed)
    columns = [torch.randn(ROWS, *shape, generator=generator, dtype=dtype) for shape in ((3,), (2,), (), (3,), (), ())]
    columns[1].tanh_()
    columns[4] = DISCOUNT * (columns[4] > -1.0).to(dtype)
    weights = columns[5].abs() if weighted else None
    actions = torch.arange(ROWS) % 3 if kind in (DQN, DiscreteSAC) else columns[1]
    return TransitionBatch(columns[0], actions, *columns[2:5], weights)


# -- the formulas, with all their graph --------------------------------------------------------------------------------
def weighted_mean(losses: Tensor, batch: TransitionBatch) -> Tensor:
    return (losses if batch.weights is None else losses * batch.weights).mean(dim=-1).sum()


def bootstrap(batch: TransitionBatch, values: Tensor) -> Tensor:
    return batch.rewards + batch.discounts * values


def gaussian(policy: Any, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_std = policy.net(observations).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(*policy.log_std_bounds).exp())
    before = mean + normal.scale * noise
    actions = before.tanh()
    return actions, (normal.log_prob(before) - (1.0 - actions.square()).log()).sum(dim=-1)


def of_sac(networks: Any, batch: TransitionBatch, noise: Tensor, settings: Any) -> dict[str, Callable[[], Tensor]]:
    alpha = networks.temperature()
    with torch.no_grad():
        actions, log_prob = gaussian(networks.policy, batch.next_observations, noise[0])
        values = torch.minimum(*networks.target_critics(batch.next_observations, actions))
        target = bootstrap(batch, values - alpha * log_prob)

    def critics() -> Tensor:
        return weighted_mean((networks.critics(batch.observations, batch.actions) - target).square() / 2, batch)

    def policy() -> Tensor:
        actions, log_prob = gaussian(networks.policy, batch.observations, noise[1])
        return (alpha * log_prob - torch.minimum(*networks.critics(batch.observations, actions))).mean()

    return {"critics": critics, "policy": policy}


def of_tqc(networks: Any, batch: TransitionBatch, noise: Tensor, settings: Any) -> dict[str, Callable[[], Tensor]]:
    alpha = networks.temperature()
    with torch.no_grad():
        actions, log_prob = gaussian(networks.policy, batch.next_observations, noise[0])
        atoms = torch.cat(list(networks.target_critics(batch.next_observations, actions)), dim=-1)
        kept = atoms.sort(dim=-1).values[:, :9]  # two of each five are left out
        target = bootstrap(batch._replace(rewards=batch.rewards[:, None], discounts=batch.discounts[:, None]),
                           kept - alpha * log_prob[:, None])  # fmt: skip

    def critics() -> Tensor:
        u = target[None, :, None, :] - networks.critics(batch.observations, batch.actions)[..., None]
        tau = (torch.arange(5, dtype=u.dtype)[:, None] + 0.5) / 5
        huber = torch.where(u.abs() <= 1, u.square() / 2, u.abs() - 0.5)
        return weighted_mean(((tau - (u.detach() < 0).to(u.dtype)).abs() * huber).mean(dim=(-1, -2)), batch)

    def policy() -> Tensor:
        actions, log_prob = gaussian(networks.policy, batch.observations, noise[1])
        return (alpha * log_prob - networks.critics(batch.observations, actions).mean(dim=(0, 2))).mean()

    return {"critics": critics, "policy": policy}


def of_discrete(networks: Any, batch: TransitionBatch, noise: Tensor, settings: Any) -> dict[str, Callable[[], Tensor]]:
    alpha = networks.temperature()

    def value(observations: Tensor, critics: Any) -> Tensor:
        log_probs = networks.policy.net(observations).log_softmax(dim=-1)
        values = torch.minimum(*critics(observations)).detach()
        return (log_probs.exp() * (values - alpha * log_probs)).sum(dim=-1)

    with torch.no_grad():
        target = bootstrap(batch, value(batch.next_observations, networks.target_critics))

    def critics() -> Tensor:
        values = networks.critics(batch.observations)[:, torch.arange(ROWS), batch.actions]
        return weighted_mean((values - target).square() / 2, batch)

    return {"critics": critics, "policy": lambda: -value(batch.observations, networks.critics).mean()}


def of_deterministic(
    networks: Any, batch: TransitionBatch, noise: Tensor, settings: Any
) -> dict[str, Callable[[], Tensor]]:
    with torch.no_grad():
        actions = networks.target_policy.net(batch.next_observations)
        if settings.smoothing_std:
            clip = settings.smoothing_clip
            actions = (actions + (settings.smoothing_std * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)
        values = networks.target_critics(batch.next_observations, actions).min(dim=0).values
        target = bootstrap(batch, values)

    def critics() -> Tensor:
        return weighted_mean((networks.critics(batch.observations, batch.actions) - target).square() / 2, batch)

    def policy() -> Tensor:
        return -networks.critics(batch.observations, networks.policy.net(batch.observations))[0].mean()

    return {"critics": critics, "policy": policy}


def of_values(networks: Any, batch: TransitionBatch, noise: Tensor, settings: Any) -> dict[str, Callable[[], Tensor]]:
    rows = torch.arange(ROWS)
    with torch.no_grad():
        following = networks.target(batch.next_observations)
        best = (networks.policy if settings.double else networks.target)(batch.next_observations).argmax(dim=-1)
        target = bootstrap(batch, following[rows, best])

    def policy() -> Tensor:
        error = (networks.policy(batch.observations)[rows, batch.actions] - target).abs()
        return weighted_mean(torch.where(error <= 1, error.square() / 2, error - 0.5), batch)

    return {"policy": policy}


FORMULAS: dict[Any, Any] = {
    SAC: of_sac, TQC: of_tqc, DiscreteSAC: of_discrete, TD3: of_deterministic, DDPG: of_deterministic, DQN: of_values,
}  # fmt: skip
CASES: list[tuple[Any, dict[str, Any]]] = [
    (SAC, {}), (SAC, {"temperature": 0.3}), (TQC, {}), (DiscreteSAC, {}), (TD3, {"policy_delay": 1}), (DDPG, {}),
    (DQN, {"max_grad_norm": None}), (DQN, {"dueling": True, "double": False, "max_grad_norm": None}),
]  # fmt: skip


@pytest.fixture
def autograd_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is computed by hand, as on a GPU."""
    monkeypatch.setattr(nets, "_for_kernel", lambda network: False)


def check_steps(algo: Any, kind: Any, weighted: bool, dtype: torch.dtype) -> dict[str, int]:
    """Three gradient steps, each of whose gradients is that of the formula; how many there were by network."""
    trainer, seen = algo.trainer, {}
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    formulas: dict[str, Callable[[], Tensor]] = {}

    def watched(name: str, optimizer: Any, take: Callable[[Any], None]) -> Callable[[Any], None]:
        def step(gradients: Any) -> None:
            with torch.inference_mode(False), torch.enable_grad():
                expected = torch.autograd.grad(formulas[name](), optimizer.parameters)
            for gradient, other in zip(gradients, expected, strict=True):
                torch.testing.assert_close(gradient.clone(), other, rtol=tolerance, atol=tolerance)
            seen[name] = seen.get(name, 0) + 1
            take(gradients)

        return step

    for name, optimizer in trainer.trained.optimizers.items():
        if name != "temperature":
            optimizer.step = watched(name, optimizer, optimizer.step)
    for seed in range(3):
        batch = batch_of(kind, seed, weighted, dtype)
        noise = torch.randn(2, *batch.actions.shape, generator=torch_generator(seed), dtype=dtype)
        trainer.draw_noise = lambda *shape, noise=noise: noise.reshape(-1)[: int(np.prod(shape))].reshape(shape)
        given = noise if len(noise.shape) and kind not in (TD3, DDPG) else noise[0]
        formulas.update(FORMULAS[kind](trainer.networks, batch, given, trainer.settings))
        trainer.step(batch)
    assert all(np.isfinite(list(trainer.means.take().values())))
    return seen


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_steps_by_hand_are_those_of_the_formulas(
    kind: Any, options: dict[str, Any], activation: str, weighted: bool, dtype: torch.dtype
) -> None:
    algo = learner_of(kind, activation, dtype, **options)
    assert algo.trainer.nets.policy.by_kernel
    assert check_steps(algo, kind, weighted, dtype) == ({"policy": 3} if kind is DQN else {"critics": 3, "policy": 3})


@pytest.mark.usefixtures("autograd_only")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_steps_by_autograd_are_those_of_the_formulas(kind: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    algo = learner_of(kind, "tanh", dtype, **options)
    assert not algo.trainer.nets.policy.by_kernel
    check_steps(algo, kind, True, dtype)


@pytest.mark.usefixtures("autograd_only")
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_the_host_waits_for_nothing(kind: Any, options: dict[str, Any]) -> None:
    """A tensor without numbers cannot be waited for: what asked for one would fail."""
    algo = learner_of(kind, "relu", torch.float32, **options)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        batch = TransitionBatch(*map(mode.from_tensor, batch_of(kind, 0, True, torch.float32)))
        assert isinstance(algo.trainer.step(batch), FakeTensor)


@pytest.mark.parametrize("activation", ["elu", "sigmoid"])
def test_other_activations_are_learned_by_autograd(activation: str) -> None:
    for kind in (TD3, SAC, DQN):
        algo = learner_of(kind, activation, torch.float64)
        assert not algo.trainer.nets.policy.by_kernel
        if kind is not DQN:  # whose gradient is limited, which the formula does not know
            check_steps(algo, kind, True, torch.float64)


def test_a_gradient_has_the_norm_that_is_allowed() -> None:
    free, limited = (learner_of(DQN, "relu", torch.float64, max_grad_norm=most) for most in (None, 0.01))
    norms = []
    for algo in (free, limited):
        optimizer = algo.trainer.trained.optimizers["policy"]
        optimizer.step = lambda gradients: norms.append(torch.stack([g.norm() for g in gradients]).norm().item())
        algo.trainer.step(batch_of(DQN, 0, False, torch.float64))
    assert norms[0] > 0.02 and norms[1] == pytest.approx(0.01, rel=1e-3)


def test_only_what_requires_a_gradient_is_learned() -> None:
    for kind in (SAC, DQN):
        algo = learner_of(kind, "relu", torch.float32)
        policy = algo.policy
        frozen = policy.net.layers[0].requires_grad_(False)
        other = type(algo.trainer.trained)({"policy": policy}, {"policy": 0.1}, torch.device("cpu"))
        assert [id(p) for p in other.optimizers["policy"].parameters] == [
            id(p) for p in policy.parameters() if all(p is not q for q in frozen.parameters())
        ]


def test_classes_of_others_are_computed_by_autograd() -> None:
    class Tripled(Critics):
        def forward(self, *args: Any, **options: Any) -> Tensor:
            return 3.0 * super().forward(*args, **options)

    generator = torch_generator(0)
    critics = Tripled(BOX, 2, SIZES, "relu", generator=generator).double()
    policy = TanhGaussianMLPPolicy(BOX, SIZES, "relu", generator=generator, log_std_bounds=(-0.1, 0.1)).double()
    algo = SAC(
        BOX, policy=policy, qf=critics, buffer_batch_size=ROWS, replay_size=100, min_buffer_size=ROWS, max_path_length=5
    )
    assert algo.trainer.nets.policy.by_kernel and not algo.trainer.nets.critics.by_kernel
    check_steps(algo, SAC, True, torch.float64)


def test_values_of_others_are_learned_as_they_are() -> None:
    class Doubled(GreedyQPolicy):
        def values_of(self, outputs: Tensor) -> Tensor:
            return 2.0 * super().values_of(outputs)

    for dueling in (False, True):
        policy = Doubled(CHOICES, SIZES, "relu", dueling=dueling, generator=torch_generator(0)).double()
        options: dict[str, Any] = {"buffer_batch_size": ROWS, "replay_size": 100, "min_buffer_size": ROWS}
        algo = DQN(CHOICES, policy=policy, max_grad_norm=None, max_path_length=5, **options)
        assert check_steps(algo, DQN, True, torch.float64) == {"policy": 3}


@pytest.mark.parametrize(("kind", "output"), [(SAC, "identity"), (TD3, "tanh"), (DQN, "identity")])
def test_runs_of_before_go_on_where_their_gradients_were_by_hand(kind: Any, output: str) -> None:
    for other in ("identity", "tanh"):
        algo = learner_of(kind, "relu", torch.float32)
        algo.policy.net.output_nonlinearity = other
        assert algo.arithmetic == (1 if other == output else 2)
    assert learner_of(kind, "elu", torch.float32).arithmetic == 2
    frozen = learner_of(kind, "relu", torch.float32)
    frozen.policy.net.layers[0].requires_grad_(False)  # was trained all the same
    assert frozen.arithmetic == 2


def test_networks_of_which_nothing_is_learned_are_refused() -> None:
    policy = DeterministicMLPPolicy(BOX, SIZES, "relu", generator=torch_generator(0)).requires_grad_(False)
    with pytest.raises(ValueError, match="policy must"):
        TD3(BOX, policy=policy, replay_size=100, max_path_length=5)


@pytest.mark.parametrize("kind", [SAC, TD3, DQN])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trainer: cloudpickle.loads(cloudpickle.dumps(trainer))])
def test_a_copy_learns_by_itself(kind: Any, copied: Callable[[Any], Any]) -> None:
    algo = learner_of(kind, "relu", torch.float32)
    steps = [batch_of(kind, seed, False, torch.float32) for seed in range(4)]
    for batch in steps:
        algo.trainer.step(batch)
    other, before = copied(algo.trainer), [p.detach().clone() for p in algo.policy.parameters()]
    for batch in steps:
        other.step(batch)
    assert all(torch.equal(p, q) for p, q in zip(algo.policy.parameters(), before, strict=True))
    for batch in steps:
        algo.trainer.step(batch)
    for p, q in zip(algo.policy.parameters(), other.networks.policy.parameters(), strict=True):
        assert torch.equal(p, q) and not torch.equal(p, before[0])
