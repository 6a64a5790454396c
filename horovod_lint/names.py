"""The meaning of names: restore library names that a script renames, and resolve names to their imports."""

from __future__ import annotations

import ast
import builtins
import copy
import sys
from collections import Counter

from horovod_lint.script import Binding, BindingKind, Script, constant_of, dotted_text

_RENAMED_LIBRARIES = frozenset({"horovod", "tensorflow", "keras", "tf_keras", "torch", "functools"})
_PARTIAL = "functools.partial"
_MAX_COPIED_NODES = 10_000
"""Limit on copied nodes: a script full of renamed functions would otherwise grow too large to analyse."""
KNOWN_LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        *("horovod", "tensorflow", "keras", "tf_keras", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "PIL"),
        *("torch", "torchvision", "torchaudio", "tensorflow_datasets", "mxnet", "gluoncv", "mlflow", "azureml"),
        *("cv2", "h5py", "yaml", "tqdm", "absl", "click", "joblib", "mpi4py", "packaging", "requests", "seaborn"),
        *("pyarrow", "filelock", "six", "psutil", "tensorboardX", "wandb", "skimage", "imageio", "cloudpickle"),
        *("shared",),  # Landfall's own package, which is part of every code asset
        *("google", "azure", "dotenv", "rich", "typer", "fire", "attr", "pydantic", "hydra", "omegaconf"),
    }
)
"""Libraries whose effect on data and ranks is known; any other module may do anything."""
_FLAVOURS = frozenset({"tensorflow", "keras", "torch", "mxnet", "common", "mpi_ops", "basics", "functions", "_keras"})
_HOROVOD = "horovod"
_STAR_STEPS = 10
"""Steps for each module that may define a name, since the checks compare the name with each of them."""
_CUSTOMARY = frozenset({"hvd", _HOROVOD})
"""Customary names of parameters that receive the Horovod module."""


def restore_names(tree: ast.Module) -> None:
    """Replace renamed library functions in the tree with their original names, which the checks know.

    Handles ``from horovod.keras import DistributedOptimizer as DO``, ``DO = hvd.DistributedOptimizer``, and
    ``DO = functools.partial(hvd.DistributedOptimizer, op=hvd.Sum)``. Names with several bindings are kept.
    """
    nodes = list(ast.walk(tree))
    _restore_imported(nodes)
    _AssignedNames(nodes).visit(tree)


def _restore_imported(nodes: list[ast.AST]) -> None:
    imported = [
        alias for node in nodes if isinstance(node, ast.ImportFrom) and _is_from_library(node) for alias in node.names
    ]
    renamed = {alias.asname: alias.name for alias in imported if alias.asname not in (None, alias.name)}
    if not renamed:
        return
    taken = _bound_names(nodes)
    names = {new: old for new, old in renamed.items() if new is not None and taken[new] == 1 and not taken[old]}
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    for alias in imported:
        if alias.asname in names:
            alias.asname = None


class _AssignedNames(ast.NodeTransformer):
    """Replaces a name with the library function that the script assigns to it, if it does so once."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        taken = _bound_names(nodes)
        self._paths = _imported_paths(nodes, taken)
        self._num_copied = 0
        assigned = [(n.targets[0], n.value) for n in nodes if isinstance(n, ast.Assign)]
        once = {to.id: value for to, value in assigned if isinstance(to, ast.Name) and taken[to.id] == 1}
        self._values = {name: value for name, value in once.items() if self._path(value)}
        self._paths |= {name: self._path(value) for name, value in self._values.items()}
        self._values |= {name: value for name, value in once.items() if self._is_partial(value)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the library's name, or the ``partial`` call that the name stands for."""
        value = self._values.get(node.id) if isinstance(node.ctx, ast.Load) else None
        if value is None or self._num_copied > _MAX_COPIED_NODES:
            return node
        self._num_copied += sum(1 for _ in ast.walk(value))
        return ast.copy_location(copy.deepcopy(value), node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Return the call of a ``partial`` as a call of the function itself, with all arguments."""
        self.generic_visit(node)
        while isinstance(node.func, ast.Call) and self._is_partial(node.func):
            partial = node.func
            later = {keyword.arg for keyword in node.keywords} - {None}
            node.func, *arguments = partial.args
            node.args = [*arguments, *node.args]
            node.keywords = [*(each for each in partial.keywords if each.arg not in later), *node.keywords]
        return node

    def _is_partial(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call) or not value.args or isinstance(value.args[0], ast.Starred):
            return False
        return self._path(value.func) == _PARTIAL

    def _path(self, node: ast.expr) -> str:
        """Return the full name of an object of a library, empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        first = self._paths.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join([first, *reversed(parts)]) if first else ""


def _imported_paths(nodes: list[ast.AST], taken: Counter[str]) -> dict[str, str]:
    """Return the full name behind each name that only imports from libraries bind."""
    paths: dict[str, str] = {}
    found: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _is_from_library(node):
            paths |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top in _RENAMED_LIBRARIES:
                    paths[alias.asname or top] = alias.name if alias.asname else top
                    found[alias.asname or top] += 1
    return {name: path for name, path in paths.items() if found[name] == taken[name]}


def _is_from_library(node: ast.ImportFrom) -> bool:
    return not node.level and (node.module or "").partition(".")[0] in _RENAMED_LIBRARIES


def _bound_names(nodes: list[ast.AST]) -> Counter[str]:
    """Count how often a script binds each name, in any way."""
    found: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] += 1
        elif isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] += 1
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            found[node.name or ""] += 1
    return found


class Modules:
    """Resolves names to Horovod, to known libraries, or to the author's own modules."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._paths: dict[ast.AST, frozenset[str]] = {}
        self._aliases: dict[Binding, frozenset[str]] = {}
        """Results by the first binding of a name, so that a name with many bindings is resolved once."""
        self.imported = script.modules
        self.own = {path for path in self.imported if self._is_own(path)}
        """Imports from neither the standard library nor a known library."""

    def uses(self, library: str) -> bool:
        """Whether the script imports a library."""
        return any(path.partition(".")[0] == library for path in self.imported) or self._imports_by_name(library)

    def paths(self, node: ast.AST) -> frozenset[str]:
        """Return the full dotted names that a name or attribute may stand for; empty if it is not imported."""
        if node not in self._paths:
            self._paths[node] = frozenset()  # the result during recursion: a name may be defined by itself
            self._paths[node] = self._resolved(node)
        return self._paths[node]

    def horovod_name(self, node: ast.AST) -> str | None:
        """Return ``rank`` for ``hvd.rank`` and for a call of it, None for what is not Horovod's."""
        node = node.func if isinstance(node, ast.Call) else node
        for path in self.paths(node):
            first, _, rest = path.partition(".")
            if first == _HOROVOD:
                parts = rest.split(".")
                while len(parts) > 1 and parts[0] in _FLAVOURS:
                    parts = parts[1:]
                return ".".join(parts)
        return None

    def horovod_flavours(self) -> set[str]:
        """Return the modules of Horovod that are imported, such as ``tensorflow.keras``."""
        found = set()
        for path in self.imported:
            first, _, rest = path.partition(".")
            if first == _HOROVOD:
                parts = [part for part in rest.split(".") if part in ("tensorflow", "keras", "torch", "mxnet")]
                found.add(".".join(parts[:2]))
        return found - {""}

    def is_own(self, node: ast.AST) -> bool:
        """Whether a name or attribute comes from a module of the author."""
        return any(self._is_own(path) for path in self.paths(node))

    def _resolved(self, node: ast.AST) -> frozenset[str]:
        self._script.spend()
        if isinstance(node, ast.Attribute):
            return frozenset(f"{path}.{node.attr}" for path in self.paths(node.value))
        if isinstance(node, ast.Call) and self.paths(node.func) & {"importlib.import_module"} and node.args:
            name = constant_of(node.args[0])
            return frozenset({name}) if isinstance(name, str) else frozenset()
        if not isinstance(node, ast.Name):
            return frozenset()
        imported = self._script.imports.get(node.id, ())
        self._script.spend(len(imported) * _STAR_STEPS)
        return frozenset(imported) or self._behind_name(node)

    def _behind_name(self, node: ast.Name) -> frozenset[str]:
        bindings = self._script.lookup(node)
        if node.id in _CUSTOMARY and all(b.kind in (BindingKind.PARAMETER, BindingKind.OTHER) for b in bindings):
            return frozenset({f"{_HOROVOD}.tensorflow"})
        if not bindings:
            starred = () if hasattr(builtins, node.id) else self._script.starred_imports
            self._script.spend(len(starred) * _STAR_STEPS)
            return frozenset(f"{module}.{node.id}" for module in starred)
        if bindings[0] not in self._aliases:
            self._aliases[bindings[0]] = frozenset()  # the result during recursion, as above
            values = [b.value for b in bindings if b.kind is BindingKind.ASSIGNED and b.value]
            self._aliases[bindings[0]] = frozenset(path for value in values for path in self._alias(value))
        return self._aliases[bindings[0]]

    def _alias(self, value: ast.expr) -> frozenset[str]:
        is_name = dotted_text(value) is not None or isinstance(value, ast.Call)
        is_function = isinstance(value, ast.Call) and "importlib.import_module" not in self.paths(value.func)
        return self.paths(value) if is_name and not is_function else frozenset()

    def _imports_by_name(self, library: str) -> bool:
        calls = (c for c in self._script.calls if self.paths(c.func) & {"importlib.import_module"})
        return any(path.partition(".")[0] == library for call in calls for path in self.paths(call))

    @staticmethod
    def _is_own(path: str) -> bool:
        return path.partition(".")[0] not in KNOWN_LIBRARIES
