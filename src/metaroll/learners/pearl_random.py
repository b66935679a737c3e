"""PEARL's sources of randomness, all derived from one seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from metaroll.seeding import derive_seed, torch_generator

__all__ = ["PEARLGenerators"]


class PEARLGenerators:
    """Generators with a purpose each, so that drawing more for one changes no other.

    Args:
        seed: What they are derived from.
        device: Where the noise of the networks is drawn.

    Attributes:
        tasks: Draws the tasks to visit, and the context of their posterior while collecting.
        batches: Draws tasks, transitions and context of the gradient steps.
        noise: Draws latents and actions in the gradient steps.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self.tasks = np.random.default_rng(derive_seed("pearl tasks", seed))
        self.batches = np.random.default_rng(derive_seed("pearl batches", seed))
        self.noise = self._new_noise()

    def _new_noise(self) -> torch.Generator:
        return torch_generator(derive_seed("pearl noise", self.device.type, self.seed), self.device)

    def belief(self) -> torch.Generator:
        """For draws of z that nothing depends on: a new generator each time, so that they leave training as it is."""
        return torch_generator(derive_seed("pearl belief", self.seed), self.device)

    def move(self, device: torch.device) -> None:
        """Draw noise on ``device`` from now on; on another device that is a new stream."""
        if device != self.device:
            self.device = device
            self.noise = self._new_noise()

    def state_dict(self) -> dict[str, Any]:
        """States of all generators."""
        return {
            "seed": self.seed,
            "tasks": self.tasks.bit_generator.state,
            "batches": self.batches.bit_generator.state,
            "noise": self.noise.get_state(),
            "noise_device": self.device.type,
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; the noise begins anew if that was on another kind of device."""
        self.seed = int(tree["seed"])
        self.tasks.bit_generator.state = tree["tasks"]
        self.batches.bit_generator.state = tree["batches"]
        self.noise = self._new_noise()
        if tree["noise_device"] == self.device.type:  # the states of CPU and GPU generators differ in kind
            self.noise.set_state(tree["noise"].cpu())

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["state"]["seed"], state["device"])
        self.load_state_dict(state["state"])
