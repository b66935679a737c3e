"""Results of the checks of a posterior, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

__all__ = [
    "AT_MOST_WIDE",
    "AT_OBSERVED",
    "BOUNDS",
    "CALIBRATION",
    "COVERAGE",
    "INFORMED",
    "Check",
    "Outcome",
    "Verdict",
]

CALIBRATION, COVERAGE, AT_OBSERVED = "calibration", "coverage", "calibration at the observed"
INFORMED, BOUNDS = "uses the data", "bounds"
_OF_NETWORKS = (CALIBRATION, COVERAGE, AT_OBSERVED, INFORMED)
"""Checks that can fail merely because networks are undertrained or wider than necessary."""
AT_MOST_WIDE = "at_most_wide"
"""Key in their values: whether there is no evidence that the posterior is too narrow or shifted."""

Outcome = Literal["passed", "small", "failed", "note", "not checked"]


class Check(NamedTuple):
    """One of the checks.

    Attributes:
        name: Name of the check.
        outcome: ``"passed"``, ``"small"`` (a deviation that is significant, but too small to matter), ``"failed"``,
            ``"note"`` (worth knowing, no reason to distrust it) or ``"not checked"``.
        words: The result as text.
        p_value: P value of the test, Bonferroni-corrected if it has several; ``None`` without a test.
        values: The numbers behind it, JSON types.
    """

    name: str
    outcome: Outcome
    words: str
    p_value: float | None = None
    values: Mapping[str, Any] = {}

    @property
    def shown_outcome(self) -> str:
        """The outcome in texts."""
        return "acceptable" if self.outcome == "small" else self.outcome


@final
@dataclass(frozen=True)
class Verdict:
    """Results of the checks; ``print`` shows them.

    Attributes:
        checks: All of them.
        names: The parameters.
        unidentified: Parameters that this data hardly identifies.
    """

    checks: tuple[Check, ...]
    names: tuple[str, ...]
    unidentified: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.checks if check.outcome == "failed")

    @property
    def small(self) -> tuple[str, ...]:
        """Names of the checks with a deviation that is significant, but too small to matter."""
        return tuple(check.name for check in self.checks if check.outcome == "small")

    @property
    def too_wide(self) -> bool:
        """Whether the only failure is that the posterior is too wide, at the observation as well.

        Then no parameter is too narrow, on average or at the observation, and no regression contradicts it there: 90 %
        intervals hold at least 80 %, and means are at most 1.5 deviations apart (a wide posterior is usually centered
        elsewhere than one from more data).
        """
        checks = {check.name: check for check in self.checks}
        sure = all(name in checks and checks[name].values.get(AT_MOST_WIDE, False) for name in _OF_NETWORKS)
        return sure and self.learns_with_more

    @property
    def learns_with_more(self) -> bool:
        """Whether more simulations help, since the only failures are those of training."""
        return bool(self.failed) and set(self.failed) <= set(_OF_NETWORKS)

    def __getitem__(self, name: str) -> Check:
        """The check of that name."""
        match = next((check for check in self.checks if check.name == name), None)
        if match is None:
            raise KeyError(f"no check is called {name!r}; there are {', '.join(check.name for check in self.checks)}")
        return match

    def to_plain(self) -> dict[str, Any]:
        """All of it as JSON types."""
        checks = [{**check._asdict(), "values": dict(check.values)} for check in self.checks]
        return {
            "passed": self.passed,
            "too_wide": self.too_wide,
            "small": list(self.small),
            "unidentified": list(self.unidentified),
            "checks": checks,
        }

    def __str__(self) -> str:
        done = sum(check.outcome in ("passed", "small", "failed") for check in self.checks)
        whose = f"posterior of {', '.join(self.names)}"
        if self.too_wide:
            head = (
                f"The {whose} is wider than the data allows ({len(self.failed)} of {done} tests failed): a policy "
                "trained on it is more cautious than necessary; more simulations narrow it."
            )
        elif self.failed:
            head = f"Do not train on this {whose}: {len(self.failed)} of {done} tests failed."
            leaning = [check.words for check in self.checks if check.name == BOUNDS and check.outcome == "note"]
            head += "".join(f" Note: {words}." for words in leaning)
        elif self.small:
            head = f"The {whose} is usable: it is slightly off in {len(self.small)} of {done} tests."
        else:
            head = f"The {whose} passed all {done} tests."
        width = max(len(check.name) for check in self.checks)
        return "\n".join([head, *(f"  {c.shown_outcome:11}  {c.name:{width}}  {c.words}" for c in self.checks)])
