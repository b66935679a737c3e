"""The connection of this process to Ray, which all its pools share. The only module that imports ray."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from metaroll.errors import ClusterError, install_text
from metaroll.processes.children import last_words
from metaroll.rollouts.configs import check_address
from metaroll.rollouts.workers.cluster_probe import check_answer

__all__ = ["RaySession", "check_cluster", "head_address", "join", "require_ray"]

_CHECK_S, _LOST_S = 5.0, 12.0
"""Time between two questions whether the head is there, and after which it is given up: within half a minute (after a
whole one, Ray ends us)."""

_END_S = 2.0
"""Seconds to wait for the clean-up after a cluster was lost."""

_T = TypeVar("_T")

_MODE = "RAY_AUTH_MODE"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_lock = threading.RLock()
_current: RaySession | None = None


class RaySession:
    """Ray as this process uses it, from the first pool that joins to the last one that leaves.

    What the program has connected by itself is used unchanged, and left running. What was started or connected here
    ends with the last pool.

    Attributes:
        ray: The module.
        starts_here: Whether Ray was started on this machine for the pools alone.
        lost: Whether the head is gone: calls to Ray may then never return.
    """

    def __init__(self, address: str | None, num_cpus: int) -> None:
        require_ray()
        import ray

        self.ray: Any = ray
        self.users = 0
        self.owner = os.getpid()
        self.starts_here = self.lost = False
        self._ours = not ray.is_initialized()
        self._environment = _settings()
        if self._ours:
            target = _resolved_address(ray, _target(address))
            self.starts_here = target is None
            wants_token = _asks_for_token(target)
            _check_own_address(ray, target)
            _match_authentication(target, wants_token)
            try:
                with _same_globals():
                    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
                    if target is None:
                        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # put back when it ends
                        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **quiet)
                    else:
                        with _connecting_to(target):
                            ray.init(address=target, **quiet)
            except BaseException as error:
                self._end()
                if not isinstance(error, Exception):
                    raise
                where = "started on this machine" if target is None else f"connected to the cluster at {target}"
                raise ClusterError(f"Ray could not be {where}: {error}") from error
        self._job = _job(ray)
        self._next_check = time.monotonic() + _CHECK_S
        self._silent_since: float | None = None

    @property
    def alive(self) -> bool:
        """False once the program has shut Ray down, or reconnected it."""
        return self.ray.is_initialized() and _job(self.ray) == self._job

    def check_head(self, *, needed: bool = False) -> None:
        """Error if the head of the cluster has not answered for some time; to be called now and then while waiting.

        Ray itself reports nothing for a minute, and then ends the whole program.

        Args:
            needed: Ask now, and wait until it answers: what comes next would wait for it without end.

        Raises:
            ClusterError: It is gone.
        """
        while needed or time.monotonic() >= self._next_check:
            now, head = time.monotonic(), self._job[0]
            if now - self._next_check > _CHECK_S:  # no check for some time
                self._silent_since = None
            self._next_check = now + _CHECK_S
            try:
                check_answer(head)
            except ClusterError as error:
                self._silent_since = now if self._silent_since is None else self._silent_since
                if now - self._silent_since > _LOST_S:
                    self.lost = True
                    raise ClusterError(
                        f"the head of the Ray cluster at {head} has not answered for {_LOST_S:g} s: it ended, or its "
                        "machine can no longer be reached. Restart it (`ray start --head`) and run this again; "
                        "`metaroll resume` continues with a run where it was"
                    ) from error
            else:
                self._silent_since = None
                return
            time.sleep(1.0 if needed else 0.0)

    def call(self, function: Callable[[], _T]) -> _T:
        """``function()``, in another thread: where the head is gone Ray's functions wait until it ends the program.

        Raises:
            ClusterError: The head is gone.
        """
        results: list[_T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
            self.check_head()
        if errors:
            raise errors[0]
        return results[0]

    @property
    def folder(self) -> str | None:
        """The working directory for workers; ``None`` if Ray was configured to give them one (``runtime_env``)."""
        configured = self.ray.get_runtime_context().runtime_env.get("working_dir")
        return None if configured else os.getcwd()

    @property
    def free_cpus(self) -> float:
        """Unclaimed processors; none where Ray was started for the pools, which share them."""
        return 0.0 if self.starts_here else self.call(self.ray.available_resources).get("CPU", 0.0)

    def check_same(self, address: str | None) -> None:
        """Error if ``address`` is another cluster than the connected one."""
        connected = self.ray.get_runtime_context().gcs_address
        if address in (None, "auto", connected) or (address == "local" and self.starts_here):
            return
        own = self.ray.util.get_node_ip_address()
        if address != "local" and _resolved(address or "", own) == _resolved(connected, own):
            return
        hint = "stop the pools that use it" if self._ours else "call ray.shutdown()"
        raise ValueError(
            f"address={address!r} is not the Ray cluster that this process is connected to ({connected}), which all "
            f"its pools share: leave address out, or {hint} first"
        )

    def leave(self) -> None:
        """A pool leaves; the last one ends everything that was started here."""
        global _current
        with _lock:
            self.users -= 1
            if self.users or os.getpid() != self.owner:
                return
            if _current is self:
                _current = None
            if self._ours and self.alive:
                self.briefly(self._end)

    def briefly(self, function: Callable[[], object]) -> None:
        """``function()``, which tidies up: where the head is lost it may never return, and is not waited for long."""
        if not self.lost:
            function()
            return
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        thread.join(_END_S)

    def _end(self) -> None:
        with _same_globals():
            self.ray.shutdown()
        for name in _settings().keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update(self._environment)
        _reload_settings()


def join(address: str | None, num_cpus: int) -> RaySession:
    """The session of this process, connected if it is not yet.

    Args:
        address: ``HOST:PORT`` of a cluster, ``"auto"`` for one that runs on this machine, ``"local"`` for a new one, or
            ``None``: what the program has connected, else that of ``RAY_ADDRESS``, else a new one.
        num_cpus: How many processors a new one offers.

    Raises:
        ClusterError: Nothing answers there, or Ray cannot be started.
        ValueError: The process is connected to another cluster.
    """
    global _current
    with _lock:
        if _current is not None and _current.owner != os.getpid():
            raise RuntimeError(
                f"Ray is connected in process {_current.owner}, of which this one is a fork, where it cannot be used: "
                "restart the process (multiprocessing's 'spawn'), or use transport='process' here"
            )
        if _current is None or not _current.alive:
            session = RaySession(address, num_cpus)
            session.check_same(address)
            _current = session
        else:
            _current.check_same(address)
        _current.users += 1
        return _current


def check_cluster(address: str | None) -> None:
    """Error within seconds if a pool with this ``address`` could not connect; nothing is connected.

    Raises:
        ClusterError: Nothing, or something else, answers there.
    """
    check_address(address)
    _asks_for_token(_target(address))


def _resolved_address(ray: Any, target: str | None) -> str | None:
    """``"auto"`` as the address it means, where it can be found.

    At ``"auto"`` itself Ray would call every cluster with a token if there is one, and a cluster without authentication
    could not call back.
    """
    if target == "auto":
        with contextlib.suppress(ImportError, AttributeError, ConnectionError):
            return ray._private.services.canonicalize_bootstrap_address(target) or target
    return target


def _asks_for_token(target: str | None) -> bool | None:
    """Whether the cluster wants a token; ``None`` if that is not known. Error if it does not answer."""
    return None if target in (None, "auto") else check_answer(target)


def _match_authentication(target: str | None, wants_token: bool | None) -> None:
    """Set up authentication with a cluster, which Ray does itself only for clusters that it has discovered.

    ``ray start --head`` demands tokens wherever an earlier Ray has left one.
    """
    mode = os.environ.get(_MODE)
    if wants_token and mode is None:
        os.environ[_MODE] = "token"  # put back when it ends
        _reload_settings()
    elif wants_token is not None and mode is not None and wants_token != (mode.lower() == "token"):
        wanted = "wants a token (`ray get-auth-token` prints it)" if wants_token else "was started without tokens"
        raise ClusterError(f"the Ray cluster at {target} {wanted}, but {_MODE}={mode} is set here: unset {_MODE}")
    token = _own_token() if wants_token else None
    if target is not None and token is not None and check_answer(target, token):
        raise ClusterError(
            f"the Ray cluster at {target} does not take the token of this machine: set RAY_AUTH_TOKEN, or write "
            "~/.ray/auth_token (`ray get-auth-token`, where the cluster was started, prints the right one)"
        )


def _own_token() -> str | None:
    """The token that Ray would show; ``None`` if it has none, or may search elsewhere for it."""
    if "RAY_AUTH_TOKEN" in os.environ:
        return os.environ["RAY_AUTH_TOKEN"].strip() or None
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        return file.read(1024).strip() or None
    return None


@contextlib.contextmanager
def _connecting_to(target: str) -> Iterator[None]:
    """One error line where a cluster is lost meanwhile: Ray ends the whole program without one, at once or never."""
    text = (
        f"error: the Ray cluster at {target} was lost while this program connected to it: see that it runs (`ray "
        "status`), or restart it (`ray start --head`), and run this again"
    )
    done = threading.Event()

    def watch() -> None:
        silent_since: float | None = None
        while not done.wait(1.0):
            try:
                check_answer(target)
                silent_since = None
            except ClusterError:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _LOST_S:
                    os._exit(1)  # nothing else ends a call into Ray

    thread = threading.Thread(target=watch, daemon=True)
    with last_words(text):
        if target != "auto":
            thread.start()
        try:
            yield
        finally:
            done.set()
            if thread.is_alive():
                thread.join()


def _check_own_address(ray: Any, target: str | None) -> None:
    """Error if ``target`` is a cluster that only answers on this machine's loopback address.

    Ray puts the machine's own address in the place of that one, and would try to connect there for ever.
    """
    host, _, port = (target or "").rpartition(":")
    if host not in _LOOPBACK:
        return
    own = ray.util.get_node_ip_address()
    if own in _LOOPBACK:
        return
    try:
        check_answer(f"{own}:{port}")
    except ClusterError as error:
        raise ClusterError(
            f"the Ray cluster at {target} answers there, but not at {own}:{port}, by which Ray connects to clusters on "
            f"this machine: it was started for {host} alone. Start it with `ray start --head --node-ip-address={own}`, "
            "or connect in the process that has started it (ray.init, and address=None)"
        ) from error


def _settings() -> dict[str, str]:
    """Environment variables that Ray may set in the process that starts it."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_") or name == "PYTHONBREAKPOINT"}


def _reload_settings() -> None:
    """Make Ray forget the values of its variables while its own cluster ran here.

    A new cluster of ``ray.init`` turns authentication by token on. A process that still expects it afterwards takes no
    calls from the next cluster, which then cancels all its actors. Versions without authentication lack these classes.
    """
    with contextlib.suppress(ImportError, AttributeError):
        raylet: Any = importlib.import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _target(address: str | None) -> str | None:
    """Where to connect to; ``None`` means a Ray of our own on this machine."""
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    return None if target == "local" else target


def require_ray() -> None:
    """An ``ImportError`` with the hint if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError(f"transport='ray' needs Ray, which is not installed: {install_text('ray')}")


def head_address() -> str | None:
    """``HOST:PORT`` of the head of the cluster that this process is connected to; ``None`` without a connection."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return ray.get_runtime_context().gcs_address


def _job(ray: Any) -> tuple[str, str]:
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


@contextlib.contextmanager
def _same_globals() -> Iterator[None]:
    """Ray draws from Python's generator when it starts and ends, and puts a handler in the place of the program's."""
    state, handler = random.getstate(), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        random.setstate(state)
        # In other threads neither Ray nor we can set it.
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _resolved(address: str, own: str) -> tuple[str, str]:
    """Host and port that mean the same for all names of this machine, which Ray knows as ``own``."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
        if host.startswith("127.") or host in (own, socket.gethostbyname(socket.gethostname())):
            host = ""
    return host, port
