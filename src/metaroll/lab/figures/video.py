"""Videos of an agent in held-out tasks, as MP4 (needs the extra ``video``) or GIF."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from metaroll.checks import check_path
from metaroll.data.folders.atomic_files import write_atomic, write_files
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.canvas import GRAY, INK, PAPER, Canvas, gif_bytes, resized
from metaroll.errors import counted, install_text
from metaroll.lab.figures.film import Film, drawing_env, film
from metaroll.tasks.task_key import task_text
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.evaluation.evaluator import Evaluator, PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator, as_meta_algorithm

__all__ = ["KINDS", "Panel", "default_kind", "moments", "record_video", "tasks_to_film", "write_video"]

KINDS = ("mp4", "gif")
_HEAD, _GAP, _LINE = 46, 10, 18
_TALLEST, _TALLEST_IN_GIF = 400, 240
_FASTEST_GIF = 15.0
_HOLD_S = 1.5


@dataclass(frozen=True)
class Panel:
    """One rollout in a video.

    Attributes:
        title: Title of the panel.
        film: Its pictures.
        rewards: Rewards that the caption sums up, ``(T,)``.
        heading: Heading of the row that the panel is in: the task and its values.
        values: Name -> value at each step, ``(T,)``, shown below the title.
    """

    title: str
    film: Film
    rewards: np.ndarray
    heading: str = ""
    values: Mapping[str, np.ndarray] = field(default_factory=dict)


def tasks_to_film(algo: Any, evaluator: MetaEvaluator | PolicyEvaluator) -> tuple[int, str]:
    """Number and kind of the tasks that ``record_video`` can film: held-out tasks, or episodes if there are none."""
    updates = evaluator.prepare(algo)
    if updates or isinstance(evaluator, MetaEvaluator):
        return len(updates), "test tasks" if evaluator.allow_overlap else "held-out tasks"
    return evaluator.config.num_episodes, "episodes"


def record_video(
    algo: Any, evaluator: MetaEvaluator | PolicyEvaluator, env: Any, tasks: Sequence[int] = (0,)
) -> list[list[Panel]]:
    """One row of panels per held-out task, with the same episodes that the evaluation consists of.

    For an algorithm that adapts, a row shows the first episode after adaptation twice: with the policy before it has
    any data, and with the adapted policy, from the same first state and seed. The difference is the gain of adaptation.
    For other algorithms it shows one episode; without held-out tasks, ``tasks`` are the numbers of episodes.

    Args:
        algo: The algorithm.
        evaluator: Its evaluator.
        env: The environment that ``evaluator`` runs: an id, or a callable that makes one.
        tasks: Numbers of tasks, counted from 0.

    Raises:
        TypeError: ``evaluator`` is not an evaluator.
        ValueError: The environment cannot be drawn, or a task does not exist.
    """
    if not isinstance(evaluator, Evaluator):
        raise TypeError(f"evaluator must be a PolicyEvaluator or a MetaEvaluator, got {evaluator!r}")
    updates = evaluator.prepare(algo)
    count, what = tasks_to_film(algo, evaluator)
    for task in tasks:
        if not 0 <= task < count:
            raise ValueError(f"tasks must be from 0 to {count - 1}, since there are {count} {what}, got {task}")
    # Find out whether drawing works before the evaluation, which may take long.
    drawing_env(env, updates[tasks[0]] if updates else None).close()
    if isinstance(evaluator, PolicyEvaluator):
        shown = _policy_episodes(algo, evaluator, tasks)
    else:
        shown = _adapted_episodes(algo, evaluator, tasks)
    key = evaluator.config.return_reward_key
    return [
        [
            Panel(
                title,
                film(rollout, env, updates[task] if updates else None),
                np.asarray(rollout.rewards if key is None else rollout.env_infos[key], dtype=float),
                heading,
                _present_values(rollout, updates[task].task if updates else None),
            )
            for title, rollout in row
        ]
        for task, (heading, row) in zip(tasks, shown, strict=True)
    ]


_Row = tuple[str, list[tuple[str, StepSequence]]]
"""Heading of a row, and title and rollout of each of its panels."""


def _policy_episodes(algo: Any, evaluator: PolicyEvaluator, tasks: Sequence[int]) -> list[_Row]:
    result = evaluator.evaluate(algo, keep_rollouts=True)
    episodes: list[Any] = list(result.rollouts or ())
    if result.tasks[0] is None:
        return [("", [(f"episode {task + 1}", episodes[0][task])]) for task in tasks]
    return [(_heading(result, task), [("policy", episodes[task][0])]) for task in tasks]


def _adapted_episodes(algo: Any, evaluator: MetaEvaluator, tasks: Sequence[int]) -> list[_Row]:
    result = evaluator.evaluate(algo, keep_rollouts=True)
    cells: Sequence[Sequence[StepSequence]] = result.rollouts or ()
    explored = result.num_exploration
    policies = evaluator.policies_after(as_meta_algorithm(algo), [Rollouts()] * len(cells))
    without = evaluator.cell_rollouts(policies, range(explored, explored + 1))
    after = f"adapted to {counted(explored, 'episode')}"
    firsts = [task * evaluator.repetitions for task in tasks]
    return [
        (_heading(result, task), [("no adaptation", without[cell][0]), (after, cells[cell][explored])])
        for task, cell in zip(tasks, firsts, strict=True)
    ]


def _heading(result: EvaluationResult | PolicyEvaluation, task: int) -> str:
    name, text = result.task_names[task], task_text(result.tasks[task])
    return f"{name}: {text}" if text else name


_PRESENT: Mapping[str, Sequence[str]] = {
    "velocity": ("x_velocity",),
    "direction": ("x_velocity",),
    "goal": ("x_position", "y_position"),
}
"""Entry of a task -> the ``env_infos`` that are shown for it, if no info has its name."""


def _present_values(rollout: Any, task: Any) -> dict[str, np.ndarray]:
    """The environment's infos at each step that correspond to the task, such as the speed that it asks for."""
    infos = rollout.env_infos if "env_infos" in rollout.data_names else {}
    names = task if isinstance(task, Mapping) else ()
    wanted = [info for name in names for info in ((name,) if name in infos else _PRESENT.get(str(name), ()))]
    known = {info: np.asarray(infos[info]) for info in wanted if info in infos}
    return {
        info: values.astype(float) for info, values in known.items() if values.ndim == 1 and values.dtype.kind in "fiu"
    }


def default_kind() -> str:
    """``"mp4"`` if it can be written, else ``"gif"``."""
    return "gif" if importlib.util.find_spec("imageio_ffmpeg") is None else "mp4"


def write_video(path: str | Path, rows: Sequence[Sequence[Panel]], fps: float | None = None) -> Path:
    """Write rollouts that play side by side, one row below the other; after its end a rollout shows its last picture.

    Args:
        path: File to write; the extension, ``.mp4`` or ``.gif``, selects the format.
        rows: The panels of each row.
        fps: Steps per second; ``None`` means the environment's own rate.

    Returns:
        ``path``.
    """
    path = check_path("path", path, "file")
    kind = path.suffix[1:].lower()
    if kind not in KINDS:
        raise ValueError(f"path must end in .mp4 or .gif, got {str(path)!r}")
    if not rows or not all(rows):
        raise ValueError("rows must hold at least one row with at least one panel")
    if fps is not None and not 0.1 <= fps <= 240:
        raise ValueError(f"fps must be from 0.1 to 240 steps per second, got {fps}")
    steps_per_second = rows[0][0].film.fps if fps is None else fps
    path.parent.mkdir(parents=True, exist_ok=True)
    every = max(1, round(steps_per_second / _FASTEST_GIF)) if kind == "gif" else 1
    frames_per_second = steps_per_second / every
    last = _last_step(rows)
    hold = [last] * round(_HOLD_S * frames_per_second)
    steps = [*range(0, last, every), last, *hold]
    if kind == "gif":
        write_atomic(path, gif_bytes(list(_pictures(rows, steps, _TALLEST_IN_GIF)), frames_per_second))
    else:
        _write_mp4(path, _pictures(rows, steps, _TALLEST), frames_per_second)
    return path


def moments(rows: Sequence[Sequence[Panel]], count: int) -> list[tuple[str, np.ndarray]]:
    """``count`` evenly spaced pictures of the video, from the start to the end, with their captions."""
    last = _last_step(rows)
    steps = np.unique(np.linspace(0, last, count).round().astype(int)).tolist()
    pictures = _pictures(rows, steps, _TALLEST_IN_GIF)
    return [(f"step {step}", picture) for step, picture in zip(steps, pictures, strict=True)]


def _last_step(rows: Sequence[Sequence[Panel]]) -> int:
    return max(len(panel.rewards) for row in rows for panel in row)


def _pictures(rows: Sequence[Sequence[Panel]], steps: Sequence[int], tallest: int) -> Iterator[np.ndarray]:
    """The picture of all rows at each of ``steps``, with even side lengths, which video formats need."""
    for step in steps:
        lines = [_row(row, step, tallest) for row in rows]
        width = max(line.shape[1] for line in lines)
        picture = np.concatenate([_padded(line, line.shape[0], width) for line in lines])
        height, width = picture.shape[:2]
        yield _padded(picture, height + height % 2, width + width % 2)


def _row(row: Sequence[Panel], step: int, tallest: int) -> np.ndarray:
    """Panels side by side, below the heading of the row."""
    extra = 1 if any(panel.values for panel in row) else 0
    panels = _beside([_cell(panel, step, tallest, extra) for panel in row])
    if not row[0].heading:
        return panels
    width = panels.shape[1]
    lines = Canvas(width, 1).wrapped(row[0].heading, width - 12, 14)
    head = Canvas(width, _LINE * len(lines) + 8)
    for number, line in enumerate(reversed(lines)):
        head.text((6, 7 + _LINE * number), line, INK, 14)
    return np.concatenate([head.pixels(), panels])


def _cell(panel: Panel, step: int, tallest: int, lines: int = 0) -> np.ndarray:
    """A panel at a step, below its title, the number of the step, the return so far, and the values at the step."""
    own = min(step, len(panel.rewards))
    picture = panel.film.frames[own]
    if picture.shape[0] > tallest:
        picture = resized(picture, tallest)
    over = ", over" if step > own else ""
    head = Canvas(picture.shape[1], _HEAD + _LINE * lines)
    low = _LINE * lines
    head.text((6, 27 + low), panel.title, INK, 14)
    head.text((6, 9 + low), f"step {own}{over}   return {float(np.sum(panel.rewards[:own])):.1f}", GRAY, 12)
    if panel.values and own:
        head.text((6, 9), ", ".join(f"{name} {values[own - 1]:.2f}" for name, values in panel.values.items()), GRAY, 12)
    return np.concatenate([head.pixels(), picture])


def _beside(cells: Sequence[np.ndarray]) -> np.ndarray:
    height = max(cell.shape[0] for cell in cells)
    spaced = [
        _padded(cell, height, cell.shape[1] + (_GAP if i + 1 < len(cells) else 0)) for i, cell in enumerate(cells)
    ]
    return np.concatenate(spaced, axis=1)


def _padded(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """``picture`` in the upper left corner of a larger one."""
    if picture.shape[:2] == (height, width):
        return picture
    larger = np.empty((height, width, 3), dtype=np.uint8)
    larger[:] = PAPER
    larger[: picture.shape[0], : picture.shape[1]] = picture
    return larger


def _write_mp4(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            f"MP4 needs imageio-ffmpeg, which is not installed: {install_text('video')}, or write a .gif"
        ) from error
    first = next(pictures)

    def write(file: BinaryIO) -> None:
        writer = imageio_ffmpeg.write_frames(
            file.name,
            (first.shape[1], first.shape[0]),
            fps=fps,  # pyright: ignore[reportArgumentType] (it takes fractions, too)
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=["-f", "mp4"],  # the temporary file has no extension
        )
        try:
            writer.send(None)
            for picture in itertools.chain([first], pictures):
                writer.send(np.ascontiguousarray(picture))
        finally:
            writer.close()

    write_files({path: write})
