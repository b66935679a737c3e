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

from _reporting import report, versions

KEYS = (
    "return_before",
    "return_after",
    "return_floor",
    "return_oracle",
    "normalised_score_ci_low",
    "gain",
    "gain_ci_low",
    "gain_ci_high",
    "n_test_tasks",
    "n_exploration_episodes",
    "env_steps",
    "seconds",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    for seed in args.seeds[:1] if args.quick else args.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "demo"
            command = [
                sys.executable,
                "-m",
                "metaroll.cli.main",
                "demo",
                "--seed",
                str(seed),
                "--out",
                str(out),
                "--quiet",
            ]
            subprocess.run([*command, *(["--epochs", "1"] if args.quick else [])], check=True)
            summary = json.loads((out / "summary.json").read_text())
        report(
            "demo_seeds",
            args.quick,
            peer="none",
            metric="normalised_score",
            value=summary["normalised_score"],
            unit="share of the way from floor to oracle",
            config={"seed": seed},
            **{key: summary[key] for key in KEYS},
            adaptation_curve=summary.get("adaptation_curve"),
            versions=versions("torch", "numpy"),
        )


if __name__ == "__main__":
    main()
