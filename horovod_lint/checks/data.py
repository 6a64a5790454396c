"""Whether the ranks share the training data out among them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.datasets import divides_by_size, is_shared_out, reads_data, shuffles
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.training import keras_fits, loops_over_data
from horovod_lint.view import View


def check(view: View) -> Iterator[Finding]:
    """Find trainings whose data are the same on every rank, in the same or another order."""
    if not view.uses_horovod or _is_elastic(view):
        return
    for fit in keras_fits(view):
        if fit.data is not None and not fit.hides_arguments:
            yield from _judged(view, fit.call, fit.data, fit.steps)
    for iterated in dict.fromkeys(loops_over_data(view)):
        yield from _judged(view, iterated, iterated, None)


def _is_elastic(view: View) -> bool:
    """Whether the number of ranks changes under way: how data are shared out then is Horovod's elastic matter."""
    names = (view.modules.horovod_name(node) or "" for node in view.script.nodes if isinstance(node, ast.Attribute))
    return any(name.startswith("elastic") for name in names)


def _judged(view: View, place: ast.expr, data: ast.expr, steps: ast.expr | None) -> Iterator[Finding]:
    reach = view.flow.reach(data)
    if not reads_data(reach) or is_shared_out(view, reach):
        return
    counted = reach.calls("take", "islice")
    share = divides_by_size(view, steps, *(argument for call in counted for argument in call.args))
    if share and shuffles(view, reach):
        message = "each rank makes its share of the steps on data that it draws from all of them"
        yield view.finding(RuleCode.DATA_SAMPLED, place, message)
    elif share:
        message = "the steps are shared out, and every rank makes them on the same first records"
        yield view.finding(RuleCode.DATA_NOT_SHARDED, place, message)
    else:
        yield view.finding(RuleCode.DATA_NOT_SHARDED, place, "no rank has a say in which data are trained on here")
