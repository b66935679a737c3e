"""PEARL's gradient step against a plain one: every loss its own backward pass, in the order of specs/meta.md 4.6."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from metaroll.compat.constructors import PEARL
from metaroll.data.step_sequence import StepSequence
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import QFunction
from metaroll.types import EnvSpec, TaskNote

OBS, ACT, LATENT, TASKS = 4, 2, 3, 3
SPEC = EnvSpec(gymnasium.spaces.Box(-1, 1, (OBS,)), gymnasium.spaces.Box(-1, 1, (ACT,)))


def build(bottleneck: bool) -> PEARL:
    augmented = PEARL.augment_env_spec(SPEC, LATENT)
    generators = [torch.Generator().manual_seed(k) for k in range(3)]
    algo = PEARL(
        env=[TaskNote() for _ in range(TASKS)],
        inner_policy=TanhGaussianMLPPolicy(augmented, hidden_sizes=(16, 16), generator=generators[0]),
        qf=QFunction(augmented, hidden_sizes=(16, 16), generator=generators[1]),
        vf=QFunction(PEARL.get_env_spec(SPEC, LATENT, "vf"), hidden_sizes=(16, 16), generator=generators[2]),
        num_train_tasks=TASKS,
        num_test_tasks=1,
        latent_dim=LATENT,
        encoder_hidden_sizes=(16,),
        test_env_sampler=None,
        policy_lr=1e-3,
        qf_lr=2e-3,
        vf_lr=3e-3,
        context_lr=4e-3,
        policy_mean_reg_coeff=0.01,
        policy_std_reg_coeff=0.02,
        policy_pre_activation_coeff=0.03,
        soft_target_tau=0.1,
        use_information_bottleneck=bottleneck,
        meta_batch_size=2,
        batch_size=8,
        embedding_batch_size=5,
        embedding_mini_batch_size=5,
        max_path_length=30,
        reward_scale=3,
        discount=0.9,
        env_spec=SPEC,
        seed=0,
    )
    generator = np.random.default_rng(0)
    for task in range(TASKS):
        rollout = StepSequence(
            rewards=generator.normal(size=30),
            observations=generator.uniform(-1, 1, (31, OBS)),
            actions=generator.uniform(-1, 1, (30, ACT)),
            terminated=generator.random(30) < 0.2,
            truncated=np.zeros(30, dtype=bool),
            continuous=True,
        )
        algo._buffers.add([task], [[rollout]], to_context=True)
    return algo


class PlainStep:
    """The textbook order, with plain Adam and nothing shared between the losses."""

    def __init__(self, algo: PEARL, bottleneck: bool) -> None:
        nets = copy.deepcopy([net for k, net in enumerate(algo.networks) if k != 2])
        self.encoder, self.inner, self.q1, self.q2, self.vf, self.target = nets
        rates = zip((self.inner, self.q1, self.q2, self.vf, self.encoder), (1e-3, 2e-3, 2e-3, 3e-3, 4e-3), strict=True)
        self.adam = [torch.optim.Adam(net.parameters(), lr=lr, foreach=False) for net, lr in rates]
        self.noise = torch.Generator()
        self.noise.set_state(algo._random.noise.get_state())
        self.bottleneck = bottleneck

    def latent(self, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = self.encoder(context)
        if not self.bottleneck:
            return encoded.mean(1), torch.zeros(())
        means, variances = encoded[..., :LATENT], F.softplus(encoded[..., LATENT:])
        variances = variances.clamp(min=1e-7)
        var = 1 / sum(1 / variances[:, n] for n in range(context.shape[1]))
        mean = var * sum(means[:, n] / variances[:, n] for n in range(context.shape[1]))
        kl = torch.distributions.kl_divergence(
            torch.distributions.Normal(mean, var.sqrt()), torch.distributions.Normal(0.0, 1.0)
        ).sum()
        return mean + var.sqrt() * torch.randn(mean.shape, generator=self.noise), kl

    def step(self, rows: torch.Tensor, context: torch.Tensor) -> None:
        policy_adam, q1_adam, q2_adam, v_adam, encoder_adam = self.adam
        z_task, kl = self.latent(context)
        z = torch.stack([z_task[x] for x in range(len(rows)) for _ in range(rows.shape[1])])
        flat = rows.reshape(-1, rows.shape[-1])
        obs, act, reward, next_obs, end = flat.split([OBS, ACT, 1, OBS, 1], dim=1)

        mean, log_std = self.inner.net(torch.cat([obs, z.detach()], 1)).chunk(2, 1)
        log_std = log_std.clamp(-20, 2)
        pre_tanh = mean + log_std.exp() * torch.randn(mean.shape, generator=self.noise)
        action = torch.tanh(pre_tanh)
        normal = torch.distributions.Normal(mean, log_std.exp())
        log_pi = (normal.log_prob(pre_tanh) - torch.log(1 - action**2)).sum(1, keepdim=True)

        encoder_adam.zero_grad()
        if self.bottleneck:
            (0.1 * kl).backward(retain_graph=True)
        q1_adam.zero_grad()
        q2_adam.zero_grad()
        y = 3 * reward + (1 - end) * 0.9 * self.target(next_obs, z.detach()).detach()
        q1, q2 = self.q1(torch.cat([obs, act], 1), z), self.q2(torch.cat([obs, act], 1), z)
        (((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()).backward()
        for adam in (q1_adam, q2_adam, encoder_adam):
            adam.step()

        inputs = torch.cat([obs, action], 1), z.detach()
        min_q = torch.minimum(self.q1(*inputs), self.q2(*inputs))
        v_adam.zero_grad()
        ((self.vf(obs, z.detach()) - (min_q - log_pi).detach()) ** 2).mean().backward()
        v_adam.step()
        with torch.no_grad():
            for t, v in zip(self.target.parameters(), self.vf.parameters(), strict=True):
                t.copy_(0.9 * t + 0.1 * v)

        policy_adam.zero_grad()
        loss = (log_pi - min_q).mean() + 0.01 * (mean**2).mean() + 0.02 * (log_std**2).mean()
        (loss + 0.03 * (pre_tanh**2).sum(1).mean()).backward()
        policy_adam.step()


@pytest.mark.parametrize("bottleneck", [True, False])
def test_gradient_steps_equal_the_plain_order(bottleneck: bool):
    """specs/meta.md 4.6"""
    algo = build(bottleneck)
    plain = PlainStep(algo, bottleneck)
    generator = np.random.default_rng()
    for tasks in ([0, 1], [2, 2], [1, 0]):
        generator.bit_generator.state = algo._random.batches.bit_generator.state
        context = torch.from_numpy(algo._buffers.sample_context(tasks, 5, generator))
        rows = torch.from_numpy(algo._buffers.sample_transitions(tasks, 8, generator))
        algo._gradient_step(tasks)
        plain.step(rows, context)
    own = [net for k, net in enumerate(algo.networks) if k != 2]
    theirs = [plain.encoder, plain.inner, plain.q1, plain.q2, plain.vf, plain.target]
    for ours, other in zip(own, theirs, strict=True):
        for a, b in zip(ours.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-6)
