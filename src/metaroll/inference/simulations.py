"""Simulations for inference: each is run once, stored on disk, and counted if it fails."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch

from metaroll.checks import check_path, described
from metaroll.data.doors.array_files import load_npz
from metaroll.data.folders.atomic_files import write_files
from metaroll.errors import DamagedFileError, ShapeError
from metaroll.inference.parameter_names import skip_call
from metaroll.inference.priors import Prior

__all__ = ["Simulate", "SimulationStore", "Simulations", "fingerprint"]

Simulate = Callable[[np.ndarray], Any]
"""``thetas (B, d) -> features (B, F)``, or ``(B, *shape)``; NaN where a simulation failed.

A simulator with an attribute ``names`` receives the columns in that order (``parameter_names.named``)."""

_PART = re.compile(r"round-(\d+)-from-(\d{7})-([0-9a-f]{12})\.npz")


class Simulations(NamedTuple):
    """Parameters and the features simulated with them.

    Attributes:
        thetas: ``(n, d)`` float64.
        features: ``(n, *event_shape)`` float32.
        names: Parameter names of the columns of ``thetas``; ``None``: as in the prior.
    """

    thetas: np.ndarray
    features: np.ndarray
    names: tuple[str, ...] | None = None

    def with_others(self, others: Simulations) -> Simulations:
        """Both, concatenated."""
        thetas, features = (np.concatenate(both) for both in zip(self[:2], others[:2], strict=True))
        return Simulations(thetas, features, self.names)

    @property
    def succeeded(self) -> np.ndarray:
        """Which have neither NaN nor infinity, bool ``(n,)``."""
        return np.asarray(np.isfinite(self.features.reshape(len(self.features), -1)).all(axis=1))

    @property
    def num_failed(self) -> int:
        """Number of simulations whose features hold NaN or infinity."""
        return int((~self.succeeded).sum())

    @property
    def num_usable(self) -> int:
        """Number of simulations with finite features."""
        return len(self.thetas) - self.num_failed

    @property
    def usable(self) -> Simulations:
        """The simulations without NaN and infinity."""
        kept = self.succeeded
        return self if kept.all() else Simulations(self.thetas[kept], self.features[kept], self.names)


def fingerprint(*parts: Any) -> str:
    """Twelve digits that identify a value of JSON types."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


@final
class SimulationStore:
    """Runs a simulator and stores its output in append-only files.

    Called again for the same round, it reads existing parts and simulates the remaining ones. A part is keyed by its
    mark (prior, seed, and everything that earlier rounds depend on), so parts of other settings are never reused.

    Args:
        prior: Prior of the parameters.
        folder: Folder of the parts; ``None`` keeps them in memory only.
    """

    def __init__(self, prior: Prior, folder: str | Path | None = None) -> None:
        self._prior = prior
        self._folder = None if folder is None else check_path("folder", folder)
        self.num_made = 0
        """Simulations made by this store."""
        self.num_reused = 0
        """Simulations read from disk."""
        self.num_failed = 0
        """Of both, those whose features are not finite."""
        self.num_foreign_parts = 0
        """Files on disk, of the requested rounds, that belong to other simulations."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def run(
        self,
        simulate: Simulate,
        round_number: int,
        num: int,
        mark: str,
        draw: Callable[[int, int], np.ndarray],
        batch_size: int,
        progress: Callable[[int, int, int], None] | None = None,
    ) -> Simulations:
        """``num`` simulations of a round.

        Args:
            simulate: The simulator.
            round_number: From 1.
            num: Number of simulations.
            mark: Identifies the distribution of the parameters (``fingerprint``).
            draw: ``(block, count) -> (count, d)``, parameters of a block; the first ones are the same for any count.
            batch_size: Simulations in one call, and in a block.
            progress: Called with the number done, ``num``, and the number of failed ones.

        Raises:
            ShapeError: The simulator did not return one row of features per set of parameters.
        """
        starts = self._starts(round_number, mark)
        parts: list[Simulations] = []
        done = 0
        while done < num:
            part = self._read(starts[done]) if done in starts else None
            if part is None:
                block, first = divmod(done, batch_size)
                thetas = draw(block, min(batch_size, num - block * batch_size))[first:]
                part = Simulations(thetas, self._call(simulate, thetas, parts[0] if parts else None))
                self._keep(part, round_number, done, mark)
                self.num_made += len(thetas)
            else:
                self.num_reused += min(len(part.thetas), num - done)
                skip_call(simulate)  # later random numbers do not depend on whether it was simulated
            parts.append(part)
            done += len(part.thetas)
            if progress is not None:
                progress(min(done, num), num, sum(part.num_failed for part in parts))
        joined = Simulations(
            np.concatenate([part.thetas for part in parts])[:num],
            np.concatenate([part.features for part in parts])[:num],
        )
        self.num_failed += joined.num_failed
        return joined

    def _call(self, simulate: Simulate, thetas: np.ndarray, example: Simulations | None) -> np.ndarray:
        returned = simulate(thetas.copy())
        if isinstance(returned, torch.Tensor):
            returned = returned.detach().cpu().numpy()
        features = np.asarray(returned)
        if features.dtype.kind not in "fiu" or features.ndim < 2 or len(features) != len(thetas):
            raise ShapeError(
                f"simulate must return features ({len(thetas)}, F), a row for each row of thetas, got "
                f"{described(returned)}"
            )
        if example is not None and features.shape[1:] != example.features.shape[1:]:
            raise ShapeError(
                f"simulate must return {example.features.shape[1:]} features for each set of parameters as before, got "
                f"{features.shape[1:]}; if those in {self._folder} are of another simulator, use another folder"
            )
        with np.errstate(over="ignore"):
            return features.astype(np.float32)

    def _keep(self, part: Simulations, round_number: int, first: int, mark: str) -> None:
        if self._folder is None:
            return
        path = self._folder / f"round-{round_number}-from-{first:07d}-{mark}.npz"
        arrays = {"thetas": part.thetas, "features": part.features, "names": np.array(self._prior.names, np.str_)}
        write_files({path: lambda file: np.savez_compressed(file, **arrays)})

    def _starts(self, round_number: int, mark: str) -> dict[int, Path]:
        """The parts of a round on disk by the number of their first simulation."""
        paths = [] if self._folder is None else list(self._folder.iterdir())
        parts = [(m, path) for path in paths if (m := _PART.fullmatch(path.name)) and int(m[1]) == round_number]
        own = {int(m[2]): path for m, path in parts if m[3] == mark}
        self.num_foreign_parts += len(parts) - len(own)
        return own

    def _read(self, path: Path) -> Simulations | None:
        """A part; ``None`` where it is damaged, so that it is simulated again."""
        try:
            arrays = load_npz(path)
            thetas, features, names = arrays["thetas"], arrays["features"], arrays["names"]
        except (OSError, KeyError, DamagedFileError):
            return None
        if names.tolist() != list(self._prior.names):
            return None
        fits = thetas.dtype == np.float64 and thetas.ndim == 2 and thetas.shape[1] == self._prior.dim
        fits = fits and features.dtype == np.float32 and features.ndim > 1
        return Simulations(thetas, features) if fits and 0 < len(thetas) == len(features) else None
