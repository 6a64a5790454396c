"""Which GPU a process computes on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import constant_of, dotted_text, last_name
from horovod_lint.training import training_calls
from horovod_lint.view import View
from shared.vm_sizes import vm_size

_PINNING = ("set_visible_devices", "set_device")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MAY_PIN = re.compile(r"gpu|device|cuda|init|set_?up|config|dist|horovod|hvd", re.IGNORECASE)


def check(view: View) -> Iterator[Finding]:
    """Find processes that take every GPU of their node, or one that may not be there."""
    if not view.uses_horovod:
        return
    for place, chosen in _choices(view):
        if _is_by_rank(view, chosen):
            yield view.finding(RuleCode.WRONG_GPU, place, f"the GPU is picked by {ast.unparse(chosen)[:60]}")
    trainings = training_calls(view)
    if trainings and _computes_on_gpus(view) and not _may_be_pinned(view) and _has_several_gpus(view):
        place = next(view.horovod_calls("init"), trainings[0])
        message = "no process is told which GPU of its node is its own"
        yield view.finding(RuleCode.GPU_NOT_PINNED, place, message)


def _computes_on_gpus(view: View) -> bool:
    """Whether a GPU is taken without being asked for, as TensorFlow does; PyTorch has to be told."""
    texts = (node.attr for node in view.script.nodes if isinstance(node, ast.Attribute))
    return view.is_tensorflow or any("cuda" in text for text in texts)


def _choices(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for call in view.method_calls(*_PINNING):
        if call.args:
            yield call, call.args[0]
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            text = dotted_text(node.targets[0]) or ""
            named = isinstance(node.targets[0], ast.Subscript) and constant_of(node.targets[0].slice) == _VISIBLE
            if named or text.endswith("visible_device_list"):
                yield node, node.value


def _is_by_rank(view: View, chosen: ast.expr) -> bool:
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
