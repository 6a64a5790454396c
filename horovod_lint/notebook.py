"""Read the code of a Jupyter notebook as one script whose lines keep their cells.

IPython's magics and shell lines are not Python. Each is replaced with Python that has the same effect on the
training, or with ``pass``, so that every line keeps its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from horovod_lint.script import MAX_SCRIPT_BYTES, Part, ScriptError, Source, parse_text

MAX_NOTEBOOK_BYTES = 32 << 20
"""Includes the stored outputs, such as images; the code alone has the limit of a script."""
NOTEBOOK_SUFFIX = ".ipynb"
CELLS_SUFFIX = f"{NOTEBOOK_SUFFIX}:cells"
"""End of the name of a script that the cells of a notebook are read as."""
OLDEST, _NEWEST = 3, 4
_MAX_SHOWN_CHARS = 60
_UNKNOWN = "get_ipython()"
"""Placeholder for values that only IPython computes: a name that the lint does not know."""
_RUNS_PYTHON = frozenset({"time", "timeit", "capture", "prun", "memit", "mprun", "lprun"})
"""Magics whose code runs in the notebook itself."""
_MAGIC = re.compile(r"(?P<indent>\s*)(?P<sign>%|!!?|\?{1,2})(?P<rest>.*)")
_TARGET = re.compile(r"[\w.,\s\[\]'\"*]+")
_HELP = re.compile(r"(?P<indent>\s*)[\w.\[\]'\"*]+\?{1,2}\s*")
_TIMED = re.compile(r"time\s+(?P<code>.+)")
_SET_VARIABLE = re.compile(r"(?:env|set_env)\s+(?P<name>\w+)(?:\s*=\s*|\s+)(?P<value>.*)")


class LeftOut(StrEnum):
    """Kinds of lines that are not Python."""

    MAGIC = "magic"
    SHELL = "shell command"
    HELP = "help"
    CELL = "cell in another language"


@dataclass(frozen=True, kw_only=True)
class Omission:
    """One line, or one whole cell, that is not part of the script."""

    kind: LeftOut
    cell: int
    line: int
    """Within the cell, counted from 1."""
    text: str
    """Its beginning."""
    is_lost: bool = True
    """Whether its effect is lost; `%time` and `%env` keep their effect."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One code cell as Python."""

    number: int
    """Among all cells of the notebook, counted from 1."""
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """The code cells of a notebook, as Python."""

    cells: tuple[Cell, ...]
    omissions: tuple[Omission, ...]


def parse_notebook(content: bytes, name: str) -> Source:
    """Return the code cells of a notebook as one script; errors call it ``name``. Raises ScriptError."""
    cells = read_notebook(content, name).cells
    parts, lines = [], list[str]()
    for cell in cells:
        parts.append(Part(first_line=len(lines) + 1, cell=cell.number))
        lines += cell.lines
    text = "\n".join([*lines, ""])
    return Source(
        name=name, text=text, tree=parse_text(text, name, is_notebook=True), parts=tuple(parts) or (Part(),)
    )


def read_notebook(content: bytes, name: str) -> Notebook:
    """Return the code cells of a notebook. Raises ScriptError if it is not a notebook, or a cell is not Python."""
    omissions: list[Omission] = []
    cells: list[Cell] = []
    num_chars = 0
    for number, text in _code_cells(_members(content, name), name):
        num_chars += len(text)
        if num_chars > MAX_SCRIPT_BYTES:
            raise ScriptError(
                f"{name}: the code cells have more than {MAX_SCRIPT_BYTES} characters; move functions into modules"
            )
        lines = tuple(_python_lines(number, text, omissions))
        parse_text("\n".join([*lines, ""]), f"{name}:cell {number}", is_notebook=True)
        cells.append(Cell(number=number, lines=lines))
    return Notebook(cells=tuple(cells), omissions=tuple(omissions))


def _members(content: bytes, name: str) -> Mapping[str, Any]:
    if len(content) > MAX_NOTEBOOK_BYTES:
        raise ScriptError(
            f"{name}: the notebook is larger than {MAX_NOTEBOOK_BYTES >> 20} MiB; clear the outputs of its cells"
        )
    try:
        members = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = str(error)[:_MAX_SHOWN_CHARS] if isinstance(error, ValueError) else "it is nested too deeply"
        raise ScriptError(
            f"{name}: not a notebook: not valid JSON: {what}; open it in Jupyter and save it again"
        ) from error
    version = members.get("nbformat") if isinstance(members, dict) else None
    if not isinstance(version, int):
        raise ScriptError(f"{name}: is JSON, but not a notebook: it has no nbformat; pass a .py or .ipynb file")
    if not OLDEST <= version <= _NEWEST:
        raise ScriptError(
            f"{name}: the notebook has format {version}, but only formats {OLDEST} and {_NEWEST} are supported; "
            f"convert it: "
            f"jupyter nbconvert --to notebook --nbformat {_NEWEST} FILE"
        )
    return dict(members)


def _code_cells(members: Mapping[str, Any], name: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each code cell. Raises ScriptError for a notebook of another shape or language."""
    metadata = members.get("metadata")
    for entry in ("kernelspec", "language_info"):
        about = metadata.get(entry) if isinstance(metadata, dict) else None
        language = about.get("language" if entry == "kernelspec" else "name") if isinstance(about, dict) else None
        if isinstance(language, str) and language.lower() not in ("python", "python3", "ipython"):
            raise ScriptError(
                f"{name}: the notebook's language is {language[:_MAX_SHOWN_CHARS]!r}; only Python is supported"
            )
    worksheets = members.get("worksheets")
    holders = worksheets if members["nbformat"] == OLDEST else [members]
    cells: list[Any] = []
    for holder in holders if isinstance(holders, list) else [None]:
        held = holder.get("cells") if isinstance(holder, dict) else None
        if not isinstance(held, list):
            raise ScriptError(
                f"{name}: not a notebook: it has no list of cells; open it in Jupyter and save it again"
            )
        cells += held
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = cell.get("input" if members["nbformat"] == OLDEST else "source")
        if isinstance(text, list) and all(isinstance(line, str) for line in text):
            text = "".join(text)
        if not isinstance(text, str):
            raise ScriptError(f"{name}:cell {number}: its source is not text; open it in Jupyter and save it again")
        yield number, text.replace("\r\n", "\n").replace("\r", "\n")


def _python_lines(number: int, text: str, omissions: list[Omission]) -> Iterator[str]:
    """Yield a line of Python for each line of a cell, and list what was left out."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    cell_magic = re.match(r"\s*%%(\w*)", lines[first])
    if cell_magic is not None:
        is_run = cell_magic[1] in _RUNS_PYTHON
        kind = LeftOut.MAGIC if is_run else LeftOut.CELL
        text = _short(lines[first])
        omissions.append(Omission(kind=kind, cell=number, line=first + 1, text=text, is_lost=not is_run))
        if not is_run:
            yield from ("#" if line.strip() else "" for line in lines)
            return
        lines[first] = f"# {lines[first].strip()}"
    scanner, is_command = _Scanner(), False
    for index, line in enumerate(lines):
        found = _converted(line) if scanner.is_neutral and not is_command else None
        if is_command:
            yield "#"  # a backslash continues the command above
        elif found is not None:
            python, kind = found
            is_lost = python.strip() == "pass" or python.endswith(_UNKNOWN)
            omissions.append(Omission(kind=kind, cell=number, line=index + 1, text=_short(line), is_lost=is_lost))
            yield python.rstrip("\\")
        else:
            scanner.feed(line)
            yield line
        is_command = (is_command or found is not None) and line.endswith("\\")


class _Scanner:
    """Finds the lines on which a Python statement begins: not inside brackets or quotes, not after a backslash."""

    def __init__(self) -> None:
        self._depth, self._quote, self._is_continued = 0, "", False

    @property
    def is_neutral(self) -> bool:
        """Whether the next line begins a statement."""
        return not (self._depth or self._quote or self._is_continued)

    def feed(self, line: str) -> None:
        """Read the next line."""
        position, self._is_continued = 0, line.endswith("\\")
        while position < len(line):
            character = line[position]
            if self._quote:
                if line.startswith(self._quote, position):
                    position += len(self._quote) - 1
                    self._quote = ""
                elif character == "\\":
                    position += 1
            elif character == "#":
                self._is_continued = False
                break
            elif character in "\"'":
                self._quote = character * 3 if line.startswith(character * 3, position) else character
                position += len(self._quote) - 1
            else:
                self._depth = max(0, self._depth + (character in "([{") - (character in ")]}"))
            position += 1
        if len(self._quote) == 1 and not self._is_continued:
            self._quote = ""  # the string is not closed, which the parser reports


def _converted(line: str) -> tuple[str, LeftOut] | None:
    """Return the Python for a line that IPython handles itself, and what it is; None for a line of Python."""
    match = _MAGIC.match(line)
    if match is not None:
        return _without_sign(match["indent"], match["sign"], match["rest"])
    target, equals, value = line.partition("=")
    value = value.lstrip()
    if equals and value.startswith(("%", "!")) and _TARGET.fullmatch(target):
        timed = _TIMED.match(value[1:]) if value.startswith("%") else None
        kind = LeftOut.SHELL if value.startswith("!") else LeftOut.MAGIC
        return f"{target}= {timed['code'] if timed else _UNKNOWN}", kind
    match = _HELP.fullmatch(line)
    return (f"{match['indent']}pass", LeftOut.HELP) if match is not None else None


def _without_sign(indent: str, sign: str, rest: str) -> tuple[str, LeftOut]:
    """Return the effect of a magic: time a statement, set a variable, or nothing that a training needs."""
    if sign != "%":
        return f"{indent}pass", LeftOut.HELP if sign.startswith("?") else LeftOut.SHELL
    timed, variable = _TIMED.match(rest), _SET_VARIABLE.match(rest)
    if timed is not None:
        return f"{indent}{timed['code']}", LeftOut.MAGIC
    if variable is not None:
        name, value = variable["name"], variable["value"].strip()
        return f"{indent}import os; os.environ[{name!r}] = {value!r}", LeftOut.MAGIC
    return f"{indent}pass", LeftOut.MAGIC


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
