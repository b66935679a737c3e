"""Observation encoders: images through convolutions, everything else unchanged, concatenated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from metaroll.checks import check_whole
from metaroll.errors import ShapeError, option_name
from metaroll.policies.networks import Critics, empty_linear, initialize_linear
from metaroll.seeding import as_torch_generator
from metaroll.types import EnvSpec, flat_dim

__all__ = [
    "FixedEncoder",
    "ImageEncoder",
    "ObservationEncoder",
    "encoders_of",
    "holds_images",
    "holds_small_images",
    "is_image",
]

spaces = gymnasium.spaces

_KERNELS, _STRIDES = (8, 4, 3), (4, 2, 1)
"""Three layers (Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods)."""

_SMALLEST = 36
"""Minimum pixels along a side for all three layers to have an output."""


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a space has images: a Box of uint8 ``(H, W, C)``, ``(C, H, W)`` or ``(H, W)``."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def holds_small_images(space: gymnasium.Space[Any]) -> bool:
    """Whether a space has images that are too small for an ``ImageEncoder``."""
    images = (_channels_and_sides(_image_shape(part)) for part in _leaves(space) if is_image(part))
    return any(min(sides) < _SMALLEST for _, *sides in images)


def _image_shape(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    """``(H, W, C)`` or ``(C, H, W)``."""
    shape = tuple(space.shape or ())
    return (*shape, 1) if len(shape) == 2 else shape


def _channels_and_sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if shape[0] < shape[2] else (shape[2], *shape[:2])


def holds_images(space: gymnasium.Space[Any]) -> bool:
    """Whether a space, or a part of it, has images."""
    return any(map(is_image, _leaves(space)))


@final
class _EmptyConv(nn.Conv2d):
    """A convolution with unset weights, like ``empty_linear``."""

    def reset_parameters(self) -> None:
        """Leave the weights unset."""


class ImageEncoder(nn.Module):
    """Three convolutions and a linear layer: ``(B, H * W * C) -> (B, output_dim)``, for pixels from 0 to 255.

    Kernels and strides are those of DQN (Mnih et al. 2015), which had ``filters=(32, 64, 64), output_dim=512``; weights
    are orthogonal. Outputs have layer normalization and tanh (Yarats et al. 2021, arXiv:2004.13649), since most of an
    image is the same in all images. Pixels are scaled to [-0.5, 0.5] on the module's device, so that bytes can be
    transferred.

    Args:
        space: Box of images; the smaller of the first and the last of three axes has the channels.
        output_dim: Number of features.
        filters: Number of filters in each layer.
        generator: Source of the initial weights; ``None`` means fresh entropy.

    Raises:
        ValueError: The space has no images, or images with less than 36 pixels along a side.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        output_dim: int = 64,
        filters: Sequence[int] = (16, 32, 32),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not is_image(space):
            raise ValueError(f"space must be a Box of uint8 images (H, W, C), (C, H, W) or (H, W), got {space}")
        shape = _image_shape(space)
        self._channels_first = shape[0] < shape[2]
        channels, *sides = _channels_and_sides(shape)
        if min(sides) < _SMALLEST:
            raise ValueError(
                f"images must have at least {_SMALLEST} pixels along each side, got shape {shape}: enlarge them in a "
                f"wrapper, or give {option_name('policy')}, a network of your own"
            )
        if len(filters) != len(_KERNELS):
            raise ValueError(f"filters must be {len(_KERNELS)} numbers, got {filters!r}")
        self._shape, self.input_dim = shape, math.prod(shape)
        self.output_dim = check_whole("output_dim", output_dim)
        sizes = [channels, *(check_whole("filters", count) for count in filters)]
        self.convolutions = nn.ModuleList(
            _EmptyConv(a, b, kernel, stride)
            for (a, b), kernel, stride in zip(itertools.pairwise(sizes), _KERNELS, _STRIDES, strict=True)
        )
        for kernel, stride in zip(_KERNELS, _STRIDES, strict=True):
            sides = [(side - kernel) // stride + 1 for side in sides]
        self.layer = empty_linear(sizes[-1] * math.prod(sides), self.output_dim)
        self.reinitialize(generator)

    def reinitialize(self, generator: torch.Generator | None = None) -> None:
        """Reinitialize all weights in place; ``None`` means fresh entropy."""
        generator = as_torch_generator(generator)
        parts: list[Any] = [*self.convolutions, self.layer]
        for part in parts:
            flat = empty_linear(part.weight[0].numel(), len(part.weight))
            initialize_linear(flat, generator, "orthogonal")
            with torch.no_grad():
                part.weight.copy_(flat.weight.view_as(part.weight))
                part.bias.copy_(flat.bias)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Features ``(..., output_dim)`` of flat images ``(..., H * W * C)`` of any dtype."""
        if rows.shape[-1] != self.input_dim:
            raise ShapeError(f"images must have {self.input_dim} numbers each, got shape {tuple(rows.shape)}")
        x = rows.reshape(-1, *self._shape)
        if not self._channels_first:
            x = x.permute(0, 3, 1, 2)
        x = x.to(self.layer.weight.dtype) * (1.0 / 255.0) - 0.5
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        features = F.layer_norm(self.layer(x.flatten(1)), (self.output_dim,))
        return torch.tanh(features).reshape(*rows.shape[:-1], self.output_dim)


class ObservationEncoder(nn.Module):
    """Features of flat observations: ``(..., obs_dim) -> (..., output_dim)``.

    Observations are flat rows, in the order of ``gymnasium.spaces.flatten``. Each image goes through its own
    ``ImageEncoder``, other parts (numbers, choices as one-hot) are unchanged.

    Args:
        space: Observation space: a Box, or a Dict or Tuple of parts.
        image_features: Number of features of each image.
        filters: See ``ImageEncoder``.
        generator: Source of the initial weights; ``None`` means fresh entropy.

    Raises:
        ValueError: Images are too small, or observations are empty.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        image_features: int = 64,
        filters: Sequence[int] = (16, 32, 32),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = as_torch_generator(generator)
        parts = [part for part in _leaves(space) if flat_dim(part)]
        if not parts:
            raise ValueError(f"space must have numbers to see, got {space}")
        self._widths = [flat_dim(part) for part in parts]
        self.images = nn.ModuleDict(
            {
                str(i): ImageEncoder(part, image_features, filters, generator=generator)
                for i, part in enumerate(parts)
                if is_image(part)
            }
        )
        self.input_dim = sum(self._widths)
        seen = (image_features if is_image(part) else flat_dim(part) for part in parts)
        self.output_dim = sum(seen)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Features ``(..., output_dim)``, in the dtype of the weights (float32 without any).

        Raises:
            ShapeError: Observations have another width.
        """
        if rows.shape[-1] != self.input_dim:
            raise ShapeError(f"observations must have {self.input_dim} numbers each, got shape {tuple(rows.shape)}")
        features = []
        for i, part in enumerate(rows.split(self._widths, dim=-1)):
            name = str(i)
            features.append(self.images[name](part) if name in self.images else part.to(torch.float32))
        return features[0] if len(features) == 1 else torch.cat(features, dim=-1)


class FixedEncoder(nn.Module):
    """Features of another encoder, detached: a policy uses the encoder that its critics train.

    Args:
        encoder: The other encoder, not copied.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder, self.output_dim = encoder, int(encoder.output_dim)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Features ``(..., output_dim)``, detached."""
        with torch.no_grad():
            return self.encoder(rows)


def _leaves(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _leaves(part)
    else:
        yield space


def encoders_of(spec: EnvSpec, qf: Any, generator: torch.Generator) -> tuple[nn.Module | None, FixedEncoder | None]:
    """The image encoder of the critics, and that of the policy: the same one, detached.

    Args:
        spec: Spaces.
        qf: The given critics, if any; ``Critics`` have their own encoder, or none.
        generator: Source of the initial weights; without images, it is not used.

    Returns:
        Two encoders; ``None`` for observations without images.
    """
    encoder = qf.encoder if isinstance(qf, Critics) else None
    if qf is None and holds_images(spec.observation_space):
        encoder = ObservationEncoder(spec.observation_space, generator=generator)
    return encoder, None if encoder is None else FixedEncoder(encoder)
