"""Functions under names that a script gives them, read as if they had kept their own, which the rules know.

``from horovod.keras import DistributedOptimizer as DO``, ``DO = hvd.DistributedOptimizer``, or with some arguments
given: ``DO = functools.partial(hvd.DistributedOptimizer, op=hvd.Sum)``.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter

_LIBRARIES = frozenset({"horovod", "tensorflow", "keras", "tf_keras", "torch", "functools"})
_PARTIAL = "functools.partial"
_MAX_COPIED = 10_000
"""Nodes: a script of little else than such names would become too large to be looked at."""


def restore_names(tree: ast.Module) -> None:
    """Give what comes from a library its own name, where nothing else has that, or the other one."""
    nodes = list(ast.walk(tree))
    _restore_imported(nodes)
    _Assigned(nodes).visit(tree)


def _restore_imported(nodes: list[ast.AST]) -> None:
    imported = [
        alias for node in nodes if isinstance(node, ast.ImportFrom) and _is_known(node) for alias in node.names
    ]
    renamed = {alias.asname: alias.name for alias in imported if alias.asname not in (None, alias.name)}
    if not renamed:
        return
    taken = _bound_names(nodes)
    names = {new: old for new, old in renamed.items() if new is not None and taken[new] == 1 and not taken[old]}
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    for alias in imported:
        if alias.asname in names:
            alias.asname = None


class _Assigned(ast.NodeTransformer):
    """Puts what a name is given, at one place of the script, where the name is used."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        taken = _bound_names(nodes)
        self._paths = _imported_paths(nodes, taken)
        self._copied = 0
        assigned = [(n.targets[0], n.value) for n in nodes if isinstance(n, ast.Assign)]
        once = {to.id: value for to, value in assigned if isinstance(to, ast.Name) and taken[to.id] == 1}
        self._given = {name: value for name, value in once.items() if self._path(value)}
        self._paths |= {name: self._path(value) for name, value in self._given.items()}
        self._given |= {name: value for name, value in once.items() if self._is_partial(value)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the library's name, or the call that gives a function some arguments."""
        given = self._given.get(node.id) if isinstance(node.ctx, ast.Load) else None
        if given is None or self._copied > _MAX_COPIED:
            return node
        self._copied += sum(1 for _ in ast.walk(given))
        return ast.copy_location(copy.deepcopy(given), node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Return a call of the function itself, with the arguments given before and now."""
        self.generic_visit(node)
        while isinstance(node.func, ast.Call) and self._is_partial(node.func):
            before = node.func
            later = {keyword.arg for keyword in node.keywords} - {None}
            node.func, *arguments = before.args
            node.args = [*arguments, *node.args]
            node.keywords = [*(each for each in before.keywords if each.arg not in later), *node.keywords]
        return node

    def _is_partial(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call) or not value.args or isinstance(value.args[0], ast.Starred):
            return False
        return self._path(value.func) == _PARTIAL

    def _path(self, node: ast.expr) -> str:
        """Return the full name of what comes from a library, empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        first = self._paths.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join([first, *reversed(parts)]) if first else ""


def _imported_paths(nodes: list[ast.AST], taken: Counter[str]) -> dict[str, str]:
    """Return the full name behind each name that only imports from libraries bind."""
    paths: dict[str, str] = {}
    found: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _is_known(node):
            paths |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top in _LIBRARIES:
                    paths[alias.asname or top] = alias.name if alias.asname else top
                    found[alias.asname or top] += 1
    return {name: path for name, path in paths.items() if found[name] == taken[name]}


def _is_known(node: ast.ImportFrom) -> bool:
    return not node.level and (node.module or "").partition(".")[0] in _LIBRARIES


def _bound_names(nodes: list[ast.AST]) -> Counter[str]:
    """Count how often each name is bound anywhere in a script, by whatever means."""
    found: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] += 1
        elif isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] += 1
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            found[node.name or ""] += 1
    return found
