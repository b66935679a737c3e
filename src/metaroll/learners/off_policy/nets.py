"""Networks as gradient steps use them: ``outputs = net(x)``, then ``net.descend(grad)`` with dL/doutputs.

MLPs on the CPU have forward and backward passes by hand, in reused memory; all others (on a GPU, with encoders, with
other activations) use autograd. Steps do not depend on which. The parameters are those of the modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from metaroll.functional.gradients.backends import TORCH
from metaroll.functional.gradients.optimizers import Adam, clipped
from metaroll.functional.gradients.perceptrons import Memory, Perceptrons
from metaroll.policies.gaussian import CategoricalMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.networks import MLP, Critics, check_layers

__all__ = ["CriticNets", "PolicyNet", "critic_nets", "policy_net", "were_by_hand", "without_autograd"]


class PolicyNet(ABC):
    """The network of a policy: actions of a deterministic policy, action values of a ``GreedyQPolicy``.

    For stochastic policies, the outputs are the parameters of the distribution: mean and ``ln sigma``, or logits.

    Args:
        optimizer: Optimizer of this network's parameters; ``None``: it is not trained.

    Attributes:
        by_kernel: Whether gradients are computed by hand.
    """

    by_kernel: bool

    def __init__(self, optimizer: Adam | None) -> None:
        self._optimizer = optimizer

    @abstractmethod
    def __call__(self, observations: Tensor, *, fixed: bool = False) -> Tensor:
        """Outputs ``(B, out)``, detached; overwritten by the next call. ``fixed``: ``pull`` will not follow."""

    @abstractmethod
    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        """Gradients of the optimizer's parameters, from ``dL/doutputs`` ``(B, out)`` of the latest call."""

    def descend(self, grad: Tensor, max_norm: float | None = None) -> None:
        """One optimizer step with the gradients ``pull(grad)``, clipped to a norm of ``max_norm``."""
        _step(self._optimizer, self.pull(grad), max_norm)


class CriticNets(ABC):
    """K critics; arguments and attributes are those of ``PolicyNet``.

    Values have shape ``(K, B)``, atoms ``(K, B, num_atoms)``, values of all Discrete actions ``(K, B, n)``.
    """

    by_kernel: bool

    def __init__(self, optimizer: Adam | None) -> None:
        self._optimizer = optimizer

    @abstractmethod
    def __call__(self, observations: Tensor, actions: Tensor | None = None, *, first: bool = False) -> Tensor:
        """Values, detached, of ``actions (B, act_dim)`` or of all Discrete ones; ``first``: of the first critic only.

        They are overwritten by the next call.
        """

    @abstractmethod
    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        """Gradients of the optimizer's parameters, from ``dL/dvalues`` of the latest call."""

    @abstractmethod
    def pull_actions(self, grad: Tensor) -> Tensor:
        """``dL/dactions`` ``(B, act_dim)``, from ``dL/dvalues`` of the latest call."""

    @abstractmethod
    def pull_actions_of_least(self, grad: Tensor, values: Tensor) -> Tensor:
        """``pull_actions`` from ``dL/d min_k values`` ``(B,)`` of ``values (K, B)``; ties go to the first critic."""

    @abstractmethod
    def fit(self, observations: Tensor, actions: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
        """One optimizer step; returns the values ``(K, B)`` from before it.

        Args:
            observations: ``(B, obs_dim)``.
            actions: ``(B, act_dim)``.
            rule: Maps the values ``(B,)`` of one critic to their gradient ``(B,)``.
        """

    def descend(self, grad: Tensor) -> None:
        """One optimizer step with the gradients ``pull(grad)``."""
        _step(self._optimizer, self.pull(grad), None)


def _step(optimizer: Adam | None, gradients: Sequence[Tensor], max_norm: float | None) -> None:
    if optimizer is None:
        raise RuntimeError("a network without an optimizer cannot take a step")
    optimizer.step(clipped(gradients, max_norm))


def without_autograd(*nets: PolicyNet | CriticNets) -> Callable[[], AbstractContextManager[Any]]:
    """A context manager factory that turns autograd off, except where these networks turn it on themselves."""
    return torch.inference_mode if all(net.by_kernel for net in nets) else torch.no_grad


def were_by_hand(*networks: Any, output: str = "identity") -> bool:
    """Whether gradients of such policies and critics were computed by hand before version 0.2, too.

    ``output`` is the output nonlinearity of the policies for which they were.
    """
    policies = [network for network in networks if type(network) is not Critics]
    is_learned = all(parameter.requires_grad for network in networks for parameter in network.parameters())
    # Version 0.1 trained frozen layers by hand as well; now they stay frozen, with other bits.
    by_hand = is_learned and all(map(_for_kernel, networks))
    return by_hand and all(policy.net.output_nonlinearity == output for policy in policies)


_POLICIES = (CategoricalMLPPolicy, DeterministicMLPPolicy, GreedyQPolicy, TanhGaussianMLPPolicy)


def _is_perceptron(network: Any) -> bool:
    # A user's class may compute something else from the same layers.
    if type(network) is Critics:
        net = network
    elif type(network) in _POLICIES:
        net = network.net
        check_layers(network, net)
        if net.output_nonlinearity not in ("identity", "tanh"):
            return False
    else:
        return False
    return network.encoder is None and net.hidden_nonlinearity in TORCH.activations


def _for_kernel(network: nn.Module) -> bool:
    first = next(network.parameters())
    alike = all(p.device.type == "cpu" and p.dtype == first.dtype for p in network.parameters())
    return _is_perceptron(network) and alike


def policy_net(policy: nn.Module, optimizer: Adam | None = None, memory: Memory | None = None) -> PolicyNet:
    """The network of a policy with ``net`` and ``features``.

    Args:
        policy: The policy.
        optimizer: Optimizer of its parameters; ``None``: they are not trained.
        memory: See ``Perceptrons``; not used with autograd.
    """
    return (_KernelPolicy if _for_kernel(policy) else _AutogradPolicy)(policy, optimizer, memory)


def critic_nets(critics: Critics, optimizer: Adam | None = None, memory: Memory | None = None) -> CriticNets:
    """The networks of critics; see ``policy_net``."""
    return (_KernelCritics if _for_kernel(critics) else _AutogradCritics)(critics, optimizer, memory)


# -- by hand -----------------------------------------------------------------------------------------------------------


def _order_of(optimizer: Adam | None, parameters: Sequence[Tensor]) -> list[int]:
    """Indices of the optimizer's parameters in ``parameters``."""
    places = {id(parameter): i for i, parameter in enumerate(parameters)}
    return [] if optimizer is None else [places[id(parameter)] for parameter in optimizer.parameters]


@final
class _KernelPolicy(PolicyNet):
    by_kernel = True

    def __init__(self, policy: Any, optimizer: Adam | None, memory: Memory | None) -> None:
        super().__init__(optimizer)
        net: MLP = policy.net
        layers = cast("list[nn.Linear]", list(net.layers))
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self._order, self._squashes = _order_of(optimizer, [*weights, *biases]), net.output_nonlinearity == "tanh"
        self._kernel = Perceptrons(
            weights, biases, net.hidden_nonlinearity, differentiable=optimizer is not None, memory=memory
        )
        self._outputs: Tensor | None = None
        self._valued = policy if isinstance(policy, GreedyQPolicy) else None

    def __call__(self, observations: Tensor, *, fixed: bool = False) -> Tensor:
        outputs = self._kernel(observations)[0]
        if self._squashes:
            self._outputs = outputs = outputs.tanh()
        return outputs if self._valued is None else self._valued.values_of(outputs)

    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        if self._valued is not None:
            grad = self._valued.pull_values(grad)
        if self._outputs is not None:
            # a = tanh(u): dL/du = dL/da (1 - a^2), (B, act_dim)
            grad = grad * (1.0 - self._outputs.square())
        # dL/dtheta of all layers by backpropagation, from dL/doutputs (1, B, out) of the one network
        gradients = self._kernel.pull(grad[None])
        return [gradients[i] for i in self._order]


@final
class _KernelCritics(CriticNets):
    by_kernel = True

    def __init__(self, critics: Critics, optimizer: Adam | None, memory: Memory | None) -> None:
        super().__init__(optimizer)
        weights, biases = list(critics.weights), list(critics.biases)
        self._order, self._single = _order_of(optimizer, [*weights, *biases]), critics.num_outputs is None
        self._kernel = Perceptrons(
            weights, biases, critics.hidden_nonlinearity, differentiable=optimizer is not None, memory=memory
        )
        self._of_actions = slice(0, 0)

    def __call__(self, observations: Tensor, actions: Tensor | None = None, *, first: bool = False) -> Tensor:
        values = self._kernel(self._rows(observations, actions), 1 if first else None)
        return values[..., 0] if self._single else values

    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        # dL/dtheta_k of K critics, from dL/dQ_k (K, B) or that of atoms (K, B, M)
        gradients = self._kernel.pull(grad[..., None] if self._single else grad)
        return [gradients[i] for i in self._order]

    def pull_actions(self, grad: Tensor) -> Tensor:
        # dL/da = sum_k dL/dQ_k dQ_k/da, (B, act_dim): the action columns of dL/d(s, a)
        return self._kernel.pull_rows(grad[..., None] if self._single else grad, self._of_actions)

    def pull_actions_of_least(self, grad: Tensor, values: Tensor) -> Tensor:
        # With k(b) = argmin_k Q_k: dL/da_b = dL/dQ_k(b) dQ_k(b)/da_b, (B, act_dim); one critic per row
        return self._kernel.pull_rows_of(values.argmin(dim=0), grad[:, None], self._of_actions)

    def fit(self, observations: Tensor, actions: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
        # Q_k(s, a), dL/dQ_k (B, 1) and dL/dtheta_k, one critic after the other
        values, gradients = self._kernel.pass_and_pull(
            self._rows(observations, actions), lambda outputs: rule(outputs[:, 0])[:, None]
        )
        _step(self._optimizer, [gradients[i] for i in self._order], None)
        return values[..., 0]

    def _rows(self, observations: Tensor, actions: Tensor | None) -> Tensor:
        if actions is None:
            return observations
        self._of_actions = slice(-actions.shape[1], None)
        return torch.cat((observations, actions), dim=-1)


# -- by autograd -------------------------------------------------------------------------------------------------------


@final
class _AutogradPolicy(PolicyNet):
    by_kernel = False

    def __init__(self, policy: Any, optimizer: Adam | None, memory: Memory | None) -> None:
        super().__init__(optimizer)
        self._policy = policy
        self._outputs: Tensor | None = None

    def __call__(self, observations: Tensor, *, fixed: bool = False) -> Tensor:
        policy = self._policy
        with torch.set_grad_enabled(self._optimizer is not None and not fixed):
            # A user's class may compute other values from the same outputs.
            has_values = isinstance(policy, GreedyQPolicy)
            outputs = policy(observations) if has_values else policy.net(policy.features(observations))
        self._outputs = None if fixed else outputs
        return outputs.detach()

    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        outputs, self._outputs = _taken(self._outputs), None
        return _gradients(outputs, self._optimizer, grad)


@final
class _AutogradCritics(CriticNets):
    by_kernel = False

    def __init__(self, critics: Critics, optimizer: Adam | None, memory: Memory | None) -> None:
        super().__init__(optimizer)
        self._critics = critics
        self._values: Tensor | None = None
        self._actions: Tensor | None = None

    def __call__(self, observations: Tensor, actions: Tensor | None = None, *, first: bool = False) -> Tensor:
        learned = self._optimizer is not None
        with torch.set_grad_enabled(learned):
            self._actions = None if actions is None else actions.detach().requires_grad_(learned)
            values = self._critics(observations, self._actions, first=first)
        self._values = values
        return values.detach()

    def pull(self, grad: Tensor) -> Sequence[Tensor]:
        values, self._values = _taken(self._values), None
        return _gradients(values, self._optimizer, grad)

    def pull_actions(self, grad: Tensor) -> Tensor:
        values, self._values = _taken(self._values), None
        # dL/da = sum_k dL/dQ_k dQ_k/da, (B, act_dim)
        return torch.autograd.grad(values, _taken(self._actions), grad)[0]

    def pull_actions_of_least(self, grad: Tensor, values: Tensor) -> Tensor:
        # dL/dQ_k, (K, B): that of the minimum where k = argmin_k Q_k, else 0
        is_least = values.argmin(dim=0) == torch.arange(len(values), device=values.device)[:, None]
        return self.pull_actions(is_least * grad)

    def fit(self, observations: Tensor, actions: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
        values = self(observations, actions)
        self.descend(torch.stack([rule(each) for each in values]))
        return values


def _gradients(outputs: Tensor, optimizer: Adam | None, grad: Tensor) -> Sequence[Tensor]:
    parameters = [] if optimizer is None else optimizer.parameters
    # dL/dtheta = dL/doutputs doutputs/dtheta, one tensor per parameter. A user's body may have parameters that these
    # rows do not depend on: their gradient is 0.
    return torch.autograd.grad(outputs, parameters, grad, materialize_grads=True)


def _taken(outputs: Tensor | None) -> Tensor:
    if outputs is None:
        raise RuntimeError("pull needs a forward call before it, and works once per call")
    return outputs
