"""The command ``doctor``: versions, extras, plug-ins and processors of this machine, and one rollout in a worker."""

from __future__ import annotations

import contextlib
import importlib
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal

from packaging.markers import Marker
from packaging.requirements import Requirement

from metaroll import __version__
from metaroll.errors import install_text, one_line, requirements
from metaroll.lab.checking.report import TaskCheck as Check
from metaroll.lab.cli.options import Output, Switch, parse
from metaroll.lab.display.consoles import show_findings
from metaroll.lab.display.json_output import write_document
from metaroll.own_code import PluginError, contributed
from metaroll.training.algorithms.plugin_lookup import installed, load_row, refused
from metaroll.training.session.machine import processors

__all__ = ["doctor", "examine"]

_WORKER_S = 20.0
_MODULE_NAMES = {"array-api-compat": "array_api_compat", "pillow": "PIL", "pyyaml": "yaml"}
_SHOWN = ("numpy", "scipy", "torch", "gymnasium")
_USE_OF_EXTRA = {
    "fast": "some computations are slower without it",
    "mujoco": "cheetah-vel and Gymnasium's MuJoCo environments need it",
    "metaworld": "Meta-World's benchmarks need it",
    "tensorboard": "--tensorboard needs it",
    "video": "without it videos are GIFs, and CartPole, Pendulum and the like are not drawn",
    "wandb": "--wandb needs it",
}


@dataclass(frozen=True, kw_only=True)
class _DoctorArguments:
    quick: Switch = False
    """Skip the rollout."""
    output: Output = field(default_factory=Output)


def _finding(name: str, value: str, hint: str = "", status: Literal["warn", "fail"] = "warn") -> Check:
    """A finding that is ok without a hint; ``warn``: costs speed or a feature, ``fail``: nothing works."""
    return Check(name, status if hint else "ok", value, hint)


def guarded(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
    """Run ``check``; an exception in it becomes a finding."""
    try:
        return check()
    except Exception as error:
        hint = "this check could not be run; the message says why"
        return _finding(name, one_line(error), hint, "fail" if essential else "warn")


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine; return 1 if metaroll cannot work on it, 0 otherwise."""
    about = "Reports what works on this machine, what is missing and how to fix it. The exit status is 1 on failure."
    args = parse(_DoctorArguments, arguments, "metaroll doctor", about)
    console, started = args.output.console(), time.perf_counter()
    with console.status("checking this machine", spinner="line"):
        checks = examine(args.quick)
    seconds = time.perf_counter() - started
    failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    if args.output.json:
        findings = [{"name": c.name, "status": c.status, "value": c.value, "hint": c.hint} for c in checks]
        write_document({"ok": not failed, "seconds": round(seconds, 2), "checks": findings})
        return 1 if failed else 0
    show_findings(console, checks)
    hints = f"{len(checks)} checks, {warned} with a hint" if warned else f"{len(checks)} checks"
    verdict = f"[bold green]metaroll works here[/] ({hints}, {seconds:.1f} s); next: metaroll demo"
    if failed:
        verdict = f"[bold red]metaroll does not work here:[/] {failed} of {len(checks)} checks failed"
    console.print(f"\n{verdict}", soft_wrap=True)
    return 1 if failed else 0


def examine(quick: bool = False) -> list[Check]:
    """Run all checks, in the order of the table; ``quick``: without the rollout."""
    checks = [program_check(), guarded("packages", packages_check, essential=True)]
    checks += [guarded(f"extra {extra}", lambda extra=extra: extra_check(extra)) for extra in extras_in_use()]
    checks += [guarded("plug-ins", plugins_check), guarded("processors", processors_check)]
    if not quick:
        checks.append(guarded("rollout", rollout_check, essential=True))
    return checks


def _with_extras(needed: Iterable[Requirement]) -> list[Requirement]:
    """These, and after each what its own extras require: ``gymnasium[classic-control]`` needs pygame, too."""
    found: list[Requirement] = []
    for requirement in needed:
        found.append(requirement)
        with contextlib.suppress(metadata.PackageNotFoundError):  # a finding of its own
            own = (
                [Requirement(line) for line in metadata.requires(requirement.name) or []] if requirement.extras else []
            )
            found += [
                r for extra in sorted(requirement.extras) for r in own if r.marker and _only_with(extra, r.marker)
            ]
    return found


def _only_with(extra: str, marker: Marker) -> bool:
    return marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _problem(requirement: Requirement) -> str:
    """The problem with a required package, in words; empty if a compatible version is installed."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{requirement.name} {version} is not {requirement.specifier}"


def program_check() -> Check:
    """Versions of metaroll, Python and the operating system."""
    return _finding("metaroll", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def packages_check() -> Check:
    """Whether all required packages are installed, compatible and importable."""
    needed = requirements()
    broken: dict[str, str] = {}
    for requirement in needed:
        text, problem = f"{requirement.name}{requirement.specifier}", _problem(requirement)
        try:
            if not problem:
                importlib.import_module(_MODULE_NAMES.get(requirement.name, requirement.name))
        except Exception as error:  # broken installations can raise anything
            problem = f"{requirement.name} cannot be imported ({one_line(error)})"
        if problem:
            broken[text] = problem
    if broken:
        hint = "pip install " + " ".join(f"'{text}'" for text in broken)
        return _finding("packages", "; ".join(broken.values()), hint, "fail")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    return _finding("packages", f"{shown} and {len(needed) - len(_SHOWN)} more")


def extras_in_use() -> list[str]:
    """The extras that this version uses: those contained in the extra ``all``."""
    try:
        everything = {r.name for r in requirements("all")}
    except ModuleNotFoundError:  # reported by the check of the packages
        return []
    declared = metadata.metadata("metaroll").get_all("Provides-Extra") or []
    own = {extra: {r.name for r in requirements(extra)} for extra in declared if extra not in ("all", "dev")}
    return sorted(extra for extra, names in own.items() if names and names <= everything)


def extra_check(extra: str) -> Check:
    """Whether the packages of an extra are installed."""
    name, needed = f"extra {extra}", _with_extras(requirements(extra))
    problems = [problem for requirement in needed if (problem := _problem(requirement))]
    if problems:
        use = f": {_USE_OF_EXTRA[extra]}" if extra in _USE_OF_EXTRA else ""
        return Check(name, "skip", f"optional{use} ({'; '.join(problems)})", install_text(extra))
    return _finding(name, ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed))


def plugins_check() -> Check:
    """Whether all installed plug-ins can be loaded: algorithms and environments."""
    from metaroll.envs.lookup import registry
    from metaroll.envs.lookup.source import EnvSource

    problems = [why for _, why in (*refused(), *registry.refused())]
    loads = [("algorithm", plugin, load_row) for plugin in installed().values()]
    loads += [("environment", plugin, lambda name: EnvSource.of(name).spec) for plugin in registry.installed().values()]
    for kind, plugin, load in loads:
        try:
            load(plugin.name)
        except PluginError as error:  # its message is complete
            problems.append(" ".join(str(error).split()))
        except (Exception, SystemExit) as error:
            problems.append(f"{kind} {plugin.name!r} {plugin.location} cannot be loaded: {one_line(error)}")
    if problems:
        hint = "everything else works; install compatible versions, or uninstall what is not needed"
        return _finding("plug-ins", "\n".join(problems), hint)
    names = ", ".join([*installed(), *registry.installed()]) or "none"
    return Check("plug-ins", "ok", f"{len(contributed())} in metaroll.contrib; of other packages: {names}")


def processors_check() -> Check:
    """The processors that this process may use, and the number of torch's threads."""
    import torch

    available, threads = processors(), torch.get_num_threads()
    quota = "" if available.quota is None else f", {available.quota:g} of them at a time (container)"
    slow = f"more threads than processors slow torch down: export OMP_NUM_THREADS={available.usable}"
    text = f"{available.allowed} of {available.installed}{quota}; threads of torch: {threads}"
    return _finding("processors", text, slow if threads > available.usable else "")


def rollout_check() -> Check:
    """Time a rollout of point-robot in a new worker process, including its start."""
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.configs import PoolTimeouts
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.types import EnvSpec, RolloutPlan

    constructor = get_family("point-robot").env_constructor
    policy = TanhGaussianMLPPolicy(EnvSpec.from_env(constructor()), hidden_sizes=(16, 16))
    timeouts = PoolTimeouts(step_s=_WORKER_S, reset_s=_WORKER_S, start_s=_WORKER_S, call_s=_WORKER_S)
    started = time.perf_counter()
    pool = SamplerPool(1, transport="process", timeouts=timeouts, max_retries=0)
    with pool, RolloutEngine(constructor, policy, pool=pool) as engine:
        (rollout,) = engine.run([RolloutPlan(seed=(0, 0, 0), max_steps=20)])
        seconds = time.perf_counter() - started
    return _finding("rollout", f"{len(rollout.rewards)} steps in a worker process after {seconds:.2f} s")
