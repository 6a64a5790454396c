"""NCCL's network, where the script or the pipeline sets it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import constant_of, last_name
from horovod_lint.view import View
from shared.vm_sizes import network_environment

VARIABLE = "NCCL_IB_DISABLE"
_LEFT_ON = ("", "0")


def check(view: View) -> Iterator[Finding]:
    """Find InfiniBand switched off on a size that has it; nothing where the size is not known."""
    size = view.machine.vm_size
    if size is None or VARIABLE in network_environment(size):
        return
    stated = view.machine.environment.get(VARIABLE, "")
    if stated not in _LEFT_ON:
        message = f"the pipeline's environment_variables set {VARIABLE}={stated} on {size}"
        yield Finding(code=RuleCode.INFINIBAND_DISABLED, line=1, message=message)
    for place, value in _settings(view):
        if str(constant_of(value)) not in (*_LEFT_ON, "None"):
            message = f"{VARIABLE} is set to {constant_of(value)!r} on {size}, which has InfiniBand"
            yield view.finding(RuleCode.INFINIBAND_DISABLED, place, message)


def _settings(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            targets = [t for t in node.targets if isinstance(t, ast.Subscript) and constant_of(t.slice) == VARIABLE]
            yield from ((node, node.value) for _ in targets)
        elif isinstance(node, ast.Dict):
            yield from (
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key and constant_of(key) == VARIABLE
            )
        elif isinstance(node, ast.Call):
            if last_name(node) in ("setdefault", "putenv") and [constant_of(a) for a in node.args[:1]] == [VARIABLE]:
                yield from ((node, value) for value in node.args[1:2])
            yield from ((node, k.value) for k in node.keywords if k.arg == VARIABLE)
