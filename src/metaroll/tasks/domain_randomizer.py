"""Random domain parameters: a task sampler over the constants of a simulation (specs/sampling.md 16.4)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from metaroll.errors import unknown_name
from metaroll.seeding import as_generator
from metaroll.tasks.distributions import DomainParam, NormalDomainParam, UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.task_sampler import TaskSampler

__all__ = ["DomainRandomizer", "RandomizationRange", "params_from_rules"]


class DomainRandomizer(TaskSampler):
    """Draws sets of domain parameters, each parameter by its own distribution (specs/sampling.md 16.4).

    As a task sampler it hands them out as updates of environments; around an environment (``DomainRandWrapperLive``,
    ``DomainRandWrapperBuffer``) it changes its constants from rollout to rollout.

    Args:
        params: How the parameters vary; none leaves the environment as it is.
        generator: Source of randomness of ``sample`` and ``randomize``; ``None`` means fresh entropy.
    """

    def __init__(self, *params: DomainParam, generator: np.random.Generator | int | None = None) -> None:
        self.domain_params: list[DomainParam] = []
        """The distributions."""
        self._generator = as_generator(generator)
        self._held: dict[str, np.ndarray] | None = None
        self.add_domain_params(*params)

    @property
    def names(self) -> list[str]:
        """Names of all parameters that vary."""
        return [name for param in self.domain_params for name in param.names]

    def add_domain_params(self, *params: DomainParam, dp_mapping: Mapping[int, tuple[str, str]] | None = None) -> None:
        """Let more parameters vary.

        Args:
            params: Their distributions; each name once.
            dp_mapping: Add only those that it names: ``{0: ("mass", "mean"), ...}``.
        """
        added: list[DomainParam] = []
        wanted = None if dp_mapping is None else {name for name, _ in dp_mapping.values()}
        taken = set(self.names)
        for param in params:
            if not isinstance(param, DomainParam):
                raise TypeError(
                    f"params must be DomainParams such as NormalDomainParam('mass', 1.0, 0.1), got {param!r}"
                )
            if wanted is not None and wanted.isdisjoint(param.names):
                continue
            for name in param.names:
                if name in taken:
                    raise ValueError(f"domain parameter {name!r} must not be given twice; adapt the one that is there")
                taken.add(name)
            added.append(param)
        self.domain_params += added

    def draw(self, num: int, generator: np.random.Generator | int | None = None) -> list[dict[str, float]]:
        """``num`` sets of values that depend on ``generator`` alone; nothing is kept."""
        source = as_generator(generator)
        if num == 1:  # what every reset of a randomized environment asks for
            return [{n: v for param in self.domain_params for n, v in param.sample_one(source).items()}]
        columns = self._columns(_count("num", num), source)
        return [{name: float(values[i]) for name, values in columns.items()} for i in range(num)]

    def sample(
        self,
        n_tasks: int,
        with_replacement: bool = False,
        *,
        generator: np.random.Generator | int | None = None,
    ) -> list[Any]:
        """A list of ``n_tasks`` ``DomainParamUpdate``; ``with_replacement`` has no effect.

        They depend on ``generator`` alone where it is given.
        """
        drawn = self.draw(_count("n_tasks", n_tasks), self._generator if generator is None else generator)
        return [DomainParamUpdate(values) for values in drawn]

    def randomize(self, num_samples: int) -> None:
        """Draw ``num_samples`` sets and hold them for ``get_params``."""
        if _count("num_samples", num_samples) == 0:
            raise ValueError("num_samples must be at least 1, got 0")
        self._held = self._columns(num_samples, self._generator)
        self._num_held = num_samples

    def get_params(
        self,
        num_samples: int = -1,
        fmt: Literal["list", "dict"] = "list",
        dtype: Literal["numpy", "torch"] = "numpy",
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """The sets that ``randomize`` has drawn.

        Args:
            num_samples: The first ones only; -1 means all.
            fmt: ``"list"``: one dict of numbers per set; ``"dict"``: one dict of arrays ``(num_samples,)``.
            dtype: ``"numpy"`` or ``"torch"``, float64.
        """
        if fmt not in ("list", "dict"):
            raise ValueError(f"fmt must be 'list' or 'dict', got {fmt!r}")
        if dtype not in ("numpy", "torch"):
            raise ValueError(f"dtype must be 'numpy' or 'torch', got {dtype!r}")
        if self._held is None:
            raise ValueError("get_params returns what randomize(num_samples) has drawn; call that first")
        if num_samples != -1 and not 1 <= num_samples <= self._num_held:
            raise ValueError(
                f"num_samples must be -1 or from 1 to {self._num_held}, the number of sets held, got {num_samples}"
            )
        count = self._num_held if num_samples == -1 else int(num_samples)
        columns: dict[str, Any] = {name: values[:count].copy() for name, values in self._held.items()}
        if dtype == "torch":
            columns = {name: torch.from_numpy(values) for name, values in columns.items()}
        if fmt == "dict":
            return columns
        return [{name: values[i] for name, values in columns.items()} for i in range(count)]

    def adapt_one_distr_param(self, domain_param_name: str, distr_param: str, value: Any) -> None:
        """Change one field of one distribution: ``adapt_one_distr_param("mass", "mean", 1.2)``."""
        self[domain_param_name].adapt(distr_param, value)

    def rescale_distr_param(self, distr_param: str, scale: float) -> None:
        """Multiply the field ``distr_param`` by ``scale`` in all distributions that have it.

        Raises:
            ValueError: None has it, or a result is not possible; then nothing has changed.
        """
        having = [param for param in self.domain_params if distr_param in param.distribution_fields()]
        if not having:
            known = {name for param in self.domain_params for name in param.distribution_fields()}
            raise unknown_name("distribution parameter", distr_param, known)
        for copied in copy.deepcopy(having):
            copied.adapt(distr_param, scale * getattr(copied, distr_param))
        for param in having:
            param.adapt(distr_param, scale * getattr(param, distr_param))

    def narrowed(self, factor: float) -> DomainRandomizer:
        """A randomizer with all spreads (standard deviations, half spans) multiplied by ``factor``."""
        if not np.isfinite(factor) or factor < 0:
            raise ValueError(f"factor must be a number of at least 0, got {factor!r}")
        narrow = [param.narrowed(float(factor)) for param in self.domain_params]
        return DomainRandomizer(*narrow, generator=copy.deepcopy(self._generator))

    def __getitem__(self, name: str) -> DomainParam:
        """The distribution of the parameter ``name``."""
        found = next((param for param in self.domain_params if name in param.names), None)
        if found is None:
            raise unknown_name("randomized domain parameter", name, self.names)
        return found

    def __len__(self) -> int:
        """Number of distributions."""
        return len(self.domain_params)

    def __repr__(self) -> str:
        return f"DomainRandomizer({', '.join(map(repr, self.domain_params))})"

    def _columns(self, num: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for param in self.domain_params:
            drawn = param.sample(num, generator).reshape(num, len(param.names))
            columns.update({name: drawn[:, i] for i, name in enumerate(param.names)})
        return columns


class RandomizationRange(NamedTuple):
    """How far a parameter varies around its nominal value.

    Attributes:
        kind: ``"normal"`` or ``"uniform"``.
        fraction: Standard deviation or half span, as a fraction of the nominal value's magnitude.
        clip_lo: Lowest value.
        clip_up: Highest value.
        absolute: ``fraction`` is the standard deviation or half span itself.
    """

    kind: str
    fraction: float
    clip_lo: float = -np.inf
    clip_up: float = np.inf
    absolute: bool = False


def params_from_rules(
    nominal: Mapping[str, float], rules: Mapping[str, Sequence[Any] | DomainParam]
) -> list[DomainParam]:
    """Distributions around nominal values.

    Args:
        nominal: Name -> value.
        rules: Name -> ``RandomizationRange`` or a tuple like it, ``{"mass": ("normal", 0.2, 1e-3)}``, or a
            distribution, which is copied.
    """
    params: list[DomainParam] = []
    for name, rule in rules.items():
        if name not in nominal:
            raise unknown_name("domain parameter", name, nominal)
        if isinstance(rule, DomainParam):
            if name not in rule.names:
                raise ValueError(f"rules[{name!r}] must be a distribution of {name!r}, got one of {rule.names}")
            params.append(copy.deepcopy(rule))
            continue
        if (
            isinstance(rule, str)
            or not isinstance(rule, Sequence)
            or not 2 <= len(rule) <= len(RandomizationRange._fields)
        ):
            raise TypeError(f"rules[{name!r}] must be a distribution, or like ('normal', 0.2, 1e-3), got {rule!r}")
        spread = RandomizationRange(*rule)
        if not float(spread.fraction) >= 0.0:
            raise ValueError(f"fraction of rules[{name!r}] must be at least 0, got {spread.fraction!r}")
        width = float(spread.fraction) if spread.absolute else abs(float(spread.fraction) * float(nominal[name]))
        kinds = {"normal": NormalDomainParam, "uniform": UniformDomainParam}
        if spread.kind not in kinds:
            raise unknown_name(f"kind of spread of {name!r}", str(spread.kind), kinds)
        bounds = {"clip_lo": spread.clip_lo, "clip_up": spread.clip_up}
        params.append(kinds[spread.kind](name, nominal[name], width, **bounds))
    return params


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return int(value)
