"""What the architecture tests read: this repository's files and what each of them imports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUR_PACKAGES = (
    "shared",
    "shard_validation",
    "horovod_lint",
    "function_app",
    "training_job",
    "local_azure",
    "cli",
    "bench",
    "tools",
    "tests",
)


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import statement's module, as written."""

    path: str
    line: int
    module: str
    """Dotted; `from azure import functions` reads `azure.functions`."""
    at_import_time: bool
    """Whether it runs when the file is imported, and not inside a function or under TYPE_CHECKING."""

    @property
    def top_level(self) -> str:
        """The first part: what has to be installed."""
        return self.module.split(".")[0]

    def is_of(self, package: str) -> bool:
        """Whether the module is `package` or is in it."""
        return self.module == package or self.module.startswith(f"{package}.")

    def __str__(self) -> str:
        """Return path and line in the form that editors can open."""
        return f"{self.path}:{self.line} imports {self.module}"


def imports_of(*folders: str) -> list[Import]:
    """Every absolute import in the Python files of these folders of the repository."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [found for path in files for found in _imports_in(path)]


def run_python(
    code: str, *, cwd: Path = ROOT, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter of this environment, isolated from ours but for `cwd`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=cwd, env={**kept, **(settings or {})}, capture_output=True, text=True, check=False, timeout=120
    )


@cache
def _imports_in(path: Path) -> tuple[Import, ...]:
    name = path.relative_to(ROOT).as_posix()
    return tuple(
        Import(path=name, line=getattr(node, "lineno", 0), module=module, at_import_time=not is_late)
        for node, is_late in _statements(ast.parse(path.read_text(encoding="utf-8")))
        for module in _modules(node)
    )


def _statements(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Yield each statement, and whether it runs later than the import of its file; no expression contains one."""
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, is_late = left.pop()
        yield node, is_late
        is_late = is_late or _runs_late(node)
        left += [(child, is_late) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def _runs_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []
