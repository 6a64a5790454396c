"""Whether the optimizer that trains averages gradients over the ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import argument_of, last_name
from horovod_lint.training import compiles, keras_fits, torch_steps
from horovod_lint.view import View

_OPTIMIZERS = re.compile(r"^(tensorflow|keras|tf_keras)\..*(optimizers\.|train\.\w+Optimizer$)")
_DISTRIBUTED = "DistributedOptimizer"
_GRADIENT = re.compile(r"(flat_?)?grads?$|gradients?$", re.IGNORECASE)
_AVERAGING = ("allreduce", "grouped_allreduce", "allreduce_", "allreduce_async_", "grouped_allreduce_async_")


def check(view: View) -> Iterator[Finding]:
    """Find optimizers that are handed to Keras, or stepped by PyTorch, as they are."""
    if not view.uses_horovod or any(view.horovod_calls("DistributedGradientTape", "load_model")):
        return
    fitted = {ast.unparse(fit.receiver) for fit in keras_fits(view)}
    compiled = [c for c in compiles(view) if isinstance(c.func, ast.Attribute)] if fitted else []
    for call in [c for c in compiled if ast.unparse(c.func.value) in fitted] or compiled:  # type: ignore[attr-defined]
        if not any(k.arg is None for k in call.keywords) and is_distributed(view, call) is False:
            wrapped = next(view.horovod_calls(_DISTRIBUTED), None)
            beside = f"; what line {wrapped.lineno} wraps is not what is compiled" if wrapped is not None else ""
            yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, call, f"compile gets a plain optimizer{beside}")
    yield from _minimized(view)
    steps = torch_steps(view)
    if steps and view.modules.uses("torch") and not _may_average(view):
        message = "backward and step, and no optimizer of Horovod's"
        yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, steps[0], message)


def _minimized(view: View) -> Iterator[Finding]:
    """Find plain optimizers of TensorFlow that compute and apply gradients in one call."""
    for call in view.method_calls("minimize"):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        origins = view.flow.origins(receiver)
        paths = [view.modules.paths(o.func) if isinstance(o, ast.Call) else frozenset() for o in origins]
        if all(any(_OPTIMIZERS.search(path) for path in each) for each in paths):
            yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, call, "minimize of a plain optimizer")


def is_distributed(view: View, compile_call: ast.Call) -> bool | None:
    """Whether a ``compile`` gets an optimizer of Horovod's; None where the script does not show."""
    given = argument_of(compile_call, 0, "optimizer")
    if given is None:
        return False
    verdicts = [_verdict(view, origin) for origin in view.flow.origins(given)]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _verdict(view: View, origin: ast.expr) -> bool | None:
    if isinstance(origin, ast.Constant):
        return False
    if not isinstance(origin, ast.Call):
        return None
    names = {last_name(origin), view.modules.horovod_name(origin)}
    if _DISTRIBUTED in names or view.flow.reach(origin).calls(_DISTRIBUTED):
        return True
    return False if view.modules.paths(origin.func) and not view.modules.is_own(origin.func) else None


def _is_of_gradients(view: View, call: ast.Call) -> bool:
    """Whether a call may average gradients; most average a loss or an accuracy, only to show it."""
    reach = view.flow.reach(*call.args, *(keyword.value for keyword in call.keywords))
    return bool(reach.unknown) or any(_GRADIENT.match(last_name(node)) for node in reach.nodes)


def _may_average(view: View) -> bool:
    averages = any(view.horovod_calls(_DISTRIBUTED)) or any(
        _is_of_gradients(view, call) for call in view.horovod_calls(*_AVERAGING)
    )
    imported = (path for path in view.modules.imported if not path.startswith("torch.utils.data"))  # of samplers
    others = any("distributed" in path or "parallel" in path for path in imported)
    return averages or others or bool(view.modules.own)
