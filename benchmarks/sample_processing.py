"""Time to compute returns, the fit of a linear baseline, and normalized advantages for the paths of many tasks.

python benchmarks/sample_processing.py            measure, append to results/sample_processing.jsonl
python benchmarks/sample_processing.py --quick    fewer repetitions, append nothing
python benchmarks/sample_processing.py --check    as --quick, and status 1 if a bar is missed

Ours is ``task_advantages`` of ``Rollouts`` as a sampler returns them, 40 tasks x 20 paths of 200 steps ("dense") or of
100 to 200 ("ragged"). The peer "loop" does as ProMP and garage do, path by path in NumPy and SciPy: features of each
path twice, one least-squares problem per task, ``lfilter`` for each path, stacking. Generalized advantages alone are
compared with the compiled loop of Tianshou (also a copy of it: "loop") and the function of TorchRL, if these are
installed. Calls alternate in one process; the median of the ratios of neighbors is reported.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# One thread for BLAS, as in other measurements of the peers. With more, the peers become very slow on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from _reporting import report, report_missing, versions

NAME = "sample_processing"
TASKS, PATHS, STEPS, OBS_DIM, ACT_DIM = 40, 20, 200, 20, 6
DISCOUNT, LAMBDA = 0.99, 0.95
PACKAGES = ("metaroll", "numpy", "scipy", "torch", "numba", "tianshou", "torchrl")
ALL_BAR, TIANSHOU_BAR, TORCHRL_BAR = 5.0, 1 / 1.1, 3.0


def make_groups(dense: bool) -> list[Any]:
    """Rollouts of each task with shared columns, as ``MetaSampler`` returns them."""
    from metaroll.data.rollouts import RolloutColumns, Rollouts

    rng, count = np.random.default_rng(0), TASKS * PATHS
    lengths = np.full(count, STEPS) if dense else rng.integers(STEPS // 2, STEPS + 1, count)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    total = int(bounds[-1])
    fields = {
        "observations": rng.normal(size=(total + count, OBS_DIM)),
        "actions": rng.normal(size=(total, ACT_DIM)).astype(np.float32),
        "rewards": rng.normal(size=total),
        "policy_infos": {name: rng.normal(size=(total, ACT_DIM)).astype(np.float32) for name in ("mean", "log_std")},
    }
    ends = np.zeros(total, dtype=bool)
    infos: list[dict[str, Any]] = [{}] * count
    columns = RolloutColumns(fields, ends, ends, bounds, np.ones(count, dtype=bool), infos)
    rollouts = Rollouts([columns])
    return [rollouts[m * PATHS : (m + 1) * PATHS] for m in range(TASKS)]


def ours(groups: list[Any]) -> list[np.ndarray]:
    """Advantages of each task."""
    from metaroll.processing.baselines import LinearFeatureBaseline
    from metaroll.processing.task_advantages import task_advantages

    options: dict[str, Any] = {"discount": DISCOUNT, "gae_lambda": LAMBDA, "normalize_adv": True}
    batch = task_advantages(groups, LinearFeatureBaseline(), **options)
    return batch.by_task(batch.advantages)


# -- path by path ------------------------------------------------------------------------------------------------------


def cumsum(x: np.ndarray, factor: float) -> np.ndarray:
    from scipy.signal import lfilter

    return lfilter([1], [1, -factor], x[::-1], axis=0)[::-1]


def features(path: dict[str, Any]) -> np.ndarray:
    obs = np.clip(path["observations"], -10, 10)
    tau = np.arange(len(obs)).reshape(-1, 1) / 100.0
    return np.concatenate([obs, obs**2, tau, tau**2, tau**3, np.ones((len(obs), 1))], axis=1)


def path_by_path(tasks: list[list[dict[str, Any]]]) -> list[np.ndarray]:
    """Advantages of each task, computed as in the processors of ProMP and garage."""
    advantages = []
    for task in tasks:
        paths = [dict(path, returns=cumsum(path["rewards"], DISCOUNT)) for path in task]
        rows = np.concatenate([features(path) for path in paths])
        targets = np.concatenate([path["returns"] for path in paths])
        system = rows.T @ rows + 1e-5 * np.eye(rows.shape[1])
        weights = np.linalg.lstsq(system, rows.T @ targets, rcond=None)[0]
        for path in paths:
            values = np.append(features(path) @ weights, 0.0)
            path["advantages"] = cumsum(path["rewards"] + DISCOUNT * values[1:] - values[:-1], DISCOUNT * LAMBDA)
        names = ("observations", "actions", "rewards", "returns", "advantages")
        stacked = {name: np.concatenate([path[name] for path in paths]) for name in names}
        raw = stacked["advantages"]
        advantages.append((raw - np.mean(raw)) / (raw.std() + 1e-8))
    return advantages


# -- advantages alone --------------------------------------------------------------------------------------------------


def gae_inputs(groups: list[Any]) -> dict[str, np.ndarray]:
    from metaroll.processing.path_columns import PathColumns

    columns = PathColumns.of(groups)
    values = np.random.default_rng(1).normal(size=len(columns.rewards))
    ends = np.zeros(len(values), dtype=bool)
    ends[columns.bounds[1:] - 1] = True
    following = np.where(ends, 0.0, np.append(values[1:], 0.0))
    return {
        "rewards": columns.rewards,
        "values": values,
        "following": following,
        "ends": ends,
        "bounds": columns.bounds,
    }


def our_gae(x: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    from metaroll.functional.advantages import gae

    options: dict[str, Any] = {
        "terminated": x["ends"],
        "bounds": x["bounds"],
        "discount": DISCOUNT,
        "gae_lambda": LAMBDA,
    }
    return lambda: np.asarray(gae(x["rewards"], x["values"], **options))


def tianshou_gae(x: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    from tianshou.algorithm.algorithm_base import _gae  # type: ignore[import-not-found]

    return lambda: _gae(x["values"], x["following"], x["rewards"], x["ends"], DISCOUNT, LAMBDA)


def rebuilt_gae(x: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    """A copy of Tianshou's compiled loop (2.0.1, ``algorithm_base._gae``), since Tianshou needs many other packages."""
    import numba

    @numba.njit
    def loop(v_s: Any, v_s_: Any, rew: Any, end_flag: Any, gamma: float, gae_lambda: float) -> Any:
        returns = np.zeros(rew.shape)
        delta = rew + v_s_ * gamma - v_s
        discount = (1.0 - end_flag) * (gamma * gae_lambda)
        gae = 0.0
        for i in range(len(rew) - 1, -1, -1):
            gae = delta[i] + discount[i] * gae
            returns[i] = gae
        return returns

    return lambda: loop(x["values"], x["following"], x["rewards"], x["ends"], DISCOUNT, LAMBDA)


def torchrl_gae(x: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    import torch
    from torchrl.objectives.value.functional import (  # type: ignore[import-not-found]
        generalized_advantage_estimate,
    )

    lengths = np.diff(x["bounds"])
    mask = np.arange(STEPS) < lengths[:, None]  # TorchRL takes rollouts as rows; in "ragged" padding costs it time
    rows = []
    for name in ("values", "following", "rewards", "ends"):
        padded = np.zeros(mask.shape, dtype=x[name].dtype)
        padded[mask] = x[name]
        rows.append(torch.from_numpy(padded)[..., None])
    return lambda: generalized_advantage_estimate(DISCOUNT, LAMBDA, *rows)[0][..., 0].numpy()[mask]


# -- measuring ---------------------------------------------------------------------------------------------------------


def seconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def alternate(mine: Callable[[], Any], theirs: Callable[[], Any], repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of alternate calls, each ``(repetitions,)``, after one call of each to warm up."""
    mine(), theirs()
    pairs = [(seconds(mine), seconds(theirs)) for _ in range(repetitions)]
    return np.array(pairs)[:, 0], np.array(pairs)[:, 1]


def report_times(
    args: argparse.Namespace, metric: str, peer: str, bar: float, times: tuple[np.ndarray, np.ndarray], dense: bool
) -> bool:
    """Report the milliseconds of both; returns whether the ratio meets its bar."""
    import torch

    ratio = float(np.median(times[1] / times[0]))
    config = {"tasks": TASKS, "paths": PATHS, "steps": "200" if dense else "100 to 200", "obs_dim": OBS_DIM}
    report(
        NAME,
        unsaved(args),
        peer=peer,
        metric=metric,
        value=round(1e3 * float(np.median(times[0])), 4),
        unit="milliseconds",
        ratio=round(ratio, 4),
        config=config | {"repetitions": args.repetitions, "threads": torch.get_num_threads()},
        versions=versions(*PACKAGES),
        peer_value=round(1e3 * float(np.median(times[1])), 4),
        bar=round(bar, 4),
        load_average=round(os.getloadavg()[0], 2),
    )
    return ratio >= bar


def measure_all(dense: bool, args: argparse.Namespace) -> Iterator[bool]:
    """Measure the whole computation; yields whether its bar is met."""
    import torch

    from metaroll.data.paths import to_path

    torch.set_num_threads(args.threads)
    groups = make_groups(dense)
    tasks = [[to_path(rollout) for rollout in group] for group in groups]
    for a, b in zip(ours(groups), path_by_path(tasks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    fresh = iter([make_groups(dense) for _ in range(args.repetitions + 1)])  # groups keep the columns that they join
    times = alternate(lambda: ours(next(fresh)), lambda: path_by_path(tasks), args.repetitions)
    yield report_times(args, f"all, {'dense' if dense else 'ragged'}", "loop", ALL_BAR, times, dense)


def measure_gae(dense: bool, args: argparse.Namespace) -> Iterator[bool]:
    """Measure generalized advantages against each peer; yields whether each bar is met."""
    import torch

    torch.set_num_threads(1)
    x = gae_inputs(make_groups(dense))
    mine = our_gae(x)
    metric = f"advantages alone, {'dense' if dense else 'ragged'}"
    peers = (
        ("loop", rebuilt_gae, TIANSHOU_BAR),
        ("tianshou", tianshou_gae, TIANSHOU_BAR),
        ("torchrl", torchrl_gae, TORCHRL_BAR),
    )
    for peer, make, bar in peers:
        try:
            theirs = make(x)
            theirs()
        except (ImportError, AttributeError, TypeError) as error:
            known: dict[str, Any] = {"metric": metric, "unit": "milliseconds", "config": {}}
            report_missing(NAME, unsaved(args), peer=peer, reason=str(error), versions=versions(*PACKAGES), **known)
            continue
        np.testing.assert_allclose(mine(), theirs(), rtol=1e-4, atol=1e-4)  # TorchRL's factors are float32
        yield report_times(args, metric, peer, bar, alternate(mine, theirs, args.repetitions), dense)


def unsaved(args: argparse.Namespace) -> bool:
    return args.quick or args.check


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=31, help="calls per measurement")
    parser.add_argument("--threads", type=int, default=2, help="threads in which ours fits the baselines")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; append nothing")
    args = parser.parse_args()
    args.repetitions = min(args.repetitions, 9) if unsaved(args) else args.repetitions
    from metaroll.functional.kernels import compile_all

    compile_all()
    passed = [met for dense in (True, False) for measure in (measure_all, measure_gae) for met in measure(dense, args)]
    if args.check and not all(passed):
        print(f"{passed.count(False)} of {len(passed)} measurements miss their bar", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
