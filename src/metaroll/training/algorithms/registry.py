"""The algorithms by name, with their presets: values of options that are known to work (``presets.yaml``).

A new algorithm is a module in ``contrib``, a line in its list of entry points, and an entry in that file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaroll.configs.table import CONFIGS
from metaroll.data.doors.yaml_files import parse_yaml
from metaroll.errors import UnknownNameError, command_text, for_reader, option_text, unknown_name
from metaroll.training.algorithms import plugin_lookup

if TYPE_CHECKING:
    from metaroll.training.algorithms.algorithm import Algorithm

__all__ = [
    "ALGORITHM_NAMES",
    "FIRST_RUN",
    "NEXT_RUN",
    "OWN_ENV",
    "SIZES",
    "WITHOUT_TASKS",
    "algorithm_names",
    "default_size",
    "example_envs",
    "get_algorithm",
    "has_preset",
    "has_sizes",
    "preset",
    "preset_names",
    "preset_options",
    "publication",
    "purpose",
    "require_known",
    "size_values",
]

_TUNED: dict[str, Any] = parse_yaml(Path(__file__).with_name("presets.yaml").read_text("utf-8"))

ALGORITHM_NAMES = tuple(_TUNED)
"""Names of the algorithms of metaroll."""

SIZES = ("small", "medium", "paper")
"""Sizes of a run: minutes on two cores, hours, and the published size."""

WITHOUT_TASKS = "ppo, sac (actions are numbers) or dqn (they are choices)"
"""Algorithms to train in one environment, in messages."""

_EXAMPLES = ("crossq", "varibad")
"""Plug-ins in ``examples/plugins``."""

OWN_ENV = "my_env:family"
"""Name of an environment of the user in examples; it has no preset."""

FIRST_RUN, NEXT_RUN = "pearl point-robot", "pearl cheetah-vel"
"""Examples for newcomers: algorithm and environment of a run of minutes, and of a serious one."""


def algorithm_names() -> list[str]:
    """Names of all algorithms, those of installed plug-ins last."""
    return [*ALGORITHM_NAMES, *plugin_lookup.installed()]


def get_algorithm(name: str) -> Algorithm:
    """The row of an algorithm.

    Raises:
        UnknownNameError: There is no such algorithm; the message lists similar names.
    """
    return _row_of_ours(name) if name in CONFIGS else plugin_lookup.load_row(require_known(name))


@functools.cache
def _row_of_ours(name: str) -> Algorithm:
    # Imported here, so that a learner is loaded only when it is used, and names and presets can be listed quickly.
    match name:
        case "pearl":
            from metaroll.training.algorithms import pearl as rows
        case "rl2":
            from metaroll.training.algorithms import rl2 as rows
        case "maml" | "promp" | "dice":
            from metaroll.training.algorithms import maml as rows
        case "ppo":
            from metaroll.training.algorithms import ppo as rows
        case "dqn" | "ddpg" | "td3" | "sac":
            from metaroll.training.algorithms import off_policy as rows
        case _:
            from metaroll.training.algorithms import evolution as rows
    return plugin_lookup.remembered(name, rows.ROWS[name])


def _tuned_of(name: str) -> Mapping[str, Any]:
    """The entry of ``presets.yaml``, or the corresponding one of a plug-in, which has no sizes."""
    if name in _TUNED:
        return _TUNED[name]
    row = get_algorithm(name)
    return {"purpose": row.purpose, "common": row.common, "presets": row.presets, "sizes": {}, "default_size": None}


def preset(name: str, env: str) -> dict[str, Any]:
    """Option name -> value of the algorithm in ``env``; its common values if there is no preset for ``env``."""
    tuned = _tuned_of(name)
    return _with_tuples(tuned.get("presets", {}).get(_tuned_as(env), tuned["common"]))


def _tuned_as(env: str) -> str:
    """The name of the preset of ``env``: all environments of ML1 share one, as do those of MT1."""
    kind = re.fullmatch(r"(metaworld:M[LT]1)-.+", env)
    return f"{kind[1]}-reach-v3" if kind else env


def has_preset(name: str, env: str) -> bool:
    """Whether the algorithm has a preset for ``env``."""
    return _tuned_as(env) in preset_names(name)


def has_sizes(name: str) -> bool:
    """Whether runs of the algorithm have sizes; those of plug-ins have none."""
    return bool(_tuned_of(name)["sizes"])


def default_size(name: str, env: str, own: bool = False) -> str | None:
    """The default size of a run: that of its preset (``None`` unless it was published), or that of the algorithm.

    Args:
        name: The algorithm.
        env: The environment.
        own: The environment is the user's, rather than one that is known by name.
    """
    if has_preset(name, env):
        return "paper" if publication(name) else None
    usual = _tuned_of(name)["default_size"]
    return usual if usual is None or not own else "small"


def size_values(name: str, env: str, size: str | None) -> dict[str, Any]:
    """The values of a run of this size that replace those of ``preset``; the same on every machine.

    Raises:
        UnknownNameError: There is no such size.
        ValueError: The size is ``"paper"``, and no values of this algorithm were published for ``env``; or the
            algorithm has no sizes.
    """
    if size is None:
        return {}
    if size not in SIZES:
        raise unknown_name("size", str(size), SIZES)
    env, requested = _tuned_as(env), env
    published = preset_names(name) if publication(name) else []
    if size == "paper":
        if env not in published:
            where = f"for {name} in {', '.join(published)}" if published else f"none is known here for {name}"
            raise ValueError(
                f"size 'paper' needs values that were published ({where}), got {requested}: take "
                f"{option_text('size', 'small')} or medium"
            )
        return {}  # the preset already has these values
    sizes = _tuned_of(name)["sizes"]
    if size not in sizes:
        raise ValueError(
            f"{option_text('size', size)} is for algorithms of metaroll, and {name} is not one of them: leave it out"
        )
    values = sizes[size]
    tuned = has_preset(name, env)
    return _with_tuples({**values["everywhere"], **values.get(env, {} if tuned else values.get("untuned", {}))})


def publication(name: str, env: str = "") -> str:
    """The publication of the presets of the algorithm (of that for ``env``); empty if they are not published."""
    require_known(name)
    tuned = _tuned_of(name)
    return tuned.get("published_elsewhere", {}).get(_tuned_as(env), tuned.get("published", ""))


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {option: tuple(value) if isinstance(value, list) else value for option, value in values.items()}


def preset_names(name: str) -> list[str]:
    """Environments that have a preset for the algorithm."""
    require_known(name)
    return sorted(_tuned_of(name).get("presets", ()))


def preset_options() -> set[str]:
    """Names of all options that some preset or size of some algorithm sets."""
    layers: list[dict[str, Any]] = []
    for tuned in _TUNED.values():
        layers += [tuned["common"], *tuned.get("presets", {}).values()]
        layers += [values for size in tuned["sizes"].values() for values in size.values()]
    return {name for layer in layers for name in layer}


def purpose(name: str) -> str:
    """The purpose of the algorithm, in a few words that follow its name."""
    require_known(name)
    return _tuned_of(name)["purpose"]


def example_envs(name: str) -> list[str]:
    """Environments to start with: those that have a preset, else a simulated system that needs none."""
    return preset_names(name) or ["qcp-st"]


def _example(name: str) -> str:
    """A hint at an algorithm that is an example of a plug-in; empty for others."""
    if name not in _EXAMPLES:
        return ""
    row = f"{name}:{name.upper()}"
    train = for_reader(f"metaroll.agent({row!r}, env)", command_text("train", row, "ENV"))
    return f"; {name} itself is a plug-in, in examples/plugins of the repository: {train} in that folder"


def require_known(name: str) -> str:
    """Return ``name`` if it is an algorithm of metaroll or a plug-in; no plug-in is imported.

    Raises:
        UnknownNameError: There is no such algorithm; the message lists similar names.
    """
    if name in _TUNED or plugin_lookup.is_other(name):
        return name
    plain = name.lower().replace("_", "-")
    for known, tuned in _TUNED.items():
        if plain in tuned["elsewhere"]:
            raise UnknownNameError(
                f"unknown algorithm {name!r}: {known} may be what you want, it {tuned['purpose']}{_example(plain)}. "
                f"Known: {', '.join(algorithm_names())}"
            )
    if name.isidentifier() and Path(f"{name}.py").is_file():
        raise UnknownNameError(f"unknown algorithm {name!r}: it is a file, of which one name is meant, {name}:NAME")
    raise unknown_name("algorithm", name, algorithm_names())
