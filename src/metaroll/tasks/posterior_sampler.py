"""Tasks drawn from a posterior over the robot's parameters: rows of the table of draws that inference has written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.data.posteriors.folder import Draws, read_draws
from metaroll.errors import SnapshotError
from metaroll.seeding import as_generator
from metaroll.state import Stateful, parts, told
from metaroll.tasks.distributions import TableDomainParam
from metaroll.tasks.domain_params import NOISE, DomainParamUpdate
from metaroll.tasks.domain_randomizer import RandomDomains
from metaroll.tasks.finite_samplers import sample_indices
from metaroll.tasks.updates import EnvConstructor
from metaroll.types import EnvUpdate

__all__ = ["PosteriorTaskSampler"]


@final
class PosteriorTaskSampler(Stateful, RandomDomains):
    """Hands out sets of simulator parameters that a posterior has drawn, jointly; it needs no package but metaroll.

    Every draw is a task, so its draws split into training tasks and held-out tasks as those of any list
    (``SplitTaskSampler``). It takes the place of a ``DomainRandomizer`` everywhere: around an environment, as
    ``task_sampler`` of a learner, in evaluations.

    Args:
        posterior: The posterior's folder (or its ``draws.npz``, or the run of ``metaroll infer``), or a table of draws
            ``(names, (n, d))``.
        names: The parameters that are expected, in any order; ``None`` means those that it has.
        generator: Source of randomness of ``sample`` and ``randomize``; ``None`` means fresh entropy.
        env_constructor: Makes the environment where an update has none to change; ``None`` makes that an error.

    Raises:
        PosteriorError: The folder is damaged, no posterior, or one of other parameters.
        ShapeError: A given table has not a column for each name.
    """

    state_parts = parts(generator="_generator", n_tasks=told("n_tasks"), names=told("names"))

    def __init__(
        self,
        posterior: str | Path | tuple[Sequence[str], Any],
        names: Sequence[str] | None = None,
        *,
        generator: np.random.Generator | int | None = None,
        env_constructor: EnvConstructor | None = None,
    ) -> None:
        super().__init__(generator, env_constructor)
        if isinstance(posterior, tuple):
            table = TableDomainParam(posterior[0], posterior[1])
            draws = Draws(table.names, table.draws).columns(names, "the table")
        else:
            draws = read_draws(posterior, names)
        # How noisy the sensors of the robot were is not a parameter of the simulator.
        own = [number for number, name in enumerate(draws.names) if not name.startswith(NOISE)]
        self._table = TableDomainParam([draws.names[number] for number in own], draws.values[:, own])
        self.domain_params = [self._table]
        self._updates_made: list[EnvUpdate] | None = None

    @property
    def values(self) -> np.ndarray:
        """The table, ``(n, d)`` float64, columns in the order of ``names``."""
        return self._table.draws.copy()

    @property
    def n_tasks(self) -> int:
        """Number of draws."""
        return len(self._table.draws)

    @property
    def updates(self) -> list[EnvUpdate]:
        if self._updates_made is None:
            rows = self._table.draws.tolist()
            self._updates_made = [self._update(row) for row in rows]
        return list(self._updates_made)

    def sample(
        self,
        n_tasks: int,
        with_replacement: bool = False,
        *,
        generator: np.random.Generator | int | None = None,
    ) -> list[EnvUpdate]:
        """A list of ``n_tasks`` updates.

        Args:
            n_tasks: How many.
            with_replacement: Whether a row may come up again before all others have.
            generator: Sole source of their randomness, if given; else the sampler's own.
        """
        source = as_generator(self._generator if generator is None else generator)
        rows = sample_indices(check_whole("n_tasks", n_tasks, 0), self.n_tasks, with_replacement, source)
        return [self._update(self._table.draws[i].tolist()) for i in rows]

    def narrowed(self, factor: float) -> PosteriorTaskSampler:
        """One whose draws lie ``factor`` times as far from their mean."""
        narrow = self._table.narrowed(check_number("factor", factor, 0.0))
        generator = copy.deepcopy(self._generator)
        return PosteriorTaskSampler(
            (narrow.names, narrow.draws), generator=generator, env_constructor=self._env_constructor
        )

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``.

        Raises:
            SnapshotError: The state is of another table.
        """
        own = self.n_tasks, list(self.names)
        if (tree["n_tasks"], list(tree["names"])) != own:
            raise SnapshotError(
                f"the snapshot is of a posterior with {tree['n_tasks']} draws of {list(tree['names'])}, this one has "
                f"{own[0]} of {own[1]}; resume with the posterior of the beginning"
            )
        return tree

    def _update(self, row: Sequence[float]) -> EnvUpdate:
        return DomainParamUpdate(dict(zip(self.names, row, strict=True)), env_constructor=self._env_constructor)

    def __repr__(self) -> str:
        return f"PosteriorTaskSampler({self.n_tasks} draws of {', '.join(self.names)})"
