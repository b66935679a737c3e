"""The report of ``check_task_env``, as text and as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["TaskCheck", "TaskEnvReport"]


@dataclass(frozen=True)
class TaskCheck:
    """The result of one check.

    Attributes:
        name: Name of the check.
        status: ``fail``: results would be wrong; ``warn``: perhaps not what you want; ``skip``: could not be checked.
        value: The finding, in words.
        hint: A hint at the remedy.
        numbers: Name -> measured value.
    """

    name: str
    status: Literal["ok", "warn", "fail", "skip"]
    value: str
    hint: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskEnvReport:
    """All findings about an environment and its tasks; prints as a report.

    Attributes:
        name: Name of the family.
        checks: The findings, in the order of the report.
    """

    name: str
    checks: tuple[TaskCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [check.name for check in self.checks if check.status == "fail"]

    @property
    def warned(self) -> list[str]:
        """Names of the checks that gave a warning."""
        return [check.name for check in self.checks if check.status == "warn"]

    def __getitem__(self, name: str) -> TaskCheck:
        """The finding called ``name``."""
        match = next((check for check in self.checks if check.name == name), None)
        if match is None:
            raise KeyError(f"{name!r}; there are {', '.join(check.name for check in self.checks)}")
        return match

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "name": self.name,
            "ok": self.ok,
            "checks": [{**dataclasses.asdict(check), "numbers": dict(check.numbers)} for check in self.checks],
        }

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.failed:
            return f"{self.name} is not ready: {', '.join(self.failed)} failed"
        if self.warned:
            return f"{self.name} works; see the warnings about: {', '.join(self.warned)}"
        return f"{self.name} is ready as a family of tasks"

    def __str__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        lines = []
        for check in self.checks:
            lines.append(f"{check.status:<4}  {check.name:<{width}}  {check.value}")
            if check.hint:
                lines.append(f"{'':<4}  {'':<{width}}  -> {check.hint}")
        return "\n".join([*lines, "", self.verdict])
