"""Help: each command has an example, each option says its default, and none of it costs an import."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.main import COMMANDS, landfall
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import framed, labelled

COLUMNS = 80
HEAVY = {
    "PIL",
    "azure",
    "fastapi",
    "function_app",
    "httpx",
    "local_azure",
    "numpy",
    "psutil",
    "pyarrow",
    "pydantic",
    "rich",
    "yaml",
}
"""Packages that take long to import."""


def commands(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command, groups included, with the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands((*path, name), found)


EVERY = [pytest.param(path, command, id=" ".join(path)) for path, command in commands(("landfall",), landfall)]


def help_of(path: tuple[str, ...]) -> str:
    """Return what --help shows on a usual terminal."""
    shown = CliRunner().invoke(landfall, [*path[1:], "--help"], terminal_width=COLUMNS, prog_name="landfall")
    assert 0 == shown.exit_code
    return shown.output


def test_the_overview_lists_every_command() -> None:
    """The order is that in which a new user needs them."""
    shown = help_of(("landfall",)).partition("Commands:\n")[2]
    assert list(COMMANDS) == [line.split()[0] for line in shown.splitlines() if line[:3].strip()][: len(COMMANDS)]


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_each_command_has_one_example_on_one_line(path: tuple[str, ...], command: click.Command) -> None:
    """It can be copied from a usual terminal, and every option in it exists."""
    examples = [line.strip() for line in help_of(path).splitlines() if "Example" in line]
    assert 1 == len(examples)
    words = shlex.split(examples[0].removeprefix("Example: "))
    assert f"  Example: {shlex.join(words)}" == help_of(path).splitlines()[-1]
    assert list(path) == words[: len(path)]
    options = {name for parameter in command.params for name in parameter.opts}
    if not isinstance(command, click.Group):
        assert set() == {word for word in words if word.startswith("--")} - options


BY_AZD = {("landfall", "hook")}
"""Commands that only azd calls: they answer by what they do and by their exit status."""


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_each_command_can_answer_as_json(path: tuple[str, ...], command: click.Command) -> None:
    """All commands use the same flag."""
    options = {parameter.opts[0]: parameter for parameter in command.params}
    if not isinstance(command, click.Group):
        assert ("--json" in options) == (path not in BY_AZD)
        assert "--json" not in options or getattr(options["--json"], "is_flag", False)


SAME_WORDS = {"--to", "--after"}
"""What is written (a file, a folder, a dataset version); what a list begins after (a run, a name)."""


def test_an_option_means_one_thing() -> None:
    """An option of several commands has one kind of value, and one name for it; and one thing has one option."""
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for _, command in commands(("landfall",), landfall):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.opts[0] not in SAME_WORDS:
                kind = (parameter.is_flag, parameter.multiple, parameter.type.name)
                kinds.setdefault(parameter.opts[0], set()).add(kind)
    assert {} == {name: found for name, found in kinds.items() if len(found) > 1}
    assert set() == set(kinds) & {"--jobs", "--output", "--format", "--out", "--yes"}


@pytest.mark.parametrize(("path", "command"), [case for case in EVERY if not isinstance(case.values[1], click.Group)])
def test_a_mistyped_option_is_answered_with_the_one_meant(path: tuple[str, ...], command: click.Command) -> None:
    """The command ends with the status for wrong usage before it does anything."""
    name = max(
        (parameter.opts[-1] for parameter in command.params if parameter.opts[0][:2] == "--"),
        key=len,
        default="--help",
    )
    answered = CliRunner().invoke(landfall, [*path[1:], f"{name[:-1]}_"], prog_name="landfall")
    assert (2, True) == (answered.exit_code, name in answered.output), answered.output


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_each_option_is_a_phrase_with_its_default(path: tuple[str, ...], command: click.Command) -> None:
    """A default, or that it is required; a flag is off unless it is passed."""
    context = click.Context(command, show_default=True)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            record = parameter.get_help_record(context)
            assert record is not None
            where = f"{' '.join(path)} {parameter.opts[0]}: {record[1]}"
            assert (parameter.help or "").endswith((".", ").")), where
            assert parameter.is_flag or "default" in record[1] or "required" in record[1], where


@pytest.mark.parametrize(("path", "command"), [case for case in EVERY if isinstance(case.values[1], click.Group)])
def test_an_overview_cuts_no_sentence(path: tuple[str, ...], command: click.Command) -> None:
    """Each command's line ends with its full stop, not with dots."""
    del command
    listed = help_of(path).partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert ([], True) == ([line for line in listed if not line.endswith(".") or line.endswith("..")], bool(listed))


def loaded_by(*arguments: object, depth: int = 1) -> set[str]:
    """Run the real command in an interpreter of its own; return the packages that it has imported.

    ``depth`` is the number of parts of their names.
    """
    script = (
        "import json, sys\nfrom cli.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit as end:\n"
        "    assert not end.code, end.code\nprint(json.dumps(sorted({'.'.join(m.split('.')[:"
        + str(depth)
        + "]) for m in sys.modules})))"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    return set(json.loads(ended.stdout.splitlines()[-1]))


def test_help_imports_no_command() -> None:
    """The overview costs no import of storage clients, numpy or the twin."""
    assert set() == loaded_by("--help") & HEAVY


def completed(*words: str) -> tuple[list[str], set[str]]:
    """Return what bash offers for the last word, as the README sets it up, and the packages imported for it."""
    script = (
        "import sys, atexit; sys.argv = ['landfall']; from cli import start\n"
        "atexit.register(lambda: print(*{m.partition('.')[0] for m in sys.modules}, file=sys.stderr)); start()"
    )
    settings = {
        "_LANDFALL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("landfall", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=child_environment(**settings),
        check=True,
    )
    return [line.partition(",")[2] for line in ended.stdout.splitlines()], set(ended.stderr.split())


def test_a_shell_completes_commands_and_options() -> None:
    """A person waits for it: no command is imported to list them all."""
    every, loaded = completed("")
    assert (list(COMMANDS), set()) == (every, loaded & HEAVY)
    assert ["dead-letters"] == completed("dea")[0]
    assert ["list", "replay", "show"] == completed("dead-letters", "")[0]
    assert ["--state", "--since"] == completed("runs", "--s")[0]
    assert ["registered"] == completed("runs", "--state", "reg")[0]
    assert ["waiting"] == completed("dead-letters", "list", "--state", "w")[0]


def test_validating_a_file_imports_nothing_heavy(tmp_path: Path) -> None:
    """It imports neither azure nor the function app, nor packages that a TFRecord file does not need."""
    path = tmp_path / "train-00000-of-00001.tfrecord"
    path.write_bytes(framed([labelled(i % 10) for i in range(20)]))
    assert set() == loaded_by("validate", path) & HEAVY


def test_checking_a_pipeline_opens_no_client_of_azure() -> None:
    """The file is read, and nothing is asked of any service."""
    modules = loaded_by("check", REPOSITORY / "pipelines" / "digits.yaml", depth=2)
    sdks = {name for name in modules if name.startswith("azure.")} - {"azure.functions"}
    assert set() == sdks | modules & {"numpy", "pyarrow", "PIL", "local_azure", "httpx"}


def test_looking_at_shards_opens_no_client_of_azure(tmp_path: Path) -> None:
    """It does not load pyarrow either if the shards are TFRecord."""
    path = tmp_path / "train-00000-of-00001.tfrecord"
    path.write_bytes(framed([labelled(i % 10) for i in range(20)]))
    modules = loaded_by("init", path, "--to", tmp_path / "made.yaml", depth=2)
    sdks = {name for name in modules if name.startswith("azure.")} - {"azure.functions"}
    assert set() == sdks | modules & {"numpy", "pyarrow", "PIL", "local_azure", "httpx"}


def test_linting_a_script_imports_nothing_heavy(tmp_path: Path) -> None:
    """The script is read, and nothing of what it imports is."""
    path = tmp_path / "train.py"
    path.write_text("import numpy\nimport horovod.tensorflow as hvd\nhvd.init()\n")
    assert set() == loaded_by("lint", path) & HEAVY
