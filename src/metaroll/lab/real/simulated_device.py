"""A process that simulates a device on its own clock, with packets that may be late or lost."""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, final

import numpy as np

from metaroll.checks import check_flag, check_instance, check_list, check_number, check_seed, check_whole
from metaroll.data.doors.json_files import parse_json
from metaroll.envs.sims.catalog import sim_constructor
from metaroll.envs.sims.simulator import SimSimulator, SimState, step_columns
from metaroll.errors import DeviceError, unknown_name
from metaroll.processes.children import ChildProcess

__all__ = ["PacketFaults", "SimulatedDevice", "main"]

_LARGEST = 65536
_ENDING = 5.0
_STARTING = 120.0
"""Seconds to wait for a process to start: imports take a while on a busy machine."""


@dataclass(frozen=True)
class PacketFaults:
    """Faults of packets in transit.

    Attributes:
        jitter: Every packet is up to this many seconds late, in order.
        late: Share of the packets that are ``late_by`` seconds late, so that later ones can overtake them.
        late_by: Delay of late packets in seconds.
        lost: Share of the packets that are lost.
        lost_numbers: Numbers of packets that are always lost.
        seed: Seed of the random faults.
    """

    jitter: float = 0.0
    late: float = 0.0
    late_by: float = 0.0
    lost: float = 0.0
    lost_numbers: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = [
            check_whole("each of lost_numbers", n, 0) for n in check_list("lost_numbers", self.lost_numbers, "integers")
        ]
        checked = {
            "jitter": check_number("jitter", self.jitter, 0.0),
            "late": check_number("late", self.late, 0.0, 1.0),
            "late_by": check_number("late_by", self.late_by, 0.0),
            "lost": check_number("lost", self.lost, 0.0, 1.0),
            "lost_numbers": tuple(numbers),
            "seed": check_seed("seed", self.seed),
        }
        for name, value in checked.items():  # plain values, which JSON carries to the process of the device
            object.__setattr__(self, name, value)


@final
class SimulatedDevice:
    """Runs a simulator in its own process, for rehearsals: ``with SimulatedDevice("pend") as device``.

    ``device.connection`` is the socket for ``SocketEnv``.

    Args:
        name: Short name of the simulator.
        dt: Seconds per step of the device; ``None`` means the simulator's.
        domain_param: Domain parameters that differ from the nominal ones, hidden from the client.
        init_state: Where episodes start; ``None``: drawn by the simulator.
        faults: Faults of packets in transit.
        paced: Step on a clock; otherwise once for every action that arrives, without waiting.
    """

    def __init__(
        self,
        name: str,
        *,
        dt: float | None = None,
        domain_param: Mapping[str, float] | None = None,
        init_state: Any = None,
        faults: PacketFaults | None = None,
        paced: bool = True,
    ) -> None:
        kind = sim_constructor(name)
        if kind is None:
            raise unknown_name("simulator", name, ("omo", "pend", "bob", "qcp-st", "qcp-su", "qq-st", "qq-su", "qbb"))
        env = kind()
        env.domain_param = dict(domain_param or {})  # invalid values fail here, not in the process
        self.env_spec, self.dt = env.env_spec, env.dt if dt is None else check_number("dt", dt, 0.0, above_low=True)
        init = None if init_state is None else env.simulator.check_init_state(init_state).tolist()
        settings = {"name": name, "dt": self.dt, "params": env.domain_param, "init": init}
        text = json.dumps({**settings, **_transit(PacketFaults() if faults is None else faults, paced)})
        self.connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        arguments = [str(other.fileno()), text]
        with other:
            self._process = ChildProcess(f"{__name__}:main", arguments, pass_fds=[other.fileno()])
        self._wait_until_ready()

    def worsen(self, faults: PacketFaults, *, paced: bool = True) -> None:
        """Change the faults of packets from the next episode on; see the class."""
        message = json.dumps(_transit(faults, paced)).encode()
        self.connection.settimeout(_ENDING)
        self.connection.send(message)

    def _wait_until_ready(self) -> None:
        self.connection.settimeout(_STARTING)
        try:
            self.connection.recv(_LARGEST)
        except OSError as error:
            self.close()
            raise DeviceError(f"the process of the simulated device did not start ({error})") from error

    def __enter__(self) -> SimulatedDevice:
        """The device itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.end()


def _transit(faults: Any, paced: Any) -> dict[str, Any]:
    """How packets travel, as the device is told."""
    check_instance("faults", faults, PacketFaults, "PacketFaults")
    return {"faults": asdict(faults), "paced": check_flag("paced", paced)}


class _Device:
    """The device in its process."""

    def __init__(self, connection: socket.socket, settings: Mapping[str, Any]) -> None:
        env: Any = sim_constructor(settings["name"])()  # type: ignore[misc]
        env.dt, env.domain_param = settings["dt"], settings["params"]
        self._simulator = SimSimulator(env.config)
        self._constants = self._simulator.constants([env.config.params], np)
        self._init, self._paced, self._dt = settings["init"], settings["paced"], settings["dt"]
        self._faults = PacketFaults(**settings["faults"])
        self._generator = np.random.default_rng(self._faults.seed)
        self._connection = connection
        self._state: SimState | None = None
        self._action = np.zeros(len(env.model.action_labels))
        self._episode, self._number, self._next = 0, 0, 0.0
        self._waiting: list[tuple[float, bytes]] = []

    def serve(self) -> None:
        """Serve until the other side disconnects."""
        self._connection.send(b"ready")
        while True:
            now = time.monotonic()
            times = [due for due, _ in self._waiting]
            times += [self._next] if self._paced and self._state is not None else []
            left = max(0.0, min(times) - now) if times else None
            if select.select([self._connection], [], [], left)[0]:
                data = self._connection.recv(_LARGEST)
                if not data:
                    return
                self._handle(parse_json(data))
            if self._paced and self._state is not None and time.monotonic() >= self._next:
                self._next += self._dt
                self._advance()
            self._deliver()

    def _handle(self, message: Mapping[str, Any]) -> None:
        if "faults" in message:
            self._faults, self._paced = PacketFaults(**message["faults"]), message["paced"]
            self._generator, self._state = np.random.default_rng(self._faults.seed), None
        elif "reset" in message:
            self._episode, self._number, self._waiting = message["reset"], 0, []
            self._state, self._next = self._started(), time.monotonic() + self._dt
            self._action[:] = 0.0
            self._emit()
        elif message.get("episode") == self._episode:
            self._action = np.array(message["action"], dtype=np.float64)
            if not self._paced and self._state is not None:
                self._advance()

    def _started(self) -> SimState:
        if self._init is not None:
            return self._simulator.state_from_init(np.array([self._init]), self._constants, np)
        uniforms = tuple(np.array([u]) for u in self._generator.random(self._simulator.num_uniforms))
        return self._simulator.initial_state(uniforms, self._constants, np)

    def _advance(self) -> None:
        assert self._state is not None
        action = tuple(self._action[:, None])
        self._state = step_columns(self._simulator.config, self._constants, self._state, action, np).state
        self._number += 1
        self._emit()

    def _emit(self) -> None:
        """Send a packet with the current state, subject to faults."""
        observation = self._simulator.observe(self._state, self._constants, np)[0]  # type: ignore[arg-type]
        message = {"observation": observation.tolist(), "number": self._number, "episode": self._episode}
        faults, drawn = self._faults, self._generator.random(3)
        if self._number and (drawn[0] < faults.lost or self._number in faults.lost_numbers):
            return
        late = faults.late_by if self._number and drawn[1] < faults.late else 0.0
        due = time.monotonic() + late + faults.jitter * drawn[2]
        if not late and self._waiting:
            due = max(due, *(time for time, _ in self._waiting)) if faults.jitter else due
        self._waiting.append((due, json.dumps(message).encode()))

    def _deliver(self) -> None:
        now = time.monotonic()
        due = sorted((entry for entry in self._waiting if entry[0] <= now), key=lambda entry: entry[0])
        self._waiting = [entry for entry in self._waiting if entry[0] > now]
        for _, data in due:
            try:
                self._connection.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:  # the buffer is full: the packet is lost
                continue


def main() -> None:
    """Run the device described on the command line, in this process, until the other side disconnects."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        _Device(connection, parse_json(sys.argv[2])).serve()
    except ConnectionError:
        return
