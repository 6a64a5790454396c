"""Which names are whose: Horovod's, those of libraries that the rules know, or the author's own."""

from __future__ import annotations

import ast
import builtins
import sys

from horovod_lint.syntax import Binding, How, Script, constant_of, dotted_text

KNOWN_LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        *("horovod", "tensorflow", "keras", "tf_keras", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "PIL"),
        *("torch", "torchvision", "torchaudio", "tensorflow_datasets", "mxnet", "gluoncv", "mlflow", "azureml"),
        *("cv2", "h5py", "yaml", "tqdm", "absl", "click", "joblib", "mpi4py", "packaging", "requests", "seaborn"),
        *("pyarrow", "filelock", "six", "psutil", "tensorboardX", "wandb", "skimage", "imageio", "cloudpickle"),
        *("shared",),  # Landfall's own, which travels with every script
        *("google", "azure", "dotenv", "rich", "typer", "fire", "attr", "pydantic", "hydra", "omegaconf"),
    }
)
"""What these do to data or ranks is known well enough; any other module may do anything."""
_FLAVOURS = frozenset({"tensorflow", "keras", "torch", "mxnet", "common", "mpi_ops", "basics", "functions", "_keras"})
_HOROVOD = "horovod"
_STAR_STEPS = 10
"""For each module of which a name may be: the name is then looked for by each of them."""
_CUSTOMARY = frozenset({"hvd", _HOROVOD})
"""Names that Horovod goes by where it is handed on as an argument."""


class Modules:
    """What names of modules stand for in one script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._paths: dict[ast.AST, frozenset[str]] = {}
        self._aliases: dict[Binding, frozenset[str]] = {}
        """By the first of the bindings that a name has: a name that is bound and read everywhere is followed once."""
        self.imported = script.modules
        self.own = {path for path in self.imported if self._is_own(path)}
        """Modules that are neither the standard library's nor a known library's."""

    def uses(self, library: str) -> bool:
        """Whether a library is imported anywhere."""
        return any(path.partition(".")[0] == library for path in self.imported) or self._imports_by_name(library)

    def paths(self, node: ast.AST) -> frozenset[str]:
        """Return the full dotted names that a name or attribute may stand for; empty for what is no import."""
        if node not in self._paths:
            self._paths[node] = frozenset()  # while it is being found: a name may be made of itself
            self._paths[node] = self._found(node)
        return self._paths[node]

    def horovod_name(self, node: ast.AST) -> str | None:
        """Return ``rank`` for ``hvd.rank`` and for a call of it, and None for what is not of Horovod."""
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
        """Return the modules of Horovod that are imported, as ``tensorflow.keras``."""
        found = set()
        for path in self.imported:
            first, _, rest = path.partition(".")
            if first == _HOROVOD:
                parts = [part for part in rest.split(".") if part in ("tensorflow", "keras", "torch", "mxnet")]
                found.add(".".join(parts[:2]))
        return found - {""}

    def is_own(self, node: ast.AST) -> bool:
        """Whether a name or attribute comes from a module of the author's."""
        return any(self._is_own(path) for path in self.paths(node))

    def _found(self, node: ast.AST) -> frozenset[str]:
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
        if node.id in _CUSTOMARY and all(b.how in (How.PARAMETER, How.OTHER) for b in bindings):
            return frozenset({f"{_HOROVOD}.tensorflow"})
        if not bindings:
            starred = () if hasattr(builtins, node.id) else self._script.starred_imports
            self._script.spend(len(starred) * _STAR_STEPS)
            return frozenset(f"{module}.{node.id}" for module in starred)
        if bindings[0] not in self._aliases:
            self._aliases[bindings[0]] = frozenset()  # while it is being found, as above
            values = [b.value for b in bindings if b.how is How.ASSIGNED and b.value]
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
