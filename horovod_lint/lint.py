"""Looking at one script: every check, in the order of the lines that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from horovod_lint.checks import connection, data, keras3, machine, ranks, schedule
from horovod_lint.findings import Finding, LintReport, apply_suppressions, read_suppressions
from horovod_lint.names import restore_names
from horovod_lint.script import Script, ScriptError, parse_source
from horovod_lint.view import Machine, View

MAX_FINDINGS = 100
"""Of one script; further ones are only counted."""

CHECKS: tuple[Callable[[View], Iterator[Finding]], ...] = (
    connection.check,
    keras3.check,
    data.check,
    schedule.check,
    ranks.check,
    machine.check,
)


def lint_script(content: bytes, name: str, machine: Machine | None = None) -> LintReport:
    """Look at a script, never running it; ``name`` is what errors call it. Raises ScriptError."""
    source = parse_source(content, name)
    try:
        restore_names(source.tree)
        view = View(Script(source), machine or Machine())
        found = {(f.line, f.column, f.code): f for check in CHECKS for f in check(view)}
    except RecursionError as error:
        raise ScriptError(f"{name}:1: should be a script whose names can be followed, is too entangled") from error
    reached = [finding for finding in found.values() if finding.line not in view.unreached]
    comments = [each for each in read_suppressions(source.text) if each.applies_to not in view.unreached]
    kept, num_ignored = apply_suppressions(reached, comments)
    kept.sort(key=lambda f: (f.line, f.column, f.code))
    return LintReport(
        findings=tuple(kept[:MAX_FINDINGS]), num_ignored=num_ignored, num_more=max(0, len(kept) - MAX_FINDINGS)
    )
