"""Names of all files that metaroll writes into folders, by kind: only these may be replaced and removed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

__all__ = [
    "AGENT",
    "CONFIG_FILE",
    "EVALUATION_FILE",
    "GROUP",
    "GROUP_FILE",
    "GROWING",
    "INFER",
    "KINDS",
    "LOCK_FILE",
    "LOG_FILE",
    "MARK_FILE",
    "METRICS_FILE",
    "NEW_FILES",
    "NEW_LIST",
    "OPTIONS_FILE",
    "POSTERIOR",
    "RECORDINGS",
    "RUN",
    "SAVED_FILE",
    "SIM2REAL",
    "SNAPSHOT",
    "SNAPSHOTS",
    "SUMMARY_FILE",
    "TASK_SPLIT_FILE",
    "TENSORBOARD",
    "Kind",
    "Layout",
]

MARK_FILE = ".metaroll"
"""Declares the kind of its folder."""
LOCK_FILE = ".lock"
CONFIG_FILE = "config.yaml"
GROUP_FILE = "group.yaml"
"""The request of one command line that began runs of several seeds, in the folder that holds theirs."""
TASK_SPLIT_FILE = "task_split.json"
SUMMARY_FILE = "summary.json"
"""Written at the end of training: the last evaluation among other things."""
EVALUATION_FILE = "evaluation.json"
"""Written by an evaluation of a finished or stopped run."""
METRICS_FILE = "metrics.jsonl"
SAVED_FILE = ".saved"
"""Marked the folder of a saved agent before there was MARK_FILE."""
LOG_FILE = ".output.log"
"""The output of a run of a group that has its own process."""
SNAPSHOTS = "snapshots"
TENSORBOARD = "tensorboard"
NEW_FILES, NEW_LIST = ".metaroll-new", "complete.json"
"""The folder of new files that replace a set of files, and the names of all of them, once they are complete."""
OPTIONS_FILE = "options.json"
"""The request of a loop of sim2real; it continues only with the same."""

GROWING = r"\.(?P<name>.+)\.(?P<process>\d+)-[0-9a-f]{8}\.tmp"
"""A file that a process is writing, or was when it was killed: see ``temporary_path``."""


@final
@dataclass(frozen=True)
class Layout:
    """The names that are written into a folder.

    Attributes:
        files: Names of files, as regular expressions, in the order in which they are removed: last the one by which
            the folder is known, so that a removal that was interrupted can be repeated.
        folders: Names of folders, as regular expressions, and what is written in them. They are removed first.
    """

    files: Sequence[str] = ()
    folders: Mapping[str, Layout] = field(default_factory=dict)

    @cached_property
    def _files(self) -> list[re.Pattern[str]]:
        return [re.compile(text) for text in (GROWING, *self.files, re.escape(LOCK_FILE), re.escape(MARK_FILE))]

    @cached_property
    def _folders(self) -> list[tuple[re.Pattern[str], Layout]]:
        return [(re.compile(text), layout) for text, layout in self.folders.items()]

    def place_of(self, name: str) -> int | None:
        """Position of a file in the order of removal; ``None`` for one that metaroll does not write."""
        return next((i for i, pattern in enumerate(self._files) if pattern.fullmatch(name)), None)

    def folder(self, name: str) -> Layout | None:
        """The layout of a folder of that name; ``None`` for one that we do not write."""
        return next((layout for pattern, layout in self._folders if pattern.fullmatch(name)), None)

    def knows(self, name: str) -> bool:
        """Whether we write a file or a folder of that name."""
        return self.place_of(name) is not None or self.folder(name) is not None


@final
@dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        name: The text of its mark.
        what: Its name in errors.
        layout: Its names.
        signs: Sets of paths by which one without a mark is known, as regular expressions: all of one set exist. Where
            others write files of that name, too, ``path: text`` is how one of its lines begins.
        becomes: Kinds that a folder of this one turns into when it is taken as such.
    """

    name: str
    what: str
    layout: Layout
    signs: Sequence[Sequence[str]] = ()
    becomes: Sequence[str] = ()


# The manifest first: without it, a folder is not a snapshot.
SNAPSHOT = Layout((r"manifest\.json", r"[\w-]+\.rows", r"[\w-]+\.safetensors", r"[\w-]+\.json"))
_TENSORBOARD = Layout((r"events\.out\.tfevents\..+",))
_RUN_FILES = (
    r"learning_curve\.png",
    r"adaptation_curve\.png",
    re.escape(SUMMARY_FILE),
    re.escape(EVALUATION_FILE),
    r"(summary|evaluation)-\d{6,}\.abandoned",
    r"evaluation\.png",
    r"k_shot_curve\.png",
    r"watch\.(mp4|gif)",
    r"report\.html",
    r"robustness-[\w-]+\.(png|json|csv)",
    re.escape(TASK_SPLIT_FILE),
    r"wandb\.json",
    re.escape(LOG_FILE),
    re.escape(METRICS_FILE),
    re.escape(SAVED_FILE),
    re.escape(CONFIG_FILE),
)
_RUN_FOLDERS = {
    SNAPSHOTS: Layout((), {r"\d{6,}(\.abandoned)?|\.\d{6,}\.old|\.tmp-\d{6,}": SNAPSHOT}),
    TENSORBOARD: _TENSORBOARD,
    "wandb": Layout(),  # of another library: nothing in it is ours to remove
}
_CONFIGURED = rf"{re.escape(CONFIG_FILE)}: metaroll_run"
RUN = Kind("run", "a run", Layout(_RUN_FILES, _RUN_FOLDERS), [[_CONFIGURED]])
AGENT = Kind("agent", "a saved agent", RUN.layout, [[re.escape(SAVED_FILE)]], becomes=("run",))
GROUP = Kind(
    "group",
    "a group of runs",
    Layout((re.escape(GROUP_FILE),), {r"seed-\d+": RUN.layout}),
    [[rf"{re.escape(GROUP_FILE)}: metaroll_run"]],
)
POSTERIOR = Kind(
    "posterior",
    "a posterior",
    Layout((r"draws\.npz", r"weights\.safetensors", r"posterior\.json")),
    [[r"posterior\.json"]],
)
_PART = r"round-\d+-from-\d{7}-[0-9a-f]{12}\.npz"
_INFERRED = {
    "simulations": Layout((_PART,)),
    r"posterior|\.posterior\.\d+-[0-9a-f]{8}\.(old|tmp)": POSTERIOR.layout,
}
INFER = Kind(
    "infer",
    "an inference",
    Layout((r"report\.html", r"inference\.json"), _INFERRED),
    [[r"posterior/posterior\.json"], [f"simulations/{_PART}"]],
)
# Loops of earlier versions may hold simopt and adr.
_TASKS = r"(\.?(oracle|simopt)-tasks)(\.\d+-[0-9a-f]{8}\.(old|tmp))?"
_RECORDING = r"rollout_\d+\.(?i:npz|csv|parquet)"
# The list first: without it, new files are incomplete.
RECORDINGS = Layout((_RECORDING,), {re.escape(NEW_FILES): Layout((re.escape(NEW_LIST), _RECORDING))})
"""Rollouts that are saved together."""
SIM2REAL = Kind(
    "sim2real",
    "a loop of sim2real",
    Layout(
        (r"report\.html", r"sim2real\.json", re.escape(OPTIONS_FILE)),
        {
            "log": RECORDINGS,
            "inference": INFER.layout,
            "policies": Layout((), {r"(nominal|uniform|posterior|simopt|adr|oracle)(-\d+)?": RUN.layout}),
            _TASKS: POSTERIOR.layout,
        },
    ),
    [[r"log/rollout_\d+\.npz", r"inference"], [r"log/rollout_\d+\.npz", r"sim2real\.json"]],
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (GROUP, AGENT, SIM2REAL, INFER, RUN, POSTERIOR)}
"""By name; a folder without a mark is of the first whose signs it has."""
