"""Epochs are passes over all data, whatever the number of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from function_app.script_lint.datasets import divides_by_size
from function_app.script_lint.findings import Finding
from function_app.script_lint.rules import RuleCode
from function_app.script_lint.syntax import dotted_text, keyword_of, last_name
from function_app.script_lint.training import is_over_numbers
from function_app.script_lint.view import View

_EPOCHS = re.compile(r"(^|_)(nb_|num_|n_|max_|total_|train_)?epochs?$", re.IGNORECASE)
_OTHERS = re.compile(r"warm|per_epoch|decay|initial|start|current|steps|resume|samples|per_", re.IGNORECASE)


def check(view: View) -> Iterator[Finding]:
    """Find numbers of epochs that are made by dividing by the number of ranks."""
    found: dict[ast.AST, ast.AST] = {}
    for value in _numbers_of_epochs(view):
        for division in divides_by_size(view, value):
            found.setdefault(division, division)
    for node in view.script.nodes:
        is_division = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv)
        if isinstance(node, ast.AugAssign) and is_division and _is_number_of_epochs(node.target):
            found |= {node: node} if view.flow.has("size", node.value) else {}
    for place in sorted(found, key=lambda node: getattr(node, "lineno", 0)):
        yield view.finding(RuleCode.EPOCHS_DIVIDED, place, f"epochs are {ast.unparse(place)[:80]}")


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
