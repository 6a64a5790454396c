"""Check this tree for rules that no linter covers: `python -m tools.check_tree [--all]`.

Prints every breach as `path:line: problem` and exits with 1 if there is one. A rule that is switched off is checked
with `--all`, which prints how many breaches each rule has.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools import words

ROOT = Path(__file__).resolve().parent.parent

PRODUCT = (
    *("function_app", "function_app.py", "shared", "shard_validation", "horovod_lint", "training_job"),
    *("local_azure", "cli", "bench", "tools"),
)
"""Folders of the product, to which the rules on small files and on class names apply."""
WORD_LIST = {"tools/words.py", "tests/unit/tools/test_words.py", "tests/unit/tools/test_check_tree.py"}
"""Files that must contain the unwanted words."""
UNTRACKED = (".landfall/", "bench/results/", "keras/keras_mnist.py", "tensorflow/tensorflow_keras_mnist.py")
"""Paths that pages may name although git does not track them; the last two are examples in Horovod's repository."""

MAX_FILE_BYTES = 1 << 20
MAX_PYTHON_LINES = 500
MAX_FUNCTION_LINES = 40
MAX_MODULES = 15
MAX_TEST_MODULES = 25
"""For test folders, which have a module per port, scenario or double."""
SMALL_LINES = 40
MAX_SMALL_SHARE = 0.10

UNFINISHED_WORK = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
BARE_SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore)\s*$")
UNEXPLAINED_RISK = re.compile(r"#\s*no" r"qa:[\sA-Z0-9,]*\bS\d{3}[\sA-Z0-9,]*$")
"""An exception from a security rule, without a reason after it."""
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(root|work|home/\w+|Users/\w+|tmp/w)/")
REGISTRY_HOST = re.compile(
    r"https?://(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|[\w.-]*artifactory)"
)
RESOLVED_URL = re.compile(r'"resolved":\s*"http')
CONFLICT = re.compile(r"^(<{7}|>{7}) ")
PATH_IN_PAGE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml))(?:::\w+)?`")
PAGE_OF_README = re.compile(r"\]\(docs/([\w/-]+\.md)[#)]")
PAGE_BESIDE = re.compile(r"\]\(([\w/-]+\.md)[#)]")


@dataclass(frozen=True)
class File:
    """One tracked text file, its path relative to the repository."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        """Whether it is a Python module."""
        return self.path.endswith(".py")

    @property
    def is_page(self) -> bool:
        """Whether it is a Markdown page."""
        return self.path.endswith(".md")

    @property
    def is_prose(self) -> bool:
        """Whether users read its text: a page, a settings file with comments, or a script with comments."""
        return (
            self.is_page or self.path.startswith("pipelines/") or self.path == "Makefile" or self.path[-3:] == ".sh"
        )

    @property
    def is_product(self) -> bool:
        """Whether it is a Python module of the product."""
        return self.is_python and self.path.split("/")[0] in PRODUCT

    @property
    def num_lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The module's syntax tree."""
        return ast.parse(self.text)


@dataclass(frozen=True, order=True)
class Breach:
    """One place that breaks a rule."""

    path: str
    line: int
    problem: str

    def __str__(self) -> str:
        """Return `path:line: problem`, which editors can open."""
        return f"{self.path}:{self.line}: {self.problem}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every file that git tracks or would track."""
    parser = argparse.ArgumentParser(prog="tools.check_tree", description="Check the rules of this tree.")
    parser.add_argument("--all", action="store_true", help="check the rules that are switched off too, and count")
    parser.add_argument("--only", metavar="RULE", help=f"check one rule: {', '.join(RULES)}")
    chosen = parser.parse_args(arguments)
    files, too_large = tracked_files()
    rules = [name for name in RULES if chosen.all or chosen.only == name or (not chosen.only and name not in OFF)]
    found = {name: sorted(set(RULES[name](files))) for name in rules}
    for breach in [*too_large, *(breach for name in rules for breach in found[name])]:
        print(breach)
    if chosen.all:
        for name in rules:
            print(f"{len(found[name]):6} {name}{' (off)' if name in OFF else ''}")
    total = len(too_large) + sum(map(len, found.values()))
    print(f"check_tree: {total} breaches" if total else "check_tree: no breaches")
    return 1 if total else 0


def tracked_files() -> tuple[list[File], list[Breach]]:
    """Return the text files that git tracks or would track, and a breach for each one that is too large."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    files: list[File] = []
    too_large: list[Breach] = []
    for name in sorted(set(listing.split("\0")) - {""}):
        path = ROOT / name
        if not path.is_file():
            continue
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            too_large.append(Breach(name, 1, f"{size} bytes; a tracked file has at most {MAX_FILE_BYTES}"))
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            files.append(File(name, content.decode(errors="replace")))
    return files, too_large


def line_breaches(files: Sequence[File]) -> Iterator[Breach]:
    """Find merge conflicts, unfinished work, bare suppressions, paths of one machine and hosts of registries."""
    for file in files:
        for number, line in enumerate(file.text.splitlines(), start=1):
            yield from (Breach(file.path, number, problem) for problem in _line_problems(line))


def _line_problems(line: str) -> Iterator[str]:
    if CONFLICT.search(line):
        yield "a merge conflict"
    if UNFINISHED_WORK.search(line):
        yield "unfinished work belongs in an issue, not in a comment"
    if BARE_SUPPRESSION.search(line):
        yield "a suppression without the code that it suppresses"
    if UNEXPLAINED_RISK.search(line):
        yield "an exception from a security rule without its reason"
    if MACHINE_PATH.search(line):
        yield "an absolute path of one machine"
    if REGISTRY_HOST.search(line) or RESOLVED_URL.search(line):
        yield "the host of a package registry; every machine has its own"


def swallowed_exceptions(files: Sequence[File]) -> Iterator[Breach]:
    """Find except clauses that do nothing."""
    for file, node in _nodes(files):
        if isinstance(node, ast.ExceptHandler) and _does_nothing(node.body):
            problem = "a swallowed exception; use contextlib.suppress with a reason, or handle it"
            yield Breach(file.path, node.lineno, problem)


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def long_files(files: Sequence[File]) -> Iterator[Breach]:
    """Find Python files with too many lines."""
    for file in files:
        if file.is_python and file.num_lines > MAX_PYTHON_LINES:
            yield Breach(file.path, 1, f"{file.num_lines} lines; a Python file has at most {MAX_PYTHON_LINES}")


def long_functions(files: Sequence[File]) -> Iterator[Breach]:
    """Find functions with too many lines. Tests are exempt: a table of cases may be long."""
    for file, node in _nodes(file for file in files if not file.path.startswith("tests/")):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                problem = f"{node.name} has {length} lines; a function has at most {MAX_FUNCTION_LINES}"
                yield Breach(file.path, node.lineno, problem)


def full_folders(files: Sequence[File]) -> Iterator[Breach]:
    """Find folders with too many modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for file in files:
        path = PurePosixPath(file.path)
        if file.is_python and path.stem not in {"__init__", "__main__"}:
            modules[str(path.parent)].append(path.name)
    for folder, names in modules.items():
        limit = MAX_TEST_MODULES if folder.startswith("tests/") else MAX_MODULES
        if len(names) > limit:
            yield Breach(folder, 1, f"{len(names)} modules; this folder may have at most {limit}")


def small_files(files: Sequence[File]) -> Iterator[Breach]:
    """Find small product files, including package markers, if there are too many of them."""
    product = [file for file in files if file.is_product]
    small = [file for file in product if file.num_lines < SMALL_LINES]
    if len(small) > MAX_SMALL_SHARE * len(product):
        for file in small:
            problem = f"{file.num_lines} lines; at most {MAX_SMALL_SHARE:.0%} of {len(product)} files are so small"
            yield Breach(file.path, 1, problem)


def repeated_class_names(files: Sequence[File]) -> Iterator[Breach]:
    """Find class names that are used twice within a package (a top-level folder)."""
    places: dict[tuple[str, str], list[tuple[File, int]]] = defaultdict(list)
    for file, node in _nodes(file for file in files if file.is_product):
        if isinstance(node, ast.ClassDef):
            places[file.path.split("/")[0], node.name].append((file, node.lineno))
    for (_, name), found in places.items():
        for file, line in found[1:]:
            yield Breach(file.path, line, f"the class name {name} is also used in {found[0][0].path}")


def words_in_names(files: Sequence[File]) -> Iterator[Breach]:
    """Find unwanted words in names."""
    for file in _word_files(files):
        for line, problem in words.name_words(PurePosixPath(file.path).stem, file.tree):
            yield Breach(file.path, line, problem)


def words_in_code(files: Sequence[File]) -> Iterator[Breach]:
    """Find unwanted words in docstrings, texts and comments."""
    for file in _word_files(files):
        for line, problem in words.python_words(file.text, file.tree):
            yield Breach(file.path, line, problem)


def words_in_pages(files: Sequence[File]) -> Iterator[Breach]:
    """Find unwanted words in pages."""
    for file in files:
        if file.is_prose and not file.is_python:
            yield from (Breach(file.path, line, problem) for line, problem in words.page_words(file.text))


def missing_paths(files: Sequence[File]) -> Iterator[Breach]:
    """Find paths in pages that name no file of the repository or of the page's folder."""
    known = {file.path for file in files}
    for page in (file for file in files if file.is_page):
        folder = PurePosixPath(page.path).parent
        for number, line in enumerate(page.text.splitlines(), start=1):
            for path in PATH_IN_PAGE.findall(line):
                if not {path, str(folder / path)} & known and not path.startswith(UNTRACKED):
                    yield Breach(page.path, number, f"{path} does not exist")


def unlisted_pages(files: Sequence[File]) -> Iterator[Breach]:
    """Find pages in docs/ without a link in README.md or docs/architecture.md."""
    pages = {file.path: file.text for file in files if file.is_page}
    named = {f"docs/{name}" for name in PAGE_OF_README.findall(pages.get("README.md", ""))}
    named |= {f"docs/{name}" for name in PAGE_BESIDE.findall(pages.get("docs/architecture.md", ""))}
    for path in sorted(path for path in pages if path.startswith("docs/")):
        if path not in {*named, "docs/architecture.md"}:
            yield Breach(path, 1, "neither README.md nor docs/architecture.md has a link to this page")


def _nodes(files: Sequence[File] | Iterator[File]) -> Iterator[tuple[File, ast.AST]]:
    yield from ((file, node) for file in files if file.is_python for node in ast.walk(file.tree))


def _word_files(files: Sequence[File]) -> Iterator[File]:
    yield from (file for file in files if file.is_python and file.path not in WORD_LIST)


RULES: dict[str, Callable[[Sequence[File]], Iterator[Breach]]] = {
    "lines": line_breaches,
    "exceptions": swallowed_exceptions,
    "long-files": long_files,
    "long-functions": long_functions,
    "full-folders": full_folders,
    "small-files": small_files,
    "class-names": repeated_class_names,
    "words-in-names": words_in_names,
    "words-in-code": words_in_code,
    "words-in-pages": words_in_pages,
    "missing-paths": missing_paths,
    "unlisted-pages": unlisted_pages,
}
OFF: set[str] = set()
"""Rules that the tree does not follow yet; a new rule starts here."""


if __name__ == "__main__":
    sys.exit(main())
