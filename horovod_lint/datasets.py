"""What a script's training data are made of, and how an epoch of them is counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.flow import Reach
from horovod_lint.syntax import argument_of, constant_of, keyword_of, last_name
from horovod_lint.view import View

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
"""Calls that bring in data of which every rank would get the same."""
SHARDING = ("shard", "DistributedSampler", "ElasticSampler", "even_splits", "make_reader", "make_batch_reader")
_SEEDING = ("set_seed", "set_random_seed", "seed")
_MAX_CHAIN = 60


def reads_data(reach: Reach) -> bool:
    """Whether data are read, not drawn at random as for a benchmark."""
    return any(True for _ in reach.calls(*READERS))


def is_shared_out(view: View, reach: Reach) -> bool:
    """Whether a rank has any say in what the data are, or may have where the script does not show."""
    own = any(isinstance(node, ast.Name | ast.Attribute) and view.modules.is_own(node) for node in reach.nodes)
    by_rank = any("rank" in (view.flow.rank_kind(node) or "") for node in reach.nodes)
    return by_rank or bool(reach.unknown) or own or bool(reach.calls(*SHARDING))


def divides_by_size(view: View, *nodes: ast.AST | None) -> list[ast.BinOp]:
    """Return the divisions by the number of ranks that values are made with."""
    return [
        node
        for node in view.flow.reach(*nodes).nodes
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.FloorDiv)
        and view.flow.has("size", node.right)
    ]


def operations_before(view: View, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a dataset's chain from its end backwards: ``c``, ``b``, ``a`` of ``d.a().b().c()``."""
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
    """Whether a call that shuffles does so in the same order on every rank."""
    seed = argument_of(call, 1, "seed") if last_name(call) == "shuffle" else keyword_of(call, "seed")
    if seed is not None and constant_of(seed) is None and view.flow.has("rank", seed):
        return False
    return (seed is not None and not _is_none(seed)) or is_seeded_globally(view)


def is_seeded_globally(view: View) -> bool:
    """Whether every rank draws its random numbers from the same seed."""
    calls = [call for call in view.method_calls(*_SEEDING) if call.args and view.modules.paths(call.func)]
    return any(not view.flow.has("rank", call.args[0]) for call in calls)


def shuffles(view: View, reach: Reach) -> bool:
    """Whether ranks get the same data in different orders."""
    found = reach.calls(
        "shuffle", "flow", "flow_from_directory", "flow_from_dataframe", "image_dataset_from_directory"
    )
    return any(not is_seeded(view, call) and not _is_false(keyword_of(call, "shuffle")) for call in found)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
