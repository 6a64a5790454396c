"""The pages of guarantees, Azure and security name tests; each exists, and those of the gate are part of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY

PAGE = REPOSITORY / "docs" / "guarantees.md"
AZURE = REPOSITORY / "docs" / "azure.md"
THREATS = REPOSITORY / "docs" / "security.md"
SCALE = REPOSITORY / "docs" / "scale.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PROMISE_COLUMNS = ["promise", "mechanism", "tests of the gate", "further tests of `make test-all`"]


def promises() -> list[list[str]]:
    """Return the rows of the tables of promises: what is promised, how it is kept, two cells of tests."""
    tables = PAGE.read_text(encoding="utf-8").split("| promise ")[1:]
    rows = [line for table in tables for line in table.splitlines()[2:] if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@cache
def slow_functions(path: str) -> dict[str, bool]:
    """Return the test functions of a module, and whether each is slow as a whole; none if the file is gone."""
    file = REPOSITORY / path
    if not file.is_file():
        return {}
    body = ast.parse(file.read_text(encoding="utf-8")).body
    all_slow = any(isinstance(node, ast.Assign) and marks_slow(node, "pytestmark") for node in body)
    return {
        node.name: all_slow or any(ast.unparse(one) == "pytest.mark.slow" for one in node.decorator_list)
        for node in body
        if isinstance(node, ast.FunctionDef)
    }


def marks_slow(node: ast.Assign, name: str) -> bool:
    """Return whether an assignment gives the marker to all tests of its module."""
    return ast.unparse(node.targets[0]) == name and "pytest.mark.slow" in ast.unparse(node.value)


def wrong(cell: int, *, slow: bool) -> Iterator[str]:
    """Yield the tests in a cell of the promises that are not there, or not where the cell's column says."""
    for row in promises():
        for path, name in NAMED.findall(row[cell]):
            if slow_functions(path).get(name) is not slow:
                yield f"{path}::{name}"


@pytest.mark.parametrize("page", [PAGE, AZURE, THREATS, SCALE], ids=lambda page: page.stem)
def test_every_named_test_exists(page: Path) -> None:
    """A test that is renamed or removed is missed here, with its promise."""
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    missing = [f"{path}::{name}" for path, name in sorted(named) if name not in slow_functions(path)]
    assert (True, []) == (len(named) > 0, missing)


def test_what_was_done_for_azure_names_its_test_and_what_was_not_says_so() -> None:
    """Each row of docs/azure.md has four cells; one without a test begins with "Not yet" or "Not proved here"."""
    rows = [line for line in AZURE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [ABC]\d", line)]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    wrong = [row for row in cells if len(row) != 4 or not (NAMED.search(row[2]) or row[1].startswith("Not "))]
    points = {row[0].partition(".")[0] for row in cells}
    assert ([], True) == (wrong, {f"A{n}" for n in range(1, 6)} | {f"B{n}" for n in range(1, 10)} <= points)


def test_every_claim_of_the_threat_model_names_what_proves_it() -> None:
    """What an uploader, a caller, an event, a job and a neighbour of a laptop cannot do has a test each."""
    tables = re.findall(r"^\| .* cannot \|.*\n\|[-|]+\n((?:\|.*\n)+)", THREATS.read_text("utf-8"), re.MULTILINE)
    claims = [line.strip("|").split("|") for table in tables for line in table.splitlines()]
    assert (5, []) == (len(tables), [row[0] for row in claims if len(row) != 3 or not NAMED.search(row[2])])


def test_every_promise_has_a_test_in_the_gate() -> None:
    """What no test of the gate tries to break is not promised."""
    tables = re.findall(r"^\| promise .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"| {' | '.join(PROMISE_COLUMNS)} |"} == set(tables)
    assert (True, []) == (len(promises()) > 0, [row[0] for row in promises() if not NAMED.search(row[2])])


def test_tests_stand_in_the_column_of_the_command_that_runs_them() -> None:
    """The gate's tests are not slow, and the others are."""
    assert ([], []) == (list(wrong(2, slow=False)), list(wrong(3, slow=True)))
