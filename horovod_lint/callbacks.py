"""What a list of Keras callbacks holds, in its order, as far as the script shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from horovod_lint.flow import returns_of
from horovod_lint.syntax import How, constant_of, dotted_text, last_name
from horovod_lint.view import View

_MAX_DEPTH = 8


@dataclass(frozen=True)
class Item:
    """One callback."""

    call: ast.Call | None
    """What makes it; None where the script does not show."""
    is_guarded: bool
    """Whether only some ranks have it in their list."""

    @property
    def name(self) -> str:
        """The class's name, without its module."""
        return last_name(self.call) if self.call is not None else ""


def callback_items(view: View, expression: ast.expr | None) -> list[Item]:
    """Return the callbacks of a list in their order; what cannot be told is an item without a call."""
    if expression is None:
        return []
    return list(_items(view, expression, is_guarded=False, depth=0))


def _items(view: View, node: ast.expr, *, is_guarded: bool, depth: int) -> Iterator[Item]:
    view.script.spend()
    if depth >= _MAX_DEPTH:
        yield Item(None, is_guarded)
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _of_element(view, element, is_guarded=is_guarded, depth=depth)
    elif isinstance(node, ast.BinOp | ast.IfExp):
        is_choice = isinstance(node, ast.IfExp) and view.guards.depends_on_rank(node.test)
        sides = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node.left, node.right)
        for side in sides:
            yield from _items(view, side, is_guarded=is_guarded or is_choice, depth=depth + 1)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _of_name(view, node, is_guarded=is_guarded, depth=depth)
    elif isinstance(node, ast.Call):
        yield from _of_call(view, node, is_guarded=is_guarded, depth=depth)
    elif not isinstance(node, ast.Constant):
        yield Item(None, is_guarded)


def _of_element(view: View, element: ast.expr, *, is_guarded: bool, depth: int) -> Iterator[Item]:
    if isinstance(element, ast.Starred):
        yield from _items(view, element.value, is_guarded=is_guarded, depth=depth + 1)
    else:
        yield _item(view, element, is_guarded=is_guarded)


def _item(view: View, element: ast.expr, *, is_guarded: bool) -> Item:
    origins = [origin for origin in view.flow.origins(element) if constant_of(origin) is None]
    calls = [origin for origin in origins if isinstance(origin, ast.Call)]
    guarded = is_guarded or bool(view.guards.splits_around(element))
    return Item(calls[0] if len(calls) == 1 and len(origins) == 1 else None, guarded)


def _of_call(view: View, call: ast.Call, *, is_guarded: bool, depth: int) -> Iterator[Item]:
    # what a function returns, by the name it returns: what was appended to that belongs to it
    sources = [value for function in view.flow.functions_called(call) for value in returns_of(function)]
    if sources:
        for source in sources:
            yield from _items(view, source, is_guarded=is_guarded, depth=depth + 1)
    elif last_name(call) in ("CallbackList", "list", "tuple") and call.args:
        yield from _items(view, call.args[0], is_guarded=is_guarded, depth=depth + 1)
    elif last_name(call) not in ("list", "tuple"):
        yield Item(None, is_guarded)


def _of_name(view: View, node: ast.Name | ast.Attribute, *, is_guarded: bool, depth: int) -> Iterator[Item]:
    script = view.script
    bindings = (
        script.lookup(node) if isinstance(node, ast.Name) else script.attributes.get(dotted_text(node) or "", [])
    )
    items: list[Item] = []
    for binding in view.flow.latest(bindings, node):
        guarded = is_guarded or bool(view.guards.splits_around(binding.place))
        values = [binding.value] if binding.value is not None else view.flow.arguments_given(binding)
        if binding.how is How.CHANGED and isinstance(binding.place, ast.Call) and binding.value is not None:
            items = _changed(view, binding.place, binding.value, items, is_guarded=guarded, depth=depth)
            continue
        if not values or binding.how in (How.ITERATED, How.OTHER):
            items.append(Item(None, guarded))
        for value in values:
            items += _items(view, value, is_guarded=guarded, depth=depth + 1)
    yield from items if bindings else [Item(None, is_guarded)]


def _changed(
    view: View, call: ast.Call, value: ast.expr, items: list[Item], *, is_guarded: bool, depth: int
) -> list[Item]:
    """Return the items after one ``append``, ``extend`` or ``insert``."""
    if last_name(call) == "extend":
        return [*items, *_items(view, value, is_guarded=is_guarded, depth=depth + 1)]
    item = _item(view, value, is_guarded=is_guarded)
    if last_name(call) == "insert" and constant_of(call.args[0]) == 0:
        return [item, *items]
    return [*items, item]
