"""The command line of ``landfall lint``."""

from __future__ import annotations

import difflib
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from cli.safe_text import one_line
from horovod_lint import MAX_SCRIPT_BYTES, LintReport, Machine, ScriptError, Severity, lint_script
from shared.vm_sizes import vm_size, vm_size_names

FOUND = 1
UNREADABLE = 2
"""Exit status where a script cannot be looked at; click's own for wrong usage is the same."""


@click.command()
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT ...", type=click.Path(path_type=Path))
@click.option("--vm-size", help="What the script will run on, as Standard_ND96asr_v4: decides on network and GPUs.")
@click.option("--pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Pipeline file: its "
              "VM size, environment variables and the arguments of its jobs.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="One JSON object per line and script.")
def lint(scripts: tuple[Path, ...], vm_size: str | None, pipeline: Path | None, *, is_json: bool) -> None:
    """Find what Horovod scripts get wrong, by reading them; nothing is run.

    Findings are errors (the result is wrong, or the job hangs), warnings (slow or misleading) and advice. A pipeline
    whose script has errors is not submitted unless it is forced. `# landfall: ignore[code] the reason` on a line
    takes its findings of that code back.

    Exit status: 0 clean, at most advice; 1 errors or warnings; 2 wrong usage, or a script that cannot be read.
    """
    machine = _machine(vm_size, pipeline)
    reports: list[LintReport] = []
    num_unreadable = 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for path in scripts:
        try:
            report = lint_script(_content(path), one_line(str(path)), machine)
        except ScriptError as error:
            num_unreadable += 1
            _tell_unreadable(path, error, is_json=is_json)
            continue
        reports.append(report)
        click.echo(as_json(path, report) if is_json else as_text(path, report, width))
    if not is_json and len(scripts) > 1:
        click.echo(summary(reports, num_unreadable))
    if num_unreadable:
        raise click.exceptions.Exit(UNREADABLE)
    if not all(report.is_clean for report in reports):
        raise click.exceptions.Exit(FOUND)


def _machine(name: str | None, pipeline: Path | None) -> Machine:
    stated = None
    if pipeline is not None:
        from function_app.config.pipeline_files import load_pipeline
        from function_app.domain.errors import PipelineError

        try:
            stated = load_pipeline(pipeline).train
        except PipelineError as error:
            raise click.UsageError(str(error)) from error
    if name is not None and vm_size(name) is None:
        near = difflib.get_close_matches(name.lower(), {known.lower(): known for known in vm_size_names()}, n=3)
        known = {each.lower(): each for each in vm_size_names()}
        hint = (
            f"did you mean {', '.join(known[each] for each in near)}?"
            if near
            else f"known: {', '.join(known.values())}"
        )
        raise click.UsageError(f"--vm-size should be a GPU size that is known, was {name[:100]!r}; {hint}")
    if stated is None:
        return Machine(vm_size=name)
    return Machine.of_job(vm_size=name or stated.vm_size, environment=stated.environment_variables)


def _content(path: Path) -> bytes:
    """Return what is in a file, one byte more than allowed at most. Raises ScriptError where it is none."""
    name = one_line(str(path))
    try:
        if path.is_dir():
            raise ScriptError(f"{name}: should be a script, is a folder")
        if path.exists() and not path.is_file():
            raise ScriptError(f"{name}: should be a script, is a device or a pipe")  # which may never end
        with path.open("rb") as stream:
            return stream.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        seen = (
            "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise ScriptError(f"{name}: should be a script, {seen}") from error


def _tell_unreadable(path: Path, error: ScriptError, *, is_json: bool) -> None:
    if is_json:
        click.echo(unreadable_as_json(path, str(error)))
    else:
        click.echo(f"Error: {error}", err=True)


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
