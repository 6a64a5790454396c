"""What every rank writes, though one should."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.callbacks import callback_items
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import argument_of, constant_of, keyword_of, last_name
from horovod_lint.training import keras_fits
from horovod_lint.view import View

_WRITING_CALLBACKS = frozenset({"ModelCheckpoint", "BackupAndRestore", "CSVLogger", "BestModelCheckpoint"})
_LOGGING_CALLBACKS = frozenset({"TensorBoard", "MlflowCallback", "MLflowCallback", "WandbCallback"})
_METHODS = frozenset(
    {
        *("save", "save_weights", "save_pretrained", "to_csv", "to_parquet", "to_pickle", "to_json", "savefig"),
        *("write_text", "write_bytes", "to_hdf", "to_feather"),
    }
)
_FUNCTIONS = (
    *("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "joblib.dump", "torch.save"),
    *("saved_model.save", "models.save_model", "saving.save_model", "pyplot.savefig", "io.write_file"),
    *("TFRecordWriter", "gfile.GFile", "gfile.Open"),
)
_PATH_IS_SECOND = ("saved_model.save", "torch.save")
_OPENING = frozenset({"open", "GFile", "Open"})
_SUMMARIES = ("create_file_writer", "SummaryWriter", "FileWriter")
_NOWHERE = ("tempfile", "devnull", "/dev/null", "StringIO", "BytesIO", "mkdtemp", "TemporaryDirectory")
_ASSETS = frozenset({"log", "set", "start", "autolog", "register", "create", "end"})


def check(view: View) -> Iterator[Finding]:
    """Find writes that no condition on the rank stands before."""
    if not view.uses_horovod or view.starts_ranks:
        return
    yield from _callbacks(view)
    for call in view.script.calls:
        path = _written_path(view, call)
        if path is not None and not _is_for_one(view, call) and not _is_apart(view, path):
            message = f"{ast.unparse(call.func)[:60]} is called by every rank"
            yield view.finding(RuleCode.WRITTEN_BY_EVERY_RANK, call, message)
    yield from _logs(view)


def _callbacks(view: View) -> Iterator[Finding]:
    for fit in keras_fits(view):
        if _is_for_one(view, fit.call):
            continue
        for item in callback_items(view, fit.callbacks):
            if item.call is None or item.is_guarded or view.guards.is_guarded(item.call):
                continue
            path = argument_of(item.call, 0, "filepath", "filename", "log_dir", "backup_dir")
            if path is not None and _is_apart(view, path):
                continue
            if item.name in _WRITING_CALLBACKS:
                message = f"every rank's list has this {item.name}"
                yield view.finding(RuleCode.WRITTEN_BY_EVERY_RANK, item.call, message)
            elif item.name in _LOGGING_CALLBACKS:
                yield view.finding(
                    RuleCode.LOGGED_BY_EVERY_RANK, item.call, f"every rank's list has this {item.name}"
                )


def _written_path(view: View, call: ast.Call) -> ast.expr | None:
    """Return what says where a call writes, None where it writes nothing that is known."""
    name, paths = last_name(call), view.modules.paths(call.func)
    if name in _OPENING:
        return _opened_to_write(view, call)
    if any(f".{path}".endswith(f".{known}") for path in paths for known in _FUNCTIONS):
        is_second = name in ("dump", "save_model") or any(p.endswith(_PATH_IS_SECOND) for p in paths)
        given = argument_of(call, int(is_second), "file", "filename", "export_dir", "filepath", "f", "fname")
        return given or call.func
    if not isinstance(call.func, ast.Attribute) or name not in _METHODS or paths:
        return None
    if name in ("write_text", "write_bytes"):
        return call.func.value
    returns_text = name in ("to_json", "to_csv") and not call.args and keyword_of(call, "path_or_buf") is None
    return None if returns_text else _of_object(view, call)


def _of_object(view: View, call: ast.Call) -> ast.expr | None:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    origins = view.flow.origins(receiver)
    if any(isinstance(o, ast.Call) and "State" in last_name(o) for o in origins):
        return None  # an elastic state is kept in memory
    own = [f for f in view.script.functions.get(last_name(call), []) if view.script.class_of(f) is not None]
    if own and view.script.function_of(call) not in own:
        return None  # a method of the script's own, which is looked at where it is: it may hand on to a model's
    given = argument_of(call, 0, "filepath", "path", "fname", "fp", "file_prefix", "checkpoint_prefix", "path_or_buf")
    return given or receiver


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


def _is_for_one(view: View, call: ast.Call) -> bool:
    return view.guards.is_guarded(call) or view.guards.is_kept_for_root(call)


def _is_apart(view: View, path: ast.expr) -> bool:
    """Whether each rank has a place of its own, or may have where the script does not show."""
    reach = view.flow.reach(path)
    texts = {str(node.value) for node in reach.nodes if isinstance(node, ast.Constant)}
    names = {last_name(node) for node in reach.nodes}
    own = any(isinstance(n, ast.Call) and view.modules.is_own(n.func) for n in reach.nodes)
    return view.flow.has("rank", path) or own or bool((texts | names) & set(_NOWHERE)) or _leads_out(view, path)


def _leads_out(view: View, path: ast.expr) -> bool:
    """Whether a path is given by somebody outside of the script: a file object, or one name for each rank."""
    direct = view.flow.origins(path)
    return bool({last_name(node) for node in direct if isinstance(node, ast.Name)} & view.flow.reach(path).unknown)


def _logs(view: View) -> Iterator[Finding]:
    told = False
    for call in view.script.calls:
        paths = view.modules.paths(call.func)
        is_mlflow = any(p.startswith("mlflow.") for p in paths) and last_name(call).split("_")[0] in _ASSETS
        is_summary = last_name(call) in _SUMMARIES
        if not (is_mlflow or is_summary) or _is_for_one(view, call):
            continue
        if is_summary and call.args and _is_apart(view, call.args[0]):
            continue
        if is_mlflow and told:
            continue  # one finding stands for all of them
        told = told or is_mlflow
        message = f"{ast.unparse(call.func)[:60]} is called by every rank"
        yield view.finding(RuleCode.LOGGED_BY_EVERY_RANK, call, message)
