"""The help of ``metaroll train``: of all algorithms, of one, and of one in an environment, which may be missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from metaroll.config import MISSING, Option, merge_layers
from metaroll.configs.table import run_options
from metaroll.errors import command_text
from metaroll.lab.cli import options as cli
from metaroll.lab.cli.options import Output
from metaroll.training.algorithms.registry import (
    ALGORITHM_NAMES,
    FIRST_RUN,
    default_size,
    has_preset,
    preset,
    preset_options,
    purpose,
    require_known,
    size_values,
)

__all__ = ["SECTIONS", "USAGE", "arguments_class", "show_algorithm_help", "show_general_help"]

USAGE = "metaroll train ALGO ENV [options]"
SECTIONS = ("run", "algorithm", "evaluation")
_OF_ENV = ("max_steps", "num_train_tasks", "num_test_tasks")
"""Options whose defaults follow from the environment."""


def arguments_class(
    files: type, options: Sequence[Option], values: Mapping[str, Any], hints: Mapping[str, str] | None = None
) -> type:
    """A dataclass of all options of ``metaroll train``, for the parser.

    Args:
        files: Dataclass of the options of files and folders.
        options: Options of a run.
        values: Their defaults.
        hints: Text shown instead of the default, for options without one.
    """
    sections = {
        name: cli.options_class(name, [o for o in options if o.section == name], values, hints=hints or {})
        for name in SECTIONS
        if any(o.section == name for o in options)
    }
    return dataclasses.make_dataclass("_TrainArguments", [("output", Output), ("files", files), *sections.items()])


def show_general_help(files: type) -> None:
    """Print how ``metaroll train`` is used, all algorithms, and the options that every run has."""
    options = [option for option in run_options(ALGORITHM_NAMES[0]) if option.section == "run"]
    hints = dict.fromkeys(preset_options(), "that of ALGO in ENV")
    values = {option.name: option.default for option in options}
    widest = max(map(len, ALGORITHM_NAMES))
    algorithms = "\n".join(f"  {name:{widest}}  {purpose(name)}" for name in ALGORITHM_NAMES)
    about = (
        f"{USAGE}\n\nTrains an algorithm in an environment or a family of tasks (metaroll list envs), for example\n"
        f"{command_text('train', *FIRST_RUN.split(), '--seed', '1')}\n\nALGO is one of:\n{algorithms}\n\n"
        "Below are the options of every run. metaroll train ALGO --help adds those of an algorithm; "
        "metaroll train ALGO ENV --help shows their values in an environment."
    )
    cli.parse(arguments_class(files, options, values, hints), ["--help"], command_text("train", "ALGO", "ENV"), about)


def show_algorithm_help(files: type, algo: str, env: str = "", why: str = "") -> None:
    """Print all options of an algorithm, without an environment.

    Args:
        files: Dataclass of the options of files and folders.
        algo: Name of the algorithm.
        env: Name of the environment that could not be made; empty if none was given.
        why: Why it could not be made.
    """
    options = run_options(require_known(algo))
    size = default_size(algo, env, own=":" in env)
    values = merge_layers(
        options, [("the preset", preset(algo, env)), ("the size", {"size": size, **size_values(algo, env, size)})]
    )
    hints = {name: "that of ENV" for name in _OF_ENV if values.get(name) is None}
    hints |= {name: "that of ENV" for name, value in values.items() if value is MISSING}
    source = f"the preset of {env}" if size is None and has_preset(algo, env) else algo
    more = f"{command_text('train', algo, 'ENV', '--help')} shows those for an environment."
    more = f"those of {env} are unknown: {why}" if env else more
    about = f"{USAGE}\n\n{algo} {purpose(algo)}. The defaults shown are those of {source}; {more}"
    cli.parse(
        arguments_class(files, options, values, hints), ["--help"], command_text("train", algo, env or "ENV"), about
    )
