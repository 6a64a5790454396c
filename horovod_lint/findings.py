"""What a rule finds in a script, and what comes out of a look at one."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
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


_COMMENT = re.compile(r"#\s*landfall:\s*ignore(?P<bracket>\[(?P<codes>[^\]]*)\])?(?P<reason>.*)", re.IGNORECASE)
_MAX_SHOWN_CHARS = 60
_DEPEND_ON_MACHINE = frozenset(
    {RuleCode.INFINIBAND_DISABLED, RuleCode.GPU_NOT_PINNED, RuleCode.WRONG_GPU, RuleCode.KERAS3_INCOMPATIBLE}
)
"""Whether these are found depends on size and environment: a comment about them may have its effect elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """One comment."""

    line: int
    applies_to: int
    """The line whose findings it is for: its own, or the next one where it stands alone."""
    codes: frozenset[str]
    reason: str


def read_suppressions(text: str) -> list[Suppression]:
    """Return the comments that ask for something to be ignored; text in strings is none."""
    found = []
    meant = _statement_lines(
        text.split("\n")
    )  # as the tokenizer counts them; splitlines would also split at a form feed
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                found.append(_suppression(match, token.start[0], meant[token.start[0] - 1]))
    except (tokenize.TokenError, IndentationError):
        return found  # it was parsed, so what the tokenizer stumbles over is the end of the text
    return found


def apply_suppressions(findings: Iterable[Finding], comments: list[Suppression]) -> tuple[list[Finding], int]:
    """Return what is left of the findings, those about comments included, and how many were ignored."""
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
    return [*kept, *_without_effect(comments, used)], num_ignored


def _without_effect(comments: list[Suppression], used: set[tuple[int, str]]) -> Iterator[Finding]:
    known = {str(code) for code in RuleCode}
    for comment in comments:
        unused = sorted(code for code in comment.codes - _DEPEND_ON_MACHINE if (comment.line, code) not in used)
        unknown = [code for code in unused if code not in known]
        if not comment.codes:
            problem = "names no code: write ignore[code]"
        elif not comment.reason:
            problem = "says no reason behind the bracket"
        elif unknown:
            problem = f"names {unknown[0][:_MAX_SHOWN_CHARS]!r}, which is no code"
        elif unused:
            problem = f"names {unused[0]}, which is not found in line {comment.applies_to}"
        else:
            continue
        message = f"the comment {problem}"
        yield Finding(code=RuleCode.IGNORED_WITHOUT_EFFECT, line=comment.line, message=message)


def _suppression(match: re.Match[str], line: int, applies_to: int) -> Suppression:
    codes = frozenset(code.strip() for code in (match["codes"] or "").split(",") if code.strip())
    return Suppression(line=line, applies_to=applies_to, codes=codes, reason=match["reason"].strip(" -:\t"))


def _statement_lines(lines: list[str]) -> list[int]:
    """Return, for each line, the one that a comment in it is for: where it stands alone, the next line of code."""
    found: list[int] = []
    following: int | None = None
    for number in range(len(lines), 0, -1):
        line = lines[number - 1].lstrip()
        is_code = bool(line) and not line.startswith("#")
        following = number if is_code else following
        found.append(number if following is None else following)
    return found[::-1]
