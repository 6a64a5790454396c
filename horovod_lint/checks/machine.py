"""Checks that depend on the machine and the job: GPUs, the network, the report, the installed Keras.

docs/lint.md lists what was measured with Horovod 0.28.1, TensorFlow 2.18.1 and Keras 3.15 on two ranks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import argument_of, constant_of, dotted_text, keyword_of, last_name
from horovod_lint.view import View, training_calls
from shared.vm_sizes import network_environment, vm_size


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_gpus(view)
    yield from _check_network(view)
    yield from _check_report(view)
    yield from _check_keras3(view)
    yield from _check_callbacks(view)


# -- wrong_gpu, gpu_not_pinned
_PINNING = ("set_visible_devices", "set_device")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MAY_PIN = re.compile(r"gpu|device|cuda|init|set_?up|config|dist|horovod|hvd", re.IGNORECASE)


def _check_gpus(view: View) -> Iterator[Finding]:
    """Find processes that use all GPUs of their node, or a GPU that may not exist."""
    if not view.uses_horovod:
        return
    choices = list(_gpu_choices(view))
    for place, chosen in choices:
        if _is_by_job_rank(view, chosen):
            yield view.finding(RuleCode.WRONG_GPU, place, f"the GPU is picked by {ast.unparse(chosen)[:60]}")
    trainings = training_calls(view)
    if trainings and not choices and _computes_on_gpus(view) and not _may_be_pinned(view) and _has_several_gpus(view):
        place = next(view.horovod_calls("init"), trainings[0])
        message = "the script does not pick a GPU for each process"
        yield view.finding(RuleCode.GPU_NOT_PINNED, place, message)


def _computes_on_gpus(view: View) -> bool:
    """Whether the script computes on GPUs: TensorFlow does so by default, PyTorch only on request."""
    texts = (node.attr for node in view.script.nodes if isinstance(node, ast.Attribute))
    return view.is_tensorflow or any("cuda" in text for text in texts)


def _gpu_choices(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for call in view.method_calls(*_PINNING):
        if call.args:
            yield call, call.args[0]
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            text = dotted_text(node.targets[0]) or ""
            named = isinstance(node.targets[0], ast.Subscript) and constant_of(node.targets[0].slice) == _VISIBLE
            if named or text.endswith("visible_device_list"):
                yield node, node.value


def _is_by_job_rank(view: View, chosen: ast.expr) -> bool:
    nodes = [*ast.walk(chosen)]
    remainder = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in nodes)
    direct = [view.flow.rank_kind(origin) for node in nodes if isinstance(node, ast.Call | ast.Name)
              for origin in view.flow.origins(node)]  # fmt: skip
    return "rank" in direct and not remainder


def _may_be_pinned(view: View) -> bool:
    if _VISIBLE in view.machine.environment:
        return True
    if any("local_rank" in (view.flow.rank_kind(node) or "") for node in view.script.nodes):
        return True
    if any(isinstance(node, ast.Constant) and node.value == _VISIBLE for node in view.script.nodes):
        return True
    own = (last_name(call) for call in view.script.calls if view.modules.is_own(call.func))
    return any(True for _ in view.method_calls(*_PINNING)) or any(_MAY_PIN.search(name) for name in own)


def _has_several_gpus(view: View) -> bool:
    known = vm_size(view.machine.vm_size) if view.machine.vm_size else None
    return known is None or known.num_gpus > 1


# -- infiniband_disabled
_INFINIBAND = "NCCL_IB_DISABLE"
_LEFT_ON = ("", "0")


def _check_network(view: View) -> Iterator[Finding]:
    """Find InfiniBand disabled on a VM size that has it; an unknown size has no finding."""
    size = view.machine.vm_size
    if size is None or _INFINIBAND in network_environment(size):
        return
    stated = view.machine.environment.get(_INFINIBAND, "")
    if stated not in _LEFT_ON:
        message = f"the pipeline's environment_variables set {_INFINIBAND}={stated} on {size}"
        yield Finding(code=RuleCode.INFINIBAND_DISABLED, line=view.script.first_line, message=message)
    for place, value in _infiniband_settings(view):
        if str(constant_of(value)) not in (*_LEFT_ON, "None"):
            message = f"{_INFINIBAND} is set to {constant_of(value)!r} on {size}, which has InfiniBand"
            yield view.finding(RuleCode.INFINIBAND_DISABLED, place, message)


def _infiniband_settings(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            targets = [
                t for t in node.targets if isinstance(t, ast.Subscript) and constant_of(t.slice) == _INFINIBAND
            ]
            yield from ((node, node.value) for _ in targets)
        elif isinstance(node, ast.Dict):
            yield from (
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key and constant_of(key) == _INFINIBAND
            )
        elif isinstance(node, ast.Call):
            if last_name(node) in ("setdefault", "putenv") and [constant_of(a) for a in node.args[:1]] == [
                _INFINIBAND
            ]:
                yield from ((node, value) for value in node.args[1:2])
            yield from ((node, k.value) for k in node.keywords if k.arg == _INFINIBAND)


# -- report_not_written
_METRIC = re.compile(r"[A-Za-z_]\w*=")
"""The beginning of a line that reports a metric, as in ``print(f"val_accuracy={value}")``."""
_LOG_METRICS = {"autolog", "log_metric", "log_metrics", "log_batch", "MlflowCallback", "MLflowCallback"}
_RUNS_OTHER_CODE = ("subprocess", "runpy", "importlib", "multiprocessing")


def _check_report(view: View) -> Iterator[Finding]:
    """Find scripts in which nothing is called or printed as a report; modules of the author may do that."""
    trainings = training_calls(view)
    if not view.machine.registers or not trainings or view.modules.own:
        return
    if any(view.modules.uses(library) for library in _RUNS_OTHER_CODE) or any(map(_names_report, view.script.nodes)):
        return
    if any(_logs_metrics(view, call) for call in view.script.calls):
        return
    message = "the script trains, but writes no training report, so no model can be registered"
    yield view.finding(RuleCode.REPORT_NOT_WRITTEN, trainings[-1], message)


def _names_report(node: ast.AST) -> bool:
    texts = (getattr(node, name, None) for name in ("id", "attr", "arg", "name", "value", "module"))
    return any(isinstance(text, str) and ("report" in text.lower() or _METRIC.match(text)) for text in texts)


def _logs_metrics(view: View, call: ast.Call) -> bool:
    """Whether a call gives metrics to the job's MLflow run, itself or through `autolog`."""
    paths = view.modules.paths(call.func)
    logs = any(path.startswith("mlflow.") and path.rpartition(".")[2] in _LOG_METRICS for path in paths)
    return logs or (last_name(call) in _LOG_METRICS - {"autolog"} and view.modules.uses("mlflow"))


# -- keras3_incompatible
_LEGACY = "TF_USE_LEGACY_KERAS"
_OFF = frozenset({"", "0", "false"})
_VARIABLES = frozenset(
    {"variables", "trainable_variables", "non_trainable_variables", "weights", "trainable_weights"}
)
_CALLBACKS = (
    "BroadcastGlobalVariablesCallback",
    "MetricAverageCallback",
    "LearningRateWarmupCallback",
    "LearningRateScheduleCallback",
)
_ELASTIC = ("KerasState", "TensorFlowKerasState")


def _check_keras3(view: View) -> Iterator[Finding]:
    """Find uses that break on Keras 3, which TensorFlow 2.16 and later install; one finding names all of them."""
    if not view.is_tensorflow:
        return
    is_legacy = _is_legacy(view)
    uses = [use for use in _uses(view) if not is_legacy or _is_standalone(view, use[0])]
    uses.sort(key=lambda use: use[0].lineno)
    if uses:
        named = ", ".join(dict.fromkeys(f"{what} on {view.script.where(call.lineno)}" for call, what in uses[:8]))
        despite = f", which `import keras` gives in spite of {_LEGACY}" if is_legacy else ""
        message = f"does not work on Keras 3{despite}: {named}"
        yield view.finding(RuleCode.KERAS3_INCOMPATIBLE, uses[0][0], message)


def _is_legacy(view: View) -> bool:
    """Whether the script or its pipeline selects Keras 2."""
    return _sets_legacy(view) or view.modules.uses("tf_keras")


def _sets_legacy(view: View) -> bool:
    """Whether ``tf.keras`` is Keras 2: importing ``tf_keras`` alone leaves Horovod's callbacks with Keras 3."""
    stated = view.machine.environment.get(_LEGACY, "").lower() not in _OFF
    named = any(isinstance(node, ast.Constant) and node.value == _LEGACY for node in view.script.nodes)
    return stated or named or any(keyword_of(call, _LEGACY) is not None for call in view.script.calls)


def _is_standalone(view: View, call: ast.Call) -> bool:
    """Whether a use is of the package ``keras``, which stays Keras 3: its optimizer, Horovod's callbacks for it."""
    wrapped = argument_of(call, 0, "optimizer") if last_name(call) == "DistributedOptimizer" else None
    origins = view.flow.origins(wrapped) if wrapped is not None else []
    paths = {path for o in origins if isinstance(o, ast.Call) for path in view.modules.paths(o.func)}
    paths = paths if wrapped is not None else set(view.modules.paths(call.func))
    return bool(paths) and all(path.startswith(("keras.", "horovod.keras.")) for path in paths)


# -- callback_incompatible
_RATE_CALLBACKS = frozenset({"LearningRateWarmupCallback", "LearningRateScheduleCallback"})


def _check_callbacks(view: View) -> Iterator[Finding]:
    """Find Horovod's callbacks that use the backend of Keras 3 instead of that of Keras 2."""
    if not view.is_tensorflow or not _is_legacy(view):
        return
    is_set = _sets_legacy(view)
    for call in view.horovod_calls(*_CALLBACKS):
        name = last_name(call)
        if not _is_of_tensorflow(view, call) or _is_standalone(view, call):
            continue
        if not is_set:
            message = f"{name} fails: importing tf_keras selects Keras 2 for the script, but not for Horovod"
            yield view.finding(RuleCode.CALLBACK_INCOMPATIBLE, call, message)
        elif name != "BroadcastGlobalVariablesCallback" and not _has_backend(view, call):
            yield view.finding(RuleCode.CALLBACK_INCOMPATIBLE, call, f"{name} calls the backend of Keras 3")
        elif name in _RATE_CALLBACKS and not _leaves_momentum(call):
            message = f"{name} corrects a momentum that is not a variable in Keras 2"
            yield view.finding(RuleCode.CALLBACK_INCOMPATIBLE, call, message)


def _has_backend(view: View, call: ast.Call) -> bool:
    """Whether the script gives a callback another backend; a target that may be any callback counts as this one."""
    for node in view.script.nodes:
        if isinstance(node, ast.Assign) and _paths_of(view, node.value) != {"keras.backend"}:
            targets = [t for t in node.targets if isinstance(t, ast.Attribute) and t.attr == "backend"]
            origins = [view.flow.origins(target.value) for target in targets]
            if any(call in each or not any(isinstance(o, ast.Call) for o in each) for each in origins):
                return True
    return False


def _leaves_momentum(call: ast.Call) -> bool:
    stated = keyword_of(call, "momentum_correction")
    return any(k.arg is None for k in call.keywords) or (stated is not None and constant_of(stated) is not True)


def _uses(view: View) -> Iterator[tuple[ast.Call, str]]:
    for call in view.horovod_calls("DistributedOptimizer"):
        if _is_of_tensorflow(view, call) and not _is_of_version_1(view, call):
            yield call, "hvd.DistributedOptimizer"
    for call in view.horovod_calls(*_CALLBACKS, *_ELASTIC):
        if _is_of_tensorflow(view, call):
            yield call, f"Horovod's {last_name(call)}"
    if not any("keras" in path for node in view.script.nodes for path in _paths_of(view, node)):
        return
    for call in view.horovod_calls("broadcast_variables"):
        if _are_keras_variables(view, argument_of(call, 0, "variables")):
            yield call, "hvd.broadcast_variables of Keras variables"
    for call in view.method_calls("gradient"):
        if _is_distributed_tape(view, call) and _are_keras_variables(view, argument_of(call, 1, "sources")):
            yield call, "a distributed tape's gradient of Keras variables"


def _paths_of(view: View, node: ast.AST) -> frozenset[str]:
    return view.modules.paths(node) if isinstance(node, ast.Name | ast.Attribute) else frozenset()


def _is_of_tensorflow(view: View, call: ast.Call) -> bool:
    return not any("torch" in path or "mxnet" in path for path in view.modules.paths(call.func))


def _is_of_version_1(view: View, call: ast.Call) -> bool:
    """Whether the wrapped optimizer is one of TensorFlow 1, which does not depend on Keras."""
    wrapped = argument_of(call, 0, "optimizer")
    origins = view.flow.origins(wrapped) if wrapped is not None else []
    paths = {path for o in origins if isinstance(o, ast.Call) for path in view.modules.paths(o.func)}
    return bool(paths) and all(".train." in path and "keras" not in path for path in paths)


def _are_keras_variables(view: View, node: ast.expr | None) -> bool:
    """Whether an argument is a model's or an optimizer's variables, not the tensors inside them."""
    origins = view.flow.origins(node) if node is not None else []
    return any(_is_member(view, origin) for origin in origins)


def _is_member(view: View, origin: ast.expr) -> bool:
    member = origin.func if isinstance(origin, ast.Call) and not origin.args else origin
    if not isinstance(member, ast.Attribute) or member.attr not in _VARIABLES:
        return False
    owners = view.flow.origins(member.value)
    classes = [c for o in owners if isinstance(o, ast.Call) for c in view.script.classes.get(last_name(o), [])]
    bases = {last_name(base) for each in classes for base in each.bases}
    return not (bases and bases <= {"Module", "object"}) and constant_of(member.value) is None


def _is_distributed_tape(view: View, call: ast.Call) -> bool:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    return any(last_name(origin) == "DistributedGradientTape" for origin in view.flow.origins(receiver))
