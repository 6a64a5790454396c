"""Edit the code cells of a notebook: the text of a changed cell is replaced, and every other byte stays.

The JSON is edited in place, not read and dumped, so outputs, metadata and formatting stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from horovod_lint.notebook import OLDEST, read_notebook
from horovod_lint.script import ScriptError

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
_Span = tuple[int, int]
"""Start and end of a value in the JSON."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the script that consists of a notebook's cells."""

    cell: int
    """Number of its cell."""
    text: str
    """The line as it is in the notebook."""
    is_python: bool
    """Whether the script has the same line; the line of a magic is replaced, so it cannot be edited."""


def rows_of(content: bytes, name: str) -> list[Row]:
    """Return the lines of all code cells. Raises ScriptError if it is not a notebook."""
    raw = cell_texts(content, name)
    rows: list[Row] = []
    for cell in read_notebook(content, name).cells:
        texts = raw[cell.number].split("\n")
        if len(texts) != len(cell.lines):  # a lone carriage return makes lines ambiguous
            rows += [Row(cell=cell.number, text=line, is_python=False) for line in cell.lines]
            continue
        pairs = zip(texts, cell.lines, strict=True)
        rows += [Row(cell=cell.number, text=text, is_python=text == line) for text, line in pairs]
    return rows


def cell_texts(content: bytes, name: str) -> dict[int, str]:
    """Return the text of each code cell by its number. Raises ScriptError if it is not a notebook."""
    text = _text_of(content, name)
    spans = _sources(text)
    numbers = [cell.number for cell in read_notebook(content, name).cells]
    return {number: "".join(_DECODER.raw_decode(text, spans[number - 1][0])[0]) for number in numbers}


def with_cells(content: bytes, name: str, changed: Mapping[int, str]) -> bytes:
    """Return a notebook with other texts in some of its code cells. Raises ScriptError if it is not a notebook."""
    text = _text_of(content, name)
    spans = _sources(text)
    for number in sorted(changed, reverse=True):
        start, end = spans[number - 1]
        text = text[:start] + _rewritten(text[start:end], changed[number], is_ascii=content.isascii()) + text[end:]
    return text.encode(json.detect_encoding(content))


def _text_of(content: bytes, name: str) -> str:
    text = content.decode(json.detect_encoding(content), "replace")
    if text.encode(json.detect_encoding(content), "replace") != content:
        raise ScriptError(f"{name}: its encoding cannot be kept; open it in Jupyter and save it again")
    return text


def _sources(text: str) -> list[_Span]:
    """Return the position of each cell's text, in the order of the cells; the start of the file if it has none."""
    top = dict(_members(text, _skip(text, 0)))
    is_oldest = _DECODER.raw_decode(text, top["nbformat"][0])[0] == OLDEST
    holders = _items(text, top["worksheets"][0]) if is_oldest else [(_skip(text, 0), len(text))]
    lists = [dict(_members(text, start))["cells"] for start, _ in holders]
    cells = [start for begin, _ in lists for start, _ in _items(text, begin)]
    members = (dict(_members(text, start)) if text[start] == "{" else {} for start in cells)
    return [each.get("input" if is_oldest else "source", (0, 0)) for each in members]


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def _members(text: str, position: int) -> Iterator[tuple[str, _Span]]:
    """Yield key and place of each member of an object that is known to be valid."""
    position = _skip(text, position + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        start = _skip(text, _skip(text, position) + 1)
        end = _DECODER.raw_decode(text, start)[1]
        yield key, (start, end)
        position = _next(text, end)


def _items(text: str, position: int) -> list[_Span]:
    """Return the place of each item of a list that is known to be valid."""
    found = []
    position = _skip(text, position + 1)
    while text[position] != "]":
        end = _DECODER.raw_decode(text, position)[1]
        found.append((position, end))
        position = _next(text, end)
    return found


def _next(text: str, end: int) -> int:
    position = _skip(text, end)
    return _skip(text, position + 1) if text[position] == "," else position


def _rewritten(old: str, text: str, *, is_ascii: bool) -> str:
    """Return JSON for a cell's text in the format that it had: one text, or a list of lines."""
    if not old.startswith("["):
        return json.dumps(text, ensure_ascii=is_ascii)
    places = _items(old, 0)
    if not places:
        return json.dumps(text.splitlines(keepends=True), ensure_ascii=is_ascii)
    known = {_DECODER.raw_decode(old, start)[0]: old[start:end] for start, end in places}
    before, after = old[: places[0][0]], old[places[-1][1] :]
    between = old[places[0][1] : places[1][0]] if len(places) > 1 else f",{before[1:]}"
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    if not lines:
        return "[]"
    return before + between.join(known.get(line) or json.dumps(line, ensure_ascii=is_ascii) for line in lines) + after
