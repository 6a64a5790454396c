"""Unwanted words, and functions that find them in Python code and in pages.

docs/glossary.md has a common technical word to use instead of each. Identifiers, docstrings, comments and texts are
searched; code in back quotes, single-word strings (keys and stored words) and code blocks of pages are not.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator

Found = tuple[int, str]
"""Line and message."""

IN_TEXT = {
    "told": r"told",
    "whoever": r"whoever",
    "nobody": r"nobody(?:'s)?",
    "somebody": r"somebody(?:'s)?",
    "story": r"story|stories",
    "anew": r"anew",
    "mend": r"mend(?:s|ed|ing)?",
    "lies (use: is)": r"lies",
    "manieth": r"manieth",
    "how many-th": r"how[- ]many-?th",
    "bury": r"bury|buries|buried|burying",
    "armed": r"armed",
    "take off": r"(?:take|takes|took|taken|taking) off",
    "land": r"(?:runs?|attempts?) (?:has |have |had |was |were |is |are )?(?:land|lands|landed|landing)",
    "wish": r"wish|wishes|wished",
    "news": r"news",
    "last words": r"last words",
    "else (use: otherwise)": (
        r"(?<!something )(?<!anything )(?<!everything )(?<!nothing )(?<!someone )(?<!anyone )(?<!everyone )(?<!one )"
        r"(?<!body )(?<!ever )(?<!what )(?<!where )(?<!somewhere )(?<!anywhere )(?<!nowhere )else"
    ),
}
_TEXT = {word: re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE) for word, pattern in IN_TEXT.items()}

IN_NAMES = {
    *("told", "whoever", "nobody", "nobodys", "somebody", "somebodys", "story", "stories", "anew", "manieth"),
    *("bury", "buried", "armed", "wish", "wishes", "news", "given", "land", "landed", "landing"),
}
GIVEN_UP = ("given", "up")
"""Allowed phrases, in which "given" is a verb."""
PAIRS_IN_NAMES = {("take", "off"), ("takes", "off"), ("took", "off"), ("last", "words")}

_STARTS_WITH_OF = re.compile(r"\s*of\b", re.IGNORECASE)
_CONDITIONAL = re.compile(r"\bif\b(?:[^.,;\n]|\.(?=\w))*\belse\b|\belse:")
"""Python code in a string, such as `1 if x.y else 2`."""
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def page_words(page: str) -> Iterator[Found]:
    """Yield the unwanted words in a Markdown page, with their lines; skip code spans and blocks."""
    prose = _CODE_SPAN.sub(_blank, _CODE_BLOCK.sub(_blank, page))
    yield from _words_in(prose, 1)


def python_words(code: str, tree: ast.Module) -> Iterator[Found]:
    """Yield the unwanted words in the docstrings, texts and comments of a module, with their lines."""
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value)]
    yield from ((node.lineno, 'a docstring begins with "of"') for node in docstrings if _begins_with_of(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\s", node.value):
            text = node.value if node in docstrings else _CONDITIONAL.sub(_blank, node.value)
            yield from _words_in(_CODE_SPAN.sub(_blank, text), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield from _words_in(_CODE_SPAN.sub(_blank, token.string), token.start[0])


def name_words(module: str, tree: ast.Module) -> Iterator[Found]:
    """Yield the unwanted words in a module's name and in the names that it defines, with their lines."""
    yield from ((1, message) for message in _words_of_name(module))
    for node in ast.walk(tree):
        for name in _defined_names(node):
            yield from ((getattr(node, "lineno", 1), message) for message in _words_of_name(name))


def _words_in(text: str, first_line: int) -> Iterator[Found]:
    for word, pattern in _TEXT.items():
        # A phrase may continue on the next line, so spaces in patterns match line breaks too.
        for match in pattern.finditer(flat := re.sub(r"\s", " ", text)):
            around = flat[max(0, match.start() - 30) : match.end() + 30].strip()
            yield first_line + text.count("\n", 0, match.start()), f'the word "{word}" in "…{around}…"'


def _words_of_name(name: str) -> Iterator[str]:
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    pairs = list(itertools.pairwise(parts))
    found = [
        part
        for part, after in itertools.zip_longest(parts, parts[1:])
        if part in IN_NAMES and (part, after) != GIVEN_UP
    ]
    found += [" ".join(pair) for pair in pairs if pair in PAIRS_IN_NAMES]
    yield from (f'the word "{word}" in the name {name}' for word in found)


def _defined_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _begins_with_of(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(_STARTS_WITH_OF.match(str(node.value)))


def _blank(match: re.Match[str]) -> str:
    """Replace code by spaces, keeping lines in place."""
    return re.sub(r"[^\n]", " ", match[0])
