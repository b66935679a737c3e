"""Trained learners of earlier runs, for algorithms that start from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metaroll.own_code import module_of
from metaroll.training.algorithms.algorithm import Values
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.origins import warn_of_changes
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, get_algorithm
from metaroll.training.run.run_state import fingerprint_of, load_algorithm
from metaroll.training.store.ownership import is_own
from metaroll.training.store.run_folder import CONFIG_FILE, read_config
from metaroll.training.store.run_values import check_same_run, network_of
from metaroll.training.store.snapshots import load_snapshot
from metaroll.training.store.trust import check_run
from metaroll.types import EnvUpdate

__all__ = ["TrainedRun"]


class TrainedRun:
    """The newest snapshot of a run: its configuration and its learner.

    Args:
        folder: Folder of the run.

    Attributes:
        algo: Name of its algorithm.
        env: Name of its environment.
        options: A value for each option of the algorithm.

    Raises:
        SnapshotError: There is no snapshot, it is damaged, or it belongs to another run than ``config.yaml``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._snapshot = folder, load_snapshot(folder)
        self._config = read_config(folder) if (folder / CONFIG_FILE).is_file() else {}
        if self._config:  # config.yaml is the signed source of names; the snapshot is only compared with it
            check_same_run(self._config, self._snapshot.manifest.get("config"), folder)
        self.algo: str = self._config.get("algo", "a script")
        self.env: str = self._config.get("env", "")
        self.options: Values = self._config.get("algorithm", {})

    def learner(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Any:
        """Load the learner in its final state, on the CPU.

        Args:
            given: Options of the caller; the only modules imported are those that these name, and that of the run's
                network.
            train, test: See ``Algorithm.build``.

        Raises:
            ValueError: The run has another environment than ``given``, an algorithm that is not one of metaroll, or a
                user's network that was not trained by this installation.
            UntrustedRunError: The module of its network is in the folder of the run.
            SnapshotError: The state does not fit.
        """
        if self.env != given.env.name or self.algo not in ALGORITHM_NAMES:
            raise ValueError(
                f"the run must be of an algorithm of metaroll in {given.env.name}, got {self.algo} in {self.env}: name "
                "another run"
            )
        network = network_of(self._config) or ""
        if module_of(network) is not None and not is_own(self._config):
            raise ValueError(
                "a run with a user's network must be one of this installation: it would execute the module of "
                f"{network!r}; name another run"
            )
        # Neither the run's cluster nor its environment is used: no workers, and the environment is the caller's.
        local = {**self._config, "run": {**self._config["run"], "transport": "serial"}}
        check_run(local, self._config, self._folder, env_given=True)
        warn_of_changes(self._config, self._folder)
        options = replace(BuildOptions.of(self._config, given.env), device="cpu")
        learner = get_algorithm(self.algo).build(options, train, test)
        load_algorithm(self._snapshot, learner, fingerprint_of(learner))
        return learner
