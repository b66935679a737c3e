"""Evolution by name: CMA-ES, CEM, ARS, OpenAI-ES, PGPE and SNES, in an environment, random domains or tasks of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from metaroll.config import parts_of
from metaroll.configs.algorithms import TanhNetworks
from metaroll.configs.table import CONFIGS
from metaroll.errors import option_name, option_text
from metaroll.functional.search.finite_differences import ARS, PGPE, OpenAIES
from metaroll.functional.search.multi_start import Starts
from metaroll.functional.search.snes import SNES
from metaroll.learners.evolution import CEM, CMAES, Evolution, SearchLearner
from metaroll.learners.evolution_configs import SearchConfig, Trials
from metaroll.training.algorithms import building
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvUpdate

__all__ = ["SEARCHES"]

_USUAL_CANDIDATES = 12
"""Candidates of an epoch, where their number follows from the policy's: 4 + 3 ln P of a few parameters."""


class _SearchDescription(AlgorithmDescription, ABC):
    """What searches share: a policy whose noise is not learned, and how candidates are tried.

    Attributes:
        search: Class of the search, whose settings are options; ``None`` where the learner's constructor has them all.
    """

    learner: ClassVar[type] = Evolution
    search: ClassVar[type[Any] | None] = None

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> SearchLearner:
        networks, spec = parts_of(TanhNetworks, given.values), building.spec_of(given.env)
        if given.device != "cpu":
            device = option_name("device")
            raise ValueError(
                f"{self.name} acts, and takes no gradient steps: {device} must be cpu, got {given.device!r}"
            )
        trials = parts_of(Trials, given.values)
        if trials.rollouts_per_candidate is None:
            name, example = option_name("rollouts_per_candidate"), option_text("rollouts_per_candidate", 1)
            raise ValueError(f"{name} is missing: {example}, say")
        generator = building.network_generator(given)
        arguments = {
            "policy": building.make_policy(
                spec, given, "mlp", networks.hidden_nonlinearity, generator, learn_std=False
            ),
            "trials": trials,
            "starts": parts_of(Starts, given.values),
            "task_sampler": train,
            **building.common_arguments(given, test),
        }
        if self.search is None:
            return self.learner(spec, parts_of(CONFIGS[self.name][0], given.values), **arguments)
        search = parts_of(self.search, given.values)
        return Evolution(spec, search, config=parts_of(SearchConfig, given.values), **arguments)

    @abstractmethod
    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        """Candidates of an epoch."""

    def work(self, values: Mapping[str, Any]) -> Work:
        rollouts = (values["rollouts_per_candidate"] or 1) * values["tasks_per_epoch"]
        steps = self._num_candidates(values) * rollouts * values["max_steps"]
        rounds = parts_of(Starts, values).rounds
        others = steps * sum((starts - 1) * epochs for starts, epochs in rounds)
        return Work(others, steps, 0, initial="and {} for the starts that are given up", at_most=True)

    def amount(self, algo: SearchLearner, values: Mapping[str, Any]) -> str:
        each = values["rollouts_per_candidate"]
        found = f"{algo.num_candidates} parameter vectors per epoch, {each} rollout{'' if each == 1 else 's'} each"
        rounds = algo.starts.rounds
        if not rounds:
            return found
        return (
            f"{found}, from {rounds[0][0]} starts of which one is left after {sum(count for _, count in rounds)} epochs"
        )

    def ended_early(self, algo: SearchLearner) -> tuple[int, str] | None:
        return (algo.num_epochs, f"the search has ended: {', '.join(algo.stop_reasons)}") if algo.converged else None


@final
class CMAESDescription(_SearchDescription):
    """CMA-ES, full or separable."""

    name: ClassVar[str] = "cmaes"
    learner: ClassVar[type] = CMAES

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return values["population"] or _USUAL_CANDIDATES

    def amount(self, algo: SearchLearner, values: Mapping[str, Any]) -> str:
        kind = "the diagonal" if isinstance(algo, CMAES) and algo.is_separable else "all"
        return f"{super().amount(algo, values)}, {kind} of their covariance is learned"


@final
class CEMDescription(_SearchDescription):
    """The cross-entropy method."""

    name: ClassVar[str] = "cem"
    learner: ClassVar[type] = CEM

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return values["population"] or _USUAL_CANDIDATES


@final
class ARSDescription(_SearchDescription):
    """Augmented random search."""

    name: ClassVar[str] = "ars"
    search: ClassVar[type[Any] | None] = ARS

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return 2 * values["num_directions"]


@final
class OpenAIESDescription(_SearchDescription):
    """OpenAI's evolution strategy."""

    name: ClassVar[str] = "es"
    search: ClassVar[type[Any] | None] = OpenAIES

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return values["population"]


@final
class PGPEDescription(_SearchDescription):
    """Parameter-exploring policy gradients."""

    name: ClassVar[str] = "pgpe"
    search: ClassVar[type[Any] | None] = PGPE

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return 2 * values["num_directions"]


@final
class SNESDescription(_SearchDescription):
    """Separable natural evolution strategies."""

    name: ClassVar[str] = "snes"
    search: ClassVar[type[Any] | None] = SNES

    def _num_candidates(self, values: Mapping[str, Any]) -> int:
        return values["population"] or _USUAL_CANDIDATES


SEARCHES: Mapping[str, type[_SearchDescription]] = {
    kind.name: kind
    for kind in (
        CMAESDescription,
        CEMDescription,
        ARSDescription,
        OpenAIESDescription,
        PGPEDescription,
        SNESDescription,
    )
}
"""Name -> description."""
