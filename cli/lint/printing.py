"""What people and programs get to read of a look at scripts."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from cli.readable import one_line
from horovod_lint import LintReport, Severity

_MIN_COLUMNS = 40


def as_json(path: Path, report: LintReport) -> str:
    """Return one line for one script."""
    members = {
        "script": str(path),
        "verdict": "clean" if report.is_clean else "findings",
        "findings": [finding.to_json() for finding in report.findings],
        **{f"num_{severity}s": len(report.of(severity)) for severity in (Severity.ERROR, Severity.WARNING)},
        "num_advice": len(report.of(Severity.ADVICE)),
        "num_ignored": report.num_ignored,
        "num_more": report.num_more,
    }
    return json.dumps(members)


def unreadable_as_json(path: Path, problem: str) -> str:
    """Return the line for a script that cannot be looked at."""
    return json.dumps({"script": str(path), "verdict": "unreadable", "findings": [], "problem": problem})


def as_text(path: Path, report: LintReport, width: int | None = None) -> str:
    """Return some lines for one script: each finding with why it matters and the fix, then how many there are.

    Texts are broken at ``width`` columns, which a terminal has and a pipe has not.
    """
    name, lines = one_line(str(path)), []
    for finding in report.findings:
        lines += [
            f"{name}:{finding.line}:{finding.column}: {finding.severity} {finding.code}: {finding.message}",
            _indented(f"why: {finding.why}", width),
            _indented(f"fix: {finding.fix}", width),
        ]
    if report.num_more:
        lines.append(f"… and {report.num_more:,} more")
    return "\n".join([*lines, f"{'clean   ' if report.is_clean else 'FINDINGS'}  {name}  ({counted([report])})"])


def _indented(text: str, width: int | None) -> str:
    if width is None:
        return f"    {text}"
    return textwrap.fill(
        text,
        max(width, _MIN_COLUMNS),
        initial_indent="    ",
        subsequent_indent=" " * len("    why: "),
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(reports: Sequence[LintReport], num_unreadable: int) -> str:
    """Return the last line."""
    num_clean = sum(report.is_clean for report in reports)
    unread = f", {num_unreadable} could not be read" if num_unreadable else ""
    return f"{num_clean} of {len(reports) + num_unreadable} scripts clean: {counted(reports)}{unread}"


def counted(reports: Sequence[LintReport]) -> str:
    """Return how many findings of each kind there are."""
    errors, warnings, advice = (
        sum(len(report.of(severity)) for report in reports)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.ADVICE)
    )
    ignored = sum(report.num_ignored for report in reports)
    told = f"{_number(errors, 'error')}, {_number(warnings, 'warning')}, {advice} advice"
    return f"{told}, {ignored} ignored" if ignored else told


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
