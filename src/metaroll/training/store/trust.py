"""The code that a run would execute is checked before anything is built: a foreign folder is read, not trusted.

Its files are data, but the name of its environment is that of a module, which would be imported. See SECURITY.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from metaroll.envs.base.constructors import env_names
from metaroll.envs.base.names import BENCHMARK, module_of_env, simulator_and_posterior
from metaroll.envs.lookup.registry import installed
from metaroll.errors import SnapshotError, UntrustedRunError, for_reader, option_text
from metaroll.own_code import forbid, is_given, lies_in, module_files, module_of
from metaroll.training.store.ownership import is_own
from metaroll.training.store.run_values import address_of, check_same_run, network_of
from metaroll.training.store.snapshots import latest, load_snapshot

__all__ = ["check_built", "check_group", "check_run"]


def check_run(
    config: Mapping[str, Any],
    written: Mapping[str, Any],
    folder: Path,
    trust: bool = False,
    from_epoch: int | str | None = None,
    env_given: bool = False,
) -> list[str]:
    """Error unless the run may be rebuilt: nothing has been imported for it yet.

    Args:
        config: The configuration with which it continues.
        written: The configuration in its folder: all else was given now.
        folder: Folder of the run.
        trust: Import the modules that it names, and connect to its cluster, though this installation has not made the
            run.
        from_epoch: The snapshot that is wanted; ``None`` means the newest.
        env_given: The user has given the environment (nothing else), which needs no trust then.

    Returns:
        Notes for the user: modules that will be imported though the run was not made here.

    Raises:
        SnapshotError: A file is damaged, or the configuration is for another environment than the snapshot.
        UntrustedRunError: A module would be imported that lies in the folder, or that was not trusted; or a cluster
            would be connected to that was not.
    """
    if latest(folder) is not None:
        saved = load_snapshot(folder, "last" if from_epoch is None else from_epoch).manifest.get("config")
        if isinstance(saved, Mapping):
            names = [name for name in ("algo", "env") if name in saved]
            check_same_run({name: config[name] for name in names}, saved, folder)
    return _check(config, written, folder, trust, env_given)


def check_group(config: Mapping[str, Any], written: Mapping[str, Any], folder: Path, trust: bool = False) -> list[str]:
    """``check_run`` for a group, whose runs perhaps have not begun.

    Args:
        config: The configuration of its runs, as they are to continue.
        written: The configuration in its folder.
        folder: Folder of the group.
        trust: See ``check_run``.

    Returns:
        See ``check_run``.

    Raises:
        SnapshotError: The environment's name is not a string.
        UntrustedRunError: See ``check_run``.
    """
    return _check(config, written, folder, trust)


def check_built(built: Mapping[str, Any], checked: Mapping[str, Any], folder: Path) -> None:
    """Error if a run would be built of another network, or on another cluster, than was checked.

    Args:
        built: The configuration that is built, value by value.
        checked: The configuration from ``check_run`` or ``check_group``, in which an option may have another name.
        folder: Folder of the run or the group.

    Raises:
        SnapshotError: It would.
    """
    for what, value_of in (("policy", network_of), ("ray_address", address_of)):
        if value_of(built) != value_of(checked):
            raise SnapshotError(
                f"{folder} gives its {what}, {value_of(built)!r}, under a name that metaroll does not write: restore "
                "the configuration from a copy"
            )


def _check(
    config: Mapping[str, Any], written: Mapping[str, Any], folder: Path, trust: bool, env_given: bool = False
) -> list[str]:
    # Options of this call (--engine, --ray-address) need no trust, and the signature covers the file.
    own = is_own(written)
    env = config["env"]
    if not isinstance(env, str):
        raise SnapshotError(f"env in {folder} must be a name, got {env!r}: restore the configuration from a copy")
    algo, network = config["algo"], network_of(config) or ""
    named = [("environment", env, _imported_for(env)), ("algorithm", algo, module_of(algo))]
    named.append(("policy", network, module_of(network)))
    # All files are looked up first: after ``forbid`` nothing in the folder is found.
    named_files = [(*one, [] if one[2] is None else module_files(one[2])) for one in named]
    forbid(folder)
    notes: list[str] = []
    for what, name, module, files in named_files:
        if module is not None:
            allowed = own or trust or (env_given and what == "environment")
            where = _checked_module(what, name, module, files, folder, allowed)
            notes += [] if own else [f"importing the module {where} for {name}"]
    address = address_of(config)
    if address is not None and address == address_of(written) and not (own or trust):
        raise UntrustedRunError(
            f"{folder} was not made by this installation, and runs on the Ray cluster at {address}, which may execute "
            f"code here: name a cluster of yours with {option_text('ray_address', 'HOST:PORT')}, use "
            f"{option_text('transport', 'process')}, or allow it with {_trust_text(folder)}"
        )
    return notes


def _checked_module(what: str, name: str, module: str, files: Sequence[Path], folder: Path, allowed: bool) -> str:
    """The module and where it is; error if nothing may execute it (it lies inside ``folder``), or it is not allowed."""
    inside = next((path for path in files if lies_in(path, folder)), None)
    if inside is not None:
        raise UntrustedRunError(
            f"{folder} names the {what} {name!r}, whose module {module!r} lies in that folder ({inside}): nothing "
            "inside a run is executed; if you wrote it, move it out of the folder"
        )
    where = f"{module!r} ({files[-1]})" if files else repr(module)
    if not (allowed or files):  # nothing that could be trusted
        raise UntrustedRunError(
            f"{folder} names the {what} {name!r}, whose module {module!r} is not found here: run in the folder of its "
            "file, or with that folder in PYTHONPATH"
        )
    if not allowed:
        raise UntrustedRunError(
            f"{folder} was not made by this installation (or the module was elsewhere then), and its {what} "
            f"{name!r} executes the module {where}: inspect it, then allow it with {_trust_text(folder)}"
        )
    return where


def _trust_text(folder: Path) -> str:
    load = f"metaroll.load({str(folder)!r}, trust=True)"
    return for_reader(load, "--trust")


def _imported_for(env: str) -> str | None:
    """The module that an environment's name may lead to; ``None`` where it is one that is registered here."""
    simulator, _ = simulator_and_posterior(env)
    if (module := module_of_env(env)) is not None:
        return module
    if simulator.startswith(BENCHMARK) or is_given(simulator):
        return None
    if simulator in gymnasium.registry or simulator in env_names() or simulator in installed():
        return None
    stem = Path(simulator).stem.partition(".")[0]
    # For an unknown name the error message imports the file of that name, to list its environments.
    return stem if module_files(stem) else None
