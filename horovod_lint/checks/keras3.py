"""Horovod features that do not work on Keras 3, which TensorFlow 2.16 and later install.

docs/lint.md lists what was measured with Horovod 0.28.1, TensorFlow 2.18.1 and Keras 3.15 on two ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import argument_of, constant_of, keyword_of, last_name
from horovod_lint.view import View

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


def check(view: View) -> Iterator[Finding]:
    """Find uses that break on Keras 3: one finding at the first use, which names them all."""
    if not view.is_tensorflow or is_legacy(view):
        return
    uses = sorted(_uses(view), key=lambda use: use[0].lineno)
    if uses:
        named = ", ".join(dict.fromkeys(f"{what} on line {call.lineno}" for call, what in uses[:8]))
        yield view.finding(RuleCode.KERAS3_INCOMPATIBLE, uses[0][0], f"does not work on Keras 3: {named}")


def is_legacy(view: View) -> bool:
    """Whether the script or its pipeline selects Keras 2."""
    stated = view.machine.environment.get(_LEGACY, "").lower() not in _OFF
    named = any(isinstance(node, ast.Constant) and node.value == _LEGACY for node in view.script.nodes)
    named = named or any(keyword_of(call, _LEGACY) is not None for call in view.script.calls)
    return stated or named or view.modules.uses("tf_keras")


def _uses(view: View) -> Iterator[tuple[ast.Call, str]]:
    for call in view.horovod_calls("DistributedOptimizer"):
        if _is_of_tensorflow(view, call) and not _is_of_version_1(view, call):
            yield call, "hvd.DistributedOptimizer"
    for call in view.horovod_calls(*_CALLBACKS, *_ELASTIC):
        if _is_of_tensorflow(view, call):
            yield call, f"Horovod's {last_name(call)}"
    if not any("keras" in path for node in view.script.nodes for path in _paths(view, node)):
        return
    for call in view.horovod_calls("broadcast_variables"):
        if _are_keras_variables(view, argument_of(call, 0, "variables")):
            yield call, "hvd.broadcast_variables of Keras variables"
    for call in view.method_calls("gradient"):
        if _is_distributed_tape(view, call) and _are_keras_variables(view, argument_of(call, 1, "sources")):
            yield call, "a distributed tape's gradient of Keras variables"


def _paths(view: View, node: ast.AST) -> frozenset[str]:
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
