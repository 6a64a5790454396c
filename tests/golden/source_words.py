"""Words that stand in the source as literals: history lines, notifications, variables; read by AST."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUBMITTER = ("function_app", "shard_validation", "horovod_lint")
TRAINING = ("training_job", "shared")
ALL = (*SUBMITTER, *TRAINING, "cli")
"""Folders that are not there (yet) hold no words."""

HISTORY_CALLS: Mapping[str, int] = {"record": 1, "held_since": 1}
"""Functions that write a line of the history, with the position of the line's action."""
OUTCOME_KEYWORD = "outcome"
"""The argument by which every function that writes a notification takes the outcome."""

_NO_DETAILS = frozenset({"services", "holds", "reason"})
"""Keywords of those calls that are not stored."""
_VARIABLE = re.compile(r"(?!SC_)[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_SETTING = re.compile(r"LANDFALL_[A-Z_]*[A-Z]")


@cache
def trees(folders: tuple[str, ...]) -> tuple[ast.Module, ...]:
    """Return the parsed modules of some folders."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in files)


def history_actions() -> dict[str, list[str]]:
    """Return each action of the history with the names of its details. A computed part of an action reads ``*``."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees(SUBMITTER):
        constants = _constants(tree)
        for call in _calls(tree):
            place = HISTORY_CALLS.get(_name(call.func))
            if place is None or len(call.args) <= place:
                continue
            details = {keyword.arg for keyword in call.keywords if keyword.arg and keyword.arg not in _NO_DETAILS}
            for action in _texts(call.args[place], constants):
                found[action] |= details
    return {action: sorted(details) for action, details in found.items()}


def log_actions() -> list[str]:
    """Return the words that log lines bear as ``action``."""
    words = set()
    for tree in trees(ALL):
        constants = _constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                members = {_literal(key): value for key, value in zip(node.keys, node.values, strict=True)}
                if "action" in members:
                    words |= set(_texts(members["action"], constants))
    return sorted(words)


def outcomes() -> list[str]:
    """Return the outcomes of notifications that stand in the source; those of runs are the run's states."""
    words = set()
    for tree in trees(SUBMITTER):
        constants = _constants(tree)
        for call in _calls(tree):
            for keyword in call.keywords:
                if keyword.arg == OUTCOME_KEYWORD:
                    words |= set(_texts(keyword.value, constants))
    return sorted(words)


def notification_members() -> list[list[str]]:
    """Return the members of what notifications hold: every dictionary that is written with a ``text``."""
    dictionaries = {
        tuple(sorted(key for key in map(_literal, node.keys) if key))
        for tree in trees(SUBMITTER)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict) and "text" in map(_literal, node.keys)
    }
    return sorted(map(list, dictionaries))


def training_variables() -> list[str]:
    """Return all literals of the training that look like the name of an environment variable."""
    literals = (text for tree in trees(TRAINING) for text in _literals(tree))
    return sorted({text for text in literals if _VARIABLE.fullmatch(text)})


def landfall_variables() -> list[str]:
    """Return the names of Landfall's own settings and variables, outside docstrings."""
    return sorted({name for tree in trees(ALL) for text in _literals(tree) for name in _SETTING.findall(text)})


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _literals(tree: ast.Module) -> Iterator[str]:
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def _texts(node: ast.expr, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts that an expression may be; nothing for what only the running program knows."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants)
        yield from _texts(node.orelse, constants)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(_literal(part) or "*" for part in node.values)
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
    elif text := _literal(node):
        yield text


@cache
def _constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts to which a module, or a module that it imports them from, has given names."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    others = {name: text for name, text in _all_constants().items() if name in imported}
    return {**others, **dict(_own_constants(tree))}


@cache
def _all_constants() -> dict[str, str]:
    return dict(pair for tree in trees(ALL) for pair in _own_constants(tree))


def _own_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, its_value)
    elif isinstance(target, ast.Name) and (text := _literal(value)):
        yield target.id, text
