"""``landfall script from-notebook``. Imports neither azure nor the function app."""

from __future__ import annotations

import ast
import builtins
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from cli.errors import CliError
from cli.files import read_at_most, replace_whole, write_new
from horovod_lint import MAX_NOTEBOOK_BYTES, NOTEBOOK_SUFFIX, ScriptError
from horovod_lint.notebook import Cell, Notebook, Omission, read_notebook
from horovod_lint.script import parse_source
from shared.safe_text import one_line

_PLOTTING = frozenset({"matplotlib", "seaborn", "plotly", "bokeh", "altair", "IPython", "pylab", "ipywidgets"})
_PLOT_METHODS = frozenset({"plot", "hist", "boxplot"})
"""Methods of data frames that draw."""
_HARMLESS_METHODS = _PLOT_METHODS | {
    *("numpy", "reshape", "squeeze", "mean", "sum", "format", "items", "keys", "values", "get", "astype", "tolist"),
    *("head", "tail", "describe", "value_counts", "groupby", "sort_values", "sort_index", "title", "lower"),
}
_NUMBERS = frozenset({"np", "numpy"})
_BUILTINS = frozenset(vars(builtins)) - {"exec", "eval", "open", "exit", "quit", "__import__", "input"}
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A line or statement that was left out of the script."""

    cell: int
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"cell {self.cell}, line {self.line}: {self.kind}: {one_line(self.text)}"


@click.group(epilog="Example: landfall script from-notebook train.ipynb")
def script() -> None:
    """Convert notebooks to scripts that a pipeline can run."""


@script.command(name="from-notebook", epilog="Example: landfall script from-notebook train.ipynb")
@click.argument("notebook", type=click.Path(path_type=Path), metavar="NOTEBOOK")
@click.option(
    "--to",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Script to write (default: NOTEBOOK with the suffix .py).",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing script.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object with the script and what was left out.")
def from_notebook(notebook: Path, output: Path | None, *, overwrite: bool, is_json: bool) -> None:
    """Write the code cells of a notebook as a script.

    Magics, shell commands, cells in other languages, plots and displayed values are left out: they are listed, and
    kept as comments. `%time` and `%env` keep their effect. Code that a script may not contain, such as an await
    outside of functions, is named. No cell is run. Pass the script to `landfall lint` next.

    Exit status: 0 the script is written; 1 the script exists already, or the notebook cannot be read; 2 wrong usage.
    """
    name = one_line(str(notebook))
    if notebook.suffix.lower() != NOTEBOOK_SUFFIX:
        raise CliError(f"{name}: the name of a notebook ends in {NOTEBOOK_SUFFIX}. Pass one.")
    try:
        read = read_notebook(read_at_most(notebook, MAX_NOTEBOOK_BYTES + 1, wanted="a notebook"), name)
    except ScriptError as error:
        raise CliError(f"{error}.") from error
    text, left_out = script_of(read, notebook.name)
    path = output or notebook.with_suffix(".py")
    _write(path, text, is_replaced=overwrite)
    shown = one_line(str(path))
    problem = _problem(text, shown)
    if is_json:
        members = {"script": str(path), "left_out": [vars(each) for each in left_out], "problem": problem}
        click.echo(json.dumps(members))
        return
    number = len(read.cells)
    click.echo(f"Wrote {shown} from {number} code cell{'' if number == 1 else 's'}")
    for each in left_out:
        click.echo(f"  left out: {each}")
    if problem:
        click.echo(f"  to fix: {problem}")
    click.echo(f"Next: landfall lint {shown}")


def _problem(text: str, name: str) -> str | None:
    """Return what IPython allows and a script may not have; None where there is nothing of the kind."""
    try:
        parse_source(text.encode(), name)
    except ScriptError as error:
        return str(error)
    return None


def _write(path: Path, text: str, *, is_replaced: bool) -> None:
    """Write a file atomically. Raises CliError if it exists and may not be replaced."""
    if is_replaced:
        replace_whole(path, text.encode())
    else:
        write_new(path, text, otherwise="Pass --overwrite to replace it, or another file to --to.")


def script_of(notebook: Notebook, name: str) -> tuple[str, list[LeftOut]]:
    """Return the script of a notebook, and what was left out of it."""
    trees = [ast.parse("\n".join([*cell.lines, ""])) for cell in notebook.cells]
    plots = _Plots(trees)
    omissions = {(each.cell, each.line): each for each in notebook.omissions}
    left_out = [
        LeftOut(cell=o.cell, line=o.line, kind=str(o.kind), text=o.text) for o in omissions.values() if o.is_lost
    ]
    futures: list[str] = []
    written: list[str] = []
    for cell, tree in zip(notebook.cells, trees, strict=True):
        first = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        futures += [ast.unparse(node) for node in first]
        dropped = [node for node in tree.body if node in plots.dropped]
        left_out += [
            LeftOut(
                cell=cell.number, line=node.lineno, kind="plot or output", text=_short(cell.lines[node.lineno - 1])
            )
            for node in dropped
        ]
        lines = list(_cell_lines(cell, [*dropped, *first], omissions))
        written += ["", f"# Cell {cell.number}", *lines] if any(line.strip() for line in lines) else []
    # Python wants these before anything else; a notebook may have them in any cell
    head = [f"# Made from {one_line(name)} by landfall script from-notebook.", *dict.fromkeys(futures)]
    return "\n".join([*head, *written, ""]), sorted(left_out, key=lambda each: (each.cell, each.line))


def _cell_lines(cell: Cell, dropped: Iterable[ast.stmt], omissions: dict[tuple[int, int], Omission]) -> Iterator[str]:
    """Yield the lines of a cell; what was left out stays as a comment."""
    gone = {line for statement in dropped for line in range(statement.lineno, (statement.end_lineno or 0) + 1)}
    for number, line in enumerate(cell.lines, 1):
        omission = omissions.get((cell.number, number))
        if number in gone:
            yield f"# {line}".rstrip()
        elif omission is None:
            yield "" if line == "#" else line  # the rest of a command, or of a cell in another language
        elif not omission.is_lost:
            yield line
        else:
            indent = line[: len(line) - len(line.lstrip())]
            python = line.strip().replace("get_ipython()", "None")
            comment = f"# {one_line(omission.text)}"
            yield f"{indent}{python}  {comment}" if indent or "=" in python else comment


class _Plots:
    """The statements of a notebook that only draw or display, and that no other statement needs."""

    def __init__(self, cells: Sequence[ast.Module]) -> None:
        self._names = {"display"}
        """Names of plotting libraries, and of objects that their calls returned."""
        self._cells = cells
        self.dropped: dict[ast.stmt, set[str]] = {}
        """Statements with the names that they bind."""
        for tree in cells:
            alone = _alone(tree.body)
            for statement in tree.body:
                if self._only_draws(statement) and statement in alone and self._is_harmless(statement):
                    self.dropped[statement] = set(_bound(statement))
        self._restore()

    def _restore(self) -> None:
        """Keep statements whose names are read by a statement that stays."""
        while True:
            kept = [node for tree in self._cells for node in tree.body if node not in self.dropped]
            used = {n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name)}
            needed = [statement for statement, names in self.dropped.items() if names & used]
            if not needed:
                return
            for statement in needed:
                del self.dropped[statement]

    def _only_draws(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._is_import_of_plots(node)
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript) or self._draws(node.value)
        if isinstance(node, ast.Assign):
            draws = self._draws(node.value)
            self._names |= set(_bound(node)) if draws else set()
            return draws
        if isinstance(node, ast.For | ast.If | ast.With):
            if isinstance(node, ast.With) and any(self._draws(item.context_expr) for item in node.items):
                self._names |= set(_bound(node))
            block = [*node.body, *getattr(node, "orelse", [])]
            drawing = [self._only_draws(each) for each in block]  # each of them may define names for later ones
            return all(drawing)
        if isinstance(node, ast.FunctionDef):
            return self._is_plotting_function(node)
        return False

    def _is_import_of_plots(self, node: ast.Import | ast.ImportFrom) -> bool:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        found = [module.partition(".")[0] in _PLOTTING for module in modules]
        if all(found):
            self._names |= set(_bound(node))
        return all(found)

    def _draws(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        root = _root(value)
        is_frame = isinstance(value.func, ast.Attribute) and value.func.attr in _PLOT_METHODS
        return root in self._names or is_frame

    def _is_harmless(self, node: ast.stmt) -> bool:
        """Whether a statement calls nothing that may train, write or change a value: `plot(model.fit(x))` does."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        known = self._names | _BUILTINS | _NUMBERS
        return all(_root(each) in known or _method(each) in _HARMLESS_METHODS for each in calls)

    def _is_plotting_function(self, node: ast.FunctionDef) -> bool:
        """Whether a function draws and calls nothing but plots and Python's own functions."""
        before = set(self._names)
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and self._draws(each.value):
                self._names |= set(_bound(each))
        roots = {_root(each) for each in ast.walk(node) if isinstance(each, ast.Call)}
        returns = any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(node))
        draws = bool(roots & self._names) and self._is_harmless(node) and not returns
        self._names = before | ({node.name} if draws else set())
        return draws


def _root(node: ast.expr) -> str:
    """Return the first name of a chain of attributes, calls and subscripts; empty if there is none."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds."""
    if isinstance(node, ast.FunctionDef):
        yield node.name
        return
    for each in ast.walk(node):
        if isinstance(each, ast.alias):
            yield each.asname or each.name.partition(".")[0]
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _alone(body: Sequence[ast.stmt]) -> set[ast.stmt]:
    """Return the statements that share no line with another one."""
    pairs = itertools.pairwise(body)
    shared = {each for before, after in pairs if before.end_lineno == after.lineno for each in (before, after)}
    return set(body) - shared


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
