"""Apply mechanical fixes: the smallest edits of a script's text, each tried on a copy first.

An edit is kept only if it removes the finding and causes no other one.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from horovod_lint.findings import Finding
from horovod_lint.lint import lint_script, read_source
from horovod_lint.notebook import CELLS_SUFFIX, NOTEBOOK_SUFFIX
from horovod_lint.notebook_edits import Row, rows_of, with_cells
from horovod_lint.rules import RuleCode
from horovod_lint.script import FunctionNode, Script, ScriptError, argument_of, constant_of, keyword_of, last_name
from horovod_lint.view import Machine, View

MAX_FIXES = 100
"""Edits of one script; each costs one run of the lint."""
_MODULES = frozenset({"tensorflow", "keras", "torch", "mxnet"})
_OPERATOR = re.compile(r"\s*//?")
_IGNORE = re.compile(r"\s*#\s*landfall:\s*ignore(\[[^\],]*\])?[^#]*$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Text that replaces a part of the script, which may be empty; positions as in syntax trees."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A script after its edits."""

    content: bytes
    findings: tuple[Finding, ...]
    """The fixed findings, in the order of the edits."""


def fix_script(content: bytes, name: str, machine: Machine | None = None) -> Fixed:
    """Return a script or notebook with its mechanical findings fixed.

    Raises ScriptError for one that cannot be analysed.
    """
    if name.lower().endswith(NOTEBOOK_SUFFIX):
        return _fix_notebook(content, name, machine or Machine())
    lines = tuple(read_source(content, name).text.split("\n"))
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    document = _Document(lines=lines, encoding=encoding)
    if b"\r" in content.replace(b"\r\n", b""):
        return Fixed(content=content, findings=())
    document, findings = _fixed(document, name, machine or Machine())
    return Fixed(content=document.script if findings else content, findings=tuple(findings))


def _fix_notebook(content: bytes, name: str, machine: Machine) -> Fixed:
    """Fix the script that consists of a notebook's cells, and put the changed cells back."""
    source, rows = read_source(content, name), tuple(rows_of(content, name))
    document, findings = _fixed(
        _Document(lines=tuple(source.text.split("\n")), rows=rows),
        f"{name[: -len(NOTEBOOK_SUFFIX)]}{CELLS_SUFFIX}",
        machine,
    )
    before, after = _texts_of(rows), _texts_of(document.rows)
    changed = {cell: after.get(cell, "") for cell, text in before.items() if after.get(cell, "") != text}
    return Fixed(content=with_cells(content, name, changed) if changed else content, findings=tuple(findings))


def _texts_of(rows: Sequence[Row]) -> dict[int, str]:
    """Return the text of each cell by its number."""
    lines: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        lines[row.cell].append(row.text)
    return {cell: "\n".join(texts) for cell, texts in lines.items()}


@dataclass(frozen=True, kw_only=True)
class _Document:
    """A script that is being fixed; for a notebook, also the line of a cell for each of its lines."""

    lines: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    encoding: str = "utf-8"

    @property
    def script(self) -> bytes:
        return "\n".join(self.lines).encode(self.encoding)

    def with_edits(self, edits: Iterable[Edit]) -> _Document:
        """Return the document after its edits; unchanged if an edit would change a line that is not Python."""
        lines, rows = list(self.lines), list(self.rows)
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            first, last = edit.start[0] - 1, edit.end[0] - 1
            head = lines[first].encode()[: edit.start[1]].decode()
            tail = lines[last].encode()[edit.end[1] :].decode()
            new = f"{head}{edit.text}{tail}".split("\n")
            is_cut = last > first and new == [lines[last]]  # whole lines are removed, and the line after them stays
            if self.rows and not all(row.is_python for row in rows[first : last + (not is_cut)]):
                return self
            cell = rows[first].cell if self.rows else 0
            kept = rows[last : last + 1] if is_cut else [Row(cell=cell, text=line, is_python=True) for line in new]
            rows[first : last + 1] = kept if self.rows else []
            lines[first : last + 1] = new
        return replace(self, lines=tuple(lines), rows=tuple(rows))


def _fixed(document: _Document, name: str, machine: Machine) -> tuple[_Document, list[Finding]]:
    """Return a document with its mechanical findings fixed, and these findings in the order of the edits."""
    fixed: list[Finding] = []
    tried: set[tuple[RuleCode, str, int]] = set()
    before = lint_script(document.script, name, machine).findings
    while len(fixed) < MAX_FIXES:
        finding = next((f for f in before if f.code in _FIXES and (f.code, f.message, f.line) not in tried), None)
        if finding is None:
            break
        tried.add((finding.code, finding.message, finding.line))
        source = read_source(document.script, name)
        fixer = _Fixer(View(Script(source), machine), source.text.split("\n"), finding)
        edited = document.with_edits(_FIXES[finding.code](fixer))
        try:
            after = lint_script(edited.script, name, machine).findings
        except ScriptError:
            continue
        counts = _counted(before)
        counts.subtract(_counted(after))
        if edited != document and counts[finding.code] > 0 and min(counts.values()) >= 0:
            document, before = edited, after
            fixed.append(finding)
            tried.clear()
    return document, fixed


def _counted(findings: Iterable[Finding]) -> Counter[RuleCode]:
    """Return the number of findings of each rule; the one about Keras 3 names every use, and counts as many."""
    counts: Counter[RuleCode] = Counter()
    for each in findings:
        counts[each.code] += each.message.count(" on line ") if each.code is RuleCode.KERAS3_INCOMPATIBLE else 1
    return counts


class _Fixer:
    """One finding, with helpers to build its edits."""

    def __init__(self, view: View, lines: list[str], finding: Finding) -> None:
        self.view, self.lines, self.finding = view, lines, finding
        self.newline = "\r\n" if lines[0].endswith("\r") else "\n"

    @property
    def nodes(self) -> list[ast.expr | ast.stmt]:
        """The nodes that begin where the finding is."""
        place = (self.finding.line, self.finding.column - 1)
        nodes = (node for node in self.view.script.nodes if isinstance(node, ast.expr | ast.stmt))
        return [node for node in nodes if (node.lineno, node.col_offset) == place]

    def call(self, *names: str) -> ast.Call | None:
        """The call at the finding, with one of these names if names are passed."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return next((call for call in calls if not names or last_name(call) in names), None)

    def horovod(self) -> tuple[ast.stmt, str, str] | None:
        """The statement that imports Horovod, the name that it gets, and the kind of module: `keras` for example."""
        for node in self.view.script.nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for alias in node.names:
                of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                path = f"{of}{alias.name}".split(".")
                if (
                    path[0] == "horovod"
                    and path[-1] in _MODULES
                    and (alias.asname or isinstance(node, ast.ImportFrom))
                ):
                    return node, alias.asname or alias.name, path[-1]
        return None

    def hvd(self) -> str:
        """The name of the Horovod module, empty if there is none."""
        found = self.horovod()
        return found[1] if found else ""

    def keras(self) -> str:
        """The name of Horovod's module for Keras, which alone has callbacks; empty if it is not imported."""
        found = self.horovod()
        return found[1] if found and found[2] == "keras" else ""

    def is_alone(self, node: ast.stmt) -> bool:
        """Whether a statement shares its lines with nothing but a comment."""
        before = self.lines[node.lineno - 1].encode()[: node.col_offset].strip()
        after = self.lines[(node.end_lineno or 0) - 1].encode()[node.end_col_offset or 0 :].strip()
        return not before and (not after or after.startswith(b"#"))

    def indent(self, node: ast.stmt) -> str:
        """The white space before a statement."""
        return self.lines[node.lineno - 1][: node.col_offset]

    def block(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that a statement is in."""
        parent = self.view.script.parents.get(node)
        blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
        return next((block for block in blocks if isinstance(block, list) and node in block), [node])

    def line_after(self, node: ast.stmt, text: str) -> Edit:
        """A new line after a statement."""
        line = node.end_lineno or node.lineno
        end = len(self.lines[line - 1].rstrip("\r").encode())
        return Edit(start=(line, end), end=(line, end), text=f"{self.newline}{self.indent(node)}{text}")

    def without(self, node: ast.stmt) -> Edit:
        """The removal of a statement's lines."""
        last = node.end_lineno or node.lineno
        if last < len(self.lines):
            return Edit(start=(node.lineno, 0), end=(last + 1, 0), text="")
        before = self.lines[node.lineno - 2].rstrip("\r")  # the text does not end with a line break
        return Edit(
            start=(node.lineno - 1, len(before.encode())), end=(last, len(self.lines[last - 1].encode())), text=""
        )


def _replace(node: ast.expr, text: str) -> Edit:
    return Edit(start=(node.lineno, node.col_offset), end=(node.end_lineno or 0, node.end_col_offset or 0), text=text)


def _insert(line: int, column: int, text: str) -> Edit:
    return Edit(start=(line, column), end=(line, column), text=text)


def _around(node: ast.expr, before: str, after: str) -> list[Edit]:
    end = _insert(node.end_lineno or 0, node.end_col_offset or 0, after)
    return [_insert(node.lineno, node.col_offset, before), end]


def _initialised(fixer: _Fixer) -> Iterator[Edit]:
    """Call ``init`` directly after the imports, and remove later calls."""
    found = fixer.horovod()
    if found is None:
        return
    place, name, _ = found
    block = fixer.block(place)
    if not isinstance(fixer.view.script.parents.get(place), ast.Module | FunctionNode):
        return
    following = block[block.index(place) :]
    last = place
    for statement in following:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        last = statement
    late = [
        node
        for node in fixer.view.script.nodes
        if isinstance(node, ast.Expr) and fixer.view.modules.horovod_name(node.value) == "init"
    ]
    if fixer.is_alone(last) and all(fixer.is_alone(node) and len(fixer.block(node)) > 1 for node in late):
        yield fixer.line_after(last, f"{name}.init()")
        yield from (fixer.without(node) for node in late)


def _by_local_rank(fixer: _Fixer) -> Iterator[Edit]:
    for node in fixer.nodes[:1]:
        for each in ast.walk(node):
            if fixer.view.flow.rank_kind(each) == "rank":
                yield from _renamed(each, "rank", "local_rank")


def _renamed(node: ast.AST, old: str, new: str) -> Iterator[Edit]:
    """Rename the method of a call such as ``hvd.rank()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == old:
        line, end = node.func.end_lineno or 0, node.func.end_col_offset or 0
        yield Edit(start=(line, end - len(old)), end=(line, end), text=new)


def _by_rank_and_size(fixer: _Fixer) -> Iterator[Edit]:
    call = fixer.call("shard")
    if call is None:
        return
    index = argument_of(call, 1, "index")
    if index is not None and isinstance(constant_of(index), int) and fixer.hvd():
        yield _replace(index, f"{fixer.hvd()}.rank()")
    elif index is not None:
        yield from _renamed(index, "local_rank", "rank")


def _undivided(fixer: _Fixer) -> Iterator[Edit]:
    """Remove the division from ``epochs // hvd.size()``."""
    for node in fixer.nodes:
        if isinstance(node, ast.BinOp) and fixer.finding.message.endswith(ast.unparse(node)[:80]):
            line, start = node.left.end_lineno or 0, node.left.end_col_offset or 0
            between = fixer.lines[line - 1].encode()[start : node.right.col_offset].decode()
            match = _OPERATOR.search(between)
            if match is not None and node.right.lineno == line:
                start += len(between[: match.start()].encode())
                yield Edit(start=(line, start), end=(node.end_lineno or 0, node.end_col_offset or 0), text="")
            return


def _divided(fixer: _Fixer) -> list[Edit]:
    expressions = [node for node in fixer.nodes if isinstance(node, ast.expr)]
    if not expressions or not fixer.hvd():
        return []
    steps = max(expressions, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    is_product = isinstance(steps, ast.BinOp) and isinstance(steps.op, ast.Div | ast.FloorDiv | ast.Mult)
    is_simple = is_product or isinstance(steps, ast.Name | ast.Call | ast.Attribute | ast.Constant)
    left, right = ("", "") if is_simple else ("(", ")")
    return _around(steps, left, f"{right} // {fixer.hvd()}.size()")


def _on_the_root(fixer: _Fixer) -> Iterator[Edit]:
    """Put a statement that is one call under ``if hvd.rank() == 0``."""
    call = fixer.call()
    statement = fixer.view.script.statement_of(call) if call is not None else None
    if not isinstance(statement, ast.Expr) or statement.value is not call or not fixer.is_alone(statement):
        return
    texts = (node for node in ast.walk(statement) if isinstance(node, ast.Constant | ast.JoinedStr))
    if any(node.end_lineno != node.lineno for node in texts) or not fixer.hvd():
        return  # an indent would change a text of several lines
    indent = fixer.indent(statement)
    unit = "\t" if "\t" in indent else "    "
    yield _insert(statement.lineno, 0, f"{indent}if {fixer.hvd()}.rank() == 0:{fixer.newline}{unit}")
    for line in range(statement.lineno + 1, (statement.end_lineno or 0) + 1):
        yield _insert(line, 0, unit)


def _wrapped(fixer: _Fixer) -> list[Edit]:
    call = fixer.call("compile")
    optimizer = argument_of(call, 0, "optimizer") if call is not None else None
    if optimizer is None or isinstance(optimizer, ast.Constant) or not fixer.keras():
        return []
    return _around(optimizer, f"{fixer.keras()}.DistributedOptimizer(", ")")


def _broadcast(fixer: _Fixer) -> Iterator[Edit]:
    call = fixer.call("fit", "fit_generator")
    if call is None or not fixer.keras():
        return
    callbacks = keyword_of(call, "callbacks")
    callback = f"{fixer.keras()}.callbacks.BroadcastGlobalVariablesCallback(0)"
    lists = fixer.view.flow.origins(callbacks) if callbacks is not None else []
    if len(lists) == 1 and isinstance(lists[0], ast.List) and lists[0].elts:
        first = lists[0].elts[0]
        yield _insert(first.lineno, first.col_offset, f"{callback}, ")
    elif isinstance(callbacks, ast.List):
        yield _insert(callbacks.lineno, callbacks.col_offset + 1, callback)
    elif callbacks is None and call.keywords:
        last = call.keywords[-1].value
        yield _insert(last.end_lineno or 0, last.end_col_offset or 0, f", callbacks=[{callback}]")


def _without_comment(fixer: _Fixer) -> Iterator[Edit]:
    line = fixer.lines[fixer.finding.line - 1].rstrip("\r")
    match = _IGNORE.search(line)
    if match is not None and line[: match.start()].strip():
        start = len(line[: match.start()].encode())
        yield Edit(start=(fixer.finding.line, start), end=(fixer.finding.line, len(line.encode())), text="")
    elif match is not None and fixer.finding.line < len(fixer.lines):
        yield Edit(start=(fixer.finding.line, 0), end=(fixer.finding.line + 1, 0), text="")


_FIXES: Mapping[RuleCode, Callable[[_Fixer], Iterator[Edit] | list[Edit]]] = {
    RuleCode.MISSING_INIT: _initialised,
    RuleCode.USED_BEFORE_INIT: _initialised,
    RuleCode.OPTIMIZER_NOT_DISTRIBUTED: _wrapped,
    RuleCode.NO_INITIAL_BROADCAST: _broadcast,
    RuleCode.WRONG_GPU: _by_local_rank,
    RuleCode.WRONG_SHARD: _by_rank_and_size,
    RuleCode.EPOCHS_DIVIDED: _undivided,
    RuleCode.STEPS_NOT_DIVIDED: _divided,
    RuleCode.WRITTEN_BY_EVERY_RANK: _on_the_root,
    RuleCode.LOGGED_BY_EVERY_RANK: _on_the_root,
    RuleCode.IGNORED_WITHOUT_EFFECT: _without_comment,
}
FIXABLE = frozenset(_FIXES)
"""Rules whose findings may be fixed; advice never is."""
