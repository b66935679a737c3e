"""CrossQ as a plug-in: soft actor-critic with batch renormalization and without target networks.

Bhatt et al. 2024, arXiv:1902.05605. Batch renormalization (Ioffe 2017, arXiv:1702.03275) and the defaults are those of
Stable-Baselines3's SBX: steps and their successors pass the critics in one batch, so that both are normalized alike.

    metaroll train crossq:CROSSQ HalfCheetah-v5 --hidden-sizes 256 256
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaroll import EnvSpec
from metaroll.configs import OffPolicyConfig
from metaroll.plugins import (
    API,
    BoxExploration,
    BuildOptions,
    Count,
    Made,
    Number,
    OffPolicyLearner,
    Positive,
    ReplayTrainer,
    Share,
    Trained,
    TransitionBatch,
    Whole,
    network_generator,
    off_policy_row,
    parts,
    require_box,
)
from metaroll.policies import TanhGaussianMLPPolicy

__all__ = ["CROSSQ", "BatchRenorm", "CrossQ", "CrossQConfig", "Network"]

LOG_STD_BOUNDS = (-20.0, 2.0)
CHOOSING = "discrete-sac, dqn and ppo learn choices"


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(OffPolicyConfig):
    """Settings of ``CrossQ``."""

    policy_lr: Annotated[Positive, "Learning rate of the policy (Adam)."] = 1e-3
    qf_lr: Annotated[Positive, "Learning rate of the critics (Adam)."] = 1e-3
    temperature_lr: Annotated[Positive, "Learning rate of the temperature (Adam)."] = 1e-3
    first_moment_decay: Annotated[Share, "Decay of Adam's first moment, of policy and critics."] = 0.5
    init_temperature: Annotated[Positive, "Initial temperature (weight of entropy relative to rewards)."] = 1.0
    target_entropy: Annotated[Number | None, "Entropy to aim at; null means minus the number of actions."] = None
    policy_delay: Annotated[Whole, "Critic steps per step of the policy and the temperature."] = 3
    moment_decay: Annotated[Share, "Decay of the running moments of batch renormalization."] = 0.99
    renorm_warmup_steps: Annotated[Count, "Initial batches that are normalized by their own moments."] = 100_000
    random_steps: Annotated[Count, "Initial environment steps with uniformly random actions."] = 100
    batch_size = 256
    warmup_steps = 100


class BatchRenorm(nn.Module):
    """Normalizes rows ``(B, D)`` by the moments of a batch, corrected toward running ones.

    Args:
        size: D.
        decay: Decay of the running moments.
        warmup_steps: Number of initial batches that are normalized by their own moments alone.
    """

    eps, r_max, d_max = 1e-3, 3.0, 5.0
    mean: Tensor
    var: Tensor
    steps: Tensor

    def __init__(self, size: int, decay: float, warmup_steps: int) -> None:
        super().__init__()
        self.decay, self.warmup_steps = decay, warmup_steps
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor, train: bool) -> Tensor:
        """Normalized rows ``(B, D)``; ``train`` uses the moments of the batch, and updates the running ones."""
        scale, shift = self.affine(x if train else None)
        return torch.addcmul(shift, x, scale)

    def affine(self, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scale and shift ``(D,)`` of a batch ``(B, D)``, in training, or those by the running moments."""
        mean, var = (self.mean, self.var) if x is None else self._batch_moments(x)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return scale, self.bias - mean * scale

    def _batch_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(dim=0)
        var = (x.square().mean(dim=0) - mean.square()).clamp_min(0.0)
        with torch.no_grad():
            running_std = torch.sqrt(self.var + self.eps)
            # Ioffe 2017, algorithm 1: r = sigma_B / sigma, d = (mu_B - mu) / sigma, (D,); clipped, without gradient
            r = (torch.sqrt(var + self.eps) / running_std).clamp(1 / self.r_max, self.r_max)
            d = ((mean - self.mean) / running_std).clamp(-self.d_max, self.d_max)
            # r = 1, d = 0 during warm-up: plain batch normalization
            is_warm = self.steps >= self.warmup_steps
            r, d = torch.where(is_warm, r, 1.0), torch.where(is_warm, d, 0.0)
            self.mean.lerp_(mean, 1 - self.decay)
            self.var.lerp_(var, 1 - self.decay)
            self.steps += 1
        # (x - mean) / std r + d, written as a normalization by other moments, as in SBX
        return mean - d * torch.sqrt(var) / r, var / r**2


class Network(nn.Module):
    """An MLP with batch renormalization before every layer.

    Args:
        widths: Widths of input, hidden layers and output.
        config: Decay and warm-up of the normalization.
        generator: Source of the initial weights.
    """

    def __init__(self, widths: Sequence[int], config: CrossQConfig, generator: torch.Generator) -> None:
        super().__init__()
        norms = [BatchRenorm(n, config.moment_decay, config.renorm_warmup_steps) for n in widths[:-1]]
        pairs = itertools.pairwise(widths)
        layers = [nn.Linear(n, m, device="meta").to_empty(device="cpu") for n, m in pairs]  # drawn below
        self.norms, self.layers = nn.ModuleList(norms), nn.ModuleList(layers)
        for layer in layers:
            std = layer.in_features**-0.5 / 0.87962566  # of a normal truncated at two deviations
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, train: bool) -> Tensor:
        """Outputs ``(B, out)`` of rows ``(B, in)``."""
        for k, (norm, layer) in enumerate(self._parts()):
            x = F.relu(x) if k else x
            x = F.linear(x, *self._folded(norm, layer, x if train else None))
        return x

    @torch.no_grad()
    def folded(self) -> Tensor:
        """Flat weights and biases of the equivalent MLP without normalization (running moments folded in)."""
        parts = [self._folded(norm, layer, None) for norm, layer in self._parts()]
        return torch.cat([value.flatten() for pair in parts for value in pair])

    def _parts(self) -> Any:
        return zip(self.norms, self.layers, strict=True)

    @staticmethod
    def _folded(norm: BatchRenorm, layer: nn.Linear, x: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weight and bias of a layer after a normalization: ``W (x s + c) + b = (W s) x + (b + W c)``."""
        scale, shift = norm.affine(x)
        return layer.weight * scale, torch.addmv(layer.bias, layer.weight, shift)


def sample(heads: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions ``tanh(mean + std noise)``, ``(B, act_dim)``, and their log-densities ``(B,)``, of ``(B, 2 act_dim)``."""
    mean, log_std = heads.chunk(2, dim=-1)
    log_std = log_std.clamp(*LOG_STD_BOUNDS)
    u = mean + log_std.exp() * noise
    # ln N(u; mean, std) - ln(1 - tanh(u)^2), summed over actions (Haarnoja et al. 2018, appendix C), (B, act_dim)
    gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    squashing = 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
    return torch.tanh(u), (gaussian - squashing).sum(dim=-1)


class CrossQTrainer(ReplayTrainer):
    """Gradient steps of the critics and, every ``policy_delay`` steps, of the policy and the temperature.

    Args:
        acting: Acting policy, with the folded weights of ``actor``.
        actor: The trained policy network.
        critics: The two critics.
        config: Settings.
        learner: Source of seed and device.
    """

    state_parts = parts(**ReplayTrainer.state_parts, steps="steps")

    def __init__(
        self,
        acting: TanhGaussianMLPPolicy,
        actor: Network,
        critics: nn.ModuleList,
        config: CrossQConfig,
        learner: CrossQ,
    ) -> None:
        self.acting, self.actor, self.critics, self.config = acting, actor, critics, config
        self.temperature = nn.ParameterList([torch.tensor(math.log(config.init_temperature))])
        self.target_entropy = -float(acting.act_dim) if config.target_entropy is None else config.target_entropy
        networks = {"critics": critics, "actor": actor, "temperature": self.temperature}
        rates = {"critics": config.qf_lr, "actor": config.policy_lr, "temperature": config.temperature_lr}
        betas = {name: (config.first_moment_decay, 0.999) for name in ("critics", "actor")}
        trained = Trained(networks, rates, learner.device, betas)
        super().__init__(BoxExploration(acting, config.random_steps), trained, learner.seed, learner.device)
        self.steps = 0
        self.act_as_trained()

    def after_restore(self) -> None:
        """See ``Stateful``."""
        self.act_as_trained()

    def act_as_trained(self) -> None:
        """Copy the actor's weights to the acting policy."""
        self.acting.set_param_values(self.actor.folded())

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        self.steps += 1
        for_target, for_policy = self.draw_noise(2, *batch.actions.shape)
        log_alpha = self.temperature[0]
        # a' ~ pi(. | s'), (B, act_dim), and ln pi(a' | s'), (B,)
        with torch.no_grad():
            next_actions, log_prob = sample(self.actor(batch.next_observations, train=False), for_target)
        # Steps and successors in one batch, (2B, ...): normalized by the moments of their mixture
        states = torch.cat((batch.observations, batch.next_observations))
        actions = torch.cat((batch.actions, next_actions))
        values = self._values(states, actions, train=True)  # (2, 2B)
        current, successors = values.chunk(2, dim=1)
        # y = r + gamma (min_k Q_k(s', a') - alpha ln pi(a' | s')), (B,), without gradient: Bhatt 2024, figure 2
        soft = successors.detach().amin(dim=0) - log_alpha.detach().exp() * log_prob
        errors = batch.rewards + batch.discounts * soft - current
        # sum_k mean_B (y - Q_k)^2 / 2, errors (2, B)
        loss = 0.5 * errors.square().mean(dim=1).sum()
        self.trained.step("critics", loss)
        self.means.add(("qf_loss", "q_mean"), torch.stack((loss.detach(), current.detach()[0].mean())))
        if self.steps % self.config.policy_delay == 0:
            self._improve(batch.observations, for_policy, log_alpha)
        return errors.detach()[0]

    def _improve(self, observations: Tensor, noise: Tensor, log_alpha: Tensor) -> None:
        """A gradient step of the policy, and one of the temperature."""
        # J_pi = mean(alpha ln pi(a|s) - min_k Q_k(s, a)), a = tanh(mean + std noise) (Haarnoja et al. 2018), (B,)
        actions, log_prob = sample(self.actor(observations, train=True), noise)
        values = self._values(observations, actions, train=False).amin(dim=0)
        alpha = log_alpha.detach().exp()
        loss = (alpha * log_prob - values).mean()
        self.trained.step("actor", loss)
        # J(alpha) = ln alpha (H - target_entropy): raises alpha while the entropy H is below its target
        entropy = -log_prob.detach().mean()
        self.trained.step("temperature", log_alpha * (entropy - self.target_entropy))
        self.means.add(("policy_loss", "entropy", "temperature"), torch.stack((loss.detach(), entropy, alpha)))

    def _values(self, observations: Tensor, actions: Tensor, train: bool) -> Tensor:
        rows = torch.cat((observations, actions), dim=-1)
        return torch.cat([critic(rows, train).T for critic in self.critics])

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [repr(self.config)]


class CrossQ(OffPolicyLearner[CrossQConfig]):
    """CrossQ: soft actor-critic with batch renormalization and no target networks (Bhatt et al. 2024).

    Arguments are those of ``OffPolicyLearner``; ``policy`` is a ``TanhGaussianMLPPolicy`` with relu, of which only
    the widths are used, and ``qf`` two networks of observations and actions.
    """

    config_class = CrossQConfig
    use_target = False
    trainer: CrossQTrainer

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        spec = require_box(self.env_spec, "CrossQ", CHOOSING)
        if policy is None:
            policy = TanhGaussianMLPPolicy(spec, (256, 256), generator=generator)
        widths = [spec.obs_dim, *(len(layer.bias) for layer in policy.net.layers)]
        actor = Network(widths, self.config, generator)
        if qf is None:
            sizes = [spec.obs_dim + spec.act_dim, *widths[1:-1], 1]
            qf = nn.ModuleList(Network(sizes, self.config, generator) for _ in range(2))
        trainer = CrossQTrainer(policy, actor, qf, self.config, self)
        return Made(policy, qf, trainer.exploration.policy, trainer)

    def improve(self) -> float:
        """See ``OffPolicyLearner``; then copies the actor's weights to the acting policy."""
        average = super().improve()
        self.trainer.act_as_trained()
        return average


def networks(spec: EnvSpec, given: BuildOptions) -> tuple[TanhGaussianMLPPolicy, None]:
    """A policy with the widths of the options; critics have the same widths."""
    if given.init != "fan_in":
        raise ValueError(f"init must be 'fan_in' for crossq, whose layers are drawn in one way, got {given.init!r}")
    spec = require_box(spec, "CrossQ", CHOOSING)
    return TanhGaussianMLPPolicy(spec, given.hidden_sizes, "relu", generator=network_generator(given)), None


CROSSQ = off_policy_row(
    "crossq",
    CrossQ,
    networks,
    api=API,
    purpose="SAC without target networks, with batch renormalization",
    filled=("hidden_nonlinearity",),
    common={"hidden_sizes": (256, 256), "gradient_steps": 10, "cycles_per_epoch": 100, "init": "fan_in"},
)
