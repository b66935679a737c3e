"""Random domain parameters: a task sampler over the constants of a simulation."""

from __future__ import annotations

import contextlib
import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from metaroll.checks import check_number, check_whole
from metaroll.errors import unknown_name
from metaroll.seeding import as_generator
from metaroll.tasks.distributions import DomainParam, LogUniformDomainParam, NormalDomainParam, UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.task_sampler import Draw, TaskSampler
from metaroll.tasks.updates import EnvConstructor
from metaroll.types import EnvUpdate

__all__ = [
    "DomainRandomizer",
    "RandomDomains",
    "RandomizationRange",
    "are_distributions",
    "as_randomizer",
    "params_from_rules",
]


class RandomDomains(TaskSampler):
    """Draws sets of domain parameters.

    As a task sampler it hands them out as updates of environments; around an environment (``DomainRandWrapperLive``,
    ``DomainRandWrapperBuffer``) it changes its constants from rollout to rollout.

    Args:
        generator: Source of randomness of ``sample`` and ``randomize``; ``None`` means fresh entropy.
        env_constructor: Makes the environment where an update has none to change; ``None`` makes that an error.
    """

    def __init__(
        self,
        generator: np.random.Generator | int | None = None,
        env_constructor: EnvConstructor | None = None,
    ) -> None:
        self.domain_params: list[DomainParam] = []
        """The distributions."""
        self._env_constructor = env_constructor
        self._generator = as_generator(generator)
        self._held: dict[str, np.ndarray] | None = None

    @property
    def names(self) -> list[str]:
        """Names of all parameters that vary."""
        return [name for param in self.domain_params for name in param.names]

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest value of those that are drawn uniformly from a range, by name."""
        bounded = [p for p in self.domain_params if isinstance(p, UniformDomainParam | LogUniformDomainParam)]
        entries = [entry for param in bounded for entry in param.prior_entries()]
        return {entry["name"]: (entry["low"], entry["high"]) for entry in entries}

    def draw(self, num: int, generator: np.random.Generator | int | None = None) -> list[dict[str, float]]:
        """``num`` sets of values that depend on ``generator`` alone; nothing is kept."""
        source = as_generator(generator)
        if num == 1:  # what every reset of a randomized environment asks for
            return [{n: v for param in self.domain_params for n, v in param.sample_one(source).items()}]
        columns = self._columns(check_whole("num", num, 0), source)
        return [{name: float(values[i]) for name, values in columns.items()} for i in range(num)]

    def sample(
        self,
        n_tasks: int,
        with_replacement: bool = False,
        *,
        generator: np.random.Generator | int | None = None,
    ) -> list[EnvUpdate]:
        """A list of ``n_tasks`` ``DomainParamUpdate``; ``with_replacement`` has no effect.

        They depend on ``generator`` alone where it is given.
        """
        count = check_whole("n_tasks", n_tasks, 0)
        return self._updates(count, as_generator(self._generator if generator is None else generator))

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Draw]:
        yield self._updates

    def _updates(self, num: int, generator: np.random.Generator) -> list[EnvUpdate]:
        drawn = self.draw(num, generator)
        return [DomainParamUpdate(values, env_constructor=self._env_constructor) for values in drawn]

    def randomize(self, num_samples: int) -> None:
        """Draw ``num_samples`` sets and hold them for ``get_params``."""
        count = check_whole("num_samples", num_samples)
        self._held = self._columns(count, self._generator)
        self._num_held = count

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

    @abstractmethod
    def narrowed(self, factor: float) -> RandomDomains:
        """One with all spreads (standard deviations, half spans) multiplied by ``factor``."""

    def prior_entries(self) -> list[dict[str, Any]]:
        """The distributions as plain data: a bounded prior for inference.

        Raises:
            TypeError: One has no density of its own in each parameter.
        """
        return [entry for param in self.domain_params for entry in param.prior_entries()]

    def __getitem__(self, name: str) -> DomainParam:
        """The distribution of the parameter ``name``."""
        match = next((param for param in self.domain_params if name in param.names), None)
        if match is None:
            raise unknown_name("randomized domain parameter", name, self.names)
        return match

    def __len__(self) -> int:
        """Number of distributions."""
        return len(self.domain_params)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.domain_params))})"

    def _columns(self, num: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for param in self.domain_params:
            drawn = param.sample(num, generator).reshape(num, len(param.names))
            columns.update({name: drawn[:, i] for i, name in enumerate(param.names)})
        return columns


class DomainRandomizer(RandomDomains):
    """Draws sets of domain parameters, each parameter by its own distribution.

    Args:
        params: How the parameters vary; none leaves the nominal environment.
        generator: Source of randomness of ``sample`` and ``randomize``; ``None`` means fresh entropy.
        env_constructor: Makes the environment where an update has none to change; ``None`` makes that an error.
    """

    def __init__(
        self,
        *params: DomainParam,
        generator: np.random.Generator | int | None = None,
        env_constructor: EnvConstructor | None = None,
    ) -> None:
        super().__init__(generator, env_constructor)
        self.add_domain_params(*params)

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
                hint = "; give them one by one, without the list" if isinstance(param, list | tuple) else ""
                raise TypeError(
                    f"params must be DomainParams such as NormalDomainParam('mass', 1.0, 0.1), got {param!r}{hint}"
                )
            if wanted is not None and wanted.isdisjoint(param.names):
                continue
            for name in param.names:
                if name in taken:
                    raise ValueError(f"domain parameter {name!r} must not be given twice; adapt the existing one")
                taken.add(name)
            added.append(param)
        self.domain_params += added

    def narrowed(self, factor: float) -> DomainRandomizer:
        factor = check_number("factor", factor, 0.0)
        narrow = [param.narrowed(factor) for param in self.domain_params]
        generator = copy.deepcopy(self._generator)
        return DomainRandomizer(*narrow, generator=generator, env_constructor=self._env_constructor)


class RandomizationRange(NamedTuple):
    """Range of a parameter around its nominal value.

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


def as_randomizer(params: Any, what: str = "params") -> RandomDomains:
    """A randomizer from distributions in any form.

    Args:
        params: Name -> distribution or ``(low, high)``, a list of distributions, or a randomizer, which is returned.
        what: Their name in errors.

    Raises:
        TypeError: They are nothing of that.
        ValueError: There is none, or a range is empty.
    """
    if isinstance(params, RandomDomains):
        return params
    if isinstance(params, Mapping):
        params = [_distribution(f"{what}[{name!r}]", name, value) for name, value in params.items()]
    elif not are_distributions(params):
        raise TypeError(
            f"{what} must be a dict such as {{'mass': (0.5, 2.0), 'length': NormalDomainParam('length', 1.0, 0.1)}}, "
            f"or a DomainRandomizer, got {params!r}"
        )
    if not params:
        raise ValueError(f"{what} must name at least one number that varies, got none")
    return DomainRandomizer(*params, generator=0)  # only its draw(num, generator) is used


def are_distributions(params: Any) -> bool:
    """Whether ``params`` is a list of distributions."""
    return isinstance(params, list | tuple) and bool(params) and all(isinstance(p, DomainParam) for p in params)


def _distribution(what: str, name: str, value: Any) -> DomainParam:
    """A distribution of ``name``, returned unchanged, or the uniform one of a pair."""
    if isinstance(value, DomainParam):
        if name not in value.names:
            raise ValueError(f"{what} must be a distribution of {name!r}, got one of {value.names}")
        return value
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(
            f"{what} must be (low, high), or a distribution such as NormalDomainParam({name!r}, 1.0, 0.1), "
            f"got {value!r}"
        )
    low, high = value
    try:
        middle, halfspan = 0.5 * (float(low) + float(high)), 0.5 * (float(high) - float(low))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be two numbers (low, high), got {value!r}") from error
    if halfspan <= 0:
        raise ValueError(f"{what} must be (low, high) with low below high, got {value!r}")
    return UniformDomainParam(name, middle, halfspan, clip_lo=low, clip_up=high)
