"""The tree's own rules, those that no linter of the shelf knows: `python -m tools.check_tree`.

Prints every breach as `path:line: what was expected, what was seen` and ends with 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE_BYTES = 1 << 20
MAX_PYTHON_LINES = 300
MAX_FUNCTION_LINES = 50
"""The house asks for 40; above this it is an error."""

FORBIDDEN_WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
BARE_SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore)\s*$")
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(root|work|home/\w+|Users/\w+|tmp/w)/")
REGISTRY_HOST = re.compile(
    r"https?://(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|[\w.-]*artifactory)"
)
RESOLVED_URL = re.compile(r'"resolved":\s*"http')


def main() -> int:
    """Check every file that git tracks or would track."""
    breaches = [breach for path in tracked_files() for breach in check_file(path)]
    for breach in breaches:
        print(breach)
    print(f"check_tree: {len(breaches)} breaches" if breaches else "check_tree: the tree keeps its rules")
    return 1 if breaches else 0


def tracked_files() -> list[Path]:
    """Everything that is, or is about to be, part of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    paths = (ROOT / name for name in sorted(set(listing.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


def check_file(path: Path) -> Iterator[str]:
    """Every breach in one file."""
    name = path.relative_to(ROOT).as_posix()
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        yield f"{name}:1: a tracked file has at most {MAX_FILE_BYTES} bytes, this one {size}"
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    found = [*text_breaches(text)]
    if name.endswith(".py"):
        found += python_breaches(text, is_test=name.startswith("tests/"))
    yield from (f"{name}:{number}: {what}" for number, what in found)


def text_breaches(text: str) -> Iterator[tuple[int, str]]:
    """The rules on any text: (line, breach)."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield from ((number, what) for what in _line_breaches(line))


def _line_breaches(line: str) -> Iterator[str]:
    if FORBIDDEN_WORDS.search(line):
        yield "work that is left belongs into an issue, not into a comment"
    if BARE_SUPPRESSION.search(line):
        yield "a suppression names the code that it suppresses"
    if MACHINE_PATH.search(line):
        yield "an absolute path of one machine"
    if REGISTRY_HOST.search(line) or RESOLVED_URL.search(line):
        yield "the host of a package registry; every machine has its own"


def python_breaches(text: str, *, is_test: bool) -> Iterator[tuple[int, str]]:
    """The rules on Python code: (line, breach)."""
    lines = text.count("\n")
    if lines > MAX_PYTHON_LINES:
        yield 1, f"a Python file has at most {MAX_PYTHON_LINES} lines, this one {lines}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and _does_nothing(node.body):
            yield node.lineno, "a swallowed exception: use contextlib.suppress with a reason, or handle it"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_test:
            yield from _too_long(node)


def _does_nothing(body: list[ast.stmt]) -> bool:
    empty = (ast.Pass, ast.Expr)
    return all(isinstance(statement, empty) and not _has_effect(statement) for statement in body)


def _has_effect(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)


def _too_long(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > MAX_FUNCTION_LINES:
        yield node.lineno, f"a function has at most {MAX_FUNCTION_LINES} lines, {node.name} has {length}"


if __name__ == "__main__":
    sys.exit(main())
