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
        self._loop_of = _looper(mujoco, rules)
        self._threads = PhysicsThreads(threads)
        # Views into MuJoCo's memory; asking for them anew costs more than reading them.
        views = [{"qpos": d.qpos, "qvel": d.qvel, **rules.quantities(model, d)} for d in self._datas]
        self._views = {name: [view[name] for view in views] for name in views[0]}
        self._warnings = [data.warning.number for data in self._datas]
        self.now = self._read()
        """Quantities of all simulations; other arrays after every step, changed in place by ``start``."""
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
        for name, views in self._views.items():
            self.now[name][slot] = views[slot]

    def step(self, slots: Sequence[int], controls: np.ndarray) -> None:
        """Step ``slots`` with their rows of ``controls (E, nu)``.

        An exception inside MuJoCo passes through, with the number of its slot in the attribute ``_metaroll_slot``,
        when all others have been stepped.
        """
        failures: list[tuple[int, Exception]] = []
        self._threads.run(self._loop_of(self._models, self._datas, self._controls, list(controls), failures), slots)
        self.now = self._read()
        if failures:
            slot, error = min(failures, key=lambda failure: failure[0])
            error._metaroll_slot = slot  # type: ignore[attr-defined]
            raise error

    def unstable(self) -> np.ndarray | None:
        """Which simulations have left what can be computed, bool ``(E,)``; ``None`` if none has.

        MuJoCo starts them again from the reference position without a word but a warning.
        """
        counts = np.concatenate(self._warnings)
        return unstable(counts.reshape(len(self._warnings), -1)) if counts.any() else None

    def _read(self) -> dict[str, np.ndarray]:
        count = len(self._datas)
        return {name: np.concatenate(views).reshape(count, *views[0].shape) for name, views in self._views.items()}

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


Failures = list[tuple[int, Exception]]


def _looper(mujoco: Any, rules: Rules) -> Callable[..., Callable[[Callable[[], int]], None]]:
    """What makes the loop that steps slots until none is left."""
    mj_step, mj_rne, frames, contacts = mujoco.mj_step, mujoco.mj_rnePostConstraint, rules.frame_skip, rules.contacts

    def loop_of(
        models: list[Any], datas: list[Any], targets: list[np.ndarray], rows: list[np.ndarray], failures: Failures
    ) -> Callable[[Callable[[], int]], None]:
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
                except Exception as error:
                    failures.append((slot, error))

        return loop

    return loop_of
