"""How data are shared out: by what, in which order, and in equal parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.datasets import (
    divides_by_size,
    is_seeded,
    is_seeded_globally,
    operations_before,
)
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import argument_of, constant_of, keyword_of, last_name
from horovod_lint.training import Fit, keras_fits
from horovod_lint.view import View

_COSTLY = ("map", "batch", "padded_batch", "ragged_batch")
_EVEN = ("take", "repeat", "even_splits")


def check(view: View) -> Iterator[Finding]:
    """Find data that are shared out wrongly, late, or perhaps unevenly."""
    if not view.uses_horovod:
        return
    for call in view.method_calls("shard"):
        number, index = argument_of(call, 0, "num_shards"), argument_of(call, 1, "index")
        if number is not None and index is not None:
            yield from _shares(view, call, number, index)
            yield from _order(view, call, index)
    for node in view.script.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield from _slices(view, node, node.slice)
    for fit in keras_fits(view):
        yield from _unequal_steps(view, fit)


def _shares(view: View, call: ast.Call, number: ast.expr, index: ast.expr) -> Iterator[Finding]:
    parts, place = _kinds(view, number), _kinds(view, index)
    if "rank" in parts and "size" in place and "size" not in parts and "rank" not in place:
        yield view.finding(
            RuleCode.WRONG_SHARD, call, "shard is given the rank as the number and the size as the index"
        )
    elif "size" in parts and place == {"local_rank"}:
        yield view.finding(
            RuleCode.WRONG_SHARD, call, "the index is the rank within the node: two nodes read the same"
        )
    elif "size" in parts and constant_of(index) is not None:
        yield view.finding(RuleCode.WRONG_SHARD, call, f"the index is {constant_of(index)!r} on every rank")


def _slices(view: View, node: ast.Subscript, part: ast.Slice) -> Iterator[Finding]:
    if part.lower is None or part.step is None:
        return
    if _kinds(view, part.lower) == {"local_rank"} and "size" in _kinds(view, part.step):
        message = "the slice starts at the rank within the node: two nodes read the same"
        yield view.finding(RuleCode.WRONG_SHARD, node, message)
    elif _kinds(view, part.lower) == {"rank"} and (shuffled := _shuffled_in_place(view, node)) is not None:
        message = f"what is sliced by rank was shuffled differently on each in line {shuffled.lineno}"
        yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, node, message)


def _shuffled_in_place(view: View, node: ast.Subscript) -> ast.Call | None:
    """Return the unseeded ``random.shuffle`` of what is sliced, None where there is none."""
    if not isinstance(node.value, ast.Name) or is_seeded_globally(view):
        return None
    for call in view.library_calls("random.shuffle"):
        same = [a for a in call.args[:1] if isinstance(a, ast.Name) and a.id == node.value.id]
        in_one_scope = view.script.function_of(call) is view.script.function_of(node)
        if same and in_one_scope and call.lineno < node.lineno and "random.shuffle" in ast.unparse(call.func):
            return call
    return None


def _order(view: View, call: ast.Call, index: ast.expr) -> Iterator[Finding]:
    if not view.flow.has("rank", index) or not isinstance(call.func, ast.Attribute):
        return
    before = list(operations_before(view, call.func.value))
    for operation in before:
        if last_name(operation) == "shuffle" and not is_seeded(view, operation):
            message = f"the data were shuffled in line {operation.lineno}, on each rank in its own order"
            yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, call, message)
            return
        if last_name(operation) == "list_files" and not is_seeded(view, operation) and not _keeps_order(operation):
            message = f"list_files in line {operation.lineno} shuffles, on each rank in its own order"
            yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, call, message)
            return
    late = next((operation for operation in before if last_name(operation) in _COSTLY), None)
    if late is not None and _is_tensorflow_data(before):
        message = f"sharded after {last_name(late)} in line {late.lineno}"
        yield view.finding(RuleCode.SHARD_LATE, call, message)


def _keeps_order(call: ast.Call) -> bool:
    shuffle = argument_of(call, 1, "shuffle")
    return shuffle is not None and not (isinstance(shuffle, ast.Constant) and shuffle.value is True)


def _is_tensorflow_data(chain: list[ast.Call]) -> bool:
    """Whether a chain begins where records are read: of what comes before a parameter nothing is known."""
    return any(last_name(call).endswith("Dataset") or last_name(call).startswith("from_") for call in chain)


def _unequal_steps(view: View, fit: Fit) -> Iterator[Finding]:
    if fit.data is None or fit.steps is not None or fit.hides_arguments or any(view.horovod_calls("join")):
        return
    reach = view.flow.reach(fit.data)
    if reach.unknown or reach.calls(*_EVEN) or divides_by_size(view, fit.data):
        return
    sharded = [
        c
        for c in reach.calls("shard", "array_split")
        if view.flow.has("rank", *c.args) or view.flow.has("size", *c.args)
    ]
    sliced = [
        n for n in reach.nodes if isinstance(n, ast.Slice) and n.step is not None and view.flow.has("rank", n.lower)
    ]
    if (sharded or sliced) and keyword_of(fit.call, "steps_per_epoch") is None:
        message = "fit counts the steps of an epoch from this rank's own share"
        yield view.finding(RuleCode.STEPS_MAY_DIFFER, fit.call, message)


def _kinds(view: View, node: ast.expr) -> set[str]:
    return {kind for each in view.flow.reach(node).nodes if (kind := view.flow.rank_kind(each)) is not None}
