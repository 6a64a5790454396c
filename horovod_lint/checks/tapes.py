"""Whether the gradients of a hand-written step are averaged over the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import last_name
from horovod_lint.training import TapeStep, tape_steps
from horovod_lint.view import View

_DISTRIBUTED = frozenset({"DistributedGradientTape", "PartialDistributedGradientTape"})
_AVERAGING = ("allreduce", "grouped_allreduce", "_allreduce_grads", "reducescatter", "grouped_reducescatter")


def check(view: View) -> Iterator[Finding]:
    """Find plain tapes whose gradients are applied as they are."""
    if not view.uses_horovod:
        return
    for gradient in {step.gradient: step for step in tape_steps(view)}.values():
        if _is_plain(view, gradient) and not _is_averaged(view, gradient):
            message = f"gradients of a plain tape are applied in line {gradient.apply.lineno}"
            yield view.finding(RuleCode.TAPE_NOT_DISTRIBUTED, gradient.gradient, message)


def _is_plain(view: View, step: TapeStep) -> bool:
    receiver = step.gradient.func
    origins = view.flow.origins(receiver.value) if isinstance(receiver, ast.Attribute) else []
    names = {last_name(origin) for origin in origins}
    return "GradientTape" in names and not names & _DISTRIBUTED


def _is_averaged(view: View, step: TapeStep) -> bool:
    """Whether anything between the tape and the optimizer averages, or the optimizer itself does."""
    pairs = step.apply.args[0]
    gradients = pairs.args[0] if isinstance(pairs, ast.Call) and last_name(pairs) == "zip" and pairs.args else pairs
    between = view.flow.reach(gradients, stop=step.gradient)
    own = any(isinstance(node, ast.Call) and view.modules.is_own(node.func) for node in between.nodes)
    optimizer = step.apply.func.value if isinstance(step.apply.func, ast.Attribute) else None
    wrapped = view.flow.reach(optimizer).calls("DistributedOptimizer")
    return bool(between.calls(*_AVERAGING)) or own or bool(wrapped)
