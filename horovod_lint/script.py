"""Reading a script that nobody has vouched for: bounded, and never run."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from shared.errors import LandfallError

MAX_SCRIPT_BYTES = 256 << 10
MAX_DEPTH = 150
"""Of nested statements and expressions: Python's own parser gives up at a few hundred, and so would whoever reads."""
MAX_SHOWN_CHARS = 100


class ScriptError(LandfallError):
    """A training script cannot be analysed; the message names file and line, and what is wrong there."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A script's text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module


def parse_source(content: bytes, name: str) -> Source:
    """Read a script; ``name`` is what errors call it. Raises ScriptError."""
    if len(content) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{name}: should be a script of at most {MAX_SCRIPT_BYTES} bytes, was more")
    text = _decoded(content, name)
    tree = _parsed(text, name)
    line = _too_deep(tree)
    if line is not None:
        raise ScriptError(f"{name}:{line}: should be nested at most {MAX_DEPTH} deep, was deeper")
    return Source(name=name, text=text, tree=tree)


def _decoded(content: bytes, name: str) -> str:
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise ScriptError(f"{name}:{line}: should be Python source, had a null byte")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except SyntaxError as error:
        raise ScriptError(f"{name}:1: should declare the encoding that it is written in: {error.msg}") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        seen = content[error.start : error.start + 1].hex()
        raise ScriptError(f"{name}:{line}: should be text in {error.encoding}, had the byte 0x{seen}") from error
    except (LookupError, ValueError) as error:
        raise ScriptError(f"{name}:1: should declare an encoding of text: {error}") from error


def _parsed(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own invalid escapes: not ours to print
            return ast.parse(text)
    except SyntaxError as error:
        seen = f", had {error.text.strip()[:MAX_SHOWN_CHARS]!r}" if error.text else ""
        raise ScriptError(f"{name}:{error.lineno or 1}: should be Python 3: {error.msg}{seen}") from error
    except (RecursionError, MemoryError) as error:
        raise ScriptError(f"{name}:1: should be nested at most {MAX_DEPTH} deep, was far deeper") from error
    except ValueError as error:
        raise ScriptError(f"{name}:1: should be Python source: {error}") from error


def _too_deep(tree: ast.Module) -> int | None:
    """Return the line at which the tree becomes deeper than it may, None where it does not."""
    level: list[ast.AST] = [tree]
    line = 1
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
        line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), line)
    return line


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = ast.Module | FunctionNode | ast.Lambda | ast.ClassDef
_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_CHANGING = frozenset({"append", "extend", "insert", "update", "add"})
"""Methods that put a value into what they are called on."""
MAX_STEPS = 1_000_000
"""Of all rules together: a script whose names lead everywhere would take them minutes."""


class How(Enum):
    """In which way a name gets a value."""

    ASSIGNED = auto()
    """The value itself, or a part of it."""
    ITERATED = auto()
    """One after the other."""
    CHANGED = auto()
    """It stays what it was, and takes the value in."""
    PARAMETER = auto()
    OTHER = auto()
    """Not a value that the tree shows."""


@dataclass(frozen=True, eq=False)
class Binding:
    """One place where a name gets a value."""

    how: How
    place: ast.AST
    """The statement, or the call that changes it."""
    value: ast.expr | None
    position: int | None = None
    """Of a parameter, without ``self``."""


class Script:
    """The tree of a script, indexed. Nodes compare by identity."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.tree = source.tree
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, ScopeNode] = {}
        self.bindings: dict[tuple[ScopeNode, str], list[Binding]] = defaultdict(list)
        self.attributes: dict[str, list[Binding]] = defaultdict(list)
        """By the dotted text, as ``self.optimizer``."""
        self.imports: dict[str, set[str]] = defaultdict(set)
        self.starred_imports: set[str] = set()
        self.modules: set[str] = set()
        """Full names of everything that is imported."""
        self.functions: dict[str, list[FunctionNode]] = defaultdict(list)
        self.classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.calls: list[ast.Call] = []
        self.loads: dict[str, list[ast.Name]] = defaultdict(list)
        self._steps = 0
        self._index()

    def spend(self, steps: int = 1) -> None:
        """Count work; raises ScriptError once it is too much."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise ScriptError(f"{self.name}:1: should be a script whose names can be followed, is too entangled")

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield parents from the inside out."""
        while (parent := self.parents.get(node)) is not None:
            self.spend()
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """Return the function that a node stands in."""
        return next((a for a in self.ancestors(node) if isinstance(a, FunctionNode)), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method a function is."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement around a node, itself included."""
        if isinstance(node, ast.stmt):
            return node
        return next((a for a in self.ancestors(node) if isinstance(a, ast.stmt)), None)

    def lookup(self, name: ast.Name) -> list[Binding]:
        """Return what a name may be bound by, of the innermost scope that binds it."""
        scope: ScopeNode | None = self.scopes[name]
        while scope is not None:
            self.spend()
            if found := self.bindings.get((scope, name.id)):
                return found
            scope = self.scopes.get(scope)
        return []

    def _index(self) -> None:
        stack: list[tuple[ast.AST, ast.AST | None, ScopeNode]] = [(self.tree, None, self.tree)]
        while stack:
            node, parent, scope = stack.pop()
            self.nodes.append(node)
            if parent is not None:
                self.parents[node], self.scopes[node] = parent, scope
            inner = node if isinstance(node, _SCOPES) else scope
            # a decorator, a default and a base class belong to the outer scope; that they do not here is harmless
            stack += [(child, node, inner) for child in reversed(list(ast.iter_child_nodes(node)))]
        for node in self.nodes:
            self._take(node)

    def _take(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._take_import(node)
        elif isinstance(node, FunctionNode):
            self.functions[node.name].append(node)
            self._take_parameters(node)
        elif isinstance(node, ast.Lambda):
            self._take_parameters(node)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name].append(node)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
            self._take_change(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.loads[node.id].append(node)
        else:
            self._take_assignment(node)

    def _take_import(self, node: ast.Import | ast.ImportFrom) -> None:
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

    def _take_parameters(self, node: FunctionNode | ast.Lambda) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        is_method = isinstance(self.parents.get(node), ast.ClassDef)
        for number, argument in enumerate([*named, *arguments.kwonlyargs]):
            position = number - is_method if number < len(named) else None
            self.bindings[node, argument.arg].append(Binding(How.PARAMETER, argument, None, position))
        for rest in filter(None, (arguments.vararg, arguments.kwarg)):
            self.bindings[node, rest.arg].append(Binding(How.OTHER, rest, None))

    def _take_change(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            for value in [*node.args[-1:], *(keyword.value for keyword in node.keywords)]:
                self._bind(node.func.value, node, value, How.CHANGED)

    def _take_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node, node.value, How.ASSIGNED)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._bind(node.target, node, node.value, How.ASSIGNED)
        elif isinstance(node, ast.AugAssign):
            self._bind(node.target, node, node.value, How.CHANGED)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, node, node.iter, How.ITERATED)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, node, item.context_expr, How.ASSIGNED)

    def _bind(self, target: ast.AST, place: ast.AST, value: ast.expr, how: How) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) and how is How.ASSIGNED else []
            for number, element in enumerate(target.elts):
                part = parts[number] if len(parts) == len(target.elts) else value
                self._bind(element, place, part, how)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, place, value, how)
        elif isinstance(target, ast.Name):
            self.bindings[self.scopes[target], target.id].append(Binding(how, place, value))
        elif isinstance(target, ast.Attribute):
            text = dotted_text(target)
            if text is not None:
                self.attributes[text].append(Binding(how, place, value))
        elif isinstance(target, ast.Subscript):
            self._bind(target.value, place, value, How.CHANGED)


def dotted_text(node: ast.AST) -> str | None:
    """Return ``a.b.c`` of names and attributes, None of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def last_name(node: ast.AST) -> str:
    """Return the name that a call or a chain ends with: ``fit`` of ``a.b().fit``; empty of anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword_of(call: ast.Call, *names: str) -> ast.expr | None:
    """Return the value of the first of these keywords that a call has."""
    return next((k.value for name in names for k in call.keywords if k.arg == name), None)


def argument_of(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """Return an argument by keyword or position; None where it is not given, or hidden behind a star."""
    found = keyword_of(call, *names)
    if found is not None:
        return found
    if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
        return None
    return call.args[position] if position < len(call.args) else None


def constant_of(node: ast.AST | None) -> object:
    """Return the value of a constant, None of anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_of(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None
