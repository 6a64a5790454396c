"""``landfall lint``. Imports neither azure nor the function app, except for --pipeline."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from horovod_lint import (
    MAX_NOTEBOOK_BYTES,
    MAX_SCRIPT_BYTES,
    NOTEBOOK_SUFFIX,
    LintReport,
    Machine,
    ScriptError,
    Severity,
    lint_script,
)
from shared.safe_text import one_line
from shared.vm_sizes import similar_sizes, vm_size

FOUND = 1
UNREADABLE = 2
"""Exit status for a script that cannot be read; click's own for wrong usage is the same."""
_MIN_COLUMNS = 40


@click.command(epilog="Example: landfall lint train.py --vm-size Standard_ND96asr_v4")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT ...", type=click.Path(path_type=Path))
@click.option(
    "--vm-size",
    help="VM size that the script will run on; decides which rules on network and GPUs apply "
    "(default: the pipeline's, or any).",
)
@click.option(
    "--pipeline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Pipeline file to take VM size and environment variables from (default: none).",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per script, each on its own line.")
def lint(scripts: tuple[Path, ...], vm_size: str | None, pipeline: Path | None, *, is_json: bool) -> None:
    """Find mistakes in Horovod training scripts and notebooks by reading them; nothing is run.

    Findings are errors (the result is wrong, or the job hangs), warnings (the job is slow, or its output misleading)
    and advice. A pipeline whose script has errors is submitted only with --force. The comment
    `# landfall: ignore[code] the reason` suppresses the findings of that code on its line.

    Exit status: 0 clean or advice only; 1 errors or warnings; 2 wrong usage, or a script that cannot be read.
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
            _print_unreadable(path, error, is_json=is_json)
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
    """Return what the script will run on. Raises UsageError for an unknown VM size or a wrong pipeline file."""
    if name is not None and vm_size(name) is None:
        raise click.UsageError(f"--vm-size {name[:100]!r} is not a known GPU size; {similar_sizes(name)}")
    if pipeline is None:
        return Machine(vm_size=name)
    from function_app.config.pipeline_files import load_pipeline
    from function_app.domain.errors import PipelineError

    try:
        loaded = load_pipeline(pipeline)
    except PipelineError as error:
        raise click.UsageError(str(error)) from error
    train = loaded.train
    return Machine.of_job(
        vm_size=name or loaded.machines.vm_size,
        environment=train.environment_variables,
        arguments=train.arguments,
        pass_paths=train.pass_paths,
        registers=loaded.register_ is not None,
    )


def _content(path: Path) -> bytes:
    """Return the first bytes of a file, one more than allowed at most. Raises ScriptError for any other thing."""
    name = one_line(str(path))
    max_bytes = MAX_NOTEBOOK_BYTES if path.suffix.lower() == NOTEBOOK_SUFFIX else MAX_SCRIPT_BYTES
    try:
        if path.is_dir():
            raise ScriptError(f"{name}: is a folder, not a script")
        if path.exists() and not path.is_file():  # it may have no end
            raise ScriptError(f"{name}: is a device or a pipe, not a script")
        with path.open("rb") as stream:
            return stream.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise ScriptError(f"{name}: there is no such file") from error
    except OSError as error:
        raise ScriptError(f"{name}: cannot be read: {error.strerror}") from error


def _print_unreadable(path: Path, error: ScriptError, *, is_json: bool) -> None:
    if is_json:
        members = {"script": str(path), "verdict": "unreadable", "findings": [], "problem": str(error)}
        click.echo(json.dumps(members))
    else:
        click.echo(f"Error: {error}", err=True)


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


def as_text(path: Path, report: LintReport, width: int | None = None) -> str:
    """Return the lines for one script: each finding with the reason and the fix, then the numbers of findings.

    ``width`` is that of the terminal; without one, lines are not wrapped.
    """
    name, lines = one_line(str(path)), []
    for finding in report.findings:
        cell = f"cell {finding.cell}:" if finding.cell is not None else ""
        lines += [
            f"{name}:{cell}{finding.line}:{finding.column}: {finding.severity} {finding.code}: {finding.message}",
            _indented(f"why: {finding.why}", width),
            _indented(f"fix: {finding.fix}", width),
        ]
    if report.num_more:
        lines.append(f"… and {report.num_more:,} more")
    return "\n".join([*lines, f"{'clean   ' if report.is_clean else 'FINDINGS'}  {name}  ({_counts([report])})"])


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
    """Return the last line for several scripts."""
    num_clean = sum(report.is_clean for report in reports)
    unreadable = f", {num_unreadable} could not be read" if num_unreadable else ""
    return f"{num_clean} of {len(reports) + num_unreadable} scripts clean: {_counts(reports)}{unreadable}"


def _counts(reports: Sequence[LintReport]) -> str:
    """Return the number of findings of each kind."""
    errors, warnings, advice = (
        sum(len(report.of(severity)) for report in reports)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.ADVICE)
    )
    ignored = sum(report.num_ignored for report in reports)
    counts = f"{_number(errors, 'error')}, {_number(warnings, 'warning')}, {advice} advice"
    return f"{counts}, {ignored} ignored" if ignored else counts


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
