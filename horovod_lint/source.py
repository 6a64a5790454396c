"""Reading a script that nobody has vouched for: bounded, and never run."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from dataclasses import dataclass

from shared.errors import LandfallError

MAX_SCRIPT_BYTES = 256 << 10
MAX_DEPTH = 150
"""Of nested statements and expressions: Python's own parser gives up at a few hundred, and so would whoever reads."""
MAX_SHOWN_CHARS = 100


class ScriptError(LandfallError):
    """A training script cannot be analysed; the message names file and line, and what is wrong there."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A script's text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module


def parse_source(content: bytes, name: str) -> Source:
    """Read a script; ``name`` is what errors call it. Raises ScriptError."""
    if len(content) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{name}: should be a script of at most {MAX_SCRIPT_BYTES} bytes, was more")
    text = _decoded(content, name)
    tree = _parsed(text, name)
    line = _too_deep(tree)
    if line is not None:
        raise ScriptError(f"{name}:{line}: should be nested at most {MAX_DEPTH} deep, was deeper")
    return Source(name=name, text=text, tree=tree)


def _decoded(content: bytes, name: str) -> str:
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise ScriptError(f"{name}:{line}: should be Python source, had a null byte")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except SyntaxError as error:
        raise ScriptError(f"{name}:1: should declare the encoding that it is written in: {error.msg}") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        seen = content[error.start : error.start + 1].hex()
        raise ScriptError(f"{name}:{line}: should be text in {error.encoding}, had the byte 0x{seen}") from error
    except (LookupError, ValueError) as error:
        raise ScriptError(f"{name}:1: should declare an encoding of text: {error}") from error


def _parsed(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own invalid escapes: not ours to print
            return ast.parse(text)
    except SyntaxError as error:
        seen = f", had {error.text.strip()[:MAX_SHOWN_CHARS]!r}" if error.text else ""
        raise ScriptError(f"{name}:{error.lineno or 1}: should be Python 3: {error.msg}{seen}") from error
    except (RecursionError, MemoryError) as error:
        raise ScriptError(f"{name}:1: should be nested at most {MAX_DEPTH} deep, was far deeper") from error
    except ValueError as error:
        raise ScriptError(f"{name}:1: should be Python source: {error}") from error


def _too_deep(tree: ast.Module) -> int | None:
    """Return the line at which the tree becomes deeper than it may, None where it does not."""
    level: list[ast.AST] = [tree]
    line = 1
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
        line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), line)
    return line
