"""Lint one script: run every check and return the report."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from horovod_lint.checks import arguments, connection, data, machine, ranks, schedule
from horovod_lint.findings import Finding, LintReport, apply_suppressions, read_suppressions
from horovod_lint.linking import ScriptFile, link
from horovod_lint.names import restore_names
from horovod_lint.notebook import CELLS_SUFFIX, NOTEBOOK_SUFFIX, parse_notebook
from horovod_lint.script import Script, ScriptError, Source, parse_source, too_complex
from horovod_lint.view import Machine, View

MAX_FINDINGS = 100
"""Findings that a report lists; further ones are only counted."""

CHECKS: tuple[Callable[[View], Iterator[Finding]], ...] = (
    connection.check,
    data.check,
    schedule.check,
    ranks.check,
    machine.check,
    arguments.check,
)


def lint_script(
    content: bytes,
    name: str,
    machine: Machine | None = None,
    *,
    path: PurePath | None = None,
    files: Mapping[PurePath, ScriptFile] | None = None,
) -> LintReport:
    """Return the findings in a script or notebook, which never runs; errors call it ``name``. Raises ScriptError.

    Imports of a script at ``path`` are looked up among ``files``; other modules are assumed to be correct.
    """
    source = read_source(content, name)
    modules: tuple[str, ...] = ()
    try:
        if path is not None and files:
            source, modules = link(ScriptFile(path=path, name=name, content=content), source, files)
        restore_names(source.tree)
        view = View(Script(source), machine or Machine())
        found = {(f.line, f.column, f.code): f for check in CHECKS for f in check(view)}
    except RecursionError as error:
        raise too_complex(name) from error
    reached = [finding for finding in found.values() if finding.line not in view.unreached]
    comments = [each for each in read_suppressions(source.text) if each.applies_to not in view.unreached]
    kept, num_ignored = apply_suppressions(reached, comments, source.where)
    kept.sort(key=lambda f: (f.line, f.column, f.code))
    return LintReport(
        findings=tuple(_placed(finding, source) for finding in kept[:MAX_FINDINGS]),
        num_ignored=num_ignored,
        num_more=max(0, len(kept) - MAX_FINDINGS),
        modules=modules,
    )


def read_source(content: bytes, name: str) -> Source:
    """Parse a script, or the code cells of a notebook, depending on its suffix. Raises ScriptError."""
    if name.lower().endswith(NOTEBOOK_SUFFIX):
        return parse_notebook(content, name)
    source = parse_source(content, name, is_notebook=name.endswith(CELLS_SUFFIX))
    body = source.tree.body
    if content.lstrip()[:1] in (b"{", b"[") and len(body) == 1 and isinstance(body[0], ast.Expr):
        # a single mapping or list is valid Python, and has no findings
        raise ScriptError(f"{name}: is JSON, not a script; the name of a notebook ends in {NOTEBOOK_SUFFIX}")
    return source


def _placed(finding: Finding, source: Source) -> Finding:
    """Return a finding with its line within the file or cell that it is in."""
    part, line = source.place(finding.line)
    return replace(finding, line=line, cell=part.cell, file=part.file)
