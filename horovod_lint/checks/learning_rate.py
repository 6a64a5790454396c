"""The learning rate and the global batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.datasets import reads_data
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import argument_of
from horovod_lint.training import keras_fits, loops_over_data
from horovod_lint.view import View

_SCHEDULING = ("LearningRateWarmupCallback", "LearningRateScheduleCallback", "LearningRateScheduler")


def check(view: View) -> Iterator[Finding]:
    """Find an optimizer whose rate is a plain number, where real data are trained on."""
    if not any(view.horovod_calls("DistributedOptimizer", "DistributedGradientTape")):
        return
    if any(any(_SCHEDULING[0] in path or name in path for path in _named(view)) for name in _SCHEDULING):
        return
    data = [fit.data for fit in keras_fits(view)] + list(loops_over_data(view))
    if not any(reads_data(view.flow.reach(each)) for each in data):
        return
    rates = [(call, rate) for call in _optimizers(view) if (rate := _rate(view, call)) is not None]
    if rates and not any(_may_scale(view, rate) for _, rate in rates):
        text = ast.unparse(rates[0][1])[:60]
        yield view.finding(
            RuleCode.LEARNING_RATE_NOT_SCALED, rates[0][0], f"the rate is {text} for any number of ranks"
        )


def _named(view: View) -> Iterator[str]:
    for call in view.script.calls:
        yield from view.modules.paths(call.func)


def _optimizers(view: View) -> Iterator[ast.Call]:
    for call in view.script.calls:
        if any(".optimizers." in path or "torch.optim." in path for path in view.modules.paths(call.func)):
            yield call


def _rate(view: View, call: ast.Call) -> ast.expr | None:
    is_torch = any("torch.optim." in path for path in view.modules.paths(call.func))
    return argument_of(call, 1 if is_torch else 0, "learning_rate", "lr")


def _may_scale(view: View, rate: ast.expr) -> bool:
    reach = view.flow.reach(rate)
    made = [
        node for node in reach.nodes if isinstance(node, ast.Call) and "schedule" in ast.unparse(node.func).lower()
    ]
    return view.flow.has("size", rate) or bool(reach.unknown) or bool(made)
