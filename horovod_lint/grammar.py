"""Find errors that Python reports after parsing, such as a `return` outside a function.

The script is not compiled, because nested `finally` blocks can make the bytecode of a small script very large.
"""

from __future__ import annotations

import ast
import contextlib
import symtable
import warnings
from collections.abc import Iterator

_Scope = ast.AST | None
"""The innermost function, class, lambda or comprehension around a node; None at the level of the module."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LATE = "from __future__ imports must occur at the beginning of the file"
_AWAIT = "'await' outside function; put it into an async function, and start that with asyncio.run"


def refusal(tree: ast.Module, text: str, *, is_notebook: bool) -> tuple[int, str] | None:
    """Return the first line that Python refuses and the reason, or None.

    Notebook cells may use `await` at module level, and import from `__future__` anywhere.
    """
    found = list(_misplaced(tree, is_notebook=is_notebook))
    if not is_notebook:
        found += [(node.lineno, _LATE) for node in _late_futures(tree)]
    with contextlib.suppress(RecursionError, MemoryError):  # the depth of scripts is limited elsewhere
        found += _refused_names(text)
    return min(found, default=None)


def _refused_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield errors in names, such as a duplicate parameter or a `nonlocal` without a binding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, "<script>", "exec")
    except SyntaxError as error:
        yield error.lineno or 1, error.msg


def _misplaced(tree: ast.Module, *, is_notebook: bool) -> Iterator[tuple[int, str]]:
    stack: list[tuple[ast.AST, _Scope, bool]] = [(node, None, False) for node in tree.body]
    while stack:
        node, scope, is_loop = stack.pop()
        reason = _reason(node, scope, is_loop=is_loop) if isinstance(node, ast.stmt | ast.expr) else None
        if reason is not None and not (is_notebook and scope is None and reason == _AWAIT):
            yield getattr(node, "lineno", 1), reason
        stack += _children(node, scope, is_loop=is_loop)


def _reason(node: ast.AST, scope: _Scope, *, is_loop: bool) -> str | None:
    """Return why a node may not be where it is, in Python's words."""
    is_outside = scope is None or isinstance(scope, ast.ClassDef)
    if isinstance(node, ast.Return) and is_outside:
        return "'return' outside function"
    if isinstance(node, ast.Yield | ast.YieldFrom) and is_outside:
        return "'yield' outside function"
    if isinstance(node, ast.Break | ast.Continue) and not is_loop:
        return "'break' outside loop" if isinstance(node, ast.Break) else "'continue' not properly in loop"
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        if is_outside:
            return _AWAIT
        if isinstance(scope, ast.FunctionDef | ast.Lambda):
            return "'await' outside async function"
    return None


def _children(node: ast.AST, scope: _Scope, *, is_loop: bool) -> Iterator[tuple[ast.AST, _Scope, bool]]:
    """Yield the children of a node, each with its scope and whether it is in a loop of that scope."""
    inner: list[ast.AST] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inner = [*node.body]
    elif isinstance(node, ast.Lambda):
        inner = [node.body]
    elif isinstance(node, _COMPREHENSIONS):
        inner = [child for child in ast.iter_child_nodes(node) if child is not node.generators[0]]
        yield node.generators[0].iter, scope, is_loop
    looped = node.body if isinstance(node, ast.For | ast.AsyncFor | ast.While) else []
    yield from ((child, node, False) for child in inner)
    yield from ((child, scope, True) for child in looped)
    if not isinstance(node, _COMPREHENSIONS):
        apart = {*inner, *looped}
        others = (child for child in ast.iter_child_nodes(node) if child not in apart)
        yield from ((child, scope, is_loop) for child in others)


def _late_futures(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Yield the imports from `__future__` that follow a statement other than the module's docstring."""
    early: set[ast.AST] = set()
    for number, node in enumerate(tree.body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not _is_future(node):
            break
        early.add(node)
    yield from (
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _is_future(node) and node not in early
    )


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
