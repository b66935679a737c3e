"""Describes the size of a run in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import counted, option_text
from metaroll.training.algorithms.registry import get_algorithm, has_preset, has_sizes, publication, size_values
from metaroll.training.session.experiments import tested_on_training

__all__ = ["size_text"]


def size_text(config: Mapping[str, Any], env: EnvSource) -> str:
    """The size of a run, its epochs, steps, updates, tasks and networks, and how to ask for a smaller run.

    Args:
        config: A configuration from ``experiments.resolve``.
        env: Its environment.
    """
    algo, run, algorithm = config["algo"], config["run"], config["algorithm"]
    size, name = run["size"], env.name
    usual = f"preset of {name}" if has_preset(algo, name) else f"usual values of {algo}"
    title = {None: usual, "paper": f"size paper ({publication(algo, name)})"}.get(size, f"size {size}")
    parts = [f"{title}: {_epochs(config)}"]
    tasks = [algorithm.get(f"num_{side}_tasks") for side in ("train", "test")]
    if tasks[0] is not None:
        held_out = f"training tasks, {tasks[1]} of which are also the test tasks" if tested_on_training(env) else ""
        parts.append(f"{tasks[0]} {held_out or f'training and {tasks[1]} held-out tasks'}")
    networks = {"hidden_sizes": run["hidden_sizes"]}
    networks |= {name: value for name, value in algorithm.items() if name.endswith("hidden_sizes")}
    parts.append("networks " + ", ".join(f"{_widths(widths)}{_role(name)}" for name, widths in networks.items()))
    is_larger = has_sizes(algo) and run["epochs"] > size_values(algo, name, "small").get("epochs", 0)
    hint = f"\n{option_text('size', 'small')} takes minutes on two cores" if is_larger and size != "small" else ""
    return "; ".join(parts) + hint


def _epochs(config: Mapping[str, Any]) -> str:
    count = config["run"]["epochs"]
    if config["algorithm"].get("max_steps", 0) is None:  # the number of steps is unknown
        return counted(count, "epoch")
    work = get_algorithm(config["algo"]).work(config["algorithm"])
    steps = f"{'up to ' if work.at_most else ''}{work.epoch_steps:,} steps"
    each = [steps] + [f"{work.epoch_updates:,} updates"] * bool(work.epoch_updates)
    before = " " + work.initial.format(f"{work.initial_steps:,}") if work.initial_steps else ""
    return f"{counted(count, 'epoch')} of {' and '.join(each)}{before}"


def _widths(widths: Sequence[int]) -> str:
    return "x".join(map(str, widths)) or "linear"


def _role(name: str) -> str:
    return "" if name == "hidden_sizes" else f" ({name.removesuffix('_hidden_sizes')})"
