"""Parse the command line of a job: its other commands, the options of MPI, its script and the script's arguments.

Nothing is executed or expanded: shell syntax that is not understood is returned unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from cli.errors import CliError

_SEPARATORS = ";&|\n"
_JOINED = "\x01"
"""Stands for the ``&`` of ``2>&1``, which is no separator."""
_REDIRECTION = re.compile(r"[0-9\x01]*(?:>>?|<)\x01?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"i?python[0-9.]*")
_SHELLS = ("bash", "sh")
_RUNS_TEXT = re.compile(r"-[a-z]*c")
"""Options of a shell before the commands that it runs: ``-c``, ``-lc``."""
_MAX_DEPTH = 3
"""Shells within shells."""
_NUMBERS = {
    **dict.fromkeys(("-n", "-np"), "processes"),
    **dict.fromkeys(("-ppn", "-perhost", "-npernode", "--npernode"), "per node"),
}
_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun")
_SETTING = ("-env", "-genv", "-x")
"""Options that set a variable: Intel MPI's, with the value behind it, and Open MPI's."""
_IN_SCRIPT = "Do it in the script, or in the image (landfall publish --image)."
_BY_LANDFALL = "Landfall starts MPI itself, with hosts and network chosen for the cluster."


@dataclass(kw_only=True)
class Started:
    """How a command line starts its script."""

    script: str
    arguments: list[str] = field(default_factory=list)
    variables: list[tuple[str, str]] = field(default_factory=list)
    has_launcher: bool = False
    num_processes: int = 0
    """Total number of processes; 0 if the line does not say."""
    num_per_node: int = 0
    left: list[tuple[str, str]] = field(default_factory=list)
    """Words without a counterpart, each with what to do instead."""

    def leave(self, words: Sequence[str], instead: str) -> None:
        """Note words that have no counterpart."""
        if words:
            self.left.append((shlex.join(words).replace(_JOINED, "&"), instead))


def read_command_line(text: str, place: str) -> Started:
    """Return how a command line starts its one Python script; errors begin with ``place``. Raises CliError."""
    commands = list(_commands(text, place))
    runs = [command for command in commands if any(map(_is_script, _parted(command)[0]))]
    if len(runs) != 1:
        raise CliError(
            f"{place} runs {'no' if not runs else 'more than one'} Python script (.py). Landfall runs one; write a "
            "script that does the same."
        )
    run, outputs = _parted(runs[0])
    position = next(index for index, word in enumerate(run) if _is_script(word))
    started = Started(script=run[position], arguments=run[position + 1 :])
    if outputs:
        started.left.append((" ".join(outputs), "Azure ML keeps the output of every rank with the job."))
    for command in commands:
        if command is not runs[0]:
            _take_other(started, command)
    _take_start(started, run[:position], place)
    if started.has_launcher and ":" in started.arguments:
        raise CliError(f"{place} starts several programs at once, with ':'. Landfall starts the same on every GPU.")
    return started


def split_words(text: str, place: str) -> list[str]:
    """Return the words of a text as a shell does, with its separators as words. Raises CliError."""
    text = re.sub(r"\\\r?\n", " ", text)
    lexer = shlex.shlex(re.sub(r"(?<=>)&|&(?=>)", _JOINED, text), posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError as error:
        raise CliError(f"{place} is not a valid command line: {error}. Correct it first.") from error


def _commands(text: str, place: str, depth: int = 0) -> Iterator[list[str]]:
    """Yield the commands of a line, also those that a shell within it gets as a text."""
    commands: list[list[str]] = [[]]
    for word in split_words(text, place):
        if set(word) <= set(_SEPARATORS):
            commands.append([])
        else:
            commands[-1].append(word)
    for command in commands:
        inner = _text_for_shell(command)
        if inner is not None and depth < _MAX_DEPTH:
            for each in _commands(command[inner], place, depth + 1):
                yield [*command[: inner - 2], *each] if any(map(_is_script, each)) else each
        elif command and not command[0].startswith("#"):
            yield command


def _text_for_shell(command: Sequence[str]) -> int | None:
    """Return the position of the text that a shell within a command runs, None where there is none."""
    for index, word in enumerate(command[:-2]):
        if PurePosixPath(word).name in _SHELLS and _RUNS_TEXT.fullmatch(command[index + 1]):
            return index + 2
        if _is_script(word):
            return None
    return None


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not re.search(r"[\s=]", word.rpartition("/")[0])


def _parted(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command, and apart from them where its output goes."""
    kept, apart = list[str](), list[str]()
    words = iter(command)
    for word in words:
        found = _REDIRECTION.match(word)
        (apart if found else kept).append(word.replace(_JOINED, "&"))
        if found and found.end() == len(word):
            apart += [next(words, "")]  # the file is a word of its own
    return kept, apart


def _take_other(started: Started, command: Sequence[str]) -> None:
    """Take over the variables that another command exports, and note the rest."""
    pairs = [_ASSIGNMENT.fullmatch(word) for word in (command[1:] if command[0] == "export" else command)]
    if pairs and all(pairs):
        started.variables += [(pair[1], pair[2]) for pair in pairs if pair]
    else:
        started.leave(command, _IN_SCRIPT)


def _take_start(started: Started, words: Sequence[str], place: str) -> None:
    """Take over what stands before the script: variables, MPI with its options, and Python with its own."""
    rest = list(words)
    while rest and (rest[0] == "env" or _ASSIGNMENT.fullmatch(rest[0])):
        if pair := _ASSIGNMENT.fullmatch(rest.pop(0)):
            started.variables.append((pair[1], pair[2]))
    names = [PurePosixPath(word).name for word in rest]
    python = next((index for index, name in enumerate(names) if _PYTHON.fullmatch(name)), len(rest))
    launcher = next((index for index, name in enumerate(names[:python]) if name in _LAUNCHERS), None)
    before = rest[:python] if launcher is None else rest[:launcher]
    started.leave([word for word in before if word not in ("time", "exec", "/usr/bin/env")], _IN_SCRIPT)
    started.leave([word for word in rest[python + 1 :] if word != "-u"], "The image's own python runs the script.")
    if launcher is not None:
        started.has_launcher = True
        _take_mpi_options(started, rest[launcher + 1 : python], place)


def _take_mpi_options(started: Started, words: Sequence[str], place: str) -> None:
    """Take over how many processes MPI starts, and the variables that it sets; note the other options."""
    rest, left = list(words), list[str]()
    while rest:
        word = rest.pop(0)
        if word in _NUMBERS and rest and rest[0].isdecimal():
            number = int(rest.pop(0)[:9])
            if not 1 <= number <= 10_000:  # noqa: PLR2004
                raise CliError(f"{place}: {word} is {number}, not a number from 1 to 10000. Correct it first.")
            if _NUMBERS[word] == "processes":
                started.num_processes = number
            else:
                started.num_per_node = number
        elif word in _SETTING and rest and "=" in rest[0]:
            variable, _, value = rest.pop(0).partition("=")
            started.variables.append((variable, value))
        elif word in _SETTING[:2] and len(rest) > 1:
            started.variables.append((rest.pop(0), rest.pop(0)))
        else:
            left.append(word)
    started.leave(left, _BY_LANDFALL)
