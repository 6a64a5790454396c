"""``from horovod.keras import DistributedOptimizer as DO``: read as if it had kept its name, which the rules know."""

from __future__ import annotations

import ast
from collections import Counter

_LIBRARIES = frozenset({"horovod", "tensorflow", "keras", "tf_keras", "torch", "functools"})


def restore_names(tree: ast.Module) -> None:
    """Give what is imported from a library under another name its own, where nothing else has either."""
    nodes = list(ast.walk(tree))
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
