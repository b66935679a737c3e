"""The command ``doctor``: versions, extras, plug-ins and processors of this machine, and one rollout in a worker."""

from __future__ import annotations

import functools
import importlib
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal

from packaging.requirements import Requirement

from metaroll.errors import install_text, one_line, requirements
from metaroll.lab.checking.report import TaskCheck as Check
from metaroll.lab.cli.options import Output, Switch, parse
from metaroll.lab.display.consoles import show_findings
from metaroll.lab.display.json_output import write_document
from metaroll.own_code import Declared, PluginError
from metaroll.training.algorithms.plugin_lookup import installed, load_row, refused
from metaroll.training.session.machine import processors

__all__ = ["doctor", "examine"]

_WORKER_S = 20.0
# Modules of packages that are called otherwise.
_MODULES = {"array-api-compat": "array_api_compat", "pillow": "PIL", "pyyaml": "yaml"}
_SHOWN = ("numpy", "scipy", "torch", "gymnasium")
_USE_OF_EXTRA = {
    "fast": "some computations are slower without it",
    "mujoco": "cheetah-vel and Gymnasium's MuJoCo environments need it",
    "metaworld": "Meta-World's benchmarks need it",
    "tensorboard": "--tensorboard needs it",
    "video": "videos are GIFs without it",
    "wandb": "--wandb needs it",
}


@dataclass(frozen=True, kw_only=True)
class _DoctorArguments:
    quick: Switch = False
    """Leave out the rollout."""
    output: Output = field(default_factory=Output)


def _finding(name: str, value: str, hint: str = "", status: Literal["warn", "fail"] = "warn") -> Check:
    """A finding that is fine if there is no hint: ``warn`` costs speed or a feature, with ``fail`` nothing works."""
    return Check(name, status if hint else "ok", value, hint)


def guarded(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
    """What ``check`` finds; an exception in it is a finding, too."""
    try:
        return check()
    except Exception as error:
        hint = "this check could not be made; the message says why"
        return _finding(name, one_line(error), hint, "fail" if essential else "warn")


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine; 1 if metaroll cannot work on it, 0 otherwise."""
    about = "Says what is fine on this machine, what is missing, and the hint; the exit status is 1 if it cannot work."
    given = parse(_DoctorArguments, arguments, "metaroll doctor", about)
    console, started = given.output.console(), time.perf_counter()
    with console.status("looking at this machine", spinner="line"):
        checks = examine(given.quick)
    seconds = time.perf_counter() - started
    failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    if given.output.json:
        found = [{"name": c.name, "status": c.status, "value": c.value, "hint": c.hint} for c in checks]
        write_document({"ok": not failed, "seconds": round(seconds, 2), "checks": found})
        return 1 if failed else 0
    show_findings(console, checks)
    hints = f"{len(checks)} checks, {warned} with a hint" if warned else f"{len(checks)} checks"
    verdict = f"[bold green]metaroll works here[/] ({hints}, {seconds:.1f} s); next: metaroll demo"
    if failed:
        verdict = f"[bold red]metaroll does not work here:[/] {failed} of {len(checks)} checks failed"
    console.print(f"\n{verdict}", soft_wrap=True)
    return 1 if failed else 0


def examine(quick: bool = False) -> list[Check]:
    """All checks in the order of the table; ``quick``: without the rollout."""
    checks = [program_check(), guarded("packages", packages_check, essential=True)]
    checks += [guarded(f"extra {extra}", functools.partial(extra_check, extra)) for extra in extras_in_use()]
    checks += [guarded("plug-ins", plugins_check), guarded("processors", processors_check)]
    if not quick:
        checks.append(guarded("rollout", rollout_check, essential=True))
    return checks


def _problem(requirement: Requirement) -> str:
    """Empty if the package is there in a version that fits."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{requirement.name} {version} is not {requirement.specifier}"


def program_check() -> Check:
    """Versions of metaroll, Python and the operating system."""
    from metaroll import __version__

    return _finding("metaroll", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def packages_check() -> Check:
    """Whether the packages that metaroll always needs are there, fit, and can be imported."""
    needed = requirements()
    broken: dict[str, str] = {}
    for requirement in needed:
        text, problem = f"{requirement.name}{requirement.specifier}", _problem(requirement)
        try:
            if not problem:
                importlib.import_module(_MODULES.get(requirement.name, requirement.name))
        except Exception as error:  # built for other versions, half installed: whatever it raises
            problem = f"{requirement.name} cannot be imported ({one_line(error)})"
        if problem:
            broken[text] = problem
    if broken:
        hint = "pip install " + " ".join(f"'{text}'" for text in broken)
        return _finding("packages", "; ".join(broken.values()), hint, "fail")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    return _finding("packages", f"{shown} and {len(needed) - len(_SHOWN)} more")


def extras_in_use() -> list[str]:
    """Extras that some code of this version uses: those within the extra ``all``."""
    try:
        everything = {r.name for r in requirements("all")}
    except ModuleNotFoundError:  # the line of the packages says it
        return []
    declared = metadata.metadata("metaroll").get_all("Provides-Extra") or []
    own = {extra: {r.name for r in requirements(extra)} for extra in declared if extra not in ("all", "dev")}
    return sorted(extra for extra, names in own.items() if names and names <= everything)


def extra_check(extra: str) -> Check:
    """Whether the packages of an extra are installed."""
    name, needed = f"extra {extra}", requirements(extra)
    problems = [problem for requirement in needed if (problem := _problem(requirement))]
    if problems:
        use = f": {_USE_OF_EXTRA[extra]}" if extra in _USE_OF_EXTRA else ""
        return Check(name, "skip", f"optional{use} ({'; '.join(problems)})", install_text(extra))
    return _finding(name, ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed))


def plugins_check() -> Check:
    """Whether all algorithms and environments of others that are installed can be loaded."""
    from metaroll.envs.lookup import registry
    from metaroll.envs.lookup.source import EnvSource

    problems = [why for _, why in (*refused(), *registry.refused())]
    kinds: list[tuple[str, Mapping[str, Declared], Callable[[str], object]]] = [
        ("algorithm", installed(), load_row),
        ("environment", registry.installed(), lambda name: EnvSource.of(name).spec),
    ]
    for kind, name, one, use in ((kind, *item, use) for kind, known, use in kinds for item in known.items()):
        try:
            use(name)
        except PluginError as error:  # which says all that counts
            problems.append(" ".join(str(error).split()))
        except (Exception, SystemExit) as error:
            problems.append(f"{kind} {name!r} {one.location} cannot be made: {one_line(error)}")
    if problems:
        hint = "all else works; install versions that fit, or uninstall what is not needed"
        return _finding("plug-ins", "\n".join(problems), hint)
    return Check("plug-ins", "ok", ", ".join([*installed(), *registry.installed()]) or "none are installed")


def processors_check() -> Check:
    """Processors that this process may use, and torch's threads on them."""
    import torch

    counted, threads = processors(), torch.get_num_threads()
    quota = "" if counted.quota is None else f", {counted.quota:g} of them at a time (container)"
    slow = f"more threads than processors are slow: export OMP_NUM_THREADS={counted.usable}"
    text = f"{counted.allowed} of {counted.installed}{quota}; threads of torch: {threads}"
    return _finding("processors", text, slow if threads > counted.usable else "")


def rollout_check() -> Check:
    """How long it takes until a new worker process has run a rollout of point-robot."""
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.configs import PoolTimeouts
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec, RolloutPlan

    constructor = get_family("point-robot").env_constructor
    policy = TanhGaussianMLPPolicy(EnvSpec.from_env(constructor()), hidden_sizes=(16, 16), generator=torch_generator(0))
    timeouts = PoolTimeouts(step_s=_WORKER_S, reset_s=_WORKER_S, start_s=_WORKER_S, call_s=_WORKER_S)
    started = time.perf_counter()
    with SamplerPool(1, transport="process", timeouts=timeouts, max_retries=0) as pool:
        with RolloutEngine(constructor, policy, pool=pool) as engine:
            (rollout,) = engine.run([RolloutPlan(seed=(0, 0, 0), max_steps=20)])
        needed = time.perf_counter() - started
    return _finding("rollout", f"{len(rollout.rewards)} steps in a worker process after {needed:.2f} s")
