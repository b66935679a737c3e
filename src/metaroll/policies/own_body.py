"""A user's torch module as the body of a policy: it computes features, the policy's output layer computes actions."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, final

import cloudpickle
import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from metaroll.errors import NetworkError, NotPicklableError, ShapeError, option_name, option_text
from metaroll.policies.parameters import BoundModule, one_call, part_of, tensors_of
from metaroll.seeding import GlobalStates, derive_seed, global_states, isolated_rng, torch_generator
from metaroll.types import EnvSpec, Policy

__all__ = [
    "OwnBody",
    "as_body",
    "check_picklable",
    "check_stacks",
    "has_own_body",
    "name_of",
    "outputs_of",
    "takes_one_row",
]

_TRIED_ROWS = 3
_FAR = 1e4
"""Samples of unbounded spaces may be larger than networks can handle."""
_DTYPES = (torch.float32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_LARGEST_EXACT = 2**24
"""Integers up to here are exact in float32."""
_SEED = "seed"
"""Additional entry in the state of a body with random numbers (dropout)."""
_SMALL_STEP, _LARGEST_ERROR = 1e-6, 1e-3
"""Step and relative error of second derivatives by finite differences, in float64."""


@final
class OwnBody(nn.Module):
    """Features ``(..., output_dim)`` of observations ``(..., input_dim)``, by a module on rows.

    The module is in evaluation mode except in passes with a gradient: acting, targets and evaluations use the running
    moments of batch normalization, and no dropout.

    Args:
        module: Maps float32 rows ``(N, input_dim)`` to float32 rows ``(N, output_dim)``.
        input_dim, output_dim: Widths.
        seed: Seed of the module's draws from global generators in training mode (dropout); ``None``: none.
        takes_one_row: Whether a single row can have a gradient, which batch normalization refuses.

    Attributes:
        passes: Number of training passes so far, a buffer ``()``, so that a resumed run draws the same dropout masks.
    """

    passes: Tensor

    def __init__(
        self, module: nn.Module, input_dim: int, output_dim: int, seed: int | None = None, takes_one_row: bool = True
    ) -> None:
        super().__init__()
        self.module = module.eval()
        self.input_dim, self.output_dim, self._seed = input_dim, output_dim, seed
        self.takes_one_row = takes_one_row
        if seed is not None:
            self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, rows: Tensor) -> Tensor:
        """Features ``(..., output_dim)``.

        Raises:
            ShapeError: Observations have another width.
            ValueError: The module cannot compute a gradient of a single row (batch normalization).
        """
        if rows.shape[-1] != self.input_dim:
            raise ShapeError(f"observations must have {self.input_dim} numbers each, got shape {tuple(rows.shape)}")
        own = next(self.module.parameters(), None)
        # A copy: the module may work in place, and the rows belong to the caller, or to a replay buffer.
        flat = rows.reshape(-1, self.input_dim).to(torch.float32 if own is None else own.dtype, copy=True)
        features = self._learning(flat) if torch.is_grad_enabled() else self.module(flat)
        return features.reshape(*rows.shape[:-1], self.output_dim)

    def _learning(self, rows: Tensor) -> Tensor:
        """A pass in training mode."""
        self.module.train()
        try:
            if self._seed is None:
                return self.module(rows)
            with isolated_rng(derive_seed("own body", self._seed, int(self.passes))):
                self.passes += 1
                return self.module(rows)
        except Exception as error:
            if len(rows) != 1:
                raise
            raise ValueError(
                f"{_option_with_name(type(self.module).__name__)} cannot compute a gradient of a single row (batch "
                f"normalization): {error}; {option_name('batch_size')} must be 2 or more; or use nn.LayerNorm instead "
                "of batch normalization. Without training: with torch.no_grad()"
            ) from error
        finally:
            self.module.eval()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._seed is not None:
            destination[prefix + _SEED] = torch.tensor(self._seed)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if self._seed is not None and prefix + _SEED in state_dict:  # not in states of earlier versions
            self._seed = int(state_dict.pop(prefix + _SEED))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def outputs(self, parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """``forward`` as a function of parameters and buffers, or of stacks ``(M, ...)`` of them and of rows."""
        with one_call:
            own = tensors_of(self)
            if any(value.ndim > own[name].ndim for name, value in parameters.items()):
                return torch.func.vmap(lambda each, part: BoundModule(self, each)(part))(dict(parameters), rows)
            return BoundModule(self, parameters)(rows)


def has_own_body(policy: Any) -> bool:
    """Whether a policy, or the inner one of a wrapper, has an ``OwnBody``."""
    return isinstance(policy, nn.Module) and any(isinstance(part, OwnBody) for part in policy.modules())


def takes_one_row(policy: nn.Module) -> bool:
    """Whether a policy can compute a gradient of a single row."""
    return all(part.takes_one_row for part in policy.modules() if isinstance(part, OwnBody))


def check_picklable(policy: Any) -> None:
    """Raise an error that names the user's network if it keeps ``policy`` from being sent to workers.

    Raises:
        NotPicklableError: A module cannot be pickled.
    """
    bodies = [part for part in policy.modules() if isinstance(part, OwnBody)] if has_own_body(policy) else []
    for module in (body.module for body in bodies):
        try:
            cloudpickle.dumps(module)
        except Exception as error:
            raise NotPicklableError(
                f"{_option_with_name(type(module).__name__)} must be a module that can be pickled, since it is "
                f"sent to workers, and raised {type(error).__name__}: {str(error).split('. ')[0].strip()}; what "
                "torch.nn.utils.parametrizations and torch.jit.script make cannot be, torch.nn.utils.weight_norm and "
                f"spectral_norm can; or collect in this process: {option_text('num_workers', 1)}"
            ) from error


def as_body(given: Any, env_spec: EnvSpec, generator: torch.Generator) -> OwnBody:
    """The argument ``policy`` as a body.

    Args:
        given: A module, which is copied and keeps its weights; or a class or function that makes one from ``env_spec``,
            with weights determined by ``generator`` alone.
        env_spec: Spaces of the policy.
        generator: Seeds the global generators while the module is made and tested; they are restored afterwards.

    Raises:
        ShapeError: The module does not accept rows of observations, or does not return rows of features.
        TypeError: It is not a module, does not make one, has tensors of an unsupported type, or computes no gradient
            for its parameters.
        ValueError: It returns NaN or Inf, rows depend on each other, or it has random numbers or state beyond the seed.
    """
    name = name_of(given)
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    with isolated_rng(seed):
        module = _made(given, name, env_spec)
        _check_numbers(module, name)
        rows = _rows_of(env_spec, seed)
        features = _tried(module.eval(), name, rows, _hint(given))
        draws = _draws(module, name, rows)
        takes_one_row = _takes_one_row(module, rows)
    _check_numbers(module, name)  # lazy modules have more of them now
    return OwnBody(module, env_spec.obs_dim, features.shape[1], seed if draws else None, takes_one_row)


def name_of(given: Any) -> str:
    """The name of a class or function; for other objects, that of their class."""
    return given.__name__ if isinstance(given, type | FunctionType) else type(given).__name__


def _made(given: Any, name: str, env_spec: EnvSpec) -> nn.Module:
    if isinstance(given, Policy):
        raise NetworkError(
            f"{option_name('policy')} must be a torch.nn.Module from observations to features, got {name}, which is a "
            f"policy: pass it to the learner, for example metaroll.SAC(env_spec, policy=...)"
        )
    if isinstance(given, nn.Module):
        try:
            return copy.deepcopy(given)
        except Exception as error:
            raise NetworkError(
                f"{_option_with_name(name)} cannot be copied ({error}): give its class instead"
            ) from error
    if not callable(given):
        raise NetworkError(_not_a_module(given))
    try:
        module = given(env_spec)
    except Exception as error:
        raise NetworkError(
            f"{_option_with_name(name)} cannot be made: {name}(env_spec) raised {type(error).__name__}: {error}; it is "
            "called with the EnvSpec of the policy, whose obs_dim is the width of its rows: for example "
            "policy=lambda spec: MyModule(spec.obs_dim)"
        ) from error
    if not isinstance(module, nn.Module) or isinstance(module, Policy):
        raise NetworkError(_not_a_module(module, f", of {name}(env_spec)"))
    return module


def _not_a_module(value: Any, where: str = "") -> str:
    return (
        f"{option_name('policy')} must be a torch.nn.Module, or a class or function that makes one of an EnvSpec, got "
        f"{value!r} of type {type(value).__name__}{where}"
    )


def _hint(given: Any) -> str:
    """Hint for a class of torch itself, which does not take an EnvSpec."""
    if not isinstance(given, type) or given.__module__.partition(".")[0] != "torch":
        return ""
    name = given.__name__
    return (
        f"; the class was called with the EnvSpec, {name}(env_spec): give an instance, policy={name}(...), or a "
        f"function of the EnvSpec, policy=lambda spec: {name}(...)"
    )


def _option_with_name(name: str) -> str:
    return f"{option_name('policy')} ({name})"


def _rows_of(env_spec: EnvSpec, seed: int) -> Tensor:
    """Random flat observations, ``(3, obs_dim)``."""
    space = copy.deepcopy(env_spec.observation_space)
    space.seed(seed % 2**31)
    drawn = [gymnasium.spaces.flatten(space, space.sample()) for _ in range(_TRIED_ROWS)]
    rows = np.array(drawn, dtype=np.float64)
    return torch.from_numpy(np.where(np.abs(rows) > _FAR, np.sign(rows), rows).astype(np.float32))


@torch.no_grad()
def _tried(module: nn.Module, name: str, rows: Tensor, hint: str) -> Tensor:
    """Checked features of ``rows``; the error of a failing pass includes ``hint``."""
    width = rows.shape[1]
    try:
        features = module(rows.clone())
        alone = [module(row[None].clone()) for row in rows]
    except Exception as error:
        raise ShapeError(
            f"{_option_with_name(name)} must take rows of {width} numbers, and raised {type(error).__name__} for shape "
            f"{tuple(rows.shape)}: {error}{hint}"
        ) from error
    if not isinstance(features, Tensor):
        raise NetworkError(
            f"{_option_with_name(name)} must give a tensor of features (N, F) for rows (N, {width}), got "
            f"{type(features).__name__}: write a module whose forward returns the features alone"
        )
    if features.ndim != 2 or len(features) != len(rows) or not features.shape[1]:
        raise ShapeError(
            f"{_option_with_name(name)} must give rows (N, F) for rows (N, {width}), got shape "
            f"{tuple(features.shape)} for {tuple(rows.shape)}"
        )
    if features.dtype != torch.float32:
        raise NetworkError(f"{_option_with_name(name)} must give float32, got {features.dtype}: module.float()")
    if not bool(features.isfinite().all()):
        raise ValueError(
            f"{_option_with_name(name)} must give finite numbers, got NaN or Inf for rows of the observation space"
        )
    if not torch.allclose(features, torch.cat(alone), rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"{_option_with_name(name)} must treat each row independently and deterministically in evaluation mode: a "
            "row alone gives other features than in a batch (an nn.GRU or nn.LSTM takes rows for steps in time)"
        )
    return features


def _draws(module: nn.Module, name: str, rows: Tensor) -> bool:
    """Whether a training pass draws from global generators, which (with its tensors) must determine the result."""
    drawn, passes, features = False, [], rows
    try:
        copied = copy.deepcopy(module).train()
        kept = {part: value.detach().clone() for part, value in tensors_of(copied).items()}
        for _ in range(2):
            with torch.no_grad():
                for part, value in tensors_of(copied).items():
                    value.copy_(kept[part])
            with isolated_rng(_TRIED_ROWS):
                before = global_states()
                features = copied(rows.clone())
                drawn = drawn or _differ(before, global_states())
            passes.append([features.detach(), *(value.detach().clone() for value in tensors_of(copied).values())])
    except Exception as error:
        raise NetworkError(
            f"{_option_with_name(name)} must take rows {tuple(rows.shape)} in training mode, too, and raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if not features.requires_grad and any(value.requires_grad for value in module.parameters()):
        raise NetworkError(
            f"{_option_with_name(name)} computes no gradient for its parameters: its features must depend on them, "
            "without torch.no_grad(), detach() or NumPy in between; to freeze parameters: requires_grad_(False)"
        )
    one, other = passes
    if len(one) != len(other) or not all(map(_are_same, one, other)):
        raise ValueError(
            f"{_option_with_name(name)} gives other features for the same rows, seed, parameters and buffers in "
            "training mode: draw from torch's global generator (no generator of its own), and keep what changes in "
            "buffers (register_buffer)"
        )
    return drawn


def _takes_one_row(module: nn.Module, rows: Tensor) -> bool:
    """Whether a training pass with a single row gives finite features."""
    copied = copy.deepcopy(module).train()
    try:
        with torch.no_grad():
            return bool(copied(rows[:1].clone()).isfinite().all())
    except Exception:
        return False


def _are_same(one: Tensor, other: Tensor) -> bool:
    return np.array_equal(one.numpy(), other.numpy(), equal_nan=True)


def _differ(one: GlobalStates, other: GlobalStates) -> bool:
    """Whether states of ``random``, NumPy or torch on the CPU differ."""
    words = [states[1][1] for states in (one, other)]
    scalars = [(states[0], *states[1][2:]) for states in (one, other)]
    return scalars[0] != scalars[1] or not np.array_equal(*words) or not torch.equal(one[2], other[2])


def _keep_buffers(module: nn.Module) -> None:
    """Make all buffers persistent, so that snapshots include them."""
    kept = module.state_dict()
    for path, part in module.named_modules():
        for name, value in list(part.named_buffers(recurse=False)):
            if (f"{path}.{name}" if path else name) not in kept:
                part.register_buffer(name, value)


def _check_numbers(module: nn.Module, name: str) -> None:
    """Raise ``TypeError`` unless all parameters and buffers, which snapshots include, are exact in float32."""
    _keep_buffers(module)
    for part, value in tensors_of(module).items():
        if value.dtype not in _DTYPES:
            raise NetworkError(
                f"{_option_with_name(name)} must be of float32, got {part} of {value.dtype}: module.float()"
            )
        if value.device.type != "cpu":
            raise NetworkError(
                f"{_option_with_name(name)} must be made on the CPU, got {part} on {value.device}: module.cpu()"
            )
        if value.dtype != torch.float32 and value.numel() and value.double().abs().max() > _LARGEST_EXACT:
            raise NetworkError(
                f"{_option_with_name(name)} must have integers within 2**24, which float32 holds, got {part} beyond"
            )
    state = module.state_dict()
    if lost := [part for part in tensors_of(module) if part not in state]:
        raise NetworkError(
            f"{_option_with_name(name)} must have all its tensors in its state_dict, got {lost[0]} outside of it"
        )
    for part, value in state.items():
        if not isinstance(value, Tensor):
            raise NetworkError(
                f"{_option_with_name(name)} must have a state of tensors, got {part} of type {type(value).__name__}"
            )


def check_stacks(policy: Any, distribution: Callable[[Tensor, Tensor], Any], second_order: bool) -> None:
    """Test a policy with an ``OwnBody`` for meta-gradients: stacks of parameters, and second derivatives.

    Args:
        policy: The policy.
        distribution: Action distribution for flat parameters ``(2, P)`` and observations ``(2, N, obs_dim)``.
        second_order: Whether second derivatives are needed.

    Raises:
        TypeError: The body does not support this.
    """
    body = next(part for part in policy.modules() if isinstance(part, OwnBody))
    where = f"{_option_with_name(type(body.module).__name__)} cannot be meta-learned"
    drawn = torch_generator(0)
    observations = torch.randn(2, 2 * _TRIED_ROWS, policy.input_dim, generator=drawn)
    flat = torch.from_numpy(np.stack([policy.acting_parameters()] * 2))
    weights = np.concatenate([np.full(value.numel(), value.requires_grad) for value in _acting(policy)])
    direction = torch.randn(flat.shape, generator=drawn, dtype=torch.float64) * torch.from_numpy(weights)

    def gradient(sets: Tensor, create_graph: bool) -> tuple[Tensor, Tensor]:
        leaf = sets.clone().requires_grad_()
        seen: list[Tensor] = []
        distribution(leaf, observations.to(sets.dtype)).map(lambda tensor: seen.append(tensor) or tensor)
        loss = torch.stack([tensor.square().mean() for tensor in seen]).sum()
        return leaf, torch.autograd.grad(loss, leaf, create_graph=create_graph)[0]

    def product(sets: Tensor) -> Tensor:
        leaf, slope = gradient(sets, True)
        return torch.autograd.grad((slope * direction.to(slope.dtype)).sum(), leaf)[0]

    try:
        gradient(flat, False)
    except Exception as error:
        raise NetworkError(
            f"{where}: a gradient over a stack of 2 sets of parameters (torch.func.vmap) raised "
            f"{type(error).__name__}: {error}; use stateless, deterministic modules: nn.LayerNorm or nn.GroupNorm "
            "instead of batch normalization, no dropout, no nn.GRU or nn.LSTM, no in-place operations"
        ) from error
    if not second_order:
        return
    hint = "use operations that have second derivatives, or second_order=False without a trust region"
    try:
        product(flat)
    except Exception as error:
        raise NetworkError(
            f"{where}: a derivative of its gradient raised {type(error).__name__}: {error}; {hint}"
        ) from error
    norms = _norms_if_apart(product, lambda sets: gradient(sets, False)[1], flat.double(), direction)
    if norms is not None:
        raise NetworkError(
            f"{where}: the derivative of its gradient is wrong: along a random direction it has norm {norms[0]:.3g}, "
            f"by finite differences of the gradient {norms[1]:.3g}; {hint}"
        )


def _norms_if_apart(
    product: Callable[[Tensor], Tensor], gradient: Callable[[Tensor], Tensor], flat: Tensor, direction: Tensor
) -> tuple[float, float] | None:
    """Norms of ``product(flat)`` and of its finite differences of ``gradient``; ``None`` if they agree."""
    with contextlib.suppress(Exception):  # a module may support float32 only
        exact, step = product(flat), _SMALL_STEP * direction
        near = (gradient(flat + step) - gradient(flat - step)) / (2 * _SMALL_STEP)
        if (exact - near).norm() > _LARGEST_ERROR * near.norm():
            return float(exact.norm()), float(near.norm())
    return None


def _acting(policy: Any) -> list[Tensor]:
    """The tensors of the flat vector."""
    tensors = tensors_of(policy)
    return [tensors[name] for name in policy.acting_parameter_names()]


def outputs_of(encoder: Any, parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Outputs of an encoder for ``rows``, with the weights named ``encoder.`` in ``parameters``."""
    own = part_of(parameters, "encoder")
    if isinstance(encoder, OwnBody):
        return encoder.outputs(own, rows)
    return BoundModule(encoder, own)(rows)
