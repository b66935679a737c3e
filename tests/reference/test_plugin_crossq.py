"""CrossQ, the plug-in of the examples: numbers of SBX, and by hand."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import metaroll
from metaroll.errors import SpaceError

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
SMALL: dict[str, Any] = {
    "hidden_sizes": (8, 6),
    "cycles_per_epoch": 3,
    "gradient_steps": 4,
    "batch_size": 8,
    "warmup_steps": 8,
    "random_steps": 8,
    "renorm_warmup_steps": 12,
    "replay_size": 500,
    "max_steps": 8,
    "num_episodes": 1,
}


@pytest.fixture(scope="module")
def crossq() -> Iterator[ModuleType]:
    sys.path.insert(0, str(PLUGINS))
    yield importlib.import_module("crossq")
    sys.path.remove(str(PLUGINS))


def test_batch_renormalization_is_that_of_sbx(crossq: ModuleType) -> None:
    """Values, gradients and running moments, before and after the warm-up, to 1e-6."""
    told = json.loads(Path(__file__).with_name("sbx_batch_renorm.json").read_text("utf-8"))
    norm = crossq.BatchRenorm(3, 0.99, told["warmup_steps"])
    with torch.no_grad():
        norm.weight.copy_(torch.tensor(told["weight"]))
        norm.bias.copy_(torch.tensor(told["bias"]))
    for batch in told["batches"]:
        x = torch.tensor(batch["x"], requires_grad=True)
        y = norm(x, True)
        grad_x, grad_weight = torch.autograd.grad((y * torch.tensor(told["w"])).sum(), (x, norm.weight))
        found = {"y": y, "grad_x": grad_x, "grad_weight": grad_weight, "mean": norm.mean, "var": norm.var}
        found["fixed"] = norm(x, False)
        for name, value in found.items():
            np.testing.assert_allclose(value.detach().numpy(), batch[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_batch_renormalization_by_hand(crossq: ModuleType) -> None:
    """Ioffe 2017, algorithm 1: rows 1 and 3 have mean 2 and variance 1; the running moments are 0 and 1."""
    norm = crossq.BatchRenorm(1, 0.9, 0)
    # r = 1; d = 2 / sqrt(1.001) = 1.9990: (x - 2 + 1.9990) / sqrt(1.001).
    np.testing.assert_allclose(norm(torch.tensor([[1.0], [3.0]]), True).detach(), [[0.9985], [2.9975]], atol=1e-4)
    np.testing.assert_allclose((norm.mean.item(), norm.var.item()), (0.2, 1.0), rtol=1e-6)
    # In the warm-up, the moments of the batch alone.
    early = crossq.BatchRenorm(1, 0.9, 5)
    np.testing.assert_allclose(early(torch.tensor([[1.0], [3.0]]), True).detach(), [[-0.9995], [0.9995]], atol=1e-4)


def test_actions_use_the_running_moments_of_the_actor(crossq: ModuleType) -> None:
    agent = metaroll.agent(crossq.CROSSQ, "Pendulum-v1", epochs=2, **SMALL)
    algo = agent.algo
    metaroll.LocalRunner(seed=0, evaluator={"num_episodes": 1}).setup(algo, "Pendulum-v1")
    rows = torch.randn((32, 3), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for norm in algo.trainer.actor.norms:
            norm.mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(2))
            norm.var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(3))
        algo.trainer.act_as_trained()
        mean = algo.trainer.actor(rows, False)[:, :1]
    action = algo.policy.get_actions(rows.numpy(), deterministic=True)[0]
    np.testing.assert_allclose(action, 2.0 * torch.tanh(mean).numpy(), atol=2e-6)  # torques go to 2


def test_one_gradient_step_by_hand(crossq: ModuleType) -> None:
    """The loss of the critics is that of one batch of steps and successors, without target networks."""
    algo = metaroll.agent(crossq.CROSSQ, "Pendulum-v1", seed=4, **{**SMALL, "policy_delay": 1}).algo
    trainer = algo.trainer
    draws = torch.Generator().manual_seed(5)
    parts = [torch.randn(shape, generator=draws) for shape in ((8, 3), (8, 1), (8,), (8, 3))]
    batch = crossq.TransitionBatch(*parts, discounts=torch.full((8,), 0.9))
    noise = torch.randn((2, 8, 1), generator=torch.Generator().set_state(trainer.noise.get_state()))
    with torch.no_grad():
        following, log_prob = crossq.sample(trainer.actor(batch.next_observations, False), noise[0])
        rows = torch.cat((torch.cat(parts[:2], 1), torch.cat((parts[3], following), 1))).numpy()
        values = []
        for critic in trainer.critics:
            x = rows
            for k, (norm, layer) in enumerate(zip(critic.norms, critic.layers, strict=True)):
                x = np.maximum(x, 0) if k else x
                x = (x - x.mean(0)) / np.sqrt(x.var(0) + norm.eps)  # still in the warm-up
                x = x @ layer.weight.numpy().T + layer.bias.numpy()
            values.append(x[:, 0])
        (q1, q2) = np.stack(values)
        soft = np.minimum(q1[8:], q2[8:]) - log_prob.numpy()
        target = parts[2].numpy() + 0.9 * soft
        loss = 0.5 * (((target - q1[:8]) ** 2).mean() + ((target - q2[:8]) ** 2).mean())
    errors = trainer.step(batch)
    np.testing.assert_allclose(errors.numpy(), target - q1[:8], rtol=1e-4, atol=1e-4)
    found = trainer.means.take()
    np.testing.assert_allclose(found["qf_loss"], loss, rtol=1e-4)
    assert found["temperature"] == 1.0 and trainer.temperature[0].item() != 0.0


def test_discrete_actions_are_refused_with_an_alternative(crossq: ModuleType) -> None:
    with pytest.raises(
        SpaceError, match=r"^CrossQ learns .* a Box of numbers, got Discrete\(2\): discrete-sac, dqn and"
    ):
        metaroll.agent(crossq.CROSSQ, "CartPole-v1")
