"""Data flow: the origins of a value, as far as one syntax tree shows.

Nothing is computed or guessed: names that lead out of the script are reported as unknown.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from horovod_lint.names import Modules
from horovod_lint.script import (
    Binding,
    BindingKind,
    FunctionNode,
    Script,
    constant_of,
    dotted_text,
    last_name,
)

_SELF = frozenset({"self", "cls"})
_LEAVES = frozenset({"load_data"})
"""Calls whose arguments do not affect the result: Keras' data sets, whose cache file may contain the rank."""
_RANKS = frozenset({"rank", "get_rank", "Get_rank", "cross_rank", "process_index", "rank_op"})
_LOCAL_RANKS = frozenset({"local_rank", "get_local_rank", "local_rank_op"})
_SIZES = frozenset({"size", "get_world_size", "Get_size", "cross_size", "size_op", "process_count"})
_LOCAL_SIZES = frozenset({"local_size", "local_size_op"})
_MAPPING = frozenset({"map", "flat_map", "interleave", "parallel_interleave", "filter", "apply", "map_and_batch"})
_NODES_PER_STEP = 4
_MAX_DEPTH = 12


@dataclass(frozen=True)
class Reach:
    """All nodes that a value may depend on."""

    nodes: tuple[ast.AST, ...]
    unknown: frozenset[str]
    """Names that lead out of the script: the author's other modules, parameters that no call here sets."""

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions or methods with these names."""
        return [node for node in self.nodes if isinstance(node, ast.Call) and last_name(node) in names]


class Flow:
    """Follows names back to the values that they get."""

    def __init__(self, script: Script, modules: Modules) -> None:
        self._script, self._modules = script, modules
        self._reaches: dict[ast.AST, Reach] = {}
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._mapped: dict[str | ast.Lambda, list[ast.AST]] = defaultdict(list)
        """Datasets by the lambda or the name of the function that their ``map`` applies."""
        for call in script.calls:
            self._calls[last_name(call)].append(call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MAPPING:
                for passed in map(_passed_function, [*call.args, *(keyword.value for keyword in call.keywords)]):
                    self._mapped[passed if isinstance(passed, ast.Lambda) else last_name(passed)].append(
                        call.func.value
                    )

    def reach(self, *roots: ast.AST | None, stop: ast.AST | None = None) -> Reach:
        """Return all nodes that the values of some nodes may depend on, without those beyond ``stop``."""
        key = roots[0] if len(roots) == 1 and stop is None else None
        if key is not None and key in self._reaches:
            known = self._reaches[key]
            self._script.spend(len(known.nodes) // _NODES_PER_STEP)  # the caller iterates over all of them
            return known
        seen: set[ast.AST] = set()
        unknown: set[str] = set()
        stack = [root for root in roots if root is not None]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            self._script.spend()
            seen.add(node)
            if node is not stop:
                stack += self._made_of(node, unknown)
        found = Reach(tuple(seen), frozenset(unknown))
        if key is not None:
            self._reaches[key] = found
        return found

    def origins(self, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """Return the expressions that produced a value; a name whose value the tree does not show stays a name."""
        self._script.spend()
        if depth >= _MAX_DEPTH:
            return [node]
        if isinstance(node, ast.IfExp):
            return [*self.origins(node.body, depth + 1), *self.origins(node.orelse, depth + 1)]
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self.origins(node.value, depth + 1)
        if isinstance(node, ast.Name | ast.Attribute):
            sources = self.sources(node)
        elif isinstance(node, ast.Call) and (functions := self.functions_called(node)):
            sources = [value for function in functions for value in returns_of(function)]
        else:
            sources = []
        found = [origin for source in sources for origin in self.origins(source, depth + 1)]
        return found or [node]

    def functions_called(self, call: ast.Call) -> list[FunctionNode]:
        """Return the script's own functions that a call may refer to."""
        if isinstance(call.func, ast.Name):
            return [] if self._modules.paths(call.func) else self._script.functions.get(call.func.id, [])
        if isinstance(call.func, ast.Attribute) and not self._modules.paths(call.func):
            methods = self._script.functions.get(call.func.attr, [])
            return [function for function in methods if self._script.class_of(function) is not None]
        return []

    def passed_arguments(self, binding: Binding) -> list[ast.expr]:
        """Return the arguments that the script's own calls pass for a parameter, and its default."""
        parameter = binding.place
        function = self._script.scopes.get(parameter)
        if not isinstance(parameter, ast.arg) or not isinstance(function, FunctionNode):
            return []
        found = []
        for call in self.calls_of(function):
            keyword = next((k.value for k in call.keywords if k.arg == parameter.arg), None)
            if keyword is not None:
                found.append(keyword)
            elif binding.position is not None and 0 <= binding.position < len(call.args):
                found.append(call.args[binding.position])
        return [*found, *_default_of(parameter, function)]

    def calls_of(self, function: FunctionNode) -> list[ast.Call]:
        """Return the calls that may refer to a function of the script; calls of a class refer to ``__init__``."""
        name, owner = function.name, self._script.class_of(function)
        if owner is not None and name == "__init__":
            name = owner.name
        calls = self._calls.get(name, [])
        self._script.spend(len(calls))
        return calls

    def rank_kind(self, node: ast.AST) -> str | None:
        """Return ``rank``, ``local_rank``, ``size`` or ``local_size`` if a node reads it, None otherwise."""
        if isinstance(node, ast.Call) and not node.args:
            name = last_name(node)
            if isinstance(node.func, ast.Name):
                name = self._modules.horovod_name(node) or ""
            return _kind(name.rpartition(".")[2])
        return self._from_environment(node)

    def has(self, kind: str, *nodes: ast.AST | None) -> bool:
        """Whether some nodes depend on a rank or a size, also a local one."""
        return any((self.rank_kind(each) or "").endswith(kind) for each in self.reach(*nodes).nodes)

    def _made_of(self, node: ast.AST, unknown: set[str]) -> list[ast.AST]:
        if isinstance(node, ast.Call) and last_name(node) in _LEAVES:
            return []
        if isinstance(node, ast.Name):
            return self._behind_name(node, unknown)
        found: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Attribute):
            found += self._behind_attribute(node, unknown)
        return found

    def _behind_name(self, node: ast.Name, unknown: set[str]) -> list[ast.AST]:
        found: list[ast.AST] = []
        bindings = self.latest(self._script.lookup(node), node)
        for binding in bindings:
            passed = self._passed(binding) if binding.kind is BindingKind.PARAMETER else []
            found += [binding.value] if binding.value is not None else passed
            leads_out = binding.value is None and not passed and not self._is_same_for_all(binding)
            if leads_out and node.id not in _SELF and node.id != "_":
                unknown.add(node.id)
        if bindings:
            return found
        if self._modules.paths(node):
            if self._modules.is_own(node):
                unknown.add(node.id)
            return found
        found += [*self._script.functions.get(node.id, []), *self._script.classes.get(node.id, [])]
        if not found and not hasattr(builtins, node.id) and node.id not in _SELF:
            unknown.add(node.id)
        return found

    def _passed(self, binding: Binding) -> list[ast.AST]:
        """Return what calls pass for a parameter; a dataset's ``map`` passes parts of the dataset."""
        function = self._script.scopes.get(binding.place)
        key = function.name if isinstance(function, FunctionNode) else function
        mapped = self._mapped.get(key, []) if isinstance(key, str | ast.Lambda) else []
        return [*self.passed_arguments(binding), *mapped]

    def _is_same_for_all(self, binding: Binding) -> bool:
        """Whether a decorator sets a parameter, as click's do, or it is the index of ``__getitem__``."""
        function = self._script.scopes.get(binding.place)
        if not isinstance(function, FunctionNode):
            return False
        decorators = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
        return function.name == "__getitem__" or any(self._modules.paths(each) for each in decorators)

    def _behind_attribute(self, node: ast.Attribute, unknown: set[str]) -> list[ast.AST]:
        text = dotted_text(node)
        bindings = self._script.attributes.get(text, []) if text else []
        values: list[ast.AST] = [binding.value for binding in bindings if binding.value is not None]
        if isinstance(node.value, ast.Name) and node.value.id in _SELF and not values:
            methods: list[ast.AST] = [*self._script.functions.get(node.attr, [])]
            if not methods:
                unknown.add(text or node.attr)
            return methods
        return values

    def bindings(self, node: ast.Name | ast.Attribute) -> list[Binding]:
        """Return all bindings of a name or attribute."""
        if isinstance(node, ast.Attribute):
            return self._script.attributes.get(dotted_text(node) or "", [])
        return self._script.lookup(node)

    def sources(self, node: ast.Name | ast.Attribute) -> list[ast.expr]:
        """Return the values that a name may have where it is used."""
        found: list[ast.expr] = []
        for binding in self.latest(self.bindings(node), node):
            if binding.kind is BindingKind.PARAMETER:
                found += self.passed_arguments(binding) or [node]
            elif binding.kind is BindingKind.ASSIGNED and binding.value is not None:
                found.append(binding.value)
        return [value for value in found if value is not node]

    def latest(self, bindings: list[Binding], use: ast.AST) -> list[Binding]:
        """Return the bindings that may still be in effect where a name is used."""
        function = self._script.function_of(use)
        if any(
            self._script.function_of(b.place) is not function for b in bindings if b.kind is not BindingKind.PARAMETER
        ):
            return self._last_certain(bindings, None)
        line = getattr(use, "lineno", 0)
        statement = self._script.statement_of(use)
        before = [b for b in bindings if getattr(b.place, "lineno", 0) <= line and b.place is not statement]
        return self._last_certain(before or bindings, use)

    def _last_certain(self, bindings: list[Binding], use: ast.AST | None) -> list[Binding]:
        """Drop bindings that a later unconditional assignment replaces."""
        blocks = set(self._script.ancestors(use)) if use is not None else None
        found: list[Binding] = []
        for binding in sorted(bindings, key=lambda b: getattr(b.place, "lineno", 0)):
            place = binding.place
            block = self._script.parents.get(place)
            is_certain = isinstance(block, ast.Module | FunctionNode) if blocks is None else block in blocks
            with_body = isinstance(place, ast.With | ast.AsyncWith)
            if binding.kind is BindingKind.ASSIGNED and (is_certain or with_body):
                found = []
            found.append(binding)
        return found

    def _from_environment(self, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Call | ast.Subscript):
            return None
        place = node.func if isinstance(node, ast.Call) else node.value
        key = constant_of((node.args[0] if node.args else None) if isinstance(node, ast.Call) else node.slice)
        if not isinstance(key, str) or not any(
            "os.environ" in p or p == "os.getenv" for p in self._modules.paths(place)
        ):
            return None
        local = "local_" if "LOCAL" in key else ""
        return next((local + kind.lower() for kind in ("RANK", "SIZE") if key.endswith(kind)), None)


def returns_of(function: FunctionNode) -> Iterator[ast.expr]:
    """Yield the expressions that a function returns, without those of functions inside it."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        if not isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda | ast.expr):
            stack += ast.iter_child_nodes(node)


def _passed_function(argument: ast.expr) -> ast.expr:
    """Return the function that an argument passes, also if ``functools.partial`` wraps it."""
    is_partial = isinstance(argument, ast.Call) and last_name(argument) == "partial" and argument.args
    return argument.args[0] if isinstance(argument, ast.Call) and is_partial else argument


def _kind(name: str) -> str | None:
    table = {"rank": _RANKS, "local_rank": _LOCAL_RANKS, "size": _SIZES, "local_size": _LOCAL_SIZES}
    return next((kind for kind, names in table.items() if name in names), None)


def _default_of(parameter: ast.arg, function: FunctionNode) -> list[ast.expr]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    by_name = dict(zip([a.arg for a in reversed(named)], reversed(arguments.defaults), strict=False))
    by_name |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    default = by_name.get(parameter.arg)
    return [default] if default is not None else []
