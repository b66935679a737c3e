"""The command ``doctor``: what is fine on this machine, what is missing, and what helps."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from metaroll.errors import install_text
from metaroll.lab.checking.report import TaskCheck as Check
from metaroll.lab.checking.report import one_line
from metaroll.lab.cli.options import Output, Switch, parse
from metaroll.lab.display.consoles import show_findings
from metaroll.lab.display.json_output import write_document
from metaroll.own_code import PluginError
from metaroll.training.algorithms.plugin_lookup import installed, load_row, refused
from metaroll.training.session.machine import (
    BACKENDS,
    MUJOCO_ENV,
    MUJOCO_GL,
    Probe,
    memory,
    picture_problem,
    probe_backend,
    processors,
)

__all__ = ["doctor", "examine"]

_PROBE_S = 10.0
_WORKER_S = 20.0
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
    quick: Switch = False
    """Start no workers and draw no pictures."""
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
    with console.status("looking at this machine", spinner="line") as status:
        checks = examine(given.quick, lambda name: status.update(f"looking at: {name}"))
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


def examine(quick: bool = False, tell: Callable[[str], None] = lambda name: None) -> list[Check]:
    """All checks in the order of the table.

    Args:
        quick: Leave out what starts workers and draws pictures.
        tell: Called with the name of each check before it is made.
    """

    def made(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
        tell(name)
        return guarded(name, check, essential)

    # They draw while the packages of this process are being imported.
    with contextlib.nullcontext({}) if quick else picture_probes(_PROBE_S) as probes:
        checks = [made("metaroll", program_check, True), made("packages", packages_check, True)]
        with contextlib.suppress(ImportError):  # the line of the packages says why
            checks += [made(f"extra {extra}", functools.partial(extra_check, extra)) for extra in extras_in_use()]
        checks += [
            made("plug-ins", plugins_check),
            made("processors", processors_check),
            made("memory", memory_check),
            made("threads", threads_check),
            made("start method", start_method_check),
            made("runs folder", runs_folder_check),
            made("temporary folder", temporary_folder_check, True),
            made("GPU", functools.partial(gpu_check, _PROBE_S)),
        ]
        if quick:
            return checks
        for name in PICTURES:
            checks.append(made(name, functools.partial(_picture, name, probes.get(name))))
    return [
        *checks,
        made("worker start", functools.partial(worker_check, _WORKER_S), essential=True),
        made("self-test", functools.partial(self_test, _WORKER_S), essential=True),
    ]


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

    return _finding("metaroll", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def packages_check() -> Check:
    """Whether the packages that metaroll always needs are there, fit, and can be imported."""
    needed = _requirements().get("", [])
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
    packages = {extra: {r.name for r in needed} for extra, needed in _requirements().items()}
    everything = packages.get("all", set())
    return sorted(name for name, own in packages.items() if name not in ("", "all", "dev") and own <= everything)


def extra_check(extra: str) -> Check:
    """Whether the packages of an extra are installed."""
    name, needed = f"extra {extra}", _requirements()[extra]
    problems = [problem for requirement in needed if (problem := _problem(requirement))]
    if problems:
        use = f": {_USE_OF_EXTRA[extra]}" if extra in _USE_OF_EXTRA else ""
        return Check(name, "skip", f"optional{use} ({'; '.join(problems)})", install_text(extra))
    return _finding(name, ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed))


# -------------------------------------------------------------------------------------------------------------- machine
def plugins_check() -> Check:
    """Whether all algorithms and environments of others that are installed can be loaded."""
    from metaroll.envs.lookup import registry
    from metaroll.envs.lookup.source import EnvSource

    problems = [why for _, why in (*refused(), *registry.refused())]
    for name in installed():
        try:
            load_row(name)
        except Exception as error:
            problems.append(_whole(error))
    for name, one in registry.installed().items():
        try:
            _ = EnvSource.of(name).spec
        except PluginError as error:
            problems.append(_whole(error))
        except (Exception, SystemExit) as error:
            problems.append(f"environment {name!r} {one.location} cannot be made: {one_line(error)}")
    if problems:
        hint = "all else works; install versions that fit, or uninstall what is not needed"
        return _finding("plug-ins", "\n".join(problems), hint)
    return Check("plug-ins", "ok", ", ".join([*installed(), *registry.installed()]) or "none are installed")


def _whole(error: Exception) -> str:
    """What a ``PluginError`` says, which has all that counts; of others their kind, and a line."""
    return " ".join(str(error).split()) if isinstance(error, PluginError) else one_line(error)


def processors_check() -> Check:
    """Processors that this process may use, and how busy they are."""
    found, load = processors(), os.getloadavg()[0]
    quota = "" if found.quota is None else f", {found.quota:g} of them at a time (container)"
    busy = load > found.installed + 0.5
    hint = "other programs use them: times below are longer than on a quiet machine" if busy else ""
    return _finding("processors", f"{found.allowed} of {found.installed}{quota}; load {load:.1f}", hint)


def memory_check() -> Check:
    """Memory that is free for this process."""
    found = memory()
    little = found.available < _LITTLE_MEMORY
    hint = "use small replay data (--replay-buffer-size, --memory-limit), or close other programs" if little else ""
    return _finding("memory", f"{_gibibytes(found.available)} free of {_gibibytes(found.total)}", hint)


def threads_check() -> Check:
    """Threads of torch's computations, against the processors there are."""
    import torch

    threads, usable = torch.get_num_threads(), processors().usable
    given = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    text = f"torch {threads}; {', '.join(given) or 'OMP_NUM_THREADS and its like not set'}"
    slow = f"more threads than processors ({usable}) are slow: export OMP_NUM_THREADS={usable}"
    return _finding("threads", text, slow if threads > usable else "")


def start_method_check() -> Check:
    """How Python would start processes; for reports only, since metaroll's workers do not depend on it."""
    default = f"{multiprocessing.get_all_start_methods()[0]} (default)"
    text = multiprocessing.get_start_method(allow_none=True) or default
    return _finding("start method", f"{text}; metaroll's workers are programs of their own")


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
        return _finding("temporary folder", one_line(error), hint, "fail")
    return _folder_check("temporary folder", folder, "fail", hint)


def _folder_check(name: str, folder: Path, unusable: Literal["warn", "fail"], hint: str) -> Check:
    where = str(folder.absolute())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"metaroll")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return _finding(name, f"{where} cannot be written ({error.strerror})", hint, unusable)
    return _finding(name, f"{where}, {_gibibytes(free)} free", hint if free < _LITTLE_SPACE else "")


def _gibibytes(count: int) -> str:
    """Bytes as text."""
    return f"{count / 2**30:.1f} GiB"


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
        return _finding("GPU", f"{shown} ({built}; use it with --device cuda)")
    error = answer.get("error")
    if not has_card:
        reason = f"; {str(error).partition('. ')[0]}" if error else ""
        return _finding("GPU", f"none: training runs on the CPU ({built}{reason})")
    if error is None:
        hint = "install a build of torch for it: https://pytorch.org/get-started/locally"
        return _finding("GPU", f"there is an NVIDIA GPU, but this is {built}", hint)
    hint = "install a driver that fits (nvidia-smi shows the present one), or a build of torch that fits the driver"
    return _finding("GPU", f"there is an NVIDIA GPU that does not start ({built}): {error}", hint)


@contextlib.contextmanager
def picture_probes(seconds: float) -> Iterator[dict[str, Probe]]:
    """Processes that draw, one for each of ``PICTURES`` whose package is there."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Probe("picture", env_id, seconds=seconds))
            for name, env_id in PICTURES.items()
            if name != _MUJOCO or importlib.util.find_spec("mujoco") is not None
        }


def _picture(name: str, probe: Probe | None) -> Check:
    answers = {} if probe is None else {"given": probe.answer()}
    return picture_finding(name, {**answers, **backend_answers(name, answers, _PROBE_S)}, os.environ.get(MUJOCO_GL))


def backend_answers(name: str, answers: dict[str, dict[str, Any]], seconds: float) -> dict[str, dict[str, Any]]:
    """Answers of MuJoCo's other ways to draw, where it cannot draw as this machine is set.

    These are ``BACKENDS``, which need no screen, and ``"free"`` (MuJoCo chooses) if MUJOCO_GL is set.
    """
    if name != _MUJOCO or not answers or not picture_problem(answers["given"]):
        return {}
    chosen = os.environ.get(MUJOCO_GL)
    ways: dict[str, str | None] = {backend: backend for backend in BACKENDS if backend != chosen}
    if chosen:
        ways["free"] = None
    with contextlib.ExitStack() as stack:
        probes = {way: stack.enter_context(probe_backend(backend, seconds)) for way, backend in ways.items()}
        return {way: probe.answer() for way, probe in probes.items()}


def picture_finding(name: str, answers: dict[str, dict[str, Any]], chosen: str | None) -> Check:
    """What the answers of the probes ``picture`` say.

    Args:
        name: Name of the check.
        answers: From ``"given"``, and those of ``backend_answers``; none if MuJoCo is not installed.
        chosen: Value of MUJOCO_GL.
    """
    env_id = PICTURES[name]
    if not answers:
        return Check(name, "skip", "optional: MuJoCo is not installed", install_text("mujoco"))
    answer = answers["given"]
    setting = f", {MUJOCO_GL}={chosen}" if chosen and name == _MUJOCO else ""
    problem = picture_problem(answer)
    if not problem:
        height, width = answer["shape"][:2]
        backend = f" by {answer['backend']}" if answer.get("backend") else ""
        return _finding(name, f"{env_id} drawn{backend}, {width} x {height}{setting}")
    works = {way: not picture_problem(answers[way]) for way in ("free", *BACKENDS) if way in answers}
    tried = [f"{MUJOCO_GL}={way} {'works' if works[way] else 'does not, either'}" for way in BACKENDS if way in works]
    value = "; ".join([f"{env_id} cannot be drawn{setting}: {problem}", *tried])
    way = next((way for way, good in works.items() if good), None)
    if name != _MUJOCO:
        hint = "pip install 'gymnasium[classic-control]' (training needs no pictures)"
    elif way == "free":
        hint = f"unset {MUJOCO_GL}: {answers['free'].get('backend') or 'its own choice'} works here"
    else:
        hint = _NO_WINDOW if way is None else f"export {MUJOCO_GL}={way}"
    return _finding(name, value, hint)


# ------------------------------------------------------------------------------------------------------- rollout engine
def _timeouts(seconds: float) -> Any:
    from metaroll.rollouts.configs import PoolTimeouts

    return PoolTimeouts(step_s=seconds, reset_s=seconds, start_s=seconds, call_s=seconds)


def _point_robot() -> tuple[Any, Any]:
    """A family of tasks, and a small policy for it."""
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec

    family = get_family("point-robot")
    spec = EnvSpec.from_env(family.env_constructor())
    return family, TanhGaussianMLPPolicy(spec, hidden_sizes=(16, 16), generator=torch_generator(0))


def worker_check(seconds: float) -> Check:
    """How long a worker takes until it answers and until its first rollout is there, and how long an empty call takes.

    The first rollout is what users wait for: the process imports all that environments and policies need before it.
    """
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.types import RolloutPlan

    family, policy = _point_robot()
    started = time.perf_counter()
    with SamplerPool(1, transport="process", timeouts=_timeouts(seconds), max_retries=0) as pool:
        pool.invoke_all(_nothing)
        process = time.perf_counter() - started
        with RolloutEngine(family.env_constructor, policy, pool=pool) as engine:
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
    slow = "move the environment of Python to a local disk, or close programs"
    return _finding("worker start", text, slow if ready > _SLOW_START_S else "")


def _nothing(namespace: Any) -> None:
    """What a worker is asked for when only the way counts."""


def self_test(seconds: float) -> Check:
    """Four rollouts of point-robot, which must have the same bits in this process and in two workers."""
    from metaroll.rollouts.single.replay import assert_worker_invariant
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.types import RolloutPlan

    family, policy = _point_robot()
    tasks, _ = family.split(num_train=_PLANS, num_test=0, seed=0)
    plans = [RolloutPlan(index=i, seed=(0, 0, i), env_update=t, max_steps=_STEPS) for i, t in enumerate(tasks)]
    started = time.perf_counter()
    try:
        with SamplerPool(2, transport="process", timeouts=_timeouts(seconds), max_retries=0) as pool:
            assert_worker_invariant(family.env_constructor, policy, plans, num_workers=(pool,))
    except AssertionError as error:
        return _finding("self-test", str(error), "report this line: results depend on workers here", "fail")
    needed = time.perf_counter() - started
    return _finding("self-test", f"{_PLANS} rollouts have the same bits serially and by 2 workers ({needed:.1f} s)")
