"""Lint one script: run every check and return the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from horovod_lint.checks import connection, data, machine, ranks, schedule
from horovod_lint.findings import Finding, LintReport, apply_suppressions, read_suppressions
from horovod_lint.names import restore_names
from horovod_lint.script import Script, parse_source, too_complex
from horovod_lint.view import Machine, View

MAX_FINDINGS = 100
"""Findings that a report lists; further ones are only counted."""

CHECKS: tuple[Callable[[View], Iterator[Finding]], ...] = (
    connection.check,
    data.check,
    schedule.check,
    ranks.check,
    machine.check,
)


def lint_script(content: bytes, name: str, machine: Machine | None = None) -> LintReport:
    """Return the findings in a script, which is never run; errors call it ``name``. Raises ScriptError."""
    source = parse_source(content, name)
    try:
        restore_names(source.tree)
        view = View(Script(source), machine or Machine())
        found = {(f.line, f.column, f.code): f for check in CHECKS for f in check(view)}
    except RecursionError as error:
        raise too_complex(name) from error
    reached = [finding for finding in found.values() if finding.line not in view.unreached]
    comments = [each for each in read_suppressions(source.text) if each.applies_to not in view.unreached]
    kept, num_ignored = apply_suppressions(reached, comments)
    kept.sort(key=lambda f: (f.line, f.column, f.code))
    return LintReport(
        findings=tuple(kept[:MAX_FINDINGS]), num_ignored=num_ignored, num_more=max(0, len(kept) - MAX_FINDINGS)
    )
