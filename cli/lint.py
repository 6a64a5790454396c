"""``landfall lint``. Imports neither azure nor the function app, except for --pipeline."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import click

from cli.files import replace_whole
from horovod_lint import (
    MAX_NOTEBOOK_BYTES,
    MAX_SCRIPT_BYTES,
    NOTEBOOK_SUFFIX,
    OTHERS_CODE,
    LintReport,
    Machine,
    ScriptError,
    ScriptFile,
    Severity,
    cell_texts,
    fix_script,
    lint_script,
    scripts_among,
)
from shared.safe_text import one_line
from shared.vm_sizes import similar_sizes, vm_size

FOUND = 1
UNREADABLE = 2
"""Exit status for a script that cannot be read; click's own for wrong usage is the same."""
MAX_FILES = 500
"""Scripts and notebooks of all arguments together."""
MAX_BYTES = 32 << 20
"""Size of all scripts together; notebooks are read one at a time."""
_SUFFIXES = (".py", NOTEBOOK_SUFFIX)
_MAX_NAMED = 3
"""Modules that the last line of a script names."""
_MIN_COLUMNS = 40


@click.command(epilog="Example: landfall lint train.py --vm-size Standard_ND96asr_v4")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT|FOLDER ...", type=click.Path(path_type=Path))
@click.option(
    "--vm-size",
    help=(
        "VM size that the script runs on; decides which network and GPU rules apply (default: that of --pipeline, "
        "otherwise any size)."
    ),
)
@click.option(
    "--pipeline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Pipeline file to take VM size and environment variables from (default: none).",
)
@click.option(
    "--fix",
    "is_fix",
    is_flag=True,
    help="Apply the mechanical fixes to scripts and notebooks, and print the changes.",
)
@click.option("--diff", "is_diff", is_flag=True, help="Print what --fix would change, and write nothing.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per script, each on its own line.")
def lint(
    scripts: tuple[Path, ...],
    vm_size: str | None,
    pipeline: Path | None,
    *,
    is_fix: bool,
    is_diff: bool,
    is_json: bool,
) -> None:
    """Find mistakes in Horovod training scripts and notebooks without running them.

    Findings are errors (the result is wrong, or the job hangs), warnings (the job is slow, or its output misleading)
    and advice. A pipeline whose script has errors is submitted only with --force. The comment
    `# landfall: ignore[code] the reason` suppresses the findings of that code on its line.

    For a folder, all scripts and notebooks in it and its subfolders are checked. A module is checked together with
    the files that import it. Modules that are not among the arguments are assumed to be correct.

    --fix applies an edit only if it is mechanical and causes no other finding. Each file is fixed on its own.

    Exit status: 0 clean or advice only; 1 errors or warnings; 2 wrong usage, or a script that cannot be read.
    """
    machine = _machine(vm_size, pipeline)
    paths = _paths(scripts)
    if is_fix or is_diff:
        _fix_all(paths, machine, is_written=not is_diff, is_json=is_json)
    reports, num_unreadable = _lint_all(paths, machine, is_json=is_json)
    if not is_json and len(reports) + num_unreadable > 1:
        click.echo(summary(reports, num_unreadable))
    if num_unreadable:
        raise click.exceptions.Exit(UNREADABLE)
    if not all(report.is_clean for report in reports):
        raise click.exceptions.Exit(FOUND)


def _lint_all(paths: Sequence[Path], machine: Machine, *, is_json: bool) -> tuple[list[LintReport], int]:
    """Print what is found in each script; return the reports, and how many scripts cannot be read."""
    reports, num_unreadable = list[LintReport](), 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    files = _modules(paths) if len(paths) > 1 else {}
    runs = set(scripts_among(files))
    for path in paths:
        place = _place(path)
        if place in files and place not in runs:
            continue  # read with the scripts that import it
        try:
            report = lint_script(_content(path), one_line(str(path)), machine, path=place, files=files)
        except ScriptError as error:
            num_unreadable += 1
            _print_unreadable(path, error, is_json=is_json)
            continue
        reports.append(report)
        click.echo(as_json(path, report) if is_json else as_text(path, report, width))
    return reports, num_unreadable


def _fix_all(paths: Sequence[Path], machine: Machine, *, is_written: bool, is_json: bool) -> None:
    """Fix each script on its own, and print the changes. Raises UsageError for JSON output."""
    if is_json:
        raise click.UsageError("--fix and --diff print changes for people. Leave out --json.")
    for path in paths:
        try:
            content = _content(path)
            fixed = fix_script(content, one_line(str(path)), machine)
        except ScriptError:
            continue  # the lint reports it
        if fixed.content != content:
            if is_written:
                replace_whole(path, fixed.content)
            click.echo(_changes(path, content, fixed.content))
        else:
            click.echo(f"unchanged {one_line(str(path))}  (it has no finding with a mechanical fix)")


def _changes(path: Path, before: bytes, after: bytes) -> str:
    """Return what was changed, as `diff -u` shows it; of a notebook, cell by cell."""
    name = one_line(str(path))
    if path.suffix.lower() != NOTEBOOK_SUFFIX:
        return _difference(before.decode(errors="replace"), after.decode(errors="replace"), name)
    old, new = cell_texts(before, name), cell_texts(after, name)
    changed = (cell for cell in old if old[cell] != new[cell])
    return "\n".join(_difference(old[cell], new[cell], f"{name}:cell {cell}") for cell in changed)


def _difference(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="")
    return "\n".join(map(one_line, lines))


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
        arguments=(train.arguments,),
        paths=train.paths_passed,
        registers=loaded.register_ is not None,
        distribution=train.distribution,
    )


def _place(path: Path) -> PurePath:
    return PurePath(os.path.abspath(path))  # noqa: PTH100 - `resolve` fails on links that lead to themselves


def _paths(arguments: Sequence[Path]) -> list[Path]:
    """Return every script and notebook once. Raises UsageError for too many."""
    paths = list(dict.fromkeys(path for argument in arguments for path in _scripts_in(argument)))
    if len(paths) > MAX_FILES:
        raise click.UsageError(
            f"There are more than {MAX_FILES} scripts and notebooks. Pass fewer, or another folder."
        )
    return paths


def _scripts_in(argument: Path) -> Iterator[Path]:
    """Yield a file, or the scripts and notebooks of a folder. Raises UsageError for a folder without any."""
    if not os.path.isdir(argument):  # noqa: PTH112 - `is_dir` fails on a name that is too long
        yield argument
        return
    num_found = 0
    for folder, folders, names in os.walk(argument):
        folders[:] = sorted(name for name in folders if name[:1] != "." and name not in OTHERS_CODE)
        for name in sorted(names):
            if name.lower().endswith(_SUFFIXES) and (num_found := num_found + 1) <= MAX_FILES + 1:
                yield Path(folder, name)
    if not num_found:
        raise click.UsageError(f"{one_line(str(argument))}: has no script (.py) and no notebook ({NOTEBOOK_SUFFIX}).")


def _modules(paths: Sequence[Path]) -> dict[PurePath, ScriptFile]:
    """Return the scripts that others may import; one that cannot be read is reported when it is checked itself."""
    found: dict[PurePath, ScriptFile] = {}
    num_bytes = 0
    for path in paths:
        if path.suffix != ".py":
            continue
        try:
            content = _content(path)
        except ScriptError:
            continue
        num_bytes += len(content)
        if num_bytes > MAX_BYTES:
            raise click.UsageError(f"The scripts have more than {MAX_BYTES >> 20} MiB. Pass fewer.")
        place = _place(path)
        found[place] = ScriptFile(path=place, name=one_line(str(path)), content=content)
    return found


def _content(path: Path) -> bytes:
    """Return the first bytes of a file, at most one more than allowed. Raises ScriptError for anything but a file."""
    name = one_line(str(path))
    max_bytes = MAX_NOTEBOOK_BYTES if path.suffix.lower() == NOTEBOOK_SUFFIX else MAX_SCRIPT_BYTES
    try:
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
        "modules": list(report.modules),
    }
    return json.dumps(members)


def as_text(path: Path, report: LintReport, width: int | None = None) -> str:
    """Return the lines for one script: each finding with the reason and the fix, then the numbers of findings.

    ``width`` is that of the terminal; without one, lines are not wrapped.
    """
    name, lines = one_line(str(path)), []
    for finding in report.findings:
        cell = f"cell {finding.cell}:" if finding.cell is not None else ""
        place = f"{finding.file or name}:{cell}{finding.line}:{finding.column}"
        lines += [
            f"{place}: {finding.severity} {finding.code}: {finding.message}",
            _indented(f"why: {finding.why}", width),
            _indented(f"fix: {finding.fix}", width),
        ]
    if report.num_more:
        lines.append(f"… and {report.num_more:,} more")
    num_more = len(report.modules) - _MAX_NAMED
    more = f" and {num_more} more" if num_more > 0 else ""
    modules = f"; with {', '.join(report.modules[:_MAX_NAMED])}{more}" if report.modules else ""
    verdict = f"{'clean   ' if report.is_clean else 'FINDINGS'}  {name}  ({_counts([report])}{modules})"
    return "\n".join([*lines, verdict])


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
