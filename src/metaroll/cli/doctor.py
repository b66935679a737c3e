"""The command ``doctor``: what is fine on this machine, what is missing, and what helps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

from metaroll.cli.display.consoles import escape
from metaroll.cli.options import Output, parse_options
from metaroll.cli.probes import (
    BACKENDS,
    MUJOCO_ENV,
    MUJOCO_GL,
    Probe,
    one_line,
    picture_problem,
    probe_backend,
)
from metaroll.cli.resources import memory, processors

__all__ = [
    "Check",
    "backend_answers",
    "doctor",
    "examine",
    "extra_check",
    "extras_in_use",
    "gpu_finding",
    "guarded",
    "packages_check",
    "picture_finding",
]

_PROBE_S = 10.0
_WORKER_S = 20.0
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
PICTURES = {"rendering": "Pendulum-v1", "MuJoCo rendering": MUJOCO_ENV}
"""Name of the check -> environment that is drawn."""

_MUJOCO = "MuJoCo rendering"
_NVIDIA = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidia0"), Path("/dev/nvidiactl"))
_NO_WINDOW = (
    "training needs no pictures; for them install a library that draws without a screen (Debian, Ubuntu: apt install "
    f"{' or '.join(BACKENDS.values())}) and export {MUJOCO_GL}={' or '.join(BACKENDS)}"
)

# Modules of packages that are called otherwise.
_MODULES = {"array-api-compat": "array_api_compat", "pyyaml": "yaml"}
_SHOWN = ("numpy", "scipy", "torch", "gymnasium")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_USE_OF_EXTRA = {
    "fast": "some computations are slower without it",
    "mujoco": "cheetah-vel and Gymnasium's MuJoCo environments need it",
    "metaworld": "Meta-World's benchmarks need it",
    "plot": "runs have no pictures without it",
    "tensorboard": "--tensorboard needs it",
    "video": "videos are GIFs without it",
    "wandb": "--wandb needs it",
}
# How a requirement says to which extra it belongs; `packaging` evaluates such markers, and does not list them.
_EXTRA = re.compile(r"extra == \"([\w-]+)\"")
_LITTLE_MEMORY = 2 * 2**30
_LITTLE_SPACE = 2**30
_CALLS = 20
_PLANS = 4
_STEPS = 20
_SLOW_START_S = 10.0


@dataclass(frozen=True, kw_only=True)
class _DoctorArguments:
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Start no workers and draw no pictures."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True)
class Check:
    """What was found about one thing: ``warn`` costs speed or a feature, with ``fail`` metaroll does not work."""

    name: str
    status: Literal["ok", "warn", "fail"]
    value: str
    hint: str = ""


def guarded(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
    """What ``check`` finds; an exception in it is a finding, too."""
    try:
        return check()
    except Exception as error:
        hint = "this check could not be made; the message says why"
        return Check(name, "fail" if essential else "warn", one_line(error), hint)


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine; 1 if metaroll cannot work on it, 0 otherwise."""
    about = "Says what is fine on this machine, what is missing, and the hint; the exit status is 1 if it cannot work."
    given = parse_options(_DoctorArguments, arguments, "metaroll doctor", about)
    console, started = given.output.console(), time.perf_counter()
    with console.status("looking at this machine", spinner="line") as status:
        checks = examine(given.quick, lambda name: status.update(f"looking at: {name}"))
    seconds = time.perf_counter() - started
    failed = any(check.status == "fail" for check in checks)
    if given.output.json:
        found = [dataclasses.asdict(check) for check in checks]
        # Plain text through the standard library: what else writes JSON here needs packages that may be missing.
        sys.stdout.write(json.dumps({"ok": not failed, "seconds": round(seconds, 2), "checks": found}, indent=2) + "\n")
    else:
        _show(console, checks, seconds)
    return 1 if failed else 0


def examine(quick: bool = False, tell: Callable[[str], None] = lambda name: None) -> list[Check]:
    """All checks in the order of the table.

    Args:
        quick: Leave out what starts workers and draws pictures.
        tell: Called with the name of each check before it is made.
    """

    def made(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
        tell(name)
        return guarded(name, check, essential)

    if quick:
        return _looking(made)
    # They draw while the packages of this process are being imported.
    with picture_probes(_PROBE_S) as probes:
        checks = _looking(made)
        for name in PICTURES:
            checks.append(made(name, functools.partial(_picture, name, probes.get(name, {}))))
    return [
        *checks,
        made("worker start", functools.partial(worker_check, _WORKER_S), essential=True),
        made("self-test", functools.partial(self_test, _WORKER_S), essential=True),
    ]


def _looking(made: Callable[..., Check]) -> list[Check]:
    """The checks that ``--quick`` keeps."""
    checks = [
        made("metaroll", program_check, True),
        made("packages", packages_check, True),
    ]
    try:
        extras = extras_in_use()
    except ImportError:
        extras = []  # the line of the packages says why
    checks += [made(f"extra {extra}", functools.partial(extra_check, extra)) for extra in extras]
    return [
        *checks,
        made("processors", processors_check),
        made("memory", memory_check),
        made("threads", threads_check),
        made("start method", start_method_check),
        made("runs folder", runs_folder_check),
        made("temporary folder", temporary_folder_check, True),
        made("GPU", functools.partial(gpu_check, _PROBE_S)),
    ]


def _picture(name: str, probes: dict[str, Probe]) -> Check:
    answers = {way: probe.answer() for way, probe in probes.items()}
    answers |= backend_answers(name, answers, _PROBE_S)
    return picture_finding(name, answers, os.environ.get("MUJOCO_GL"))


def _show(console: Console, checks: Sequence[Check], seconds: float) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        hint = f"\n[cyan]-> {escape(check.hint)}[/]" if check.hint else ""
        table.add_row(f"[{_STYLES[check.status]}]{check.status}[/]", check.name, f"{escape(check.value)}{hint}")
    console.print(table)
    counts = {status: sum(check.status == status for check in checks) for status in ("fail", "warn")}
    hints = f"{len(checks)} checks, {counts['warn']} with a hint" if counts["warn"] else f"{len(checks)} checks"
    if counts["fail"]:
        verdict = f"[bold red]metaroll does not work here:[/] {counts['fail']} of {len(checks)} checks failed"
    else:
        verdict = f"[bold green]metaroll works here[/] ({hints}, {seconds:.1f} s); next: metaroll demo"
    console.print(f"\n{verdict}", soft_wrap=True)


# ------------------------------------------------------------------------------------------------------------- packages
def _requirements() -> dict[str, list[Requirement]]:
    """What the installed metaroll needs on this Python: extra (empty: always) -> packages."""
    try:
        declared = [Requirement(line) for line in metadata.requires("metaroll") or []]
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError("metaroll is only found on the path: install it with pip install -e .") from None
    found: dict[str, list[Requirement]] = {}
    for requirement in declared:
        extra = _EXTRA.search(str(requirement.marker or ""))
        name = extra[1] if extra else ""
        if requirement.marker is None or requirement.marker.evaluate({"extra": name}):
            found.setdefault(name, []).append(requirement)
    return found


def _problem(requirement: Requirement) -> str:
    """Empty if the package is there in a version that fits."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    lowest = re.fullmatch(r">=([^,]+)", str(requirement.specifier))
    wanted = f"older than {lowest[1]}" if lowest else f"not {requirement.specifier}"
    return f"{requirement.name} {version} is {wanted}"


def program_check() -> Check:
    """Versions of metaroll, Python and the operating system."""
    from metaroll import __version__

    return Check("metaroll", "ok", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def packages_check() -> Check:
    """Whether the packages that metaroll always needs are there, fit, and can be imported."""
    needed = _requirements().get("", [])
    broken: dict[str, str] = {}
    for requirement in needed:
        text = f"{requirement.name}{requirement.specifier}"
        if problem := _problem(requirement):
            broken[text] = problem
            continue
        try:
            importlib.import_module(_MODULES.get(requirement.name, requirement.name))
        except Exception as error:  # built for other versions, half installed: whatever it raises
            broken[text] = f"{requirement.name} cannot be imported ({one_line(error)})"
    if broken:
        mend = " ".join(f"'{text}'" for text in broken)
        return Check("packages", "fail", "; ".join(broken.values()), f"pip install {mend}")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    return Check("packages", "ok", f"{shown} and {len(needed) - len(_SHOWN)} more")


def extras_in_use() -> list[str]:
    """Extras that some code of this version uses: those within the extra ``all``."""
    packages = {extra: {r.name for r in needed} for extra, needed in _requirements().items()}
    everything = packages.get("all", set())
    return sorted(name for name, own in packages.items() if name not in ("", "all", "dev") and own <= everything)


def extra_check(extra: str) -> Check:
    """Whether the packages of an extra are installed."""
    name, needed = f"extra {extra}", _requirements()[extra]
    problems = [problem for requirement in needed if (problem := _problem(requirement))]
    if problems:
        use = f" ({_USE_OF_EXTRA[extra]})" if extra in _USE_OF_EXTRA else ""
        return Check(name, "warn", f"{'; '.join(problems)}{use}", f"pip install 'metaroll[{extra}]'")
    return Check(name, "ok", ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed))


def processors_check() -> Check:
    """Processors that this process may use, and how busy they are."""
    found = processors()
    quota = "" if found.quota is None else f", {found.quota:g} of them at a time (container)"
    load = os.getloadavg()[0]
    text = f"{found.allowed} of {found.installed}{quota}; load {load:.1f}"
    if load > found.installed + 0.5:
        hint = "other programs use them: times below are longer than on a quiet machine"
        return Check("processors", "warn", text, hint)
    return Check("processors", "ok", text)


def memory_check() -> Check:
    """Memory that is free for this process."""
    found = memory()
    text = f"{_gibibytes(found.available)} free of {_gibibytes(found.total)}"
    if found.available < _LITTLE_MEMORY:
        hint = "use small replay data (--replay-buffer-size, --memory-limit), or close other programs"
        return Check("memory", "warn", text, hint)
    return Check("memory", "ok", text)


def threads_check() -> Check:
    """Threads of torch's computations, against the processors there are."""
    import torch

    threads, usable = torch.get_num_threads(), processors().usable
    given = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    text = f"torch {threads}; {', '.join(given) or 'OMP_NUM_THREADS and its like not set'}"
    if threads > usable:
        hint = f"more threads than processors ({usable}) are slow: export OMP_NUM_THREADS={usable}"
        return Check("threads", "warn", text, hint)
    return Check("threads", "ok", text)


def start_method_check() -> Check:
    """How Python would start processes; for reports only, since metaroll's workers do not depend on it."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    default = multiprocessing.get_all_start_methods()[0]
    text = chosen or f"{default} (default)"
    return Check("start method", "ok", f"{text}; metaroll's workers are programs of their own")


def runs_folder_check() -> Check:
    """Whether runs can be written below the current folder."""
    runs = Path("runs")
    return _folder_check("runs folder", runs if runs.exists() else Path(), "warn", "choose a place with --out DIR")


def temporary_folder_check() -> Check:
    """Whether there is a folder for temporary files, which workers need."""
    hint = "free some space, or name another folder: export TMPDIR=DIR"
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return Check("temporary folder", "fail", one_line(error), hint)
    return _folder_check("temporary folder", folder, "fail", hint)


def _folder_check(name: str, folder: Path, unusable: Literal["warn", "fail"], hint: str) -> Check:
    where = str(folder.absolute())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"metaroll")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, unusable, f"{where} cannot be written ({error.strerror})", hint)
    text = f"{where}, {_gibibytes(free)} free"
    return Check(name, "warn", text, hint) if free < _LITTLE_SPACE else Check(name, "ok", text)


# -------------------------------------------------------------------------------------------------------------- drivers
def gpu_check(seconds: float) -> Check:
    """GPUs that torch can compute on, or why it cannot."""
    import torch

    runtime = torch.version.cuda or torch.version.hip
    built = f"torch built for {'the CPU' if runtime is None else 'CUDA ' + runtime}"
    has_card = any(path.exists() for path in _NVIDIA)
    if runtime is None:
        return gpu_finding(built, {"error": None}, has_card)
    with Probe("gpu", seconds=seconds) as probe:
        return gpu_finding(built, probe.answer(), has_card)


def gpu_finding(built: str, answer: dict[str, Any], has_card: bool) -> Check:
    """What an answer of the probe ``gpu`` says.

    Args:
        built: What torch was built for.
        answer: The probe's answer; ``{"error": None}`` if this torch knows no GPU.
        has_card: Whether the operating system knows a GPU.
    """
    if devices := answer.get("devices"):
        shown = "; ".join(f"{d['name']}, {_gibibytes(d['free'])} free of {_gibibytes(d['total'])}" for d in devices)
        return Check("GPU", "ok", f"{shown} ({built}; use it with --device cuda)")
    error = answer.get("error")
    if not has_card:
        reason = f"; {str(error).partition('. ')[0]}" if error else ""
        return Check("GPU", "ok", f"none: training runs on the CPU ({built}{reason})")
    if error is None:
        hint = "install a build of torch for it: https://pytorch.org/get-started/locally"
        return Check("GPU", "warn", f"there is an NVIDIA GPU, but this is {built}", hint)
    hint = "install a driver that fits (nvidia-smi shows the present one), or a build of torch that fits the driver"
    return Check("GPU", "warn", f"there is an NVIDIA GPU that does not start ({built}): {error}", hint)


@contextlib.contextmanager
def picture_probes(seconds: float) -> Iterator[dict[str, dict[str, Probe]]]:
    """Processes that draw: name of the check -> ``"given"``, and ``"free"`` (MuJoCo chooses) if MUJOCO_GL is set."""
    with contextlib.ExitStack() as stack:
        probes: dict[str, dict[str, Probe]] = {}
        for name, env_id in PICTURES.items():
            if name == _MUJOCO and importlib.util.find_spec("mujoco") is None:
                continue
            ways: dict[str, dict[str, str | None]] = {"given": {}}
            if name == _MUJOCO and os.environ.get(MUJOCO_GL):
                ways["free"] = {MUJOCO_GL: None}
            probes[name] = {
                way: stack.enter_context(Probe("picture", env_id, seconds=seconds, environment=variables))
                for way, variables in ways.items()
            }
        yield probes


def backend_answers(name: str, answers: dict[str, dict[str, Any]], seconds: float) -> dict[str, dict[str, Any]]:
    """Answers of MuJoCo's other ways to draw without a screen, where it cannot draw as this machine is set."""
    if name != _MUJOCO or not answers or not picture_problem(answers["given"]):
        return {}
    others = [backend for backend in BACKENDS if backend != os.environ.get(MUJOCO_GL)]
    with contextlib.ExitStack() as stack:
        probes = {backend: stack.enter_context(probe_backend(backend, seconds)) for backend in others}
        return {backend: probe.answer() for backend, probe in probes.items()}


def picture_finding(name: str, answers: dict[str, dict[str, Any]], chosen: str | None) -> Check:
    """What the answers of the probes ``picture`` say.

    Args:
        name: Name of the check.
        answers: From ``"given"`` and perhaps ``"free"``, and those of ``BACKENDS`` that were tried; none if MuJoCo is
            not installed.
        chosen: Value of MUJOCO_GL.
    """
    env_id = PICTURES[name]
    if not answers:
        return Check(name, "warn", "MuJoCo is not installed", "pip install 'metaroll[mujoco]'")
    answer = answers["given"]
    setting = f", {MUJOCO_GL}={chosen}" if chosen and name == _MUJOCO else ""
    if problem := picture_problem(answer):
        tried = [
            f"{MUJOCO_GL}={backend} {'does not, either' if picture_problem(answers[backend]) else 'works'}"
            for backend in BACKENDS
            if backend in answers
        ]
        value = "; ".join([f"{env_id} cannot be drawn{setting}: {problem}", *tried])
        return Check(name, "warn", value, _picture_hint(name, answers))
    height, width = answer["shape"][:2]
    backend = f" by {answer['backend']}" if answer.get("backend") else ""
    return Check(name, "ok", f"{env_id} drawn{backend}, {width} x {height}{setting}")


def _picture_hint(name: str, answers: dict[str, dict[str, Any]]) -> str:
    if name != _MUJOCO:
        return "pip install 'gymnasium[classic-control]' (training needs no pictures)"
    free = answers.get("free")
    if free is not None and not picture_problem(free):
        return f"unset {MUJOCO_GL}: {free.get('backend') or 'its own choice'} works here"
    for backend in BACKENDS:
        if backend in answers and not picture_problem(answers[backend]):
            return f"export {MUJOCO_GL}={backend}"
    return _NO_WINDOW


# ------------------------------------------------------------------------------------------------------- rollout engine
def worker_check(seconds: float) -> Check:
    """How long a worker takes until it answers and until its first rollout is there, and how long an empty call takes.

    The first rollout is what users wait for: the process imports all that environments and policies need before it.
    """
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec, RolloutPlan

    make_env = get_family("point-robot").env_constructor
    policy = TanhGaussianMLPPolicy(EnvSpec.from_env(make_env()), hidden_sizes=(16,), generator=torch_generator(0))
    limits = PoolTimeouts(step_s=seconds, reset_s=seconds, start_s=seconds, call_s=seconds)
    started = time.perf_counter()
    with SamplerPool(1, transport="process", timeouts=limits, max_retries=0) as pool:
        pool.invoke_all(_nothing)
        process = time.perf_counter() - started
        with RolloutEngine(make_env, policy, pool=pool) as engine:
            engine.run([RolloutPlan(seed=(0, 0, 0), max_steps=1)])
        ready = time.perf_counter() - started
        calls = []
        for _ in range(_CALLS):
            called = time.perf_counter()
            pool.invoke_all(_nothing)
            calls.append(time.perf_counter() - called)
    text = (
        f"first rollout after {ready:.2f} s (the process alone is there after {process:.2f} s), then "
        f"{1e3 * statistics.median(calls):.2f} ms per empty call"
    )
    if ready > _SLOW_START_S:
        return Check("worker start", "warn", text, "move the environment of Python to a local disk, or close programs")
    return Check("worker start", "ok", text)


def _nothing(namespace: Any) -> None:
    """What a worker is asked for when only the way counts."""


def self_test(seconds: float) -> Check:
    """Four rollouts of point-robot, which must have the same bits in this process and in two workers."""
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.single.invariance import assert_worker_invariant
    from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec, RolloutPlan

    family = get_family("point-robot")
    tasks, _ = family.split(num_train=_PLANS, num_test=0, seed=0)
    spec = EnvSpec.from_env(family.env_constructor())
    policy = TanhGaussianMLPPolicy(spec, hidden_sizes=(16, 16), generator=torch_generator(0))
    plans = [RolloutPlan(index=i, seed=(0, 0, i), env_update=t, max_steps=_STEPS) for i, t in enumerate(tasks)]
    limits = PoolTimeouts(step_s=seconds, reset_s=seconds, start_s=seconds, call_s=seconds)
    started = time.perf_counter()
    try:
        with SamplerPool(2, transport="process", timeouts=limits, max_retries=0) as pool:
            assert_worker_invariant(family.env_constructor, policy, plans, num_workers=(pool,))
    except AssertionError as error:
        return Check("self-test", "fail", str(error), "report this line: results depend on workers here")
    needed = time.perf_counter() - started
    return Check("self-test", "ok", f"{_PLANS} rollouts have the same bits serially and by 2 workers ({needed:.1f} s)")


def _gibibytes(count: int) -> str:
    """Bytes as text."""
    return f"{count / 2**30:.1f} GiB"
