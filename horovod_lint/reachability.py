"""The functions that a script may call, and the places that only some ranks reach."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from horovod_lint.flow import Flow, returns_of
from horovod_lint.names import Modules
from horovod_lint.script import BindingKind, FunctionNode, Script, constant_of, last_name

_HARMLESS = frozenset(
    {"staticmethod", "classmethod", "property", "function", "wraps", "cached_property", "contextmanager"}
)
"""Decorators that do not register a function for a later call."""
_CALLS_EVERYTHING = frozenset({"Fire", "main"})
"""``fire.Fire()`` and ``unittest.main()`` find functions by themselves."""


def unreached_lines(script: Script, modules: Modules) -> set[int]:
    """Return the lines of functions that nothing in the script calls; other modules may call them."""
    reached = _reached(script, modules)
    functions = [node for node in script.nodes if isinstance(node, FunctionNode) and node not in reached]
    return {line for node in functions for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _reached(script: Script, modules: Modules) -> set[ast.AST]:
    names = _names_within(script)
    reached: set[ast.AST] = set(_called_elsewhere(script, modules))
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
    """Return the names and attributes that each function reads; None is the module level."""
    found: dict[ast.AST | None, set[str]] = defaultdict(set)
    for node in script.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[script.function_of(node)].add(last_name(node))
    return found


def _called_elsewhere(script: Script, modules: Modules) -> list[ast.AST]:
    """Return functions that other code calls: registered by a decorator, or found by a library."""
    library = [call for call in script.calls if last_name(call) in _CALLS_EVERYTHING and modules.paths(call.func)]
    functions: list[ast.AST] = [node for node in script.nodes if isinstance(node, FunctionNode)]
    if any(not call.args for call in library):
        return functions
    decorated = [
        node
        for node in functions
        if isinstance(node, FunctionNode) and any(last_name(each) not in _HARMLESS for each in node.decorator_list)
    ]
    return [*decorated, *script.functions.get("main", [])]  # an installed command may call it


_LEAVES = (ast.Return, ast.Continue, ast.Break)
_EXITS = frozenset({"exit", "_exit", "quit", "abort"})
_SOUNDS_LIKE_ROOT = re.compile(
    r"(^|_)(is_)?(root|main|master|chief|primary|leader|rank|zero|coordinator)(_|$)|rank_?zero|rank_?0",
    re.IGNORECASE,
)
"""Imported names that look like a test for the root count as one."""
_MAX_DEPTH = 8
_SPLITTING = (ast.If, ast.IfExp, ast.While)


class Guards:
    """Finds the places that only some ranks reach."""

    def __init__(self, script: Script, modules: Modules, flow: Flow) -> None:
        self._script, self._modules, self._flow = script, modules, flow
        self._pending: set[str] = set()
        """Names that are being resolved, to stop at names that are defined in terms of themselves."""

    def is_guarded(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether the rank decides if a place is reached, in its function or where that function is called."""
        if self.splits_around(node):
            return True
        function = self._script.function_of(node)
        return function is not None and depth < _MAX_DEPTH and self._is_called_guarded(function, depth)

    def splits_around(self, node: ast.AST) -> list[ast.expr]:
        """Return the conditions on the rank, within one function, that decide if a place is reached."""
        found: list[ast.expr] = []
        child: ast.AST = node
        for parent in self._script.ancestors(node):
            found += self._conditions(parent, child)
            if isinstance(parent, FunctionNode | ast.Lambda):
                break
            child = parent
        return found

    def depends_on_rank(self, test: ast.AST, depth: int = 0) -> bool:
        """Whether a condition tests the rank.

        A loss of sharded data does not count, although it depends on the rank.
        """
        if depth >= _MAX_DEPTH:
            return False
        self._script.spend()
        if "rank" in (self._flow.rank_kind(test) or "") or self.is_alone(test):
            return True
        if isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.BinOp | ast.IfExp):
            return any(self.depends_on_rank(part, depth + 1) for part in ast.iter_child_nodes(test))
        if isinstance(test, ast.Call):
            return self._call_depends(test, depth)
        return isinstance(test, ast.Name | ast.Attribute) and self._name_depends(test, depth)

    def _conditions(self, parent: ast.AST, child: ast.AST) -> Iterator[ast.expr]:
        if isinstance(parent, _SPLITTING) and child is not parent.test and self.depends_on_rank(parent.test):
            yield parent.test
        if isinstance(parent, ast.BoolOp):
            before = parent.values[: parent.values.index(child)] if child in parent.values else []
            yield from (value for value in before if self.depends_on_rank(value))
        if isinstance(child, ast.stmt):
            yield from self._left_before(parent, child)

    def _left_before(self, parent: ast.AST, child: ast.stmt) -> Iterator[ast.expr]:
        """Yield the conditions under which some ranks leave a block before one of its statements."""
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and child in block:
                for statement in block[: block.index(child)]:
                    self._script.spend()
                    leaving = isinstance(statement, ast.If) and (leaves(statement.body) or leaves(statement.orelse))
                    if leaving and isinstance(statement, ast.If) and self.depends_on_rank(statement.test):
                        yield statement.test

    def _is_called_guarded(self, function: FunctionNode, depth: int) -> bool:
        if any(self._decorator_guards(each) for each in function.decorator_list):
            return True
        owner = self._script.class_of(function)
        uses: list[ast.AST] = list(self._flow.calls_of(function))
        if owner is not None and (not uses or function.name.startswith("on_")):
            uses = list(self._script.loads.get(owner.name, []))
        elif owner is None:
            uses = list(self._script.loads.get(function.name, []))
        uses = [use for use in uses if self._script.function_of(use) is not function]
        return bool(uses) and all(self.is_guarded(use, depth + 1) or self.is_kept_for_root(use) for use in uses)

    def is_kept_for_root(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether the value is assigned to a name that is read only in code that some ranks do not reach."""
        statement = self._script.statement_of(node)
        if depth >= _MAX_DEPTH or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            return False
        loads = [load for load in self._script.loads.get(target.id, []) if not self._is_inside(load, statement)]
        return bool(loads) and all(
            self.splits_around(load) or self.is_kept_for_root(load, depth + 1) for load in loads
        )

    def _is_inside(self, node: ast.AST, statement: ast.stmt) -> bool:
        return self._script.statement_of(node) is statement

    def _decorator_guards(self, decorator: ast.expr) -> bool:
        name = last_name(decorator)
        own = self._script.functions.get(name, [])
        if own:
            return any(self._flow.rank_kind(node) == "rank" for function in own for node in ast.walk(function))
        return bool(_SOUNDS_LIKE_ROOT.search(name))

    def is_alone(self, test: ast.AST) -> bool:
        """Whether a condition is like ``hvd.size() == 1``: with one rank, every rank is the root."""
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq | ast.LtE):
            return False
        sides = (test.left, *test.comparators)
        return any(self._flow.rank_kind(side) == "size" for side in sides) and any(constant_of(s) == 1 for s in sides)

    def _call_depends(self, call: ast.Call, depth: int) -> bool:
        functions = self._flow.functions_called(call)
        if functions:
            return any(self.depends_on_rank(value, depth + 1) for f in functions for value in returns_of(f))
        if isinstance(call.func, ast.Name) and call.func.id in ("int", "bool", "str", "not_"):
            return any(self.depends_on_rank(argument, depth + 1) for argument in call.args)
        return self._flow.rank_kind(call) is None and bool(_SOUNDS_LIKE_ROOT.search(last_name(call)))

    def _name_depends(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        name = ast.unparse(node)
        if name in self._pending:
            return False  # it is defined in terms of itself
        self._pending.add(name)
        try:
            return self._value_depends(node, depth)
        finally:
            self._pending.discard(name)

    def _value_depends(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        sources = self._flow.sources(node)
        bindings = [binding for binding in self._flow.bindings(node) if binding.kind is BindingKind.ASSIGNED]
        if len(bindings) > 1 and any(self.splits_around(binding.place) for binding in bindings):
            return True  # only some ranks set it
        if not sources:
            return bool(_SOUNDS_LIKE_ROOT.search(last_name(node)))
        return any(self.depends_on_rank(source, depth + 1) for source in sources)


def leaves(block: list[ast.stmt]) -> bool:
    """Whether a block ends by leaving the code around it; an exception of one rank ends the whole job instead."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Raise):
        return last.exc is not None and last_name(last.exc) == "SystemExit"
    is_exit = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and last_name(last.value) in _EXITS
    return isinstance(last, _LEAVES) or is_exit
