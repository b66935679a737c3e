"""MuJoCo simulations that are stepped together: one ``MjData`` each, and a model of its own where physics differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.envs.mujoco.library import load_mujoco, unstable
from metaroll.envs.mujoco.model_params import BoundModelParams
from metaroll.envs.mujoco.rules import Rules
from metaroll.envs.mujoco.threads import PhysicsThreads

__all__ = ["Simulations"]

Failures = list[tuple[int, Exception]]


class Simulations:
    """E simulations of one model.

    Args:
        count: How many.
        model: The model; never changed here.
        rules: What is read of them.
        threads: How many threads step them; ``None`` means as ``physics_threads`` says.
    """

    def __init__(self, count: int, model: Any, rules: Rules, threads: int | None = None) -> None:
        mujoco = load_mujoco()
        self._model, self._rules = model, rules
        self._reset_data, self._forward = mujoco.mj_resetData, mujoco.mj_forward
        self._models = [model] * count
        self._own: list[_OwnModel | None] = [None] * count
        self._datas = [mujoco.MjData(model) for _ in range(count)]
        self._controls = [data.ctrl for data in self._datas]
        self._mj_step, self._mj_rne = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._threads = PhysicsThreads(threads)
        # Views into MuJoCo's memory; asking for them anew costs more than reading them.
        views = [{"qpos": d.qpos, "qvel": d.qvel, **rules.observed(model, d)} for d in self._datas]
        buffers = [{name: np.stack([view[name] for view in views]) for name in views[0]} for _ in range(2)]
        pairs = [
            [[(buffer[name][slot, ...], view[name]) for name in view] for slot, view in enumerate(views)]
            for buffer in buffers
        ]
        self.now, self._copies = buffers[0], pairs[0]
        """Quantities of all simulations, and what copies them from each; every step takes the other two of each."""
        self.before, self._other_copies = buffers[1], pairs[1]
        self._warnings = [data.warning.number for data in self._datas]
        self._quiet = bytes(self._warnings[0].nbytes)
        self._alarms: set[int] = set()
        told = {**rules.constants(model), "dt": self._seconds(model)}
        self.constants = {name: np.stack([np.asarray(value)] * count) for name, value in told.items()}

    def use_base(self, slot: int) -> None:
        """Simulate ``slot`` with the model that was given."""
        self._use(slot, self._model)

    def use_params(self, slot: int, params: Mapping[str, float]) -> None:
        """With entries of the model changed (see ``model_params``), nothing else."""
        own = self._own_model(slot, "params")
        BoundModelParams(own).set(params)
        self._use(slot, own.model)

    def use_task(self, slot: int, task: Any) -> None:
        """With a model in which the rules have set ``task``."""
        own = self._own_model(slot, "task")
        self._rules.set_in_model(own.model, task)
        self._use(slot, own.model)

    def start(self, slot: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Start ``slot`` anew from these positions and velocities."""
        model, data = self._models[slot], self._datas[slot]
        self._reset_data(model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        if model.na == 0:
            data.act[:] = None  # as Gymnasium does
        self._forward(model, data)
        self._alarms.discard(slot)
        for row, view in self._copies[slot]:
            row[...] = view

    def step(self, slots: Sequence[int], controls: np.ndarray) -> None:
        """Step ``slots`` with their rows of ``controls (E, nu)``.

        An exception inside MuJoCo passes through, with the number of its slot in the attribute ``_metaroll_slot``,
        when all others have been stepped.
        """
        self.before, self.now = self.now, self.before
        self._other_copies, self._copies = self._copies, self._other_copies
        failures: list[tuple[int, Exception]] = []
        self._threads.run(self._loop(list(controls), failures), slots)
        if len(slots) < len(self._datas):
            idle = np.ones(len(self._datas), dtype=bool)
            idle[list(slots)] = False
            for name, values in self.now.items():
                values[idle] = self.before[name][idle]
        if failures:
            slot, error = min(failures, key=lambda failure: failure[0])
            error._metaroll_slot = slot  # type: ignore[attr-defined]
            raise error

    def unstable(self) -> np.ndarray | None:
        """Which simulations have left what can be computed, bool ``(E,)``; ``None`` if none has.

        MuJoCo starts them again from the reference position without a word but a warning.
        """
        if not self._alarms:
            return None
        return unstable(np.stack(self._warnings))

    def _loop(self, rows: list[np.ndarray], failures: Failures) -> Callable[[Callable[[], int]], None]:
        """What steps slots until none is left, in one of the threads."""
        mj_step, mj_rne, frames, contacts = self._mj_step, self._mj_rne, self._rules.frame_skip, self._rules.contacts
        models, datas, targets, copies = self._models, self._datas, self._controls, self._copies
        warnings, quiet, alarms = self._warnings, self._quiet, self._alarms

        def loop(take: Callable[[], int]) -> None:
            while True:
                try:
                    slot = take()
                except IndexError:
                    return
                try:
                    targets[slot][:] = rows[slot]
                    model, data = models[slot], datas[slot]
                    mj_step(model, data, frames)
                    if contacts:
                        mj_rne(model, data)
                    # At once, while they are in the processor's cache, and while other threads compute.
                    for row, view in copies[slot]:
                        row[...] = view
                    if warnings[slot].tobytes() != quiet:
                        alarms.add(slot)
                except Exception as error:
                    failures.append((slot, error))

        return loop

    def _use(self, slot: int, model: Any) -> None:
        changed = model is not self._models[slot] or model is not self._model
        self._models[slot] = model
        if changed:
            for name, value in {**self._rules.constants(model), "dt": self._seconds(model)}.items():
                self.constants[name][slot] = value

    def _own_model(self, slot: int, kind: str) -> _OwnModel:
        own = self._own[slot]
        if own is None or own.kind != kind:
            own = self._own[slot] = _OwnModel(copy.deepcopy(self._model), kind)
        return own

    def _seconds(self, model: Any) -> float:
        return model.opt.timestep * self._rules.frame_skip


class _OwnModel:
    """A model that belongs to one slot; remembers the nominal values of what is changed (``model_params``)."""

    def __init__(self, model: Any, kind: str) -> None:
        self.model = model
        self.kind = kind
