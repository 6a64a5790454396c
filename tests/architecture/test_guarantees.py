"""The page of guarantees names tests; here they are looked for."""

from __future__ import annotations

import ast
import re

from tests.support.processes import REPOSITORY

PAGE = REPOSITORY / "docs" / "guarantees.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_named_test_exists() -> None:
    """A test that is renamed or removed takes its promise along, and is missed."""
    named = set(NAMED.findall(PAGE.read_text(encoding="utf-8")))
    missing = [f"{path}::{name}" for path, name in sorted(named) if name not in functions_of(path)]
    assert (True, []) == (len(named) > 0, missing)


def test_every_promise_names_a_test() -> None:
    """A promise that nobody tries to break is none."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "| attack", "| **"))]
    assert (True, []) == (len(promises) > 0, [row for row in promises if not NAMED.search(row)])


def functions_of(path: str) -> set[str]:
    """Return the test functions of a module; none where it is gone."""
    file = REPOSITORY / path
    if not file.is_file():
        return set()
    return {
        node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
    }
