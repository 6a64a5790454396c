"""Decisions on metrics: all ranks have to decide the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.callbacks import Item, callback_items
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import FunctionNode, constant_of, keyword_of, last_name
from horovod_lint.training import keras_fits, tape_steps, torch_steps
from horovod_lint.view import View

_DECIDING = frozenset({"EarlyStopping", "ReduceLROnPlateau", "BestModelCheckpoint"})
_AVERAGING = re.compile(r"all_?reduce|allgather|broadcast", re.IGNORECASE)
_OF_WEIGHTS = re.compile(r"variables|parameters|optimizer_state|BroadcastGlobal", re.IGNORECASE)
_METRIC = re.compile(r"loss|acc|auc|metric|score|patience|best|(^|_)val(_|$)", re.IGNORECASE)


def check(view: View) -> Iterator[Finding]:
    """Find callbacks that decide on a rank's own metrics, and loops that end on one."""
    if not view.uses_horovod:
        return
    for fit in keras_fits(view):
        items = callback_items(view, fit.callbacks)
        for number, item in enumerate(items):
            if _decides(item) and item.call is not None:
                yield from _judged(view, item.call, items, number)
    yield from _loops(view)


def _decides(item: Item) -> bool:
    if item.call is None:
        return False
    best_only = keyword_of(item.call, "save_best_only")
    saves_best = item.name == "ModelCheckpoint" and best_only is not None and constant_of(best_only) is not False
    return item.name in _DECIDING or saves_best


def _judged(view: View, call: ast.Call, items: list[Item], number: int) -> Iterator[Finding]:
    before, after = items[:number], items[number + 1 :]
    if any(item.call is None or _averages(view, item) for item in before):
        return
    late = next((item.call for item in after if item.call is not None and _averages(view, item)), None)
    if late is not None:
        message = f"{last_name(call)} comes before the callback that averages (line {late.lineno})"
    elif any(item.call is None for item in after) and last_name(call) == "ModelCheckpoint":
        return
    else:
        message = f"{last_name(call)} decides on metrics that nothing has averaged over the ranks"
    yield view.finding(RuleCode.METRICS_NOT_AVERAGED, call, message)


def _averages(view: View, item: Item) -> bool:
    """Whether a callback averages metrics: Horovod's own, or one of the script's that does it itself."""
    paths = view.modules.paths(item.call.func) if item.call is not None else frozenset()
    if any(path.endswith(".MetricAverageCallback") for path in paths):
        return True
    own = view.script.classes.get(item.name, [])
    elsewhere = item.call is not None and (view.modules.is_own(item.call.func) or not (paths or own))
    names = (last_name(call) for each in own for call in ast.walk(each) if isinstance(call, ast.Call))
    bases = (last_name(base) for each in own for base in each.bases)
    return elsewhere or any(_AVERAGING.search(name) for name in names) or "MetricAverageCallback" in set(bases)


def _loops(view: View) -> Iterator[Finding]:
    """Find hand-written loops over epochs that one rank may leave before the others."""
    others = {last_name(call) for call in view.script.calls} - set(view.script.functions)  # own ones are looked into
    if any(_AVERAGING.search(name) and not _OF_WEIGHTS.search(name) for name in others):
        return
    steps: list[ast.AST] = [*(step.gradient for step in tape_steps(view)), *torch_steps(view)]
    if not steps or view.modules.own:
        return
    for node in view.script.nodes:
        if isinstance(node, ast.Break) and (test := _condition(view, node)) is not None and _is_in_epochs(view, node):
            message = f"the loop over epochs ends where {ast.unparse(test)[:80]}, on this rank alone"
            yield view.finding(RuleCode.METRICS_NOT_AVERAGED, node, message)


def _condition(view: View, node: ast.AST) -> ast.expr | None:
    """Return the condition on a metric under which a loop is left; one on the rank is none of ours."""
    for ancestor in view.script.ancestors(node):
        if isinstance(ancestor, ast.For | ast.While | FunctionNode):
            return None
        if isinstance(ancestor, ast.If):
            names = [n for n in ast.walk(ancestor.test) if isinstance(n, ast.Name | ast.Attribute)]
            if any(_METRIC.search(last_name(name)) for name in names) and not view.guards.depends_on_rank(
                ancestor.test
            ):
                return ancestor.test
    return None


def _is_in_epochs(view: View, node: ast.AST) -> bool:
    loop = next((a for a in view.script.ancestors(node) if isinstance(a, ast.For)), None)
    return loop is not None and "epoch" in ast.unparse(loop.target).lower()
