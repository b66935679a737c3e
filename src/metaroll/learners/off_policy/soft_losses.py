"""Gradient steps of learners beside SAC that are paid for entropy: losses of their own, the temperature of SAC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from metaroll.functional.gradients.actor_critic import temperature_loss
from metaroll.learners.off_policy.exploring import Exploration
from metaroll.learners.off_policy.networks import Critics, target_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.soft import (
    POLICY_LOSSES,
    TEMPERATURE_LOSSES,
    PolicyLosses,
    SoftNetworks,
    SoftSettings,
    Temperature,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained
from metaroll.learners.snapshots import described
from metaroll.policies.acting import ActingPolicy

__all__ = ["SoftLosses", "SoftLossesTrainer"]


class SoftLosses(NamedTuple):
    """What a gradient step goes down, as functions of networks, batch and noise.

    Attributes:
        critics: That of the critics, with noise ``(B, ...)`` of the shape of the actions.
        policy: That of the policy, in the same way; its log-densities lead the temperature.
        told: What a snapshot must agree with.
    """

    critics: Callable[[SoftNetworks, TransitionBatch, Tensor], CriticLosses]
    policy: Callable[[SoftNetworks, TransitionBatch, Tensor], PolicyLosses]
    told: str = ""


@final
class SoftLossesTrainer(ReplayTrainer):
    """Steps down ``losses``, critics first, then the temperature; targets follow. The host waits for nothing.

    Args:
        policy: What is trained.
        critics: Its values.
        exploration: What acts.
        settings: How.
        losses: What it goes down.
        seed: Seed of the noise of gradient steps.
        device: Where they run.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        critics: Critics,
        exploration: Exploration,
        settings: SoftSettings,
        losses: SoftLosses,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings, self.losses = settings, losses
        fixed = settings.temperature
        temperature = Temperature(settings.init_temperature if fixed is None else fixed)
        self.networks = SoftNetworks(policy, critics, target_of(critics), temperature)
        rates = {"critics": settings.qf_lr, "policy": settings.policy_lr}
        rates |= {"temperature": settings.temperature_lr} if fixed is None else {}
        super().__init__(exploration, Trained(self.networks._asdict(), rates, device), seed, device)

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        networks, settings = self.networks, self.settings
        for_target, for_policy = self.draw_noise(2, *batch.actions.shape)
        critic = self.losses.critics(networks, batch, for_target)
        self.trained.step("critics", critic.loss)
        policy = self.losses.policy(networks, batch, for_policy)
        self.trained.step("policy", policy.loss)
        if settings.temperature is None:
            loss = temperature_loss(networks.temperature.log, policy.log_prob, settings.target_entropy)
            self.trained.step("temperature", loss)
            self.means.add(TEMPERATURE_LOSSES, networks.temperature())
        self.trained.follow("target_critics", "critics", settings.target_update_tau)
        self.means.add(CRITIC_LOSSES, critic.seen)
        self.means.add(POLICY_LOSSES, policy.seen)
        return critic.errors

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings), self.losses.told]
