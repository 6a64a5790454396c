"""Parse an untrusted script within limits, and index its syntax tree: parents, scopes, and the bindings of names.

The script is never run.
"""

from __future__ import annotations

import ast
import bisect
import io
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from horovod_lint.grammar import refusal
from shared.errors import LandfallError

MAX_SCRIPT_BYTES = 256 << 10
MAX_DEPTH = 150
"""Nesting of statements and expressions; Python's own parser fails at a few hundred levels."""
MAX_STEPS = 1_000_000
"""Steps of all checks together; without a limit, a deeply nested script would take minutes."""
_MAX_COUNTED_FILES = 10
"""The limit of steps is multiplied by the number of linked files, up to this factor."""
_MAX_SHOWN_CHARS = 100
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep; split the statement"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = ast.Module | FunctionNode | ast.Lambda | ast.ClassDef
_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_CHANGING = frozenset({"append", "extend", "insert", "update", "add"})
"""Methods that add a value to the object that they are called on."""


class ScriptError(LandfallError):
    """A training script cannot be analysed; the message names the file, the line and the problem."""


class NotPythonError(ScriptError):
    """Python itself would refuse the script."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive lines of a source that come from one file, or from one cell of a notebook."""

    first_line: int = 1
    """First line in the source, counted from 1."""
    file: str = ""
    """The file that they come from; empty for the script itself."""
    cell: int | None = None
    """Number of the cell among all cells of the notebook, counted from 1."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A script's text, its syntax tree, and the origin of its lines."""

    name: str
    text: str
    tree: ast.Module
    parts: tuple[Part, ...] = (Part(),)
    """In the order of the text."""

    def place(self, line: int) -> tuple[Part, int]:
        """Return the part that a line belongs to, and its number there."""
        part = self.parts[max(0, bisect.bisect_right(self.parts, line, key=lambda each: each.first_line) - 1)]
        return part, line - part.first_line + 1

    def where(self, line: int) -> str:
        """Return a line as messages name it: ``line 7``, ``line 2 of cell 5``, ``line 9 of data.py``."""
        part, number = self.place(line)
        cell = f" of cell {part.cell}" if part.cell is not None else ""
        return f"line {number}{cell}{f' of {part.file}' if part.file else ''}"


def parse_source(content: bytes, name: str, *, is_notebook: bool = False) -> Source:
    """Parse a script, or what the cells of a notebook are read as; errors call it ``name``. Raises ScriptError."""
    if len(content) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{name}: the script is larger than {MAX_SCRIPT_BYTES} bytes; split it into modules")
    text = _decoded(content, name)
    return Source(name=name, text=text, tree=parse_text(text, name, is_notebook=is_notebook))


def parse_text(text: str, name: str, *, is_notebook: bool = False) -> ast.Module:
    """Return the syntax tree of a text within the limits; errors call it ``name``. Raises ScriptError."""
    tree = _parsed(text, name)
    line = _too_deep(tree)
    if line is not None:
        raise ScriptError(f"{name}:{line}: {_TOO_DEEP}")
    refused = refusal(tree, text, is_notebook=is_notebook)
    if refused is not None:
        raise NotPythonError(f"{name}:{refused[0]}: not Python 3: {refused[1]}")
    return tree


def too_complex(name: str) -> ScriptError:
    """Return the error for a script that would take too many steps, or too deep a recursion."""
    return ScriptError(f"{name}:1: the script is too complex to analyse; split it into modules")


def _decoded(content: bytes, name: str) -> str:
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise NotPythonError(f"{name}:{line}: not Python source: it contains a null byte")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except SyntaxError as error:
        raise NotPythonError(f"{name}:1: cannot decode the script: {error.msg}; declare its encoding") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        seen = content[error.start : error.start + 1].hex()
        raise NotPythonError(f"{name}:{line}: not text in {error.encoding}: invalid byte 0x{seen}") from error
    except (LookupError, ValueError) as error:
        raise NotPythonError(f"{name}:1: cannot decode the script: {error}") from error


def _parsed(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the script
            return ast.parse(text)
    except SyntaxError as error:
        seen = f": {error.text.strip()[:_MAX_SHOWN_CHARS]!r}" if error.text else ""
        raise NotPythonError(f"{name}:{error.lineno or 1}: not Python 3: {error.msg}{seen}") from error
    except (RecursionError, MemoryError) as error:
        raise ScriptError(f"{name}:1: {_TOO_DEEP}") from error
    except ValueError as error:
        raise NotPythonError(f"{name}:1: not Python source: {error}") from error


def _too_deep(tree: ast.Module) -> int | None:
    """Return the first line that is nested too deeply, None if no line is."""
    level: list[ast.AST] = [tree]
    line = 1
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
        line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), line)
    return line


class BindingKind(Enum):
    """How a name gets a value."""

    ASSIGNED = auto()
    """It is assigned the value or a part of it."""
    ITERATED = auto()
    """It takes the elements of the value one after the other."""
    CHANGED = auto()
    """It keeps its value, and this one is added to it."""
    PARAMETER = auto()
    OTHER = auto()
    """The tree does not show the value."""


@dataclass(frozen=True, eq=False)
class Binding:
    """One place where a name gets a value."""

    kind: BindingKind
    place: ast.AST
    """The statement, or the call that adds a value."""
    value: ast.expr | None
    position: int | None = None
    """Position of a parameter, not counting ``self``."""


class Script:
    """The tree of a script, indexed. Nodes compare by identity."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.tree = source.tree
        self.where = source.where
        self.first_line = next((part.first_line for part in source.parts if not part.file), 1)
        """First line of the script itself; the modules that it imports come before."""
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, ScopeNode] = {}
        self.bindings: dict[tuple[ScopeNode, str], list[Binding]] = defaultdict(list)
        self.attributes: dict[str, list[Binding]] = defaultdict(list)
        """Bindings of attributes by their dotted text, such as ``self.optimizer``."""
        self.imports: dict[str, set[str]] = defaultdict(set)
        self.starred_imports: set[str] = set()
        self.modules: set[str] = set()
        """Full names of all imports."""
        self.functions: dict[str, list[FunctionNode]] = defaultdict(list)
        self.classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.calls: list[ast.Call] = []
        self.loads: dict[str, list[ast.Name]] = defaultdict(list)
        num_files = len({part.file for part in source.parts})
        self._steps, self._max_steps = 0, MAX_STEPS * min(num_files, _MAX_COUNTED_FILES)
        self._build_index()

    def spend(self, steps: int = 1) -> None:
        """Count steps of work. Raises ScriptError above the limit."""
        self._steps += steps
        if self._steps > self._max_steps:
            raise too_complex(self.name)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            self.spend()
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """Return the innermost function around a node."""
        return next((a for a in self.ancestors(node) if isinstance(a, FunctionNode)), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class of a method, None for other functions."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement around a node, itself included."""
        if isinstance(node, ast.stmt):
            return node
        return next((a for a in self.ancestors(node) if isinstance(a, ast.stmt)), None)

    def lookup(self, name: ast.Name) -> list[Binding]:
        """Return the bindings of a name in the innermost scope that binds it."""
        scope: ScopeNode | None = self.scopes[name]
        while scope is not None:
            self.spend()
            if found := self.bindings.get((scope, name.id)):
                return found
            scope = self.scopes.get(scope)
        return []

    def _build_index(self) -> None:
        stack: list[tuple[ast.AST, ast.AST | None, ScopeNode]] = [(self.tree, None, self.tree)]
        while stack:
            node, parent, scope = stack.pop()
            self.nodes.append(node)
            if parent is not None:
                self.parents[node], self.scopes[node] = parent, scope
            inner = node if isinstance(node, _SCOPES) else scope
            # decorators, defaults and base classes belong to the outer scope; counting them here as inner is harmless
            stack += [(child, node, inner) for child in reversed(list(ast.iter_child_nodes(node)))]
        for node in self.nodes:
            self._index_node(node)

    def _index_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._index_import(node)
        elif isinstance(node, FunctionNode):
            self.functions[node.name].append(node)
            self._index_parameters(node)
        elif isinstance(node, ast.Lambda):
            self._index_parameters(node)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name].append(node)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
            self._index_change(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.loads[node.id].append(node)
        else:
            self._index_assignment(node)

    def _index_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                top = alias.name.partition(".")[0]
                self.modules.add(alias.name)
                self.imports[alias.asname or top].add(alias.name if alias.asname else top)
            elif alias.name == "*":
                self.starred_imports.add(node.module or ".")
                self.modules.add(node.module or ".")
            else:
                module = "." * node.level + (node.module or "")
                self.modules.add(f"{module}.{alias.name}")
                self.imports[alias.asname or alias.name].add(f"{module}.{alias.name}")

    def _index_parameters(self, node: FunctionNode | ast.Lambda) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        is_method = isinstance(self.parents.get(node), ast.ClassDef)
        for number, argument in enumerate([*named, *arguments.kwonlyargs]):
            position = number - is_method if number < len(named) else None
            self.bindings[node, argument.arg].append(Binding(BindingKind.PARAMETER, argument, None, position))
        for rest in filter(None, (arguments.vararg, arguments.kwarg)):
            self.bindings[node, rest.arg].append(Binding(BindingKind.OTHER, rest, None))

    def _index_change(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            for value in [*node.args[-1:], *(keyword.value for keyword in node.keywords)]:
                self._bind(node.func.value, node, value, BindingKind.CHANGED)

    def _index_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node, node.value, BindingKind.ASSIGNED)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._bind(node.target, node, node.value, BindingKind.ASSIGNED)
        elif isinstance(node, ast.AugAssign):
            self._bind(node.target, node, node.value, BindingKind.CHANGED)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, node, node.iter, BindingKind.ITERATED)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, node, item.context_expr, BindingKind.ASSIGNED)

    def _bind(self, target: ast.AST, place: ast.AST, value: ast.expr, kind: BindingKind) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) and kind is BindingKind.ASSIGNED else []
            for number, element in enumerate(target.elts):
                part = parts[number] if len(parts) == len(target.elts) else value
                self._bind(element, place, part, kind)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, place, value, kind)
        elif isinstance(target, ast.Name):
            self.bindings[self.scopes[target], target.id].append(Binding(kind, place, value))
        elif isinstance(target, ast.Attribute):
            text = dotted_text(target)
            if text is not None:
                self.attributes[text].append(Binding(kind, place, value))
        elif isinstance(target, ast.Subscript):
            self._bind(target.value, place, value, BindingKind.CHANGED)


def dotted_text(node: ast.AST) -> str | None:
    """Return ``a.b.c`` for a chain of attributes on a name, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def last_name(node: ast.AST) -> str:
    """Return the last name of a call or an attribute: ``fit`` for ``a.b().fit``; empty for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword_of(call: ast.Call, *names: str) -> ast.expr | None:
    """Return the value of the first of these keyword arguments that a call has."""
    return next((k.value for name in names for k in call.keywords if k.arg == name), None)


def argument_of(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """Return an argument by keyword or position; None if it is missing, or hidden by a starred argument."""
    found = keyword_of(call, *names)
    if found is not None:
        return found
    if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
        return None
    return call.args[position] if position < len(call.args) else None


def constant_of(node: ast.AST | None) -> object:
    """Return the value of a constant, None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_of(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None
