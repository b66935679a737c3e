"""What ``check_task_env`` has found, as text and as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["TaskCheck", "TaskEnvReport"]


@dataclass(frozen=True)
class TaskCheck:
    """One finding.

    Attributes:
        name: What was looked at.
        status: ``fail``: results would be wrong; ``warn``: perhaps not what you want; ``skip``: could not be looked at.
        value: What was found.
        hint: What to do about it.
        numbers: Name -> what was measured.
    """

    name: str
    status: Literal["ok", "warn", "fail", "skip"]
    value: str
    hint: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskEnvReport:
    """All findings about an environment and its tasks. ``print`` shows them.

    Attributes:
        name: Of the family.
        checks: The findings, in the order of the report.
    """

    name: str
    checks: tuple[TaskCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """Names of what failed."""
        return [check.name for check in self.checks if check.status == "fail"]

    @property
    def warned(self) -> list[str]:
        """Names of what gave a warning."""
        return [check.name for check in self.checks if check.status == "warn"]

    def __getitem__(self, name: str) -> TaskCheck:
        """The finding called ``name``."""
        found = next((check for check in self.checks if check.name == name), None)
        if found is None:
            raise KeyError(f"{name!r}; there are {', '.join(check.name for check in self.checks)}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "name": self.name,
            "ok": self.ok,
            "checks": [{**dataclasses.asdict(check), "numbers": dict(check.numbers)} for check in self.checks],
        }

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.failed:
            return f"{self.name} is not ready: {', '.join(self.failed)} failed"
        if self.warned:
            return f"{self.name} works; look at: {', '.join(self.warned)}"
        return f"{self.name} is a family of tasks as it should be"

    def __str__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        lines = []
        for check in self.checks:
            lines.append(f"{check.status:<4}  {check.name:<{width}}  {check.value}")
            if check.hint:
                lines.append(f"{'':<4}  {'':<{width}}  -> {check.hint}")
        return "\n".join([*lines, "", self.verdict])
