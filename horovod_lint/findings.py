"""What a rule finds in a script, and what comes out of a look at one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovod_lint.rules import RULES, RuleCode, Severity


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One place of a script that breaks one rule."""

    code: RuleCode
    line: int
    """From 1, as editors count."""
    column: int = 1
    message: str
    """What was seen there."""

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return RULES[self.code].severity

    @property
    def why(self) -> str:
        """Why it matters."""
        return RULES[self.code].why

    @property
    def fix(self) -> str:
        """What to write instead."""
        return RULES[self.code].fix

    def to_json(self) -> Mapping[str, Any]:
        """Return JSON-ready members."""
        return {
            "code": str(self.code),
            "severity": str(self.severity),
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
        }


@dataclass(frozen=True, kw_only=True)
class LintReport:
    """What was found in one script."""

    findings: tuple[Finding, ...]
    """In the order of their lines."""
    num_ignored: int = 0
    """Findings that a comment in the script waved through."""
    num_more: int = 0
    """Findings beyond the most that are listed."""

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings that matter so much."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """For these a submission is refused."""
        return self.of(Severity.ERROR)

    @property
    def is_clean(self) -> bool:
        """Whether there is no error and no warning; advice leaves a script clean."""
        return not self.errors and not self.of(Severity.WARNING)
