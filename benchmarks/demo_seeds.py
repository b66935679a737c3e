"""The demo on several seeds: adaptation to held-out tasks between a floor and an oracle.

python benchmarks/demo_seeds.py --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from _reporting import report, versions

import metaroll.lab.cli.main
import metaroll.training.session.demo

# Keys of the results; what they call the gain is called the change over the episodes in summaries.
KEYS = (
    "return_before",
    "return_after",
    "return_floor",
    "return_oracle",
    "normalized_score_ci_low",
    "gain",
    "gain_ci_low",
    "gain_ci_high",
    "n_test_tasks",
    "n_exploration_episodes",
    "env_steps",
    "seconds",
)

# Fewer tasks, data and gradient steps in place of the demo's own values.
QUICK = {
    "epochs": 1,
    "hidden_sizes": (16,),
    "encoder_hidden_sizes": (16,),
    "num_train_tasks": 8,
    "num_test_tasks": 4,
    "gradient_steps": 5,
}


def demo(seed: int, out: Path, quick: bool) -> None:
    """Run the demo; the quick form stays in this process, since most of its time would go into starting another."""
    arguments = ["demo", "--seed", str(seed), "--out", str(out), "--quiet"]
    if not quick:
        subprocess.run([sys.executable, "-m", "metaroll.lab.cli.main", *arguments], check=True)
        return
    module = metaroll.training.session.demo
    with mock.patch.object(module, "DEMO_VALUES", {**module.DEMO_VALUES, **QUICK}):
        status = metaroll.lab.cli.main.main(arguments)
    if status:
        raise SystemExit(f"the demo ended with status {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    for seed in args.seeds[:1] if args.quick else args.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "demo"
            demo(seed, out, args.quick)
            summary = json.loads((out / "summary.json").read_text())
        report(
            "demo_seeds",
            args.quick,
            peer="none",
            metric="normalized_score",
            value=summary["normalized_score"],
            unit="share of the way from floor to oracle",
            config={"seed": seed},
            **{key: summary[key.replace("gain", "change")] for key in KEYS},
            adaptation_curve=summary.get("adaptation_curve"),
            versions=versions("torch", "numpy"),
        )


if __name__ == "__main__":
    main()
