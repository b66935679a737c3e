"""What holds for every test: it runs in a folder and a home of its own, and leaves nothing behind or changed."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import itertools
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import psutil
import pytest
import rich.live  # noqa: F401 (loaded here since rich draws from Python's random while it is imported)

if TYPE_CHECKING:
    from worker_pools import SharedPools

# Fixtures import torch and metaroll, not this file: it is also read by the process that hands out the tests. That one
# needs neither, and starts the others only then.

PLUGINS = Path(__file__).parents[1] / "examples" / "plugins"

# The same examples in every run, and no time limit per example: a busy machine is not a failure.
hypothesis.settings.register_profile("metaroll", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("metaroll")

# A shell lets what it starts in the background ignore Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So does nohup with what a terminal that is closed sends.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Thousands of tests are objects that stay: looking for cycles among them again and again takes 10 % of the run.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)  # at the usual 700 new objects it takes 5 % of the run


@pytest.fixture(scope="session", autouse=True)
def disks_do_not_wait() -> Iterator[None]:
    """What tests write need not survive a power failure; waiting for disks takes longer than many tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


# -- folders -----------------------------------------------------------------------------------------------------------

CHECKOUT = Path(__file__).resolve().parents[1]
_CACHES = re.compile(r"__pycache__|\.(git|venv.*|pytest_cache|ruff_cache|hypothesis|import_linter_cache)")
"""What tools keep in a checkout."""


def files_in(folder: Path) -> set[str]:
    """All that lies in ``folder``, at any depth, but for the caches of tools; nothing is opened."""
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _CACHES.fullmatch(name)]
        found.update(os.path.relpath(os.path.join(place, name), folder) for name in (*folders, *files))
    return found


_AT_FIRST = pytest.StashKey[set[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, where there are several processes
        session.config.stash[_AT_FIRST] = files_in(CHECKOUT)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    before = session.config.stash.get(_AT_FIRST, None)
    changed = set() if before is None else files_in(CHECKOUT) ^ before
    if changed:
        session.config.stash[_CHANGED] = sorted(changed)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_CHANGED = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if changed := config.stash.get(_CHANGED, []):
        terminalreporter.section("tests changed the checkout", red=True)
        terminalreporter.line(f"made or removed in {CHECKOUT}: {', '.join(changed[:20])}")


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that the user keeps at home counts; what was computed once may stay in the user's caches."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        patch.delenv("XDG_DATA_HOME", raising=False)
        patch.setenv("HOME", str(home))
        yield


@pytest.fixture(scope="session")
def _places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the current folders of all tests."""
    yield tmp_path_factory.mktemp("places")


@pytest.fixture(scope="module", autouse=True)
def own_folder_of_module(_places: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Fixtures of a module run in a folder of their own."""
    folder = Path(tempfile.mkdtemp(prefix=f"{request.node.path.stem}-", dir=_places))
    with contextlib.chdir(folder):
        yield folder


@pytest.fixture(autouse=True)
def own_folder(own_folder_of_module: Path) -> Iterator[None]:
    """Every test runs in an empty folder of its own, in none of the checkout nor of the user."""
    folder = own_folder_of_module / f"test-{next(_COUNT)}"
    folder.mkdir()
    with contextlib.chdir(folder):
        yield


_COUNT = itertools.count()


# -- globals -----------------------------------------------------------------------------------------------------------

GRACE_SECONDS = 5.0
"""How long a process may take to go after the test that started it."""


def _numpy_state() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return kind, keys.tobytes(), *rest


def _start_method() -> str:
    # None means "not chosen yet"; asking for the default one fixes it, which changes nothing for anybody.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


@functools.cache
def watched_globals() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Name -> (read, restore)."""
    import torch

    return {
        "the state of Python's random": (random.getstate, random.setstate),
        "the state of numpy.random": (
            _numpy_state,
            lambda s: np.random.set_state((s[0], np.frombuffer(s[1], "u4"), *s[2:])),
        ),
        "the state of torch's generator": (
            lambda: torch.get_rng_state().numpy().tobytes(),
            lambda s: torch.set_rng_state(torch.frombuffer(bytearray(s), dtype=torch.uint8)),
        ),
        "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "torch's deterministic mode": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "NumPy's floating-point error handling": (np.geterr, lambda s: np.seterr(**s)),
        "multiprocessing's start method": (
            _start_method,
            lambda s: multiprocessing.set_start_method(s, force=True),
        ),
    }


@pytest.fixture(autouse=True)
def no_global_is_changed() -> Iterator[None]:
    """Fails the test that changes a global of torch, NumPy or Python, and puts it back for the next test.

    A test that needs third-party code which draws from global generators (building a ``torch.nn.Linear`` does) wraps
    it in ``metaroll.isolated_rng(seed)``.
    """
    watched = watched_globals()
    before = {name: read() for name, (read, _) in watched.items()}
    yield
    changed = [name for name, (read, _) in watched.items() if read() != before[name]]
    for name in changed:
        watched[name][1](before[name])
    if changed:
        pytest.fail(f"this test changed {', '.join(changed)}", pytrace=False)


@pytest.fixture(scope="session")
def shared_pools() -> Iterator[SharedPools]:
    """Workers that tests share; they find the plug-ins of the examples, as does whoever lends one."""
    from worker_pools import SHARED_POOLS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(PLUGINS)])
        yield SHARED_POOLS
    SHARED_POOLS.end()


@pytest.fixture(scope="module")
def lent_pools(shared_pools: SharedPools) -> Iterator[None]:
    """Runners, engines and samplers of this module run in shared pools instead of starting workers of their own."""
    from metaroll.rollouts.engine import engine
    from metaroll.rollouts.single import replay
    from metaroll.training.run import rollout_source
    from worker_pools import LentPool

    with pytest.MonkeyPatch.context() as patch:
        for module in (engine, replay, rollout_source):
            patch.setattr(module, "SamplerPool", LentPool)
        yield


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """MuJoCo compiles a file once and copies its model: compiling one of Meta-World takes longer than most tests."""
    import mujoco

    models = _compiled_models(mujoco.MjModel.from_xml_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mujoco.MjModel, "from_xml_path", staticmethod(lambda path: copy.copy(models(path))))
        yield


@functools.cache
def _compiled_models(compile_file: Callable[[str], Any]) -> Callable[[str], Any]:
    return functools.lru_cache(maxsize=20)(compile_file)


@pytest.fixture(scope="session", autouse=True)
def no_pictures() -> Iterator[None]:
    """Commands end without pictures: drawing them takes longer than small runs do."""
    from metaroll.lab.display import view

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "draw_pictures", lambda *arguments, **options: [])
        yield


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands draw pictures, as they do for users."""
    from metaroll.lab.display import view
    from metaroll.lab.display.results import draw_pictures

    monkeypatch.setattr(view, "draw_pictures", draw_pictures)


@pytest.fixture
def empty_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts of pages are not drawn, for tests of what else a page says: a page of them takes a second."""
    from metaroll.lab.report import page_parts

    monkeypatch.setattr(page_parts, "svg", lambda chart: ('<svg class="chart"></svg>', chart.explanation))


TELLS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether Linux tells the children of a process; otherwise one has to look at all processes of the machine."""


def _descendants() -> set[int]:
    """Of this process, workers of shared pools and their guard left out."""
    from worker_pools import SHARED_POOLS

    if not TELLS_CHILDREN:
        return SHARED_POOLS.without({process.pid for process in psutil.Process().children(recursive=True)})
    found: set[int] = set()
    new = SHARED_POOLS.without(_children_of(os.getpid()))
    while new:
        found |= new
        new = set().union(*map(_children_of, new)) - found
    return found


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    tasks = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):  # the process has ended
        for thread in os.listdir(tasks):
            with contextlib.suppress(OSError), open(f"{tasks}/{thread}/children", "rb") as file:  # the thread has ended
                found.update(map(int, file.read().split()))
    return found


def _living(pids: set[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # multiprocessing's own helpers live as long as the interpreter, by design.
            is_helper = any("multiprocessing.resource_tracker" in part for part in process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and not is_helper:
                found.append(process)
    return found


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    """Fails the test after which a process lives that it started, and ends that process."""
    before = _descendants()
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    while left := _living(_descendants() - before):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    told = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            told.append(f"{process.pid} ({' '.join(process.cmdline())[:120]})")
            process.kill()
    if told:
        pytest.fail(f"this test left processes behind: {', '.join(told)}", pytrace=False)
