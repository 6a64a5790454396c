"""How many steps each rank makes in an epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import last_name
from horovod_lint.training import keras_fits
from horovod_lint.view import View


def check(view: View) -> Iterator[Finding]:
    """Find steps that are counted from all data by one rank's batch size."""
    if not view.uses_horovod:
        return
    for fit in keras_fits(view):
        reach = view.flow.reach(fit.steps)
        if fit.steps is None or reach.unknown or view.flow.has("size", fit.steps) or view.flow.has("rank", fit.steps):
            continue
        divisions = [n for n in reach.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.FloorDiv)]
        if any("batch" in ast.unparse(division.right).lower() for division in divisions):
            text = ast.unparse(fit.steps)[:80]
            where = f"steps_per_epoch is {text}" if last_name(fit.call) == "fit" else f"the steps are {text}"
            yield view.finding(RuleCode.STEPS_NOT_DIVIDED, fit.steps, f"{where}, whatever the number of ranks")
