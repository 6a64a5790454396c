"""The rules of the tree: each finds a breach, and finds nothing where the rule is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tools import check_tree
from tools.check_tree import Breach, File

LINES = "x = 1\n"
DESCRIBED = '"""Read a file."""\n'


@pytest.mark.parametrize(
    "line",
    [
        "<" * 7 + " HEAD",
        "x = 1  # TO" + "DO: later",
        "import x  # no" + "qa",
        "x()  # type: " + "ignore",
        "run(x)  # no" + "qa: S603",
        "run(x)  # no" + "qa: PLW1510, S603",
        "open('/ro" + "ot/project/file')",
        "index = 'https://py" + "pi.org/simple'",
        '"resol' + 'ved": "https://somewhere/a.tgz"',
    ],
)
def test_a_line_that_breaks_a_rule_is_found(line: str) -> None:
    """Each of these would disturb a reader, or break on another machine."""
    assert [2] == [breach.line for breach in check_tree.line_breaches([File("a.py", f"fine\n{line}\n")])]


@pytest.mark.parametrize(
    "line",
    [
        "x()  # type: ignore[arg-type]",
        "import x  # noqa: F401",
        "run(x)  # noqa: S603 (this interpreter)",
        "cd $HOME/work/",
        "https://github.com/a/b",
        "a method",
    ],
)
def test_a_line_that_keeps_the_rules_passes(line: str) -> None:
    """A suppression with its code and a relative path are fine."""
    assert [] == list(check_tree.line_breaches([File("a.py", line)]))


@pytest.mark.parametrize(("body", "lines"), [("pass", [3]), ("...", [3]), ("g()", [])])
def test_an_except_clause_that_does_nothing_is_found(body: str, lines: list[int]) -> None:
    """It would hide an error; calling something is handling."""
    file = File("a.py", f"try:\n    f()\nexcept ValueError:\n    {body}\n")
    assert lines == [breach.line for breach in check_tree.swallowed_exceptions([file])]


def folder_of(num_modules: int, name: str = "cli") -> list[File]:
    """A folder with an ``__init__`` and a number of modules."""
    return [File(f"{name}/__init__.py", ""), *(File(f"{name}/m{number}.py", "") for number in range(num_modules))]


def function_of(num_lines: int) -> str:
    """A function of that many lines."""
    return "def long() -> None:\n" + "    print()\n" * (num_lines - 1)


@pytest.mark.parametrize(
    ("rule", "clean", "broken"),
    [
        (check_tree.long_files, [File("a.py", LINES * 500)], [File("a.py", LINES * 501)]),
        (check_tree.long_functions, [File("a.py", function_of(40))], [File("a.py", function_of(41))]),
        (check_tree.long_functions, [File("tests/a.py", function_of(99))], [File("cli/a.py", function_of(99))]),
        (check_tree.full_folders, folder_of(15), folder_of(16)),
        (check_tree.full_folders, folder_of(25, "tests/crash"), folder_of(26, "tests/crash")),
        (
            check_tree.small_files,
            [File("cli/small/__init__.py", LINES), *[File(f"cli/{n}.py", LINES * 40) for n in range(9)]],
            [File("cli/small/__init__.py", LINES), *[File(f"cli/{n}.py", LINES * 40) for n in range(8)]],
        ),
        (
            check_tree.repeated_class_names,
            [File("cli/a.py", "class A: ...\n"), File("bench/b.py", "class A: ...\n")],
            [File("cli/a.py", "class A: ...\n"), File("cli/sub/b.py", "class A: ...\n")],
        ),
        (check_tree.words_in_names, [File("cli/run.py", "x = 1\n")], [File("cli/story.py", "x = 1\n")]),
        (check_tree.words_in_code, [File("cli/a.py", DESCRIBED)], [File("cli/a.py", '"""Of a file."""\n')]),
        (check_tree.words_in_code, [File("tools/words.py", '"""Of."""')], [File("tests/a.py", '"""Of a file."""')]),
        (check_tree.words_in_pages, [File("docs/a.md", "The `story` key.\n")], [File("docs/a.md", "The story.\n")]),
        (
            check_tree.missing_paths,
            [
                File("docs/a.md", "See `cli/a.py`, `b/c.md` and `a.py`."),
                File("cli/a.py", ""),
                File("docs/b/c.md", ""),
            ],
            [File("docs/a.md", "See `cli/a.py`.")],
        ),
        (
            check_tree.unlisted_pages,
            [
                File("README.md", "[a](docs/a.md#b), [architecture](docs/architecture.md)"),
                File("docs/architecture.md", "[b](b.md)"),
                File("docs/a.md", ""),
                File("docs/b.md", ""),
            ],
            [File("README.md", "[a](docs/a.md), `docs/b.md`"), File("docs/a.md", "[b](b.md)"), File("docs/b.md", "")],
        ),
    ],
)
def test_a_rule_finds_its_breach_and_nothing_else(
    rule: Callable[[Sequence[File]], Iterator[Breach]], clean: list[File], broken: list[File]
) -> None:
    """A clean tree has no breach, and the broken one has exactly one."""
    assert ([], 1) == (list(rule(clean)), len(list(rule(broken))))


def test_only_rules_that_exist_are_switched_off() -> None:
    """A renamed rule would otherwise be switched on without notice."""
    assert set() == check_tree.OFF - set(check_tree.RULES)
