"""Embeddings in sbi 0.27: as fixed features, and as the ``embedding_net`` that is given packed series."""

from __future__ import annotations

import importlib

import gymnasium
import pytest
import torch

from metaroll.inference.embeddings import BayesSimEmbedding, DynamicTimeWarpingEmbedding, Embedding, RNNEmbedding
from metaroll.inference.standardization import FeatureStandardizer
from metaroll.seeding import isolated_rng, torch_generator
from metaroll.types import EnvSpec

BOX = gymnasium.spaces.Box
SPEC = EnvSpec(BOX(-1, 1, (2,)), BOX(-1, 1, (1,)))
NUM_SETS, NUM_ROLLOUTS, NUM_STEPS = 60, 2, 12


def simulated(theta: torch.Tensor, seed: int) -> torch.Tensor:
    """Series ``(B, R, T, 3)`` of a mass whose damping and stiffness are ``theta (B, 2)``."""
    generator = torch_generator(seed)
    actions = torch.randn(len(theta), NUM_ROLLOUTS, NUM_STEPS, 1, generator=generator)
    state, states = torch.zeros(len(theta), NUM_ROLLOUTS, 2), []
    for t in range(NUM_STEPS):
        states.append(state)
        force = actions[:, :, t, 0] - theta[:, :1] * state[..., 1] - theta[:, 1:] * state[..., 0]
        velocity = state[..., 1] + 0.3 * force
        state = torch.stack([state[..., 0] + 0.3 * velocity, velocity], dim=-1)
    return torch.cat([torch.stack(states, dim=2), actions], dim=-1)


@pytest.fixture
def inference(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # sbi logs there
    return importlib.import_module("sbi.inference")


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor]:
    theta = 0.5 + torch.rand(NUM_SETS, 2, generator=torch_generator(0))
    return theta, simulated(theta, 1)


def trained(inference, theta: torch.Tensor, x: torch.Tensor, net: torch.nn.Module, z_score_x: str):
    from sbi.neural_nets import posterior_nn
    from sbi.utils import BoxUniform

    builder = posterior_nn(
        "maf",
        embedding_net=net,
        z_score_x=z_score_x,
        hidden_features=8,
        num_transforms=1,  # pyright: ignore
    )
    npe = inference.NPE(BoxUniform(torch.full((2,), 0.5), torch.full((2,), 1.5)), builder, show_progress_bars=False)
    npe.append_simulations(theta, x).train(training_batch_size=20, max_num_epochs=2)
    return npe


@pytest.mark.filterwarnings("ignore")  # sbi's own, of packages that it uses
@pytest.mark.parametrize("kind", ["bayes", "rnn"])
def test_as_embedding_net(kind: str, inference, data) -> None:
    """specs/sampling.md 19.4 B: packed series go in, and the embedding is what it was after training."""
    theta, series = data
    net: Embedding = BayesSimEmbedding(SPEC, 3, downsampling_factor=2)
    if kind == "rnn":
        net = RNNEmbedding(SPEC, 3, 4, 2, 2, len_rollouts=NUM_STEPS, dropout=0.5, generator=0)
    x = Embedding.pack(series)
    before = net(x)
    with isolated_rng(0):
        npe = trained(inference, theta, x, net, "structured")
        draws = npe.build_posterior().sample((5,), x=x[:1], show_progress_bars=False)
    assert draws.shape == (5, 2) and draws.isfinite().all()
    assert torch.equal(net(x), before)


@pytest.mark.filterwarnings("ignore")
def test_as_fixed_features_of_which_one_is_constant(inference, data) -> None:
    """specs/sampling.md 19.4 A: a constant feature that deviates in the observed data leaves the posterior finite."""
    theta, series = data
    embedding = DynamicTimeWarpingEmbedding(SPEC, 3)
    target = simulated(torch.tensor([[1.0, 1.0]]), 1).expand_as(series)
    features = embedding(Embedding.pack(torch.cat([series, target], dim=-1)))
    features = torch.cat([features, torch.full((NUM_SETS, 1), 7.0)], dim=1)
    net = FeatureStandardizer(features)
    assert net.constant.tolist() == [False] * 4 + [True]  # two states of two rollouts, and one planted
    observed = torch.cat([torch.zeros(1, 4), torch.full((1, 1), 7.5)], dim=1)
    with isolated_rng(0):
        npe = trained(inference, theta, features, net, "none")
        log_prob = npe.build_posterior().log_prob(theta[:1], x=observed)
    assert log_prob.isfinite().all() and log_prob.abs() < 1e3
