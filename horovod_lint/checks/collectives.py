"""Operations that every rank has to take part in, where only some ranks come."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.checks.optimizers import is_distributed
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import keyword_of, last_name
from horovod_lint.training import compiles, keras_fits
from horovod_lint.view import View

_STEMS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join")
_CALLBACKS = ("BroadcastGlobalVariablesCallback", "MetricAverageCallback", "DistributedGradientTape")


def check(view: View) -> Iterator[Finding]:
    """Find collective operations behind a condition on the rank whose other branch has none."""
    collectives = _collectives(view)
    functions = _functions_around(view, collectives)
    calls = [call for call in view.script.calls if last_name(call) in functions and not view.modules.paths(call.func)]
    every = collectives | dict.fromkeys(calls, "")
    for call, name in every.items():
        test = _splitting_test(view, call, set(every))
        if test is not None:
            what = name or f"{last_name(call)}, which makes collective calls,"
            message = f"{what} is only reached where {ast.unparse(test)[:80]} decides so"
            yield view.finding(RuleCode.COLLECTIVE_ON_SOME_RANKS, call, message)


def _collectives(view: View) -> dict[ast.Call, str]:
    found: dict[ast.Call, str] = {}
    for call in view.script.calls:
        name = (view.modules.horovod_name(call) or "").rpartition(".")[2]
        is_one = name in _CALLBACKS or (any(stem in name for stem in _STEMS) and not name.endswith(("Hook", "_fn")))
        if is_one and keyword_of(call, "process_set") is None:
            found[call] = f"hvd's {name}"
    compiled = {
        ast.unparse(call.func.value)
        for call in compiles(view)
        if isinstance(call.func, ast.Attribute) and is_distributed(view, call)
    }
    fits = [fit for fit in keras_fits(view) if ast.unparse(fit.receiver) in compiled]
    return found | {fit.call: "fit with a distributed optimizer" for fit in fits}


def _functions_around(view: View, collectives: dict[ast.Call, str]) -> set[str]:
    """Return names of the script's functions that make collective calls whatever the rank, also through others."""
    names: set[str] = set()
    pending: list[ast.Call] = list(collectives)
    while pending:
        call = pending.pop()
        function = view.script.function_of(call)
        if function is None or function.name in names or view.guards.splits_around(call):
            continue
        if view.script.class_of(function) is not None:
            continue  # a method's name alone does not say whose it is
        names.add(function.name)
        pending += view.flow.calls_of(function)
    return names


def _splitting_test(view: View, call: ast.Call, every: set[ast.Call]) -> ast.expr | None:
    """Return the condition on the rank that keeps some ranks away, None where the others make such a call, too."""
    for test in view.guards.splits_around(call):
        owner = view.script.parents.get(test)
        if view.guards.is_alone(test) or owner is None or _is_negligible(view, test):
            continue
        if not _has_counterpart(view, owner, call, every):
            return test
    return None


def _is_negligible(view: View, test: ast.expr) -> bool:
    """Whether the condition only sounds like one on the rank: then it is better to say nothing."""
    return not view.flow.has("rank", test)


def _has_counterpart(view: View, owner: ast.AST, call: ast.Call, every: set[ast.Call]) -> bool:
    inside = [each for each in every if owner in set(view.script.ancestors(each))]
    branches = {_branch(view, owner, each) for each in inside}
    own = _branch(view, owner, call) if call in inside else None
    return bool(branches - {own})


def _branch(view: View, owner: ast.AST, node: ast.AST) -> str:
    child: ast.AST = node
    for ancestor in view.script.ancestors(node):
        if ancestor is owner:
            break
        child = ancestor
    for name in ("body", "orelse"):
        block = getattr(owner, name, None)
        view.script.spend(len(block) if isinstance(block, list) else 0)
        if block is child or (isinstance(block, list) and child in block):
            return name
    return ""
