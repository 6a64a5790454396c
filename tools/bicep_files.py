"""Read Bicep with tree-sitter: declarations, with their bodies as dictionaries in which expressions stay text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser, Tree

KINDS = {
    "parameter_declaration": "param",
    "variable_declaration": "var",
    "resource_declaration": "resource",
    "module_declaration": "module",
    "output_declaration": "output",
}


@dataclass(frozen=True)
class Expression:
    """An expression that only a deployment can compute; ``options`` are its possible values, if they are stated."""

    text: str
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Declaration:
    """A parameter, variable, resource, module or output."""

    file: BicepFile
    kind: str
    name: str
    node: Node
    type: str
    """Bicep's type, the resource's type, or the module's path; empty for a variable."""
    version: str = ""
    body: Any = None
    owner: Declaration | None = None
    decorators: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.file.name}:{self.node.start_point.row + 1}"

    @property
    def existing(self) -> bool:
        """Whether the resource is only referenced, not deployed."""
        return any(child.type == "existing" for child in self.node.children)

    @property
    def loop(self) -> Any:
        """The expression that the loop iterates over, None if there is no loop."""
        body = self.node.named_children[-1]
        return self.file.value(body.named_children[1]) if body.type == "for_statement" else None

    @property
    def condition(self) -> str:
        """The text of the condition, empty if there is none."""
        body = self.node.named_children[-1]
        return self.file.text(body.named_children[0])[1:-1] if body.type == "if_statement" else ""

    @property
    def depends_on(self) -> set[str]:
        """Names that ``dependsOn`` lists."""
        return {one.text for one in (self.body or {}).get("dependsOn", ()) if isinstance(one, Expression)}


class BicepFile:
    """One file; ``name`` is its path in the folder."""

    def __init__(self, name: str, source: bytes) -> None:
        self.name = name
        self.source = source

    @cached_property
    def tree(self) -> Tree:
        """The syntax tree."""
        return _parser().parse(self.source)

    @cached_property
    def declarations(self) -> list[Declaration]:
        """All declarations, including resources within resources."""
        found: list[Declaration] = []
        decorators: dict[str, Any] = {}
        for node in self.tree.root_node.named_children:
            if node.type == "decorators":
                decorators = dict(map(self._decorator, node.named_children))
            elif node.type in KINDS:
                found.extend(self._declared(node, None, decorators))
                decorators = {}
        return found

    def of(self, kind: str) -> dict[str, Declaration]:
        """Return the declarations of a kind by name; only top-level resources."""
        return {one.name: one for one in self.declarations if one.kind == kind and one.owner is None}

    def resources(self) -> list[Declaration]:
        """Return the resources that are deployed, without those that are only referenced."""
        return [one for one in self.declarations if one.kind == "resource" and not one.existing]

    def text(self, node: Node) -> str:
        """Return the source of a node."""
        return self.source[node.start_byte : node.end_byte].decode()

    def value(self, node: Node) -> Any:
        """Return a value: literals as Python values, variables by their value, everything else as an Expression."""
        read: dict[str, Callable[[], Any]] = {
            "string": lambda: self._string(node),
            "number": lambda: int(self.text(node)),
            "boolean": lambda: self.text(node) == "true",
            "null": lambda: None,
            "array": lambda: [self.value(item) for item in _inside(node)],
            "object": lambda: self._object(node),
            "parenthesized_expression": lambda: self.value(_inside(node)[0]),
            "for_statement": lambda: Expression(self.text(node), ([self.value(_inside(node)[-1])],)),
            "ternary_expression": lambda: Expression(self.text(node), tuple(map(self.value, _inside(node)[1:]))),
            "identifier": lambda: self._variable(self.text(node)),
        }
        return read[node.type]() if node.type in read else Expression(self.text(node))

    def key(self, node: Node) -> str:
        """Return a property's name."""
        return self.text(node).strip("'")

    def _object(self, node: Node) -> dict[str, Any]:
        pairs = [kid.named_children for kid in _inside(node) if kid.type == "object_property"]
        return {self.key(pair[0]): self.value(pair[-1]) for pair in pairs if pair[1:]}

    def _string(self, node: Node) -> Any:
        if any(kid.type == "interpolation" for kid in node.named_children):
            return Expression(self.text(node))
        return self.text(node)[1:-1].replace("\\'", "'")

    def _variable(self, name: str) -> Any:
        declared = next((one for one in self._variables if one[0] == name), None)
        value = self.value(declared[1]) if declared else None
        return value if isinstance(value, str | int | list | dict) else Expression(name)

    @cached_property
    def _variables(self) -> list[tuple[str, Node]]:
        nodes = [node for node in self.tree.root_node.named_children if node.type == "variable_declaration"]
        return [(self.text(node.named_children[0]), node.named_children[-1]) for node in nodes]

    def _decorator(self, node: Node) -> tuple[str, Any]:
        called = node.named_children[0]
        arguments = [self.value(kid) for kid in called.named_children[1].named_children]
        return self.text(called.named_children[0]), arguments[0] if arguments else None

    def _declared(self, node: Node, owner: Declaration | None, decorators: dict[str, Any]) -> Iterator[Declaration]:
        kind, kids = KINDS[node.type], _inside(node)
        if not kids[1:]:
            return
        full, body = "", kids[-1]
        if kind in ("resource", "module"):
            full = self.text(kids[1]).strip("'")
        elif kids[1].type == "type":
            full = self.text(kids[1])
        type_, _, version = full.partition("@")
        if owner and kind == "resource":
            type_, version = f"{owner.type}/{type_}", version or owner.version
        content = _inside(body)[-1] if body.type in ("for_statement", "if_statement") else body
        value = None if content.type == "type" else self.value(content)
        this = Declaration(self, kind, self.text(kids[0]), node, type_, version, value, owner, decorators)
        yield this
        for kid in _inside(content) if kind == "resource" else ():
            if kid.type == "object_property" and kid.named_children[0].type == "resource_declaration":
                yield from self._declared(kid.named_children[0], this, {})


def _inside(node: Node) -> list[Node]:
    return [kid for kid in node.named_children if kid.type != "comment"]


def descendants(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes within."""
    yield node
    for kid in node.named_children:
        yield from descendants(kid)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bicep.language()))


def read_files(folder: Path) -> dict[str, BicepFile]:
    """Read all Bicep files of a folder by their path in it."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.bicep"))}
    return {name: _read(name, path.read_bytes()) for name, path in paths.items()}


@cache
def _read(name: str, source: bytes) -> BicepFile:
    """Return a parsed file. The cache returns the same object for the same content."""
    return BicepFile(name, source)


def all_resources(files: Mapping[str, BicepFile], kind: str) -> list[Declaration]:
    """Return the deployed resources of a type."""
    return [one for file in files.values() for one in file.resources() if one.type == kind]


def member(one: Declaration, path: str) -> Any:
    """Return a value in a resource's body, None if there is none. For an expression, return its text."""
    value = one.body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value.text if isinstance(value, Expression) else value


def expected(one: Declaration, wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the members that differ from the expected values."""
    for path, value in wanted.items():
        if (found := member(one, path)) != value:
            yield f"{one.place}: {one.name}.{path} must be {value!r}, and is {found!r}"
