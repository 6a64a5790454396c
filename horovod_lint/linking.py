"""Link a script with the author's modules that it imports: one tree, as if everything were in one file.

Only the files that were passed are linked; imports of any other module stay unchanged. Imported modules come before
the code that imports them. If two files define a name, it gets the name of its module as a prefix.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from horovod_lint.names import restore_names
from horovod_lint.script import (
    MAX_SCRIPT_BYTES,
    FunctionNode,
    NotPythonError,
    Part,
    ScriptError,
    Source,
    parse_source,
)

OTHERS_CODE = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Folders with other people's code; those whose names begin with a dot are skipped too."""
MAX_LINKED_BYTES = 4 * MAX_SCRIPT_BYTES
"""Limit on a script together with the modules that it imports."""
_Scope = FunctionNode | ast.Lambda | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class ScriptFile:
    """One file of the author."""

    path: PurePath
    """Absolute path, by which imports find the file."""
    name: str
    """Its name in messages."""
    content: bytes


@dataclass(kw_only=True)
class _Module:
    """One file that is linked."""

    file: ScriptFile
    source: Source
    names: dict[str, str] = field(default_factory=dict)
    """Names that it defines at its module level, with their names after linking."""
    imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = field(default_factory=dict)
    """Statement and part of it by which it imports a name."""


def scripts_among(files: Mapping[PurePath, ScriptFile]) -> list[PurePath]:
    """Return the files that are run as scripts: those that no other file imports, or that test for `__main__`."""
    imports: dict[PurePath, set[PurePath]] = {}
    runs: set[PurePath] = set()
    for path, file in files.items():
        source = _parsed(file)
        finder = _Finder(files, path)
        nodes = ast.walk(source.tree) if source is not None else ()
        imports[path] = {found for node in nodes for found in finder.files_of(node, path)} - {path}
        if source is None or any(isinstance(n, ast.If) and is_main_test(n.test) for n in source.tree.body):
            runs.add(path)
    imported = {found for each in imports.values() for found in each}
    runs |= set(files) - imported
    reached = _closure(runs, imports)
    for path in files:  # files with circular imports
        if path not in reached:
            runs.add(path)
            reached |= _closure({path}, imports)
    return [path for path in files if path in runs]


def _closure(paths: set[PurePath], imports: Mapping[PurePath, set[PurePath]]) -> set[PurePath]:
    reached, pending = set(paths), list(paths)
    while pending:
        fresh = imports[pending.pop()] - reached
        reached |= fresh
        pending += fresh
    return reached


def link(entry: ScriptFile, source: Source, files: Mapping[PurePath, ScriptFile]) -> tuple[Source, tuple[str, ...]]:
    """Return the source of a script with its modules, and their names. Raises ScriptError if they are too large.

    A module that cannot be parsed is left out, as if it had not been passed.
    """
    modules = _in_order(entry, source, files)
    if len(modules) == 1:
        return source, ()
    if sum(len(module.file.content) for module in modules.values()) > MAX_LINKED_BYTES:
        raise ScriptError(
            f"{entry.name}: the script and the modules that it imports have more than {MAX_LINKED_BYTES} bytes; "
            "pass fewer files"
        )
    _name(modules, entry.path)
    finder = _Finder(files, entry.path)
    body: list[ast.stmt] = []
    parts: list[Part] = []
    texts: list[str] = []
    num_lines = 0
    for path, module in modules.items():
        linker = _Linker(module, modules, finder, is_entry=path == entry.path)
        tree = linker.visit(module.source.tree)
        ast.increment_lineno(tree, num_lines)
        body += tree.body
        name = "" if path == entry.path else module.file.name
        parts += [
            Part(first_line=part.first_line + num_lines, file=name, cell=part.cell) for part in module.source.parts
        ]
        text = module.source.text.rstrip("\n")
        texts.append(text)
        num_lines += text.count("\n") + 1
    linked = Source(
        name=entry.name,
        text="\n".join([*texts, ""]),
        tree=ast.Module(body=body, type_ignores=[]),
        parts=tuple(parts),
    )
    return linked, tuple(module.file.name for path, module in modules.items() if path != entry.path)


def refused_modules(entry: ScriptFile, files: Mapping[PurePath, ScriptFile]) -> Iterator[str]:
    """Yield why Python refuses a module that a script imports when it starts, also through others.

    An import within a function or a condition may never be reached. Raises ScriptError for the script itself.
    """
    finder = _Finder(files, entry.path)
    pending, seen = [(entry.path, parse_source(entry.content, entry.name).tree)], {entry.path}
    while pending:
        path, tree = pending.pop()
        for module in (each for node in tree.body for each in finder.files_of(node, path)):
            if module in seen:
                continue
            seen.add(module)
            try:
                pending.append((module, parse_source(files[module].content, files[module].name).tree))
            except NotPythonError as error:
                yield str(error)
            except ScriptError:
                continue  # Python has other limits


class _Finder:
    """Finds imported modules among the given files, as Python would with the script's folder on its path."""

    def __init__(self, files: Mapping[PurePath, ScriptFile], entry: PurePath) -> None:
        self._files = files
        self._entry = entry
        self._folders = {folder for path in files for folder in path.parents}

    def module(self, name: str, level: int, importing: PurePath) -> PurePath | None:
        """Return the file or the folder of a module; None if it was not passed."""
        parts = name.split(".") if name else []
        if level:
            bases = list(importing.parents)[level - 1 : level]
        else:
            bases = list(dict.fromkeys([*self._entry.parents, *importing.parents]))
        found = (self.below(base, parts) for base in bases)
        return next((path for path in found if path is not None), None)

    def below(self, base: PurePath, parts: Sequence[str]) -> PurePath | None:
        """Return a module below a folder: its file, the file of its package, or the folder of one without a file."""
        target = base.joinpath(*parts)
        if parts and (file := target.with_name(f"{target.name}.py")) in self._files:
            return file
        if target / "__init__.py" in self._files:
            return target / "__init__.py"
        return target if target in self._folders and parts else None

    def submodule(self, package: PurePath, name: str) -> PurePath | None:
        """Return a module of a package; None for a package that is a single file."""
        if package.suffix == ".py" and package.name != "__init__.py":
            return None
        return self.below(package.parent if package.suffix == ".py" else package, [name])

    def files_of(self, node: ast.AST, importing: PurePath) -> Iterator[PurePath]:
        """Yield the given files that an import statement runs."""
        wanted: list[PurePath | None] = []
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                wanted += [self.module(".".join(parts[: end + 1]), 0, importing) for end in range(len(parts))]
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            ends = range(1, len(parts) + 1) if node.module else range(1)
            wanted += [self.module(".".join(parts[:end]), node.level, importing) for end in ends]
            package = wanted[-1]
            if package is not None:
                wanted += [self.submodule(package, alias.name) for alias in node.names]
        yield from (path for path in wanted if path is not None and path in self._files)


def _in_order(entry: ScriptFile, source: Source, files: Mapping[PurePath, ScriptFile]) -> dict[PurePath, _Module]:
    """Return the script and the files that it imports, directly or indirectly; imported files come first."""
    finder = _Finder(files, entry.path)
    found: dict[PurePath, _Module] = {}
    sources: dict[PurePath, Source | None] = {entry.path: source}
    stack = [(entry.path, False)]
    while stack:
        path, is_done = stack.pop()
        parsed = sources.get(path)
        if is_done and parsed is not None:
            found[path] = _Module(file=files.get(path, entry), source=parsed)
        elif path not in sources or path == entry.path:
            sources[path] = parsed = parsed or _parsed(files[path])
            imports = reversed(list(ast.walk(parsed.tree))) if parsed is not None else ()
            stack.append((path, True))
            stack += [
                (each, False) for node in imports for each in finder.files_of(node, path) if each not in sources
            ]
    return found


def _parsed(file: ScriptFile) -> Source | None:
    try:
        return parse_source(file.content, file.name)
    except ScriptError:
        return None


def _name(modules: Mapping[PurePath, _Module], entry: PurePath) -> None:
    """Decide on the names after linking: the script, and modules that share no name, keep their names."""
    used = {name for module in modules.values() for name in _library_names(module.source.tree)}
    for path, module in sorted(modules.items(), key=lambda each: each[0] != entry):
        for node in ast.walk(module.source.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module.imports |= {_bound_by(alias): (node, alias) for alias in node.names}
        restore_names(module.source.tree)
        defined = _names_of(module.source.tree.body)
        prefix = module.file.path.stem if module.file.path.stem != "__init__" else module.file.path.parent.name
        for name in defined:
            new, number = name, 1
            while new in used and path != entry:
                new = f"{prefix}_{name}" if number == 1 else f"{prefix}{number}_{name}"
                number += 1
            module.names[name] = new
        inner = (n.name for n in ast.walk(module.source.tree) if isinstance(n, FunctionNode | ast.ClassDef))
        used |= {*module.names.values(), *(name for name in inner if name not in module.names)}


def _library_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from map(_bound_by, node.names)


def _bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _names_of(block: Sequence[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope, without those of imports."""
    found: set[str] = set()
    outer: set[str] = set()
    stack: list[ast.AST] = list(block)
    while stack:
        node = stack.pop()
        if isinstance(node, FunctionNode | ast.ClassDef):
            found.add(node.name)
            stack += node.decorator_list
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.Lambda):
            stack += ast.iter_child_nodes(node)
    return found - outer


class _Linker(ast.NodeTransformer):
    """Rewrites the tree of one file: its own names, and those that it imports from the other files."""

    def __init__(
        self, module: _Module, modules: Mapping[PurePath, _Module], finder: _Finder, *, is_entry: bool
    ) -> None:
        self._module, self._modules, self._finder, self._is_entry = module, modules, finder, is_entry
        self._path = module.file.path
        self._scopes: list[tuple[_Scope, set[str]]] = []
        self._names = {name: new for name, new in module.names.items() if name != new}
        self._imported: dict[str, PurePath] = {}
        """Names of this file that stand for another passed file, or for a package's folder."""
        for node in ast.walk(module.source.tree):
            if isinstance(node, ast.Import):
                self._take_modules(node)
            elif isinstance(node, ast.ImportFrom):
                self._take_names(node)

    def _take_modules(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            found = self._finder.module(name, 0, self._path)
            if found is not None and (found in self._modules or found.suffix != ".py"):
                self._imported[alias.asname or name] = found

    def _take_names(self, node: ast.ImportFrom) -> None:
        package = self._finder.module(node.module or "", node.level, self._path)
        if package is None:
            return
        for alias in node.names:
            exported = self._modules[package].names if package in self._modules else {}
            if alias.name == "*":
                self._names |= {name: new for name, new in exported.items() if name[:1] != "_"}
            elif (new := self._exported(package, alias.name)) is not None:
                self._names[alias.asname or alias.name] = new
            elif (module := self._finder.submodule(package, alias.name)) is not None:
                self._imported[alias.asname or alias.name] = module

    def _exported(self, path: PurePath, name: str, depth: int = 0) -> str | None:
        """Return the name after linking of something that a file defines or imports."""
        module = self._modules.get(path)
        if module is None or depth > len(self._modules):
            return None
        if name in module.names:
            return module.names[name]
        if name not in module.imports:
            return None
        node, alias = module.imports[name]
        if isinstance(node, ast.Import):
            return _bound_by(alias) if self._finder.module(alias.name, 0, path) is None else None
        package = self._finder.module(node.module or "", node.level, path)
        return _bound_by(alias) if package is None else self._exported(package, alias.name, depth + 1)

    def _is_local(self, name: str) -> bool:
        innermost = self._scopes[-1][0] if self._scopes else None
        return any(
            name in names
            for scope, names in self._scopes
            if scope is innermost or not isinstance(scope, ast.ClassDef)
        )

    def _new(self, name: str) -> str:
        return name if self._is_local(name) else self._names.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Rename a name that is not a local one."""
        node.id = self._new(node.id)
        return node

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        """Rename the names that a function shares with its module."""
        node.names = [self._names.get(name, name) for name in node.names]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace ``helper.build`` by the name of that function after linking."""
        chain: list[ast.Attribute] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner)
            inner = inner.value
        path = self._imported.get(inner.id) if isinstance(inner, ast.Name) and not self._is_local(inner.id) else None
        for attribute in reversed(chain):
            if path is None:
                break
            new = self._exported(path, attribute.attr)
            if new is not None:
                name = ast.copy_location(ast.Name(id=new, ctx=attribute.ctx), attribute)
                return self._above(chain, attribute, name)
            path = self._finder.submodule(path, attribute.attr)
        self.generic_visit(node)
        return node

    @staticmethod
    def _above(chain: list[ast.Attribute], attribute: ast.Attribute, name: ast.expr) -> ast.expr:
        position = chain.index(attribute)
        if position == 0:
            return name
        chain[position - 1].value = name
        return chain[0]

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        """Drop the modules that are linked."""
        node.names = [alias for alias in node.names if _bound_by(alias) not in self._imported]
        return node if node.names else ast.copy_location(ast.Pass(), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        """Drop the names that are linked; a name that its module does not define stays an import."""
        package = self._finder.module(node.module or "", node.level, self._path)
        if package is None or (package not in self._modules and package.suffix == ".py"):
            return node
        known = (*self._names, *self._imported)
        kept = [alias for alias in node.names if alias.name != "*" and (alias.asname or alias.name) not in known]
        if not kept:
            return ast.copy_location(ast.Pass(), node)
        node.names = kept
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Drop the code of a module that runs only if it is run as a script."""
        if not self._is_entry and not self._scopes and is_main_test(node.test):
            return [self.visit(each) for each in node.orelse] or ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """Rename a class and the names inside it."""
        return self._visit_scope(node, _names_of(node.body))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Rename a function and the names inside it."""
        return self._visit_scope(node, _parameters(node) | _names_of(node.body))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        """Rename a function and the names inside it."""
        return self._visit_scope(node, _parameters(node) | _names_of(node.body))

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """Rename the names inside a lambda."""
        self._scopes.append((node, _parameters(node)))
        self.generic_visit(node)
        self._scopes.pop()
        return node

    def _visit_scope(self, node: FunctionNode | ast.ClassDef, names: set[str]) -> ast.stmt:
        node.name = self._new(node.name)
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        self._scopes.append((node, names - set(self._imported)))
        decorators, node.decorator_list = node.decorator_list, []
        self.generic_visit(node)
        node.decorator_list = decorators
        self._scopes.pop()
        return node


def _parameters(node: FunctionNode | ast.Lambda) -> set[str]:
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


def is_main_test(test: ast.expr) -> bool:
    """Whether a condition is ``__name__ == "__main__"``."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, *test.comparators]
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    return names == {"__name__"} and any(isinstance(s, ast.Constant) and s.value == "__main__" for s in sides)
