"""Epochs are passes over all data, whatever the number of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import dotted_text, keyword_of, last_name
from horovod_lint.training import is_over_numbers
from horovod_lint.view import View

_EPOCHS = re.compile(r"(^|_)(nb_|num_|n_|max_|total_|train_)?epochs?$", re.IGNORECASE)
_ROUNDING = frozenset({"int", "round", "ceil", "floor", "max", "min", "float", "abs"})
_MAX_DEPTH = 8
_OTHERS = re.compile(r"warm|per_epoch|decay|initial|start|current|steps|resume|samples|per_", re.IGNORECASE)


def check(view: View) -> Iterator[Finding]:
    """Find numbers of epochs that are made by dividing by the number of ranks."""
    found: dict[ast.AST, ast.AST] = {}
    for value in _numbers_of_epochs(view):
        found |= {division: division for division in _divisions(view, value, 0)}
    for node in view.script.nodes:
        is_division = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv)
        if isinstance(node, ast.AugAssign) and is_division and _is_number_of_epochs(node.target):
            found |= {node: node} if _is_size(view, node.value) else {}
    for place in sorted(found, key=lambda node: getattr(node, "lineno", 0)):
        yield view.finding(RuleCode.EPOCHS_DIVIDED, place, f"epochs are {ast.unparse(place)[:80]}")


def _divisions(view: View, value: ast.expr, depth: int) -> Iterator[ast.BinOp]:
    """Yield the divisions by the number of ranks that a number itself goes through, not what else it is made of."""
    if depth >= _MAX_DEPTH:
        return
    for origin in view.flow.origins(value):
        if isinstance(origin, ast.BinOp):
            if isinstance(origin.op, ast.Div | ast.FloorDiv) and _is_size(view, origin.right):
                yield origin
            yield from _divisions(view, origin.left, depth + 1)
        elif isinstance(origin, ast.Call) and last_name(origin) in _ROUNDING:
            for argument in origin.args:
                yield from _divisions(view, argument, depth + 1)
        elif isinstance(origin, ast.UnaryOp):  # -(-n // size) rounds up
            yield from _divisions(view, origin.operand, depth + 1)


def _is_size(view: View, node: ast.expr) -> bool:
    """Whether a divisor is the number of ranks, or a multiple of it by a number."""
    for origin in view.flow.origins(node):
        parts = [origin.left, origin.right] if isinstance(origin, ast.BinOp) else [origin]
        if isinstance(origin, ast.Call) and last_name(origin) in ("int", "float", "max"):
            parts = list(origin.args)
        kinds = [view.flow.rank_kind(each) for part in parts for each in view.flow.origins(part)]
        if "size" in kinds and (len(parts) == 1 or any(isinstance(part, ast.Constant) for part in parts)):
            return True
    return False


def _numbers_of_epochs(view: View) -> Iterator[ast.expr]:
    for call in view.script.calls:
        value = keyword_of(call, "epochs", "nb_epoch", "max_epochs", "num_epochs", "num_train_epochs")
        if value is not None:
            yield value
    for node in view.script.nodes:
        if isinstance(node, ast.Assign) and any(_is_number_of_epochs(target) for target in node.targets):
            yield node.value
        if isinstance(node, ast.For) and is_over_numbers(node.iter) and "epoch" in ast.unparse(node.target).lower():
            yield from (argument for argument in getattr(node.iter, "args", []))


def _is_number_of_epochs(target: ast.expr) -> bool:
    name = last_name(target) if dotted_text(target) else ""
    return bool(_EPOCHS.search(name)) and not _OTHERS.search(name)
