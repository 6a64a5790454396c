"""How training data is divided among the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.flow import Reach
from horovod_lint.rules import RuleCode
from horovod_lint.script import argument_of, constant_of, keyword_of, last_name
from horovod_lint.view import Fit, View, keras_fits, loops_over_data


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_sharding(view)
    yield from _check_shards(view)


# -- data_not_sharded, data_sampled
def _check_sharding(view: View) -> Iterator[Finding]:
    """Find training on the same data on every rank, in the same or another order."""
    if not view.uses_horovod or _is_elastic(view):
        return
    for fit in keras_fits(view):
        if fit.data is not None and not fit.hides_arguments:
            is_shuffled = fit.shuffles and not is_seeded_globally(view)
            yield from _unsharded(view, fit.call, fit.data, fit.steps, is_shuffled=is_shuffled)
    for iterated in dict.fromkeys(loops_over_data(view)):
        yield from _unsharded(view, iterated, iterated, None, is_shuffled=False)


def _is_elastic(view: View) -> bool:
    """Whether the number of ranks may change; elastic Horovod then decides how data is split."""
    names = (view.modules.horovod_name(node) or "" for node in view.script.nodes if isinstance(node, ast.Attribute))
    return any(name.startswith("elastic") for name in names)


def _unsharded(
    view: View, place: ast.expr, data: ast.expr, steps: ast.expr | None, *, is_shuffled: bool
) -> Iterator[Finding]:
    reach = view.flow.reach(data)
    if not reads_data(reach) or depends_on_rank(view, reach):
        return
    counted = reach.calls("take", "islice")
    share = divides_by_size(view, steps, *(argument for call in counted for argument in call.args))
    if share and (is_shuffled or shuffles(view, reach)):
        message = "each rank runs its share of the steps on data that it draws from all data"
        yield view.finding(RuleCode.DATA_SAMPLED, place, message)
    elif share:
        message = "the steps are split, but every rank runs them on the same first records"
        yield view.finding(RuleCode.DATA_NOT_SHARDED, place, message)
    else:
        yield view.finding(RuleCode.DATA_NOT_SHARDED, place, "the training data here does not depend on the rank")


# -- wrong_shard, shard_after_shuffle, shard_late, steps_may_differ
_COSTLY = ("map", "batch", "padded_batch", "ragged_batch")
_EVEN = ("take", "repeat", "even_splits")


def _check_shards(view: View) -> Iterator[Finding]:
    """Find data that are split wrongly, late, or perhaps unevenly."""
    if not view.uses_horovod:
        return
    for call in view.method_calls("shard"):
        number, index = argument_of(call, 0, "num_shards"), argument_of(call, 1, "index")
        if number is not None and index is not None:
            yield from _wrong_arguments(view, call, number, index)
            yield from _wrong_order(view, call, index)
    for node in view.script.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield from _slices(view, node, node.slice)
    for fit in keras_fits(view):
        yield from _unequal_steps(view, fit)


def _wrong_arguments(view: View, call: ast.Call, number: ast.expr, index: ast.expr) -> Iterator[Finding]:
    parts, place = _rank_kinds(view, number), _rank_kinds(view, index)
    if "rank" in parts and "size" in place and "size" not in parts and "rank" not in place:
        yield view.finding(RuleCode.WRONG_SHARD, call, "shard receives the rank as num_shards and the size as index")
    elif "size" in parts and place == {"local_rank"}:
        yield view.finding(RuleCode.WRONG_SHARD, call, "the index is the local rank: two nodes read the same records")
    elif "size" in parts and constant_of(index) is not None:
        yield view.finding(RuleCode.WRONG_SHARD, call, f"the index is {constant_of(index)!r} on every rank")


def _slices(view: View, node: ast.Subscript, part: ast.Slice) -> Iterator[Finding]:
    if part.lower is None or part.step is None:
        return
    if _rank_kinds(view, part.lower) == {"local_rank"} and "size" in _rank_kinds(view, part.step):
        message = "the slice starts at the local rank: two nodes read the same records"
        yield view.finding(RuleCode.WRONG_SHARD, node, message)
    elif _rank_kinds(view, part.lower) == {"rank"} and (shuffled := _shuffled_in_place(view, node)) is not None:
        message = f"slices by rank data that {view.script.where(shuffled.lineno)} shuffles differently on each rank"
        yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, node, message)


def _shuffled_in_place(view: View, node: ast.Subscript) -> ast.Call | None:
    """Return the unseeded ``random.shuffle`` of a list that is sliced later, None if there is none."""
    if not isinstance(node.value, ast.Name) or is_seeded_globally(view):
        return None
    for call in view.library_calls("random.shuffle"):
        same = [a for a in call.args[:1] if isinstance(a, ast.Name) and a.id == node.value.id]
        in_one_scope = view.script.function_of(call) is view.script.function_of(node)
        if same and in_one_scope and call.lineno < node.lineno and "random.shuffle" in ast.unparse(call.func):
            return call
    return None


def _wrong_order(view: View, call: ast.Call, index: ast.expr) -> Iterator[Finding]:
    if not view.flow.has("rank", index) or not isinstance(call.func, ast.Attribute):
        return
    before = list(operations_before(view, call.func.value))
    for operation in before:
        if last_name(operation) == "shuffle" and not is_seeded(view, operation):
            message = f"shards data that {view.script.where(operation.lineno)} shuffles differently on each rank"
            yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, call, message)
            return
        if last_name(operation) == "list_files" and not is_seeded(view, operation) and not _keeps_order(operation):
            listed = view.script.where(operation.lineno)
            message = f"shards files that list_files on {listed} shuffles differently on each rank"
            yield view.finding(RuleCode.SHARD_AFTER_SHUFFLE, call, message)
            return
    late = next((operation for operation in before if last_name(operation) in _COSTLY), None)
    if late is not None and _is_tensorflow_data(before):
        message = f"shards after {last_name(late)} on {view.script.where(late.lineno)}"
        yield view.finding(RuleCode.SHARD_LATE, call, message)


def _keeps_order(call: ast.Call) -> bool:
    shuffle = argument_of(call, 1, "shuffle")
    return shuffle is not None and not (isinstance(shuffle, ast.Constant) and shuffle.value is True)


def _is_tensorflow_data(chain: list[ast.Call]) -> bool:
    """Whether a chain begins by reading records; the steps before a parameter are not known."""
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
        message = "fit counts the steps of an epoch by this rank's own share of the data"
        yield view.finding(RuleCode.STEPS_MAY_DIFFER, fit.call, message)


def _rank_kinds(view: View, node: ast.expr) -> set[str]:
    return {kind for each in view.flow.reach(node).nodes if (kind := view.flow.rank_kind(each)) is not None}


# -- datasets: their origin, also for the other checks
READERS = frozenset(
    {
        *("load_data", "TFRecordDataset", "FixedLengthRecordDataset", "TextLineDataset", "CsvDataset", "list_files"),
        *(
            "image_dataset_from_directory",
            "text_dataset_from_directory",
            "make_csv_dataset",
            "flow",
            "flow_from_directory",
        ),
        *("flow_from_dataframe", "load", "read_csv", "read_parquet", "loadtxt", "genfromtxt", "File", "open"),
        *("fetch_openml", "load_digits", "load_iris", "load_breast_cancer", "load_wine", "glob", "listdir", "iglob"),
        *("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "ImageFolder", "ImageNet", "memmap", "read_table", "rglob"),
    }
)
"""Calls that load the same data on every rank."""
SHARDING = ("shard", "DistributedSampler", "ElasticSampler", "even_splits", "make_reader", "make_batch_reader")
_SEEDING = ("set_seed", "set_random_seed", "seed")
_MAX_CHAIN = 60


def reads_data(reach: Reach) -> bool:
    """Whether data are read, not generated at random as for a benchmark."""
    return any(True for _ in reach.calls(*READERS))


def depends_on_rank(view: View, reach: Reach) -> bool:
    """Whether data depend on the rank, or may do so in code that the script does not show."""
    own = any(isinstance(node, ast.Name | ast.Attribute) and view.modules.is_own(node) for node in reach.nodes)
    by_rank = any("rank" in (view.flow.rank_kind(node) or "") for node in reach.nodes)
    return by_rank or bool(reach.unknown) or own or bool(reach.calls(*SHARDING))


def divides_by_size(view: View, *nodes: ast.AST | None) -> list[ast.BinOp]:
    """Return the divisions by the number of ranks in the computation of values."""
    return [
        node
        for node in view.flow.reach(*nodes).nodes
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.FloorDiv)
        and view.flow.has("size", node.right)
    ]


def operations_before(view: View, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a dataset's chain, last first: ``c``, ``b``, ``a`` of ``d.a().b().c()``."""
    pending, seen = [node], 0
    while pending and seen < _MAX_CHAIN:
        seen += 1
        current = pending.pop()
        if isinstance(current, ast.Call):
            yield current
            is_method = isinstance(current.func, ast.Attribute) and not view.modules.paths(current.func)
            if is_method and isinstance(current.func, ast.Attribute):
                pending.append(current.func.value)
        elif isinstance(current, ast.Name | ast.Attribute):
            pending += [origin for origin in view.flow.origins(current) if origin is not current]


def is_seeded(view: View, call: ast.Call) -> bool:
    """Whether a call shuffles in the same order on every rank."""
    seed = argument_of(call, 1, "seed") if last_name(call) == "shuffle" else keyword_of(call, "seed")
    if seed is not None and constant_of(seed) is None and view.flow.has("rank", seed):
        return False
    return (seed is not None and not _is_none(seed)) or is_seeded_globally(view)


def is_seeded_globally(view: View) -> bool:
    """Whether every rank uses the same random seed."""
    calls = [call for call in view.method_calls(*_SEEDING) if call.args and view.modules.paths(call.func)]
    return any(not view.flow.has("rank", call.args[0]) for call in calls)


def shuffles(view: View, reach: Reach) -> bool:
    """Whether ranks read the same data in different orders."""
    found = reach.calls(
        "shuffle", "flow", "flow_from_directory", "flow_from_dataframe", "image_dataset_from_directory"
    )
    return any(not is_seeded(view, call) and not _is_false(keyword_of(call, "shuffle")) for call in found)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
