"""Findings, the report on a script, and ``# landfall: ignore[code] reason`` comments that suppress findings."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from horovod_lint.rules import RULES, RuleCode, Severity

_COMMENT = re.compile(r"#\s*landfall:\s*ignore(?P<bracket>\[(?P<codes>[^\]]*)\])?(?P<reason>.*)", re.IGNORECASE)
_MAX_SHOWN_CHARS = 60
_DEPEND_ON_MACHINE = frozenset(
    {RuleCode.INFINIBAND_DISABLED, RuleCode.GPU_NOT_PINNED, RuleCode.WRONG_GPU, RuleCode.KERAS3_INCOMPATIBLE}
)
"""A comment that ignores one of these may have no effect here, but on another VM size or in another environment."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One place in a script that breaks one rule."""

    code: RuleCode
    line: int
    """Counted from 1, as in editors; within the cell for a notebook."""
    column: int = 1
    cell: int | None = None
    """Number of the notebook's cell, counted from 1 over code and text; None for a script."""
    file: str = ""
    """The imported module that contains the place; empty for the script itself."""
    message: str
    """The problem at this place; ``why`` and ``fix`` are the same for all findings of a rule."""

    @property
    def severity(self) -> Severity:
        """How much the finding matters."""
        return RULES[self.code].severity

    @property
    def why(self) -> str:
        """Why the finding matters."""
        return RULES[self.code].why

    @property
    def fix(self) -> str:
        """What to write instead."""
        return RULES[self.code].fix

    def to_json(self) -> Mapping[str, Any]:
        """Return the finding as a JSON object."""
        return {
            "code": str(self.code),
            "severity": str(self.severity),
            **({"file": self.file} if self.file else {}),
            **({"cell": self.cell} if self.cell is not None else {}),
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
        }


@dataclass(frozen=True, kw_only=True)
class LintReport:
    """The findings in one script."""

    findings: tuple[Finding, ...]
    """Sorted by line."""
    num_ignored: int = 0
    """Findings that comments in the script ignore."""
    num_more: int = 0
    """Findings that are counted but not listed."""
    modules: tuple[str, ...] = ()
    """The author's other files that were read with the script, because it imports them."""

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings with this severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that keep a script from being submitted."""
        return self.of(Severity.ERROR)

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors and no warnings."""
        return not self.errors and not self.of(Severity.WARNING)


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """One ``landfall: ignore`` comment."""

    line: int
    applies_to: int
    """The line whose findings it ignores: its own, or the next line of code if the comment has its own line."""
    codes: frozenset[str]
    reason: str


def read_suppressions(text: str) -> list[Suppression]:
    """Return the ``landfall: ignore`` comments of a script; strings with such text do not count."""
    found = []
    # the tokenizer splits lines at "\n"; str.splitlines would also split at a form feed
    applies_to = _applicable_lines(text.split("\n"))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                found.append(_suppression(match, token.start[0], applies_to[token.start[0] - 1]))
    except (tokenize.TokenError, IndentationError):
        return found  # the script was parsed before, so the tokenizer fails at the end of the text only
    return found


def apply_suppressions(
    findings: Iterable[Finding], comments: list[Suppression], where: Callable[[int], str]
) -> tuple[list[Finding], int]:
    """Return the findings that remain, with those about useless comments, and the number of ignored findings.

    ``where`` names a line.
    """
    kept, used = [], set()
    num_ignored = 0
    for finding in findings:
        comment = next(
            (c for c in comments if c.reason and c.applies_to == finding.line and finding.code in c.codes), None
        )
        if comment is None:
            kept.append(finding)
        else:
            used.add((comment.line, str(finding.code)))
            num_ignored += 1
    return [*kept, *_without_effect(comments, used, where)], num_ignored


def _without_effect(
    comments: list[Suppression], used: set[tuple[int, str]], where: Callable[[int], str]
) -> Iterator[Finding]:
    known = {str(code) for code in RuleCode}
    for comment in comments:
        unused = sorted(code for code in comment.codes - _DEPEND_ON_MACHINE if (comment.line, code) not in used)
        unknown = [code for code in unused if code not in known]
        if not comment.codes:
            problem = "names no code; write ignore[code]"
        elif not comment.reason:
            problem = "has no reason after the bracket"
        elif unknown:
            problem = f"names {unknown[0][:_MAX_SHOWN_CHARS]!r}, which is not a rule's code"
        elif unused:
            problem = f"names {unused[0]}, but {where(comment.applies_to)} has no such finding"
        else:
            continue
        message = f"the comment {problem}"
        yield Finding(code=RuleCode.IGNORED_WITHOUT_EFFECT, line=comment.line, message=message)


def _suppression(match: re.Match[str], line: int, applies_to: int) -> Suppression:
    codes = frozenset(code.strip() for code in (match["codes"] or "").split(",") if code.strip())
    return Suppression(line=line, applies_to=applies_to, codes=codes, reason=match["reason"].strip(" -:\t"))


def _applicable_lines(lines: list[str]) -> list[int]:
    """Return, for each line, the line that a comment there applies to: itself, or the next line of code."""
    found: list[int] = []
    next_code: int | None = None
    for number in range(len(lines), 0, -1):
        line = lines[number - 1].lstrip()
        is_code = bool(line) and not line.startswith("#")
        next_code = number if is_code else next_code
        found.append(number if next_code is None else next_code)
    return found[::-1]
