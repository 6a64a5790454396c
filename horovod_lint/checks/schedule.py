"""Epochs, steps and the learning rate, which depend on the number of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.checks.data import reads_data
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import argument_of, dotted_text, keyword_of, last_name
from horovod_lint.view import View, is_over_numbers, keras_fits, loops_over_data


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_epochs(view)
    yield from _check_steps(view)
    yield from _check_learning_rate(view)


# -- epochs_divided
_NUM_EPOCHS = re.compile(r"(^|_)(nb_|num_|n_|max_|total_|train_)?epochs?$", re.IGNORECASE)
_ROUNDING = frozenset({"int", "round", "ceil", "floor", "max", "min", "float", "abs"})
_MAX_DEPTH = 8
_OTHER_NUMBERS = re.compile(r"warm|per_epoch|decay|initial|start|current|steps|resume|samples|per_", re.IGNORECASE)


def _check_epochs(view: View) -> Iterator[Finding]:
    """Find numbers of epochs that are divided by the number of ranks."""
    found: dict[ast.AST, ast.AST] = {}
    for value in _numbers_of_epochs(view):
        found |= {division: division for division in _divisions_by_size(view, value, 0)}
    for node in view.script.nodes:
        is_division = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv)
        if isinstance(node, ast.AugAssign) and is_division and _is_number_of_epochs(node.target):
            found |= {node: node} if _is_size(view, node.value) else {}
    for place in sorted(found, key=lambda node: getattr(node, "lineno", 0)):
        yield view.finding(RuleCode.EPOCHS_DIVIDED, place, f"the number of epochs is {ast.unparse(place)[:80]}")


def _divisions_by_size(view: View, value: ast.expr, depth: int) -> Iterator[ast.BinOp]:
    """Yield the divisions of a number itself by the number of ranks, not those of its divisors."""
    if depth >= _MAX_DEPTH:
        return
    for origin in view.flow.origins(value):
        if isinstance(origin, ast.BinOp):
            if isinstance(origin.op, ast.Div | ast.FloorDiv) and _is_size(view, origin.right):
                yield origin
            yield from _divisions_by_size(view, origin.left, depth + 1)
        elif isinstance(origin, ast.Call) and last_name(origin) in _ROUNDING:
            for argument in origin.args:
                yield from _divisions_by_size(view, argument, depth + 1)
        elif isinstance(origin, ast.UnaryOp):  # -(-n // size) rounds up
            yield from _divisions_by_size(view, origin.operand, depth + 1)


def _is_size(view: View, node: ast.expr) -> bool:
    """Whether a divisor is the number of ranks, or a constant multiple of it."""
    for origin in view.flow.origins(node):
        parts = [origin.left, origin.right] if isinstance(origin, ast.BinOp) else [origin]
        if isinstance(origin, ast.Call) and last_name(origin) in ("int", "float", "max"):
            parts = list(origin.args)
        kinds = [view.flow.rank_kind(each) for part in parts for each in view.flow.origins(part)]
        if "size" in kinds and (len(parts) == 1 or any(isinstance(part, ast.Constant) for part in parts)):
            return True
    return False


def _numbers_of_epochs(view: View) -> Iterator[ast.expr]:
    for call in view.script.calls:
        value = keyword_of(call, "epochs", "nb_epoch", "max_epochs", "num_epochs", "num_train_epochs")
        if value is not None:
            yield value
    for node in view.script.nodes:
        if isinstance(node, ast.Assign) and any(_is_number_of_epochs(target) for target in node.targets):
            yield node.value
        if isinstance(node, ast.For) and is_over_numbers(node.iter) and "epoch" in ast.unparse(node.target).lower():
            yield from (argument for argument in getattr(node.iter, "args", []))


def _is_number_of_epochs(target: ast.expr) -> bool:
    name = last_name(target) if dotted_text(target) else ""
    return bool(_NUM_EPOCHS.search(name)) and not _OTHER_NUMBERS.search(name)


# -- steps_not_divided
def _check_steps(view: View) -> Iterator[Finding]:
    """Find steps that are computed from all data and one rank's batch size."""
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
            yield view.finding(RuleCode.STEPS_NOT_DIVIDED, fit.steps, f"{where}, for any number of ranks")


# -- learning_rate_not_scaled
_SCHEDULING = ("LearningRateWarmupCallback", "LearningRateScheduleCallback", "LearningRateScheduler")


def _check_learning_rate(view: View) -> Iterator[Finding]:
    """Find an optimizer whose rate does not depend on the number of ranks, if the script trains on real data."""
    if not any(view.horovod_calls("DistributedOptimizer", "DistributedGradientTape")):
        return
    if any(any(_SCHEDULING[0] in path or name in path for path in _called_paths(view)) for name in _SCHEDULING):
        return
    data = [fit.data for fit in keras_fits(view)] + list(loops_over_data(view))
    if not any(reads_data(view.flow.reach(each)) for each in data):
        return
    rates = [(call, rate) for call in _optimizers(view) if (rate := _learning_rate(view, call)) is not None]
    stated = [(call, rate) for call, rate in rates if not _is_scheduler(view, call)]
    if stated and not any(_may_scale(view, rate) for _, rate in rates):
        call, rate = stated[0]
        message = f"the learning rate is {ast.unparse(rate)[:60]} for any number of ranks"
        yield view.finding(RuleCode.LEARNING_RATE_NOT_SCALED, call, message)


def _called_paths(view: View) -> Iterator[str]:
    for call in view.script.calls:
        yield from view.modules.paths(call.func)


def _optimizers(view: View) -> Iterator[ast.Call]:
    for call in view.script.calls:
        if any(".optimizers." in path or "torch.optim." in path for path in view.modules.paths(call.func)):
            yield call


def _is_scheduler(view: View, call: ast.Call) -> bool:
    """Whether a call makes a scheduler of PyTorch, whose second argument is not a rate."""
    return any("torch.optim.lr_scheduler." in path for path in view.modules.paths(call.func))


def _learning_rate(view: View, call: ast.Call) -> ast.expr | None:
    is_torch = any("torch.optim." in path for path in view.modules.paths(call.func))
    return argument_of(call, 1 if is_torch else 0, "learning_rate", "lr")


def _may_scale(view: View, rate: ast.expr) -> bool:
    reach = view.flow.reach(rate)
    made = [
        node for node in reach.nodes if isinstance(node, ast.Call) and "schedule" in ast.unparse(node.func).lower()
    ]
    return view.flow.has("size", rate) or bool(reach.unknown) or bool(made)
