"""The finder of words that are not used: what it finds, and what it must leave alone."""

from __future__ import annotations

import ast

import pytest

from tools import words


def found_in_code(code: str) -> list[int]:
    """Return the lines with a finding."""
    return [line for line, _ in words.python_words(code, ast.parse(code))]


@pytest.mark.parametrize(
    "text",
    [
        "The user is told why.",
        "Whoever calls it waits.",
        "It is nobody's shard.",
        "Somebody waits.",
        "Tell the story of a run.",
        "It is read anew.",
        "The file is mended.",
        "A file lies beside it.",
        "Bury what is left.",
        "The fault is armed.",
        "A run takes off.",
        "The run has landed.",
        "The ranks' wishes.",
        "No news from a rank.",
        "Its last words.",
        "Its last\nwords.",
        "It fails else.",
        "Use A if you can,\nelse B.",
        "It fails if it must. It runs else.",
        "Of a run.",
    ],
)
def test_a_word_in_a_docstring_is_found(text: str) -> None:
    """Phrases are found across line breaks too."""
    assert 1 == len(found_in_code(f'def f():\n    """{text}"""\n'))


@pytest.mark.parametrize(
    "text",
    [
        "Nothing else is read.",
        "Whatever else is written.",
        "When the last shard lands, the run starts.",
        "The history of a run.",
        "A newsletter, an unarmed fault, an amended list and a retold tale.",
        "Returns the `story` member, or ``x if x else y``.",
        "The copy of a shard.",
        "A given value.",
    ],
)
def test_common_english_passes(text: str) -> None:
    """Words are matched as a whole, in their forbidden meaning, and never in code spans."""
    assert [] == found_in_code(f'def f():\n    """{text}"""\n')


def test_texts_and_comments_are_searched_but_not_keys_and_code() -> None:
    """A string without a space is a key or a stored word; a conditional in a string is code."""
    code = 'a = "told"\nb = "who was told"\nc = 1  # told\nd = "x = 1 if y.z() else 2"\ne = 1 if a else 2\n'
    assert [2, 3] == sorted(found_in_code(code))


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("def story(): ...", 1),
        ("class LastWords: ...", 1),
        ("def f(told): ...", 1),
        ("is_armed = 1", 1),
        ("def take_off(): ...", 1),
        ("given = 1", 1),
        ("import a as news", 1),
        ("def undelivered(): ...", 0),
        ("newsletter = landfall = last = words", 0),
        ("x = story.told", 0),
    ],
)
def test_names_are_searched_part_by_part_where_they_are_defined(code: str, number: int) -> None:
    """A name that another library defined may be used."""
    assert number == len(list(words.name_words("module", ast.parse(code))))


def test_the_name_of_a_module_is_searched() -> None:
    """Files are found by their names."""
    assert 1 == len(list(words.name_words("last_words", ast.parse(""))))


def test_the_prose_of_a_page_is_searched_and_its_code_is_not() -> None:
    """Findings have the line of the page."""
    page = "# A page\n\n```sh\nstory\n```\n\nThe `story` and\nthe story.\n"
    assert [8] == [line for line, _ in words.page_words(page)]
