"""Embeddings: from rollouts to the features that simulation-based inference compares.

All of them are torch modules that take any number of parameter sets and rollouts at once. They serve as fixed features
of a simulator, and as the ``embedding_net`` of a density estimator on packed series.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import nn

from metaroll.checks import check_number, check_seed, check_whole, described
from metaroll.errors import ShapeError, unknown_name
from metaroll.functional.series.dtw import check_open_end, dtw_distances
from metaroll.functional.series.features import (
    bayes_sim_features,
    kept_steps,
    series_of_changes,
)
from metaroll.functional.series.step_patterns import step_pattern_of
from metaroll.seeding import fresh_seed, isolated_rng, torch_generator
from metaroll.types import EnvSpec, flat_dim

__all__ = [
    "AllStepsEmbedding",
    "BayesSimEmbedding",
    "DeltaStepsEmbedding",
    "DynamicTimeWarpingEmbedding",
    "Embedding",
    "LastStepEmbedding",
    "RNNEmbedding",
]

MaskLabels = Sequence[int | str] | None


class Embedding(ABC, nn.Module):
    """Features of rollouts, ``(B, R, T * D) -> (B, R * F)``: those of a parameter set's R rollouts, one after another.

    A step of a series is ``[state (S), action (A)]``. An embedding that compares with the target domain
    (``requires_target_domain_data``) takes ``[state, action, target's state, target's action]``, twice as many numbers.
    States are those of ``spec.state_space``; where a spec has none, observations take their place. Subclasses
    implement ``summary_statistic`` and ``dim_output``.

    Args:
        spec: Environment specification.
        dim_data: Numbers per step (D), without the target domain's: ``S + A`` (or, where those are needed, twice that).
        downsampling_factor: Keep every ``downsampling_factor``-th step, beginning with the first.
        state_mask_labels: Labels or indices of the selected states (S' of S); all by default.
        act_mask_labels: The same for actions (A' of A); all by default, none if it is empty.
        use_cuda: Compute on the GPU. Without one there is a warning, and the CPU computes.

    Attributes:
        name: Short name.
        requires_target_domain_data: Whether a step also holds the target domain's state and action.
        takes_batches: Whether ``summary_statistic`` takes leading axes, so that all rollouts are one call.
        of_changes: Whether features depend only on state differences between rows, not on the states.
        dim_data: Numbers per step without the target domain's (``S + A``).
        downsampling_factor: As given.
        len_rollouts: Steps of every rollout before downsampling, if the embedding needs it.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: ``dim_data`` does not fit the spec, or a label or index is unknown.
    """

    name: str
    requires_target_domain_data: bool = False
    takes_batches: ClassVar[bool] = False
    of_changes: ClassVar[bool] = False
    len_rollouts: int | None = None

    def __init__(
        self,
        spec: EnvSpec,
        dim_data: int,
        downsampling_factor: int = 1,
        state_mask_labels: MaskLabels = None,
        act_mask_labels: MaskLabels = None,
        use_cuda: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(spec, EnvSpec):
            raise TypeError(f"spec must be an EnvSpec (EnvSpec.from_env(env) makes one), got {described(spec)}")
        num_states, num_actions = self._dimensions(spec, check_whole("dim_data", dim_data))
        self.dim_data = num_states + num_actions
        self.downsampling_factor = check_whole("downsampling_factor", downsampling_factor)
        state_labels = spec.observation_labels if spec.state_space is None else spec.state_labels
        states = _chosen("state_mask_labels", state_mask_labels, num_states, state_labels)
        actions = _chosen("act_mask_labels", act_mask_labels, num_actions, spec.action_labels)
        if not states.any():
            raise ValueError("state_mask_labels must select at least one state; None selects all")
        chosen = np.append(states, actions)
        of_state = np.arange(self.dim_data) < num_states
        for kind, mask in (("state", chosen & of_state), ("act", chosen & ~of_state)):
            # Buffers, so that they move with the module; not saved, since they follow from the arguments.
            self.register_buffer(f"{kind}_mask", torch.from_numpy(mask), persistent=False)
            self.register_buffer(f"{kind}_index", torch.from_numpy(np.flatnonzero(mask)), persistent=False)
        # sbi asks an embedding_net for the device of its first parameter.
        self.anchor = nn.Parameter(torch.zeros(0), requires_grad=False)
        if use_cuda and not torch.cuda.is_available():
            warnings.warn("use_cuda=True, but torch has no CUDA device: the embedding stays on the CPU", stacklevel=3)
            use_cuda = False
        self._use_cuda = bool(use_cuda)
        self._to_device()

    state_mask: torch.Tensor
    """Which entries of a step are selected states, bool ``(S + A,)``."""
    act_mask: torch.Tensor
    """Which entries of a step are selected actions, bool ``(S + A,)``."""
    state_index: torch.Tensor
    act_index: torch.Tensor

    def _dimensions(self, spec: EnvSpec, dim_data: int) -> tuple[int, int]:
        """S and A, which must add up to ``dim_data``; a discrete action is one number, or one per choice."""
        states = flat_dim(spec.observation_space if spec.state_space is None else spec.state_space)
        one_number = int(np.prod(spec.action_space.shape or (1,)))
        known = sorted({states + spec.act_dim, states + one_number})
        factor = 2 if self.requires_target_domain_data and dim_data not in known else 1
        if dim_data % factor or dim_data // factor not in known:
            raise ValueError(
                f"dim_data must be the number of states and actions of a step, {states} + {spec.act_dim} = {known[-1]} "
                f"for this spec, got {dim_data}"
            )
        return states, dim_data // factor - states

    def _to_device(self) -> None:
        if self._use_cuda:
            self.to("cuda")

    @property
    def device(self) -> str:
        """The device of the embedding: ``"cpu"``, ``"cuda:0"``, ... (``to`` moves it)."""
        return str(self.state_index.device)

    @property
    def data_mask(self) -> torch.Tensor:
        """Which entries of a step are selected, bool ``(S + A,)``."""
        return self.state_mask | self.act_mask

    @property
    def dim_step(self) -> int:
        """Numbers per packed step: ``dim_data``, doubled if the target domain's are packed with them."""
        return self.dim_data * (2 if self.requires_target_domain_data else 1)

    @property
    @abstractmethod
    def dim_output(self) -> int:
        """Number of features of one rollout (F)."""

    @abstractmethod
    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """Features ``(F,)`` of one rollout: the steps that downsampling kept, ``(T', D)``.

        With ``takes_batches``: features ``(..., F)`` of any number of them ``(..., T', D)``.
        """

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Features of packed rollouts.

        Args:
            data: Packed series ``(B, R, T * D)``: R rollouts of each of B parameter sets.

        Returns:
            Shape ``(B, R * F)``, in torch's default dtype, where the embedding is. (Computed in the dtype of ``data``.)

        Raises:
            ShapeError: The data is not of this shape, or its series do not have ``len_rollouts`` steps.
        """
        data = torch.as_tensor(data, device=self.state_index.device)
        if not data.dtype.is_floating_point:
            data = data.to(torch.get_default_dtype())
        series = self.unpack(data, self.dim_step)
        if self.len_rollouts is not None and series.shape[2] != self.len_rollouts:
            raise ShapeError(
                f"{type(self).__name__} was made for rollouts of len_rollouts={self.len_rollouts} steps, got "
                f"{series.shape[2]} steps"
            )
        series = series[:, :, :: self.downsampling_factor]
        num_sets, num_rollouts = series.shape[:2]
        return self._features(series.flatten(0, 1)).reshape(num_sets, num_rollouts * self.dim_output)

    def forward_one_batch(self, data_batch: torch.Tensor) -> torch.Tensor:
        """Features of the rollouts of one parameter set, concatenated: a row of the result of ``forward``.

        Args:
            data_batch: The steps that downsampling kept, ``(R, T', D)``.

        Returns:
            Shape ``(R * F,)``.
        """
        return self._features(data_batch.to(self.state_index.device)).reshape(-1)

    def _features(self, series: torch.Tensor) -> torch.Tensor:
        """Features ``(N, F)`` of kept steps ``(N, T', D)``."""
        if not len(series):
            features = series.new_zeros(0, self.dim_output)
        elif self.takes_batches:
            features = self.summary_statistic(series)
        else:
            features = torch.stack([self.summary_statistic(rollout) for rollout in series])
        if features.shape != (len(series), self.dim_output):
            raise ShapeError(
                f"summary_statistic of {type(self).__name__} must give dim_output={self.dim_output} features of each "
                f"rollout, got shape {tuple(features.shape)} for {len(series)} rollouts"
            )
        return features.to(torch.get_default_dtype())

    def _states(self, data: torch.Tensor) -> torch.Tensor:
        """The selected states, ``(..., T', S')``."""
        return data.index_select(-1, self.state_index)

    def _actions(self, data: torch.Tensor) -> torch.Tensor:
        """The selected actions, ``(..., T', A')``."""
        return data.index_select(-1, self.act_index)

    @staticmethod
    def pack(data: torch.Tensor) -> torch.Tensor:
        """Series in the shape that inference tools expect: one vector per rollout.

        Args:
            data: Shape ``(T, D)``, ``(R, T, D)`` or ``(B, R, T, D)``; missing axes count as 1.

        Returns:
            Shape ``(B, R, T * D)``.

        Raises:
            ShapeError: The data has another number of axes.
        """
        if data.ndim not in (2, 3, 4):
            raise ShapeError(f"data must have shape (T, D), (R, T, D) or (B, R, T, D), got {tuple(data.shape)}")
        return data.reshape((1,) * (4 - data.ndim) + tuple(data.shape)).flatten(2)

    @staticmethod
    def unpack(data: torch.Tensor, dim_data_orig: int) -> torch.Tensor:
        """Inverse of ``pack``.

        Args:
            data: Shape ``(B, R, T * D)``.
            dim_data_orig: Numbers per step (D).

        Returns:
            Shape ``(B, R, T, D)``.

        Raises:
            ShapeError: The data has another number of axes, or is not made of whole steps.
        """
        if data.ndim != 3 or data.shape[2] % dim_data_orig or not data.shape[2]:
            raise ShapeError(
                f"data must be packed series of shape (B, R, T * D) with D = {dim_data_orig} numbers per step "
                f"(Embedding.pack makes them), got {tuple(data.shape)}"
            )
        return data.reshape(*data.shape[:2], data.shape[2] // dim_data_orig, dim_data_orig)


def _chosen(argument: str, given: MaskLabels, count: int, labels: Sequence[str] | None) -> np.ndarray:
    """Mask ``(count,)`` of the entries that are named by label or number."""
    if given is None:
        return np.ones(count, dtype=bool)
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise TypeError(f"{argument} must be a list of labels or numbers, got {described(given)}")
    mask = np.zeros(count, dtype=bool)
    for entry in given:
        if isinstance(entry, str):
            names = labels or ()
            if len(names) != count:
                raise ValueError(f"{argument} must hold numbers from 0 to {count - 1}: the spec labels nothing here")
            if entry not in names:
                raise unknown_name(f"label in {argument}", entry, names)
            mask[names.index(entry)] = True
        else:
            mask[check_whole(f"each number in {argument}", entry, 0, count - 1)] = True
    return mask


@final
class LastStepEmbedding(Embedding):
    """The last state of a rollout (S' features): that of the last step which downsampling keeps."""

    name: str = "lsemb"
    takes_batches: ClassVar[bool] = True

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout: S'."""
        return len(self.state_index)

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """States ``(..., S')`` of the last of the kept steps ``(..., T', D)``."""
        return self._states(data[..., -1, :])


class _WholeSeriesEmbedding(Embedding, ABC):
    """An embedding with features of every kept step, which therefore needs the length of rollouts. Actions are ignored.

    Args:
        spec: Environment specification.
        dim_data: As for ``Embedding``.
        len_rollouts: Steps of every rollout before downsampling.
        downsampling_factor: As for ``Embedding``; at least two steps must remain.
        state_mask_labels: As for ``Embedding``.
        act_mask_labels: As for ``Embedding``.
        use_cuda: As for ``Embedding``.
    """

    takes_batches: ClassVar[bool] = True

    def __init__(
        self,
        spec: EnvSpec,
        dim_data: int,
        len_rollouts: int,
        downsampling_factor: int = 1,
        state_mask_labels: MaskLabels = None,
        act_mask_labels: MaskLabels = None,
        use_cuda: bool = False,
    ) -> None:
        super().__init__(spec, dim_data, downsampling_factor, state_mask_labels, act_mask_labels, use_cuda)
        self.len_rollouts = check_whole("len_rollouts", len_rollouts, 2)
        if kept_steps(self.len_rollouts, self.downsampling_factor) < 2:
            raise ValueError(
                f"downsampling_factor must leave two steps of len_rollouts={len_rollouts}, got {downsampling_factor}"
            )


@final
class DeltaStepsEmbedding(_WholeSeriesEmbedding):
    """The changes of the state over kept steps, ``S' * ((len_rollouts - 1) // downsampling_factor)`` features."""

    name: str = "dsemb"
    of_changes: ClassVar[bool] = True

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout."""
        return len(self.state_index) * (kept_steps(self.len_rollouts or 1, self.downsampling_factor) - 1)

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """Changes ``(..., (T' - 1) * S')`` over the kept steps ``(..., T', D)``, step by step."""
        return series_of_changes(self._states(data)).flatten(-2)


@final
class AllStepsEmbedding(_WholeSeriesEmbedding):
    """The states of all kept steps, ``S' * ((len_rollouts - 1) // downsampling_factor + 1)`` features."""

    name: str = "asemb"

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout."""
        return len(self.state_index) * kept_steps(self.len_rollouts or 1, self.downsampling_factor)

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """States ``(..., T' * S')`` of the kept steps ``(..., T', D)``, step by step."""
        return self._states(data).flatten(-2)


@final
class BayesSimEmbedding(Embedding):
    """Changes of states, and their correlation with actions: ``S' A' + 2 S'`` features for rollouts of any length.

    Ramos, Possas and Fox 2019, equation 22: see ``functional/series/features.py``.

    Args:
        spec: Environment specification.
        dim_data: As for ``Embedding``.
        downsampling_factor: As for ``Embedding``.
        state_mask_labels: As for ``Embedding``.
        act_mask_labels: As for ``Embedding``.
        use_cuda: As for ``Embedding``.
        spans: Numbers of kept steps over which changes are computed; each gives its own features. With noisy sensors,
            changes over one step are mostly noise, and longer spans are more informative.
    """

    name: str = "bsemb"
    takes_batches: ClassVar[bool] = True
    of_changes: ClassVar[bool] = True

    def __init__(
        self,
        spec: EnvSpec,
        dim_data: int,
        downsampling_factor: int = 1,
        state_mask_labels: MaskLabels = None,
        act_mask_labels: MaskLabels = None,
        use_cuda: bool = False,
        *,
        spans: Sequence[int] = (1,),
    ) -> None:
        super().__init__(spec, dim_data, downsampling_factor, state_mask_labels, act_mask_labels, use_cuda)
        self.spans = tuple(check_whole("a span", span) for span in spans)
        if not self.spans or len(set(self.spans)) < len(self.spans):
            raise ValueError(f"spans must be different numbers of steps, such as (1, 4), got {spans!r}")

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout: ``S' A' + 2 S'`` of each span."""
        return len(self.spans) * len(self.state_index) * (len(self.act_index) + 2)

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """Features ``(..., F)`` of the kept steps ``(..., T', D)``, span by span."""
        states, actions = self._states(data), self._actions(data)
        return torch.cat([bayes_sim_features(states, actions, span) for span in self.spans], dim=-1)


@final
class DynamicTimeWarpingEmbedding(Embedding):
    """Dynamic time warping distance of each state from that of the target domain (S' features).

    Each state is a separate series. A simulated series may match only the beginning of the target's (open end). The
    distance is the cost of the warping path, not normalized; that of the target domain's data from itself is 0.

    Args:
        spec: Environment specification.
        dim_data: As for ``Embedding``.
        step_pattern: Name of a step pattern that can be normalized (default ``"symmetric2"``), one of
            ``functional/series/step_patterns.py`` such as ``rabiner_juang(6, "c")``, or a ``StepPattern`` of the
            package dtw-python.
        downsampling_factor: As for ``Embedding``.
        state_mask_labels: As for ``Embedding``.
        act_mask_labels: As for ``Embedding``; actions are ignored.
        use_cuda: As for ``Embedding``.

    Raises:
        ValueError: The step pattern has no open end.
    """

    name: str = "dtwemb"
    requires_target_domain_data: bool = True
    takes_batches: ClassVar[bool] = True

    def __init__(
        self,
        spec: EnvSpec,
        dim_data: int,
        step_pattern: Any = None,
        downsampling_factor: int = 1,
        state_mask_labels: MaskLabels = None,
        act_mask_labels: MaskLabels = None,
        use_cuda: bool = False,
    ) -> None:
        pattern = step_pattern_of(step_pattern)
        check_open_end(pattern)
        super().__init__(spec, dim_data, downsampling_factor, state_mask_labels, act_mask_labels, use_cuda)
        self.step_pattern = pattern

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout: S'."""
        return len(self.state_index)

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """Distances ``(..., S')`` of both halves of the kept steps ``(..., T', 2 D)``, without gradient."""
        halves = data.detach().split(self.dim_data, dim=-1)
        simulated, target = (self._states(half).transpose(-1, -2).unsqueeze(-1) for half in halves)
        return torch.as_tensor(dtw_distances(simulated, target, self.step_pattern, open_end=True))


_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)


@final
class RNNEmbedding(Embedding):
    """Outputs of a recurrent network with fixed random weights on the selected states and actions.

    A linear layer follows the last recurrent one at every kept step. The weights are drawn at construction and frozen;
    dropout is inactive while they are. ``requires_grad_(True)`` makes them trainable, e.g. as the ``embedding_net`` of
    a density estimator.

    Args:
        spec: Environment specification.
        dim_data: As for ``Embedding``.
        hidden_size: Size of each hidden layer.
        num_recurrent_layers: Number of hidden layers.
        output_size: Features per step.
        recurrent_network_type: ``nn.RNN`` (with tanh), ``nn.LSTM``, ``nn.GRU``, or a class of these kinds.
        only_last_output: Features of the last kept step only (F is ``output_size``), else of all kept steps.
        len_rollouts: Steps of every rollout before downsampling; needed unless ``only_last_output``.
        output_nonlin: Nonlinearity after the linear layer.
        dropout: Probability of dropout between recurrent layers, used in training only.
        init_param_kwargs: Arguments of ``init_param``.
        downsampling_factor: As for ``Embedding``.
        state_mask_labels: As for ``Embedding``.
        act_mask_labels: As for ``Embedding``.
        use_cuda: As for ``Embedding``.
        generator: Source of the initial weights, as for ``init_param``.
        recurrent_net_kwargs: Further arguments of the recurrent network's class.

    Attributes:
        rnn_layers: The recurrent network.
        output_layer: The linear layer.
        seed: Seed of the weights, if known.

    Raises:
        ValueError: ``len_rollouts`` is missing.
        TypeError: An argument is of the wrong type.
    """

    name: str = "rnnemb"
    takes_batches: ClassVar[bool] = True

    def __init__(
        self,
        spec: EnvSpec,
        dim_data: int,
        hidden_size: int,
        num_recurrent_layers: int,
        output_size: int,
        recurrent_network_type: type = nn.RNN,
        only_last_output: bool = False,
        len_rollouts: int | None = None,
        output_nonlin: Callable[[torch.Tensor], torch.Tensor] | None = None,
        dropout: float = 0.0,
        init_param_kwargs: Mapping[str, Any] | None = None,
        downsampling_factor: int = 1,
        state_mask_labels: MaskLabels = None,
        act_mask_labels: MaskLabels = None,
        use_cuda: bool = False,
        *,
        generator: torch.Generator | int | None = None,
        **recurrent_net_kwargs: Any,
    ) -> None:
        super().__init__(spec, dim_data, downsampling_factor, state_mask_labels, act_mask_labels, use_cuda)
        if not (isinstance(recurrent_network_type, type) and issubclass(recurrent_network_type, _RECURRENT)):
            raise TypeError(
                f"recurrent_network_type must be nn.RNN, nn.LSTM or nn.GRU, got {described(recurrent_network_type)}"
            )
        if output_nonlin is not None and not callable(output_nonlin):
            raise TypeError(f"output_nonlin must be a function of tensors, got {described(output_nonlin)}")
        if len_rollouts is None and not only_last_output:
            raise ValueError("len_rollouts must be given unless only_last_output=True, got None")
        reserved = {"input_size", "num_layers", "batch_first"} & set(recurrent_net_kwargs)
        if reserved:
            raise TypeError(f"recurrent_net_kwargs must leave out {sorted(reserved)}: the embedding sets them")
        self.len_rollouts = None if len_rollouts is None else check_whole("len_rollouts", len_rollouts)
        self.only_last_output = bool(only_last_output)
        self.output_size = check_whole("output_size", output_size)
        self.output_nonlin = output_nonlin
        hidden_size = check_whole("hidden_size", hidden_size)
        with isolated_rng(0):  # torch's layers draw initial weights, which init_param overwrites
            self.rnn_layers: nn.RNNBase = recurrent_network_type(
                input_size=int(self.data_mask.sum()),
                hidden_size=hidden_size,
                num_layers=check_whole("num_recurrent_layers", num_recurrent_layers),
                dropout=check_number("dropout", dropout, 0.0, 1.0),
                batch_first=True,
                **recurrent_net_kwargs,
            )
            directions = 2 if self.rnn_layers.bidirectional else 1
            self.output_layer = nn.Linear((self.rnn_layers.proj_size or hidden_size) * directions, self.output_size)
        self.seed: int | None = None
        self.init_param(**{"generator": generator, **(init_param_kwargs or {})})
        self.requires_grad_(False)
        self.eval()
        self._to_device()

    @property
    def dim_output(self) -> int:
        """Number of features of one rollout: ``output_size``, or that times the number of kept steps."""
        if self.only_last_output:
            return self.output_size
        return self.output_size * kept_steps(self.len_rollouts or 1, self.downsampling_factor)

    def init_param(
        self,
        init_values: torch.Tensor | None = None,
        *,
        generator: torch.Generator | int | None = None,
        gain: float = 1.0,
    ) -> None:
        """Draw the weights again, or set them.

        They are uniform in ``+- gain / sqrt(inputs)``, where ``inputs`` is the hidden size for recurrent layers, as
        torch draws them.

        Args:
            init_values: All weights and biases as a flat vector ``(P,)``, in the order of ``parameters()``.
            generator: A torch generator on the CPU, or a seed; by default a fresh seed, stored in ``seed``.
            gain: Factor of the range.

        Raises:
            ShapeError: ``init_values`` is not of this length.
        """
        parameters = list(self.parameters())
        self.seed = None
        if init_values is not None:
            count = sum(parameter.numel() for parameter in parameters)
            if tuple(init_values.shape) != (count,):
                raise ShapeError(f"init_values must have shape ({count},), got {tuple(init_values.shape)}")
            values = torch.split(init_values.detach(), [parameter.numel() for parameter in parameters])
        else:
            if not isinstance(generator, torch.Generator):
                self.seed = fresh_seed() if generator is None else check_seed("generator", generator)
                generator = torch_generator(self.seed)
            output = set(self.output_layer.parameters())
            values = []
            for parameter in parameters:
                inputs = self.output_layer.in_features if parameter in output else self.rnn_layers.hidden_size
                bound = check_number("gain", gain, 0.0) / math.sqrt(inputs)
                values.append(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value.reshape(parameter.shape))

    def train(self, mode: bool = True) -> RNNEmbedding:
        """No effect while the weights are frozen: features stay deterministic."""
        super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))
        return self

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        """Features ``(..., F)`` of the kept steps ``(..., T', D)``, step by step, from a hidden state of zeros."""
        inputs = torch.cat([self._states(data), self._actions(data)], dim=-1).to(self.output_layer.weight.dtype)
        outputs, _ = self.rnn_layers(inputs.reshape(-1, *inputs.shape[-2:]))
        if self.only_last_output:
            outputs = outputs[:, -1:]
        features = self.output_layer(outputs)
        if self.output_nonlin is not None:
            features = self.output_nonlin(features)
        return features.reshape(*inputs.shape[:-2], -1)
