"""``hvd.init()``: there, and first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import last_name
from horovod_lint.view import View

_NEED_IT = frozenset(
    {
        *("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "allreduce", "allgather"),
        *("broadcast", "broadcast_variables", "broadcast_object", "broadcast_parameters", "allgather_object", "join"),
        *("DistributedOptimizer", "DistributedGradientTape", "grouped_allreduce", "barrier", "alltoall"),
    }
)
_MAY_INITIALISE = re.compile(
    r"init|set_?up|horovod|hvd|dist|launch|prepare|bootstrap|environment|config", re.IGNORECASE
)


def check(view: View) -> Iterator[Finding]:
    """Find uses of Horovod without its initialisation, and such that come before it."""
    uses = [call for call in view.script.calls if (view.modules.horovod_name(call) or "") in _NEED_IT]
    if not uses:
        return
    if not _is_initialised(view):
        name = view.modules.horovod_name(uses[0])
        yield view.finding(RuleCode.MISSING_INIT, uses[0], f"{name} is called, and hvd.init() nowhere")
        return
    initialising = _initialising_functions(view)
    for scope in {view.script.function_of(use) for use in uses}:
        yield from _early_uses(view, [u for u in uses if view.script.function_of(u) is scope], initialising)


def _is_initialised(view: View) -> bool:
    mentioned = any(
        isinstance(node, ast.Name | ast.Attribute) and view.modules.horovod_name(node) == "init"
        for node in view.script.nodes
    )
    own_calls = (call for call in view.script.calls if view.modules.is_own(call.func))
    return mentioned or any(_MAY_INITIALISE.search(ast.unparse(call.func)) for call in own_calls)


def _initialising_functions(view: View) -> set[str]:
    """Return the names of the script's functions that initialise Horovod, also by calling one that does."""
    names: set[str] = set()
    while True:
        found = {
            function.name
            for call in view.script.calls
            if _initialises(view, call, names) and (function := view.script.function_of(call)) is not None
        }
        if found <= names:
            return names
        names |= found


def _initialises(view: View, call: ast.Call, names: set[str]) -> bool:
    return view.modules.horovod_name(call) == "init" or (last_name(call) in names and bool(names))


def _early_uses(view: View, uses: list[ast.Call], initialising: set[str]) -> Iterator[Finding]:
    scope = view.script.function_of(uses[0])
    lines = [
        call.lineno
        for call in view.script.calls
        if view.script.function_of(call) is scope and _initialises(view, call, initialising)
    ]
    early = [use for use in uses if lines and use.lineno < min(lines) and not _is_in_lambda(view, use)]
    if early:
        name = view.modules.horovod_name(early[0])
        yield view.finding(
            RuleCode.USED_BEFORE_INIT, early[0], f"{name} is called before hvd.init() in line {min(lines)}"
        )


def _is_in_lambda(view: View, node: ast.AST) -> bool:
    return any(isinstance(ancestor, ast.Lambda) for ancestor in view.script.ancestors(node))
