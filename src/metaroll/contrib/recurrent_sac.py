"""Recurrent SAC: soft actor-critic with recurrent policy and critics, for partially observable environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, cast, final

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from metaroll import EnvSpec, ReplayBuffer, SegmentBatch
from metaroll.configs import OffPolicyConfig
from metaroll.plugins import (
    API,
    CRITIC_LOSSES,
    POLICY_LOSSES,
    TEMPERATURE_LOSSES,
    BoxExploration,
    BuildOptions,
    Count,
    Domains,
    GRUCell,
    Made,
    Networks,
    OffPolicyLearner,
    RandomFirst,
    ReluNetworks,
    Replay,
    ReplayTrainer,
    ShapeError,
    SoftUpdate,
    Temperature,
    Trained,
    Whole,
    bootstrapped,
    check_policy,
    check_whole,
    critics_loss,
    derive_seed,
    described,
    flatten_batch,
    fresh_seed,
    holds_images,
    is_continuous,
    map_leaves,
    named_as,
    network_options,
    off_policy_row,
    require_box,
    soft_policy_loss,
    soft_settings,
    soft_values,
    squashed_sample,
    target_of,
    temperature_loss,
    torch_generator,
    widened_spec,
)
from metaroll.policies import Critics, LastActionPolicy, TanhGaussianGRUPolicy

__all__ = [
    "ROW",
    "RecurrentCritics",
    "RecurrentNetworks",
    "RecurrentSAC",
    "RecurrentSACConfig",
    "RecurrentSoftTrainer",
    "SegmentLosses",
    "SegmentSizes",
    "SegmentTensors",
    "features_of",
    "segment_losses",
    "segment_tensors",
]


@dataclass(frozen=True, kw_only=True)
class RecurrentSACConfig(RandomFirst, SoftUpdate, OffPolicyConfig):
    """Settings of ``RecurrentSAC``."""

    complete = True

    hidden_size: Annotated[Whole, "Width of the hidden state of default policies and critics."] = 64
    segment_length: Annotated[Whole, "Steps of a segment; batch_size must be a multiple of it."] = 32
    burn_in: Annotated[Count, "Steps before a segment that only warm up the hidden states."] = 8

    def check(self) -> None:
        super().check()
        if self.n_step != 1:
            raise self.wrong("n_step", "be 1, since segments have the rewards of all their steps")
        if self.batch_size % self.segment_length:
            hint = "it counts replayed steps, in complete segments"
            raise self.wrong("batch_size", f"be a multiple of {self.shown('segment_length')}", hint)


class SegmentSizes(NamedTuple):
    """Steps of a segment: to learn from, and before these, to warm up the hidden states."""

    length: int
    burn_in: int


class SegmentTensors(NamedTuple):
    """N segments of burn-in and T steps, of which the M valid steps are learned from.

    Attributes:
        inputs: Inputs of the recurrent cells, observation and last action (0 at the start of an episode), of the
            burn-in, the T steps, and the step after them: ``(burn_in + T + 1, N, obs_dim + act_dim)``.
        keep: 0 where an episode begins, else 1, ``(burn_in + T + 1, N, 1)``.
        rows: Flat indices of the steps, ``t N + n`` with t from 0 after the burn-in, ``(M,)``; the successor of a step
            has the index plus N.
        actions: In the policy's units, ``(M, act_dim)``.
        rewards: Scaled, ``(M,)``.
        discounts: Weight of the successor's value, 0 after a termination, ``(M,)``.
    """

    inputs: Tensor
    keep: Tensor
    rows: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor


def segment_tensors(
    batch: SegmentBatch, space: gymnasium.Space[Any], burn_in: int, device: torch.device, reward_scale: float
) -> SegmentTensors:
    """The sampled segments on ``device``, with time as first axis.

    The action before a segment is unknown, and replaced by 0.
    """
    count, length = batch.mask.shape
    rows = map_leaves(lambda leaf, _: leaf.reshape(count * (length + 1), *leaf.shape[2:]), batch.observations)
    observations = flatten_batch(space, rows)
    actions, obs_dim = batch.actions.reshape(count, length, -1), observations.shape[-1]
    inputs = np.zeros((length + 1, count, obs_dim + actions.shape[-1]), np.float32)
    inputs[..., :obs_dim] = observations.reshape(count, length + 1, -1).swapaxes(0, 1)
    begins = batch.starts.T
    inputs[1:, :, obs_dim:] = np.where(begins[1:, :, None], np.float32(0.0), actions.swapaxes(0, 1))
    valid = batch.mask.T[burn_in:]

    def tensor(column: np.ndarray) -> Tensor:
        return torch.as_tensor(column).to(device)

    def steps(column: np.ndarray) -> Tensor:
        return tensor(column.swapaxes(0, 1)[burn_in:][valid])

    return SegmentTensors(
        tensor(inputs),
        tensor((~begins[..., None]).astype(np.float32)),
        tensor(np.flatnonzero(valid)),
        steps(actions),
        steps(batch.rewards) * reward_scale,
        steps(batch.discounts),
    )


def features_of(cell: GRUCell, segments: SegmentTensors, burn_in: int) -> Tensor:
    """Hidden state and input of each row after the burn-in, ``((T + 1) N, H + obs_dim + act_dim)``.

    The burn-in only warms up the hidden state, from zero, without gradient (Kapturowski et al. 2019, "Recurrent
    experience replay in distributed reinforcement learning", section 3).
    """
    before, inputs = segments.inputs[:burn_in], segments.inputs[burn_in:]
    hidden = None
    if burn_in:
        with torch.no_grad():
            hidden = cell.segments(before, segments.keep[:burn_in])[-1]
    memories = cell.segments(inputs, segments.keep[burn_in:], hidden)
    return torch.cat((memories, inputs), dim=-1).flatten(0, 1)


class RecurrentCritics(nn.Module):
    """K action values ``Q_k(h, x, a)`` of their own hidden state ``h``, the current input ``x``, and an action.

    Args:
        env_spec: Spaces.
        count: Number of critics K.
        hidden_size: Width H of the hidden state of a GRU over observations and last actions.
        hidden_sizes: Widths of the hidden layers after it.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        count: int = 2,
        hidden_size: int = 64,
        hidden_sizes: Sequence[int] = (64,),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        spec = EnvSpec.from_env(env_spec)
        self.hidden_size = check_whole("hidden_size", hidden_size)
        generator = torch_generator(fresh_seed()) if generator is None else generator
        self.input_size = spec.obs_dim + spec.act_dim
        self.cell = GRUCell(self.input_size, self.hidden_size, init=init, generator=generator)
        wide = widened_spec(spec, spec.act_dim + self.hidden_size)
        self.values = Critics(wide, count, hidden_sizes, hidden_nonlinearity, init=init, generator=generator)

    def forward(self, features: Tensor, actions: Tensor, *, fixed: bool = False) -> Tensor:
        """Values ``(K, M)`` for ``features_of`` M steps and ``actions (M, act_dim)`` in [-1, 1]; see ``Critics``."""
        return self.values(features, actions, fixed=fixed)


class RecurrentNetworks(NamedTuple):
    """Policy, critics and target critics, each with its own hidden state, and temperature."""

    policy: TanhGaussianGRUPolicy
    critics: RecurrentCritics
    target_critics: RecurrentCritics
    temperature: Temperature


class SegmentLosses(NamedTuple):
    """The losses of a gradient step, their numbers for the log, and values of M steps.

    Attributes:
        critics, policy: The losses.
        critics_seen, policy_seen: Values of ``CRITIC_LOSSES`` and ``POLICY_LOSSES``.
        log_prob: Log-densities of the policy's actions, ``(M,)``.
        errors: TD errors of the first critic, ``(M,)``.
    """

    critics: Tensor
    policy: Tensor
    critics_seen: Tensor
    policy_seen: Tensor
    log_prob: Tensor
    errors: Tensor


def segment_losses(networks: RecurrentNetworks, segments: SegmentTensors, burn_in: int, noise: Tensor) -> SegmentLosses:
    """The losses of critics and policy (Haarnoja et al. 2018b, arXiv:1812.05905, equations 5 and 9), recurrent.

    Policy and critics have separate recurrent cells over observations and last actions (Ni et al. 2022,
    arXiv:2110.05038, section 4.2). Both losses use the same weights, so that hidden states are computed once: the
    critics must not be stepped before both gradients are known; the policy may, since the critics' loss does not
    depend on it.

    Args:
        networks: All networks.
        segments: Segments.
        burn_in: Number of rows that only warm up the hidden states.
        noise: Standard normal noise for the next actions and for the current ones, ``(2, M, act_dim)``.
    """
    # Indices of the M steps and of their successors; features (h, x) of the policy, ((T + 1) N, H + obs_dim + act_dim)
    now, after = segments.rows, segments.rows + segments.inputs.shape[1]
    policy_features = features_of(networks.policy.cell, segments, burn_in)
    # y = r + d (min_k Q'_k(h', x', a') - alpha ln pi(a' | h', x')), (M,), with a' ~ pi (equations 3 and 5)
    with torch.no_grad():
        actions, log_prob = _sampled(networks.policy, policy_features[after], noise[0])
        following = features_of(networks.target_critics.cell, segments, burn_in)[after]
        values = networks.target_critics(following, actions).amin(dim=0)
        values = soft_values(values, log_prob, networks.temperature())
        target = bootstrapped(segments.rewards, segments.discounts, values)
    # J_Q = sum_k mean((Q_k(h, x, a) - y)^2) / 2, Q (K, M) (equation 5)
    critic_features = features_of(networks.critics.cell, segments, burn_in)[now]
    predicted = networks.critics(critic_features, segments.actions)
    critics, first = critics_loss(predicted, target), predicted.detach()[0]

    # J_pi = mean(alpha ln pi(a | h, x) - min_k Q_k(h, x, a)), a ~ pi, (M, act_dim) (equation 9)
    actions, log_prob = _sampled(networks.policy, policy_features[now], noise[1])
    values = networks.critics(critic_features.detach(), actions, fixed=True).amin(dim=0)
    policy, log_prob = soft_policy_loss(log_prob, values, networks.temperature()), log_prob.detach()
    critics_seen = torch.stack([critics.detach(), first.mean()])
    policy_seen = torch.stack([policy.detach(), log_prob.mean()])
    return SegmentLosses(critics, policy, critics_seen, policy_seen, log_prob, target - first)


def _sampled(policy: TanhGaussianGRUPolicy, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Reparametrized actions in [-1, 1], ``(M, act_dim)``, and their log-densities ``(M,)``."""
    # mu and ln sigma, (M, act_dim) each; a = tanh(mu + sigma n), with autograd for the reparametrized gradient
    mean, log_std = policy.net(features).chunk(2, dim=-1)
    return squashed_sample(mean, log_std.clamp(*policy.log_std_bounds), noise)


@final
class RecurrentSoftTrainer(ReplayTrainer):
    """Steps down ``segment_losses``, then of temperature and targets. They never synchronize with the device.

    Args:
        policy: The policy to train.
        critics: Its critics.
        exploration: The behavior policy.
        settings: Hyperparameters of the steps.
        sizes: Sizes of segments.
        seed: Seed of the noise of gradient steps.
        device: Device of the networks.
    """

    def __init__(
        self,
        policy: TanhGaussianGRUPolicy,
        critics: RecurrentCritics,
        exploration: BoxExploration,
        settings: SoftUpdate,
        sizes: SegmentSizes,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings, self.sizes = settings, sizes
        self.target_entropy = cast("float", settings.target_entropy)  # filled in by soft_settings
        temperature = Temperature(settings.init_temperature if settings.temperature is None else settings.temperature)
        self.networks = RecurrentNetworks(policy, critics, target_of(critics), temperature)
        rates = {"critics": settings.qf_lr, "policy": settings.policy_lr}
        if settings.temperature is None:
            rates["temperature"] = settings.temperature_lr
        super().__init__(exploration, Trained(self.networks._asdict(), rates, device), seed, device)

    def step(self, batch: SegmentTensors) -> Tensor:
        """See ``ReplayTrainer``."""
        networks, settings = self.networks, self.settings
        losses = segment_losses(networks, batch, self.sizes.burn_in, self.draw_noise(2, *batch.actions.shape))
        # Adam on J_pi, then on J_Q, in this order: see segment_losses
        self.trained.step("policy", losses.policy)
        self.trained.step("critics", losses.critics)
        # Temperature: J = -mean(ln alpha (ln pi + H)) (Haarnoja et al. 2018b, equation 18)
        if settings.temperature is None:
            loss = temperature_loss(networks.temperature.log, losses.log_prob, self.target_entropy)
            self.trained.step("temperature", loss)
            self.means.add(TEMPERATURE_LOSSES, networks.temperature())
        # Polyak averaging of the targets: Q' <- (1 - tau) Q' + tau Q
        self.trained.follow("target_critics", "critics", settings.tau)
        self.means.add(CRITIC_LOSSES, losses.critics_seen)
        self.means.add(POLICY_LOSSES, losses.policy_seen)
        return losses.errors

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``: heads are torch's own layers since version 0.2."""
        return 2

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings, SoftUpdate), repr(self.sizes)]


@final
class RecurrentSAC(OffPolicyLearner[RecurrentSACConfig]):
    """SAC with a recurrent policy and recurrent critics, each with its own GRU over observations and last actions.

    For partial observability: velocities, delays, domain parameters that vary between episodes (recurrent SAC of Yang
    and Nguyen 2021, arXiv:2110.12628, and Ni et al. 2022, arXiv:2110.05038). Where rewards are informative beyond
    observations, a ``TrialWrapper`` adds them. It learns from segments of episodes. Hidden states start at zero there,
    and are warmed up by the burn-in (Kapturowski et al. 2019, section 3): the critics do not run during collection, so
    there is none to store, and a stored one would belong to outdated networks.

    Arguments are those of ``OffPolicyLearner``, for Box actions. ``policy`` is a ``LastActionPolicy`` around a
    ``TanhGaussianGRUPolicy``, ``qf`` ``RecurrentCritics`` of two. Defaults have ``hidden_size`` and one layer of 64.
    ``replay_buffer`` is a ``ReplayBuffer`` without priorities or hindsight goals. The policy itself is the behavior
    policy.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = RecurrentSACConfig

    def __init__(self, env_spec: Any, config: RecurrentSACConfig | None = None, **options: Any) -> None:
        super().__init__(env_spec, config, **options)
        self._buffer = _checked_buffer(self.replay_buffer)
        needed = sum(self.sizes) * self.config.num_envs
        if min(self.config.warmup_steps, self._replay.capacity) < needed:
            expected = f"be at least {needed}, and so must the capacity of the replay buffer, {self._replay.capacity}"
            segments = (
                f"a segment has {sum(self.sizes)} steps (with burn-in), in each of {self.config.num_envs} rollouts"
            )
            with named_as(self.config.names_given):
                raise self.config.wrong("warmup_steps", expected, segments)

    @property
    def sizes(self) -> SegmentSizes:
        """Steps of a segment, and of its burn-in."""
        return SegmentSizes(self.config.segment_length, self.config.burn_in)

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        spec = _require_flat(require_box(self.env_spec, "RecurrentSAC", "ppo and dqn learn choices"))
        config = self.config
        generator = torch_generator(derive_seed("soft networks", self.seed))
        policy, qf = _networks(spec, policy, qf, config.hidden_size, generator)
        explorer = BoxExploration(policy if exploration_policy is None else exploration_policy, config.random_steps)
        settings = soft_settings(config, -float(spec.act_dim))
        trainer = RecurrentSoftTrainer(policy.policy, qf, explorer, settings, self.sizes, self.seed, self.device)
        self._trainer = trainer
        return Made(policy, qf, explorer.policy, trainer)

    def sample_segments(self) -> tuple[SegmentBatch, SegmentTensors]:
        """Segments of ``batch_size`` steps from the buffer, and their tensors for gradient steps."""
        drawn = self._buffer.sample_segments(
            self.config.batch_size // self.sizes.length,
            self._generator,
            length=self.sizes.length,
            burn_in=self.sizes.burn_in,
            discount=self.discount,
        )
        space = self.env_spec.observation_space
        return drawn, segment_tensors(drawn, space, self.sizes.burn_in, self.device, self.config.reward_scale)

    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        """``gradient_steps`` steps on segments, once the buffer is filled; returns ``average_return``."""
        if self.is_filled:
            for _ in range(self.config.gradient_steps):
                self._trainer.step(self.sample_segments()[1])
            self._counts.gradient_steps += self.config.gradient_steps
        return self.average_return


def _require_flat(spec: EnvSpec) -> EnvSpec:
    if holds_images(spec.observation_space):
        raise TypeError(f"RecurrentSAC does not support images, got {spec.observation_space}: sac has an encoder")
    return spec


def _checked_buffer(buffer: Any) -> ReplayBuffer:
    if not isinstance(buffer, ReplayBuffer) or not buffer.draws_plainly:
        raise TypeError(
            "replay_buffer must be a ReplayBuffer without priorities or hindsight goals, for use with segments, got "
            f"{type(buffer).__name__}"
        )
    return buffer


def _networks(
    spec: EnvSpec, policy: Any, qf: Any, hidden_size: int, generator: torch.Generator
) -> tuple[LastActionPolicy, RecurrentCritics]:
    """The given networks, if they fit, or the defaults."""
    wide = widened_spec(spec, spec.act_dim)
    options: dict[str, Any] = {"init": "fan_in", "generator": generator}
    if policy is None:
        policy = LastActionPolicy(TanhGaussianGRUPolicy(wide, hidden_size, **options), spec)
    check_policy(policy, LastActionPolicy, spec)
    check_policy(policy.policy, TanhGaussianGRUPolicy, wide)
    if qf is None:
        qf = RecurrentCritics(spec, 2, hidden_size, **options)
    if not isinstance(qf, RecurrentCritics):
        raise TypeError(f"qf must be RecurrentCritics, got {type(qf).__name__}")
    if (qf.input_size, qf.values.count) != (wide.obs_dim, 2):
        raise ShapeError(
            f"qf must be 2 critics of {wide.obs_dim} inputs (observation and last action), got {qf.values.count} of "
            f"{qf.input_size}"
        )
    return policy, qf


def networks(spec: EnvSpec, given: BuildOptions) -> Networks:
    """Policy and critics from the options; none for unsupported spaces."""
    if not is_continuous(spec) or holds_images(spec.observation_space):
        return None, None
    sizes, activation, options = network_options(given)
    width = given.values["hidden_size"]
    acting = TanhGaussianGRUPolicy(widened_spec(spec, spec.act_dim), width, sizes, activation, **options)
    return LastActionPolicy(acting, spec), RecurrentCritics(spec, 2, width, sizes, activation, **options)


ROW = off_policy_row(
    "rsac",
    RecurrentSAC,
    networks,
    api=API,
    configs=(RecurrentSACConfig, ReluNetworks, Domains, Replay),
    filled=("n_step", "policy"),
)
