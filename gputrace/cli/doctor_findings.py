"""What `gputrace doctor` says: findings, in sections."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Level(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"
    """An essential does not work: the exit status is 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about this machine.

    Attributes:
        level: How bad it is.
        text: What was found.
        remedy: What a person can do about it, `None` where there is nothing to do.
    """

    level: Level
    text: str
    remedy: str | None = None


@dataclass(slots=True)
class Section:
    """What was found about one matter.

    Attributes:
        name: Its key in the JSON.
        title: Its heading in the text.
        findings: In the order in which they are read.
        facts: The same for programs, as JSON takes it.
    """

    name: str
    title: str
    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def ok(self, text: str) -> None:
        """Say that something works."""
        self.findings.append(Finding(Level.OK, text))

    def note(self, text: str, remedy: str | None = None) -> None:
        """Say what is worth knowing."""
        self.findings.append(Finding(Level.NOTE, text, remedy))

    def warn(self, text: str, remedy: str | None = None) -> None:
        """Say what does not work and is not essential."""
        self.findings.append(Finding(Level.WARNING, text, remedy))

    def fail(self, text: str, remedy: str | None = None) -> None:
        """Say that an essential does not work."""
        self.findings.append(Finding(Level.FAILURE, text, remedy))


def failures(sections: Sequence[Section]) -> list[Finding]:
    """Return the findings that make the exit status 1."""
    return [one for section in sections for one in section.findings if one.level is Level.FAILURE]


def as_json(sections: Sequence[Section]) -> dict[str, Any]:
    """Return everything as JSON takes it."""
    return {
        "healthy": not failures(sections),
        "sections": {
            section.name: {
                "findings": [
                    {"level": one.level.value, "text": one.text, "remedy": one.remedy}
                    for one in section.findings
                ],
                **section.facts,
            }
            for section in sections
        },
    }


def as_text(sections: Sequence[Section]) -> str:
    """Return everything as people read it."""
    width = max(len(level.value) for level in Level)
    lines = []
    for section in sections:
        lines.append(section.title)
        for one in section.findings:
            lines.append(f"  {one.level.value:{width}}  {one.text}")
            if one.remedy is not None:
                lines.append(f"  {'':{width}}  → {one.remedy}")
        lines.append("")
    lines.append(
        "An essential does not work: see `failure`." if failures(sections) else "The essentials work."
    )
    return "\n".join(lines)
