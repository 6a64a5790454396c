"""The tree's own rules find what they are for, and leave the rest alone."""

from __future__ import annotations

import pytest

from tools.check_tree import python_breaches, text_breaches

LONG_FUNCTION = "def long() -> None:\n" + "    print()\n" * 50


def lines_found(text: str, *, is_test: bool = False) -> list[int]:
    """Where breaches are seen."""
    return [line for line, _what in python_breaches(text, is_test=is_test)]


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # TO" + "DO: later",
        "import x  # no" + "qa",
        "x()  # type: " + "ignore",
        "open('/ro" + "ot/project/file')",
        "index = 'https://py" + "pi.org/simple'",
        '"resol' + 'ved": "https://somewhere/a.tgz"',
    ],
)
def test_a_line_that_breaks_a_rule_is_found(line: str) -> None:
    """Each of these would be minded by a reader, or break on another machine."""
    assert [2] == [number for number, _what in text_breaches(f"fine\n{line}\n")]


@pytest.mark.parametrize(
    "line",
    [
        "x()  # type: ignore[arg-type]",
        "import x  # noqa: F401",
        "cd $HOME/work/",
        "https://github.com/a/b",
        "a method",
    ],
)
def test_a_line_that_keeps_the_rules_is_left_alone(line: str) -> None:
    """A suppression with its code and a relative path are fine."""
    assert [] == list(text_breaches(line))


def test_a_swallowed_exception_is_found() -> None:
    """An except clause that does nothing hides what happened, whether it says pass or dots."""
    silent = "try:\n    f()\nexcept ValueError:\n    {}\n"
    assert [[3], [3]] == [lines_found(silent.format(body)) for body in ("pass", "...")]


def test_an_except_clause_that_acts_is_left_alone() -> None:
    """Calling something is handling."""
    assert [] == lines_found("try:\n    f()\nexcept ValueError:\n    g()\n")


def test_a_long_function_is_found_in_code_and_not_in_tests() -> None:
    """A table of cases in a test may be long."""
    assert ([1], []) == (lines_found(LONG_FUNCTION), lines_found(LONG_FUNCTION, is_test=True))


def test_a_long_file_is_found() -> None:
    """300 lines are allowed, one more is not."""
    assert ([], [1]) == (lines_found("x = 1\n" * 300), lines_found("x = 1\n" * 301))
