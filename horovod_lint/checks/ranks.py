"""Operations that every rank must do, and those that only one rank may do."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

from horovod_lint.checks.connection import is_distributed
from horovod_lint.checks.data import depends_on_rank, divides_by_size
from horovod_lint.findings import Finding
from horovod_lint.reachability import leaves
from horovod_lint.rules import RuleCode
from horovod_lint.script import FunctionNode, argument_of, constant_of, keyword_of, last_name
from horovod_lint.view import CallbackItem, Fit, View, callback_items, compiles, keras_fits, tape_steps, torch_steps


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_collectives(view)
    yield from _check_metrics(view)
    yield from _check_writes(view)


# -- collective_on_some_ranks
_COLLECTIVE_STEMS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join")
_COLLECTIVE_CLASSES = ("BroadcastGlobalVariablesCallback", "MetricAverageCallback", "DistributedGradientTape")


def _check_collectives(view: View) -> Iterator[Finding]:
    """Find collective operations under a condition on the rank whose other branch has none."""
    collectives = _collectives(view)
    functions = _functions_around(view, collectives)
    calls = [call for call in view.script.calls if last_name(call) in functions and not view.modules.paths(call.func)]
    every = collectives | dict.fromkeys(calls, "")
    for call, name in every.items():
        test = _splitting_test(view, call, set(every))
        if test is not None:
            what = name or f"{last_name(call)}, which calls collective operations,"
            verb = "does not run" if _excludes(view, test, call) else "runs only"
            message = f"{what} {verb} on the ranks that {ast.unparse(test)[:80]} selects"
            yield view.finding(RuleCode.COLLECTIVE_ON_SOME_RANKS, call, message)


def _collectives(view: View) -> dict[ast.Call, str]:
    found: dict[ast.Call, str] = {}
    for call in view.script.calls:
        name = (view.modules.horovod_name(call) or "").rpartition(".")[2]
        is_one = name in _COLLECTIVE_CLASSES or (
            any(stem in name for stem in _COLLECTIVE_STEMS) and not name.endswith(("Hook", "_fn"))
        )
        if is_one and keyword_of(call, "process_set") is None:
            found[call] = f"Horovod's {name}"
    compiled = {
        ast.unparse(call.func.value)
        for call in compiles(view)
        if isinstance(call.func, ast.Attribute) and is_distributed(view, call)
    }
    fits = [fit for fit in keras_fits(view) if ast.unparse(fit.receiver) in compiled]
    return found | {fit.call: "fit with a distributed optimizer" for fit in fits}


def _functions_around(view: View, collectives: dict[ast.Call, str]) -> set[str]:
    """Return the script's functions that call collective operations on every rank, also through others."""
    names: set[str] = set()
    pending: list[ast.Call] = list(collectives)
    while pending:
        call = pending.pop()
        function = view.script.function_of(call)
        if function is None or function.name in names or view.guards.splits_around(call):
            continue
        if view.script.class_of(function) is not None:
            continue  # the name of a method does not tell its class
        names.add(function.name)
        pending += view.flow.calls_of(function)
    return names


def _splitting_test(view: View, call: ast.Call, every: set[ast.Call]) -> ast.expr | None:
    """Return the condition that excludes some ranks, None if those make a collective call as well."""
    for test in view.guards.splits_around(call):
        owner = view.script.parents.get(test)
        if view.guards.is_alone(test) or owner is None or _is_negligible(view, test):
            continue
        if not _has_counterpart(view, owner, call, every):
            return test
    return None


def _excludes(view: View, test: ast.expr, call: ast.Call) -> bool:
    """Whether the ranks that a condition selects are those that do not make a call."""
    owner = view.script.parents[test]
    if isinstance(owner, ast.BoolOp):
        return isinstance(owner.op, ast.Or)
    if isinstance(owner, ast.If) and owner not in view.script.ancestors(call):
        return leaves(owner.body)
    return _branch(view, owner, call) == "orelse"


def _is_negligible(view: View, test: ast.expr) -> bool:
    """Whether the condition only looks like one on the rank by its names; then nothing is reported."""
    return not view.flow.has("rank", test)


def _has_counterpart(view: View, owner: ast.AST, call: ast.Call, every: set[ast.Call]) -> bool:
    inside = [each for each in every if owner in set(view.script.ancestors(each))]
    branches = {_branch(view, owner, each) for each in inside}
    own = _branch(view, owner, call) if call in inside else None
    return bool(branches - {own}) or (isinstance(owner, ast.If) and _has_opposite(view, owner, call, every))


def _has_opposite(view: View, owner: ast.If, call: ast.Call, every: set[ast.Call]) -> bool:
    """Whether the ranks that skip an ``if`` make its call in another one of the block, with no other call between."""
    parent = view.script.parents[owner]
    block = {statement: place for place, statement in enumerate(getattr(parent, _branch(view, parent, owner), []))}
    names: dict[ast.AST, set[str]] = defaultdict(set)
    for each in every:
        for statement in view.script.ancestors(each):
            if statement in block:
                names[statement].add(last_name(each))
    pairs = itertools.pairwise(sorted(names, key=block.__getitem__))
    return any(
        owner in (one, other) and last_name(call) in names[one] & names[other] and _are_opposite(one, other)
        for one, other in pairs
    )


def _are_opposite(one: ast.AST, other: ast.AST) -> bool:
    """Whether each rank runs exactly one of two statements."""
    if not isinstance(one, ast.If) or not isinstance(other, ast.If) or one.orelse or other.orelse:
        return False
    (test, negated), (other_test, other_negated) = _without_negation(one.test), _without_negation(other.test)
    return test == other_test and negated != other_negated


def _without_negation(test: ast.expr) -> tuple[str, bool]:
    """Return a condition and whether it is negated; for a rank, ``r != 0``, ``r > 0`` and ``r`` negate ``r == 0``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        text, negated = _without_negation(test.operand)
        return text, not negated
    if not isinstance(test, ast.Compare):
        return f"{ast.unparse(test)} == 0", True
    right, operator = ast.unparse(test.comparators[0]), test.ops[0]
    is_equality = isinstance(operator, ast.Eq | ast.NotEq) or (isinstance(operator, ast.Gt) and right == "0")
    if len(test.ops) > 1 or not is_equality:
        return ast.unparse(test), False
    return f"{ast.unparse(test.left)} == {right}", not isinstance(operator, ast.Eq)


def _branch(view: View, owner: ast.AST, node: ast.AST) -> str:
    child: ast.AST = node
    for ancestor in view.script.ancestors(node):
        if ancestor is owner:
            break
        child = ancestor
    for name in ("body", "orelse"):
        block = getattr(owner, name, None)
        view.script.spend(len(block) if isinstance(block, list) else 0)
        if block is child or (isinstance(block, list) and child in block):
            return name
    return ""


# -- metrics_not_averaged
_DECIDING = frozenset({"EarlyStopping", "ReduceLROnPlateau", "BestModelCheckpoint"})
_AVERAGING = re.compile(r"all_?reduce|allgather|broadcast", re.IGNORECASE)
_WEIGHT_CALLS = re.compile(r"variables|parameters|optimizer_state|BroadcastGlobal", re.IGNORECASE)
_METRIC = re.compile(r"loss|acc|auc|metric|score|patience|best|(^|_)val(_|$)", re.IGNORECASE)


def _check_metrics(view: View) -> Iterator[Finding]:
    """Find callbacks that decide by a rank's own metrics, and loops that such a metric ends."""
    if not view.uses_horovod:
        return
    for fit in keras_fits(view):
        items = callback_items(view, fit.callbacks)
        for number, item in enumerate(items):
            if _decides(item) and item.call is not None and not _sees_all_validation(view, fit, item):
                yield from _decision_finding(view, item.call, items, number)
    yield from _loops_that_stop_early(view)


def _decides(item: CallbackItem) -> bool:
    if item.call is None:
        return False
    best_only = keyword_of(item.call, "save_best_only")
    saves_best = item.name == "ModelCheckpoint" and best_only is not None and constant_of(best_only) is not False
    return item.name in _DECIDING or saves_best


def _sees_all_validation(view: View, fit: Fit, item: CallbackItem) -> bool:
    """Whether only the root saves the best model, by a metric on validation data that are the same on every rank."""
    data, steps = keyword_of(fit.call, "validation_data"), keyword_of(fit.call, "validation_steps")
    if item.call is None or not item.is_guarded or item.name != "ModelCheckpoint" or data is None:
        return False
    monitor = argument_of(item.call, 1, "monitor")
    is_on_validation = monitor is None or str(constant_of(monitor)).startswith("val_")
    return is_on_validation and not depends_on_rank(view, view.flow.reach(data)) and not divides_by_size(view, steps)


def _decision_finding(view: View, call: ast.Call, items: list[CallbackItem], number: int) -> Iterator[Finding]:
    before, after = items[:number], items[number + 1 :]
    if any(item.call is None or _averages(view, item) for item in before):
        return
    late = next((item.call for item in after if item.call is not None and _averages(view, item)), None)
    if late is not None:
        message = (
            f"{last_name(call)} comes before the callback that averages metrics ({view.script.where(late.lineno)})"
        )
    elif any(item.call is None for item in after) and last_name(call) == "ModelCheckpoint":
        return
    else:
        message = f"{last_name(call)} decides by metrics that are not averaged over the ranks"
    yield view.finding(RuleCode.METRICS_NOT_AVERAGED, call, message)


def _averages(view: View, item: CallbackItem) -> bool:
    """Whether a callback averages metrics: Horovod's own, or one of the script that calls Horovod."""
    paths = view.modules.paths(item.call.func) if item.call is not None else frozenset()
    if any(path.endswith(".MetricAverageCallback") for path in paths):
        return True
    own = view.script.classes.get(item.name, [])
    elsewhere = item.call is not None and (view.modules.is_own(item.call.func) or not (paths or own))
    names = (last_name(call) for each in own for call in ast.walk(each) if isinstance(call, ast.Call))
    bases = (last_name(base) for each in own for base in each.bases)
    return elsewhere or any(_AVERAGING.search(name) for name in names) or "MetricAverageCallback" in set(bases)


def _loops_that_stop_early(view: View) -> Iterator[Finding]:
    """Find hand-written epoch loops that one rank may leave before the others."""
    others = {last_name(call) for call in view.script.calls} - set(
        view.script.functions
    )  # those of the script are checked themselves
    if any(_AVERAGING.search(name) and not _WEIGHT_CALLS.search(name) for name in others):
        return
    steps: list[ast.AST] = [*(step.gradient for step in tape_steps(view)), *torch_steps(view)]
    if not steps or view.modules.own:
        return
    for node in view.script.nodes:
        if (
            isinstance(node, ast.Break)
            and (test := _metric_condition(view, node)) is not None
            and _is_in_epochs(view, node)
        ):
            message = f"this rank alone leaves the loop over epochs if {ast.unparse(test)[:80]}"
            yield view.finding(RuleCode.METRICS_NOT_AVERAGED, node, message)


def _metric_condition(view: View, node: ast.AST) -> ast.expr | None:
    """Return the condition on a metric that ends a loop; conditions on the rank do not count."""
    for ancestor in view.script.ancestors(node):
        if isinstance(ancestor, ast.For | ast.While | FunctionNode):
            return None
        if isinstance(ancestor, ast.If):
            names = [n for n in ast.walk(ancestor.test) if isinstance(n, ast.Name | ast.Attribute)]
            if any(_METRIC.search(last_name(name)) for name in names) and not view.guards.depends_on_rank(
                ancestor.test
            ):
                return ancestor.test
    return None


def _is_in_epochs(view: View, node: ast.AST) -> bool:
    loop = next((a for a in view.script.ancestors(node) if isinstance(a, ast.For)), None)
    return loop is not None and "epoch" in ast.unparse(loop.target).lower()


# -- written_by_every_rank, logged_by_every_rank
_WRITING_CALLBACKS = frozenset({"ModelCheckpoint", "BackupAndRestore", "CSVLogger", "BestModelCheckpoint"})
_LOGGING_CALLBACKS = frozenset({"TensorBoard", "MlflowCallback", "MLflowCallback", "WandbCallback"})
_WRITING_METHODS = frozenset(
    {
        *("save", "save_weights", "save_pretrained", "to_csv", "to_parquet", "to_pickle", "to_json", "savefig"),
        *("write_text", "write_bytes", "to_hdf", "to_feather", "export", "write_out"),
    }
)
_WRITING_FUNCTIONS = (
    *("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "joblib.dump", "torch.save"),
    *("saved_model.save", "models.save_model", "saving.save_model", "pyplot.savefig", "io.write_file"),
    *("TFRecordWriter", "gfile.GFile", "gfile.Open"),
)
_WRITING_TO_A_PATH = frozenset({"to_json", "to_csv", "export", "write_out"})
"""Without a path they return a text, or are methods of another kind of object."""
_PATH_IS_SECOND = ("saved_model.save", "torch.save")
_WRITER = re.compile(r"Sav(er|ing)|Checkpoint|Export|Writer|Logger|Manager|Report|Recorder|Tracker")
_OPENING = frozenset({"open", "GFile", "Open"})
_WRITING_SESSIONS = ("train.MonitoredTrainingSession", "estimator.Estimator")
"""Sessions that save checkpoints of TensorFlow 1 into a folder that they get."""
_SUMMARIES = ("create_file_writer", "SummaryWriter", "FileWriter")
_NOWHERE = ("tempfile", "devnull", "/dev/null", "StringIO", "BytesIO", "mkdtemp", "TemporaryDirectory")
_MLFLOW_VERBS = frozenset({"log", "set", "start", "autolog", "register", "create", "end"})


def _check_writes(view: View) -> Iterator[Finding]:
    """Find files and metrics that every rank writes."""
    if not view.uses_horovod or view.starts_ranks:
        return
    yield from _writing_callbacks(view)
    for call in view.script.calls:
        path = _written_path(view, call)
        if path is not None and not _is_on_some_ranks(view, call) and not _differs_by_rank(view, path):
            message = f"every rank calls {ast.unparse(call.func)[:60]}"
            yield view.finding(RuleCode.WRITTEN_BY_EVERY_RANK, call, message)
    yield from _metric_logs(view)


def _writing_callbacks(view: View) -> Iterator[Finding]:
    for fit in keras_fits(view):
        if _is_on_some_ranks(view, fit.call):
            continue
        for item in callback_items(view, fit.callbacks):
            if item.call is None or item.is_guarded or view.guards.is_guarded(item.call):
                continue
            path = argument_of(item.call, 0, "filepath", "filename", "log_dir", "backup_dir")
            if path is not None and _differs_by_rank(view, path):
                continue
            if item.name in _WRITING_CALLBACKS:
                message = f"this {item.name} callback is in every rank's list"
                yield view.finding(RuleCode.WRITTEN_BY_EVERY_RANK, item.call, message)
            elif item.name in _LOGGING_CALLBACKS:
                yield view.finding(
                    RuleCode.LOGGED_BY_EVERY_RANK, item.call, f"this {item.name} callback is in every rank's list"
                )


def _written_path(view: View, call: ast.Call) -> ast.expr | None:
    """Return the path that a call writes to, None if it is not known to write."""
    name, paths = last_name(call), view.modules.paths(call.func)
    if name in _OPENING:
        return _opened_to_write(view, call)
    if any(f".{path}".endswith(f".{known}") for path in paths for known in _WRITING_FUNCTIONS):
        is_second = name in ("dump", "save_model") or any(p.endswith(_PATH_IS_SECOND) for p in paths)
        path = argument_of(call, int(is_second), "file", "filename", "export_dir", "filepath", "f", "fname")
        return path or call.func
    if any(path.endswith(_WRITING_SESSIONS) for path in paths):
        folder = keyword_of(call, "checkpoint_dir") or keyword_of(call, "model_dir")
        return None if folder is None or _is_chosen_by_rank(view, folder) else folder
    if not isinstance(call.func, ast.Attribute) or name not in _WRITING_METHODS or paths:
        return None
    if name in ("write_text", "write_bytes"):
        return call.func.value
    has_path = bool(call.args) or keyword_of(call, "path_or_buf", "filepath") is not None
    return _path_of_method(view, call) if has_path or name not in _WRITING_TO_A_PATH else None


def _is_chosen_by_rank(view: View, folder: ast.expr) -> bool:
    """Whether a folder is None, which saves nothing, or one that a condition on the rank has chosen."""
    if isinstance(folder, ast.Constant):
        return folder.value is None
    return any(view.guards.is_guarded(node) for node in view.flow.reach(folder).nodes)


def _path_of_method(view: View, call: ast.Call) -> ast.expr | None:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    origins = view.flow.origins(receiver)
    if any(isinstance(o, ast.Call) and "State" in last_name(o) for o in origins):
        return None  # an elastic state stays in memory
    if any(isinstance(o, ast.Call) and view.modules.is_own(o.func) and _WRITER.search(last_name(o)) for o in origins):
        return None  # a class of a module that the lint does not see; it may check the rank itself
    own = [f for f in view.script.functions.get(last_name(call), []) if view.script.class_of(f) is not None]
    if own and view.script.function_of(call) not in own:
        return None  # a method of the script, which is checked itself; it may call a model's method
    path = argument_of(call, 0, "filepath", "path", "fname", "fp", "file_prefix", "checkpoint_prefix", "path_or_buf")
    return path or receiver


def _opened_to_write(view: View, call: ast.Call) -> ast.expr | None:
    is_builtin = isinstance(call.func, ast.Name) and call.func.id == "open"
    is_library = any(
        p.endswith(("gfile.GFile", "gfile.Open", "gzip.open", "io.open")) for p in view.modules.paths(call.func)
    )
    is_path = isinstance(call.func, ast.Attribute) and call.func.attr == "open" and not view.modules.paths(call.func)
    mode = argument_of(call, 0 if is_path else 1, "mode")
    text = constant_of(mode)
    if not isinstance(text, str) or not set(text) & set("wax+") or len(text) > len("rb+t"):
        return None
    if is_path and isinstance(call.func, ast.Attribute):
        return call.func.value
    return argument_of(call, 0, "file", "name") if is_builtin or is_library else None


def _is_on_some_ranks(view: View, call: ast.Call) -> bool:
    return view.guards.is_guarded(call) or view.guards.is_kept_for_root(call)


def _differs_by_rank(view: View, path: ast.expr) -> bool:
    """Whether each rank writes to a different place, or may do so in code that the script does not show."""
    reach = view.flow.reach(path)
    texts = {str(node.value) for node in reach.nodes if isinstance(node, ast.Constant)}
    names = {last_name(node) for node in reach.nodes}
    own = any(isinstance(n, ast.Call) and view.modules.is_own(n.func) for n in reach.nodes)
    return (
        view.flow.has("rank", path) or own or bool((texts | names) & set(_NOWHERE)) or _comes_from_outside(view, path)
    )


def _comes_from_outside(view: View, path: ast.expr) -> bool:
    """Whether a path comes from outside the script, and may be a file object or differ by rank."""
    direct = view.flow.origins(path)
    return bool({last_name(node) for node in direct if isinstance(node, ast.Name)} & view.flow.reach(path).unknown)


def _metric_logs(view: View) -> Iterator[Finding]:
    reported_mlflow = False
    for call in view.script.calls:
        paths = view.modules.paths(call.func)
        is_mlflow = any(p.startswith("mlflow.") for p in paths) and last_name(call).split("_")[0] in _MLFLOW_VERBS
        is_summary = last_name(call) in _SUMMARIES
        if not (is_mlflow or is_summary) or _is_on_some_ranks(view, call):
            continue
        if is_summary and call.args and _differs_by_rank(view, call.args[0]):
            continue
        if is_mlflow and reported_mlflow:
            continue  # one finding is enough
        reported_mlflow = reported_mlflow or is_mlflow
        message = f"every rank calls {ast.unparse(call.func)[:60]}"
        yield view.finding(RuleCode.LOGGED_BY_EVERY_RANK, call, message)
