"""Which of a script's functions its own run may call: what nothing here calls is for somebody else to judge."""

from __future__ import annotations

import ast
from collections import defaultdict

from horovod_lint.modules import Modules
from horovod_lint.syntax import FunctionNode, Script, last_name

_HARMLESS = frozenset(
    {"staticmethod", "classmethod", "property", "function", "wraps", "cached_property", "contextmanager"}
)
"""Decorators that do not hand a function to somebody who calls it."""
_CALLS_EVERYTHING = frozenset({"Fire", "main"})
"""``fire.Fire()`` and ``unittest.main()`` find functions without naming them."""


def unreached_lines(script: Script, modules: Modules) -> set[int]:
    """Return the lines of functions that nothing in the script leads to."""
    reached = _reached(script, modules)
    functions = [node for node in script.nodes if isinstance(node, FunctionNode) and node not in reached]
    return {line for node in functions for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _reached(script: Script, modules: Modules) -> set[ast.AST]:
    names = _names_within(script)
    reached: set[ast.AST] = set(_handed_on(script, modules))
    pending: list[ast.AST | None] = [None, *reached]
    seen: set[str] = set()
    while pending:
        owner = pending.pop()
        for name in names[owner] - seen:
            seen.add(name)
            script.spend()
            called: list[ast.AST] = [*script.functions.get(name, [])]
            for each in script.classes.get(name, []):
                called += [node for node in ast.walk(each) if isinstance(node, FunctionNode)]
            fresh = [function for function in called if function not in reached]
            reached.update(fresh)
            pending += fresh
    return reached


def _names_within(script: Script) -> dict[ast.AST | None, set[str]]:
    """Return the names and attributes that are read, by the function they stand in; None is the outermost level."""
    found: dict[ast.AST | None, set[str]] = defaultdict(set)
    for node in script.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[script.function_of(node)].add(last_name(node))
    return found


def _handed_on(script: Script, modules: Modules) -> list[ast.AST]:
    """Return functions that somebody else is given to call: by a decorator, or a library that finds them itself."""
    library = [call for call in script.calls if last_name(call) in _CALLS_EVERYTHING and modules.paths(call.func)]
    functions: list[ast.AST] = [node for node in script.nodes if isinstance(node, FunctionNode)]
    if any(not call.args for call in library):
        return functions
    decorated = [
        node
        for node in functions
        if isinstance(node, FunctionNode) and any(last_name(each) not in _HARMLESS for each in node.decorator_list)
    ]
    return [*decorated, *script.functions.get("main", [])]  # which an installed command may call
