"""Whether all ranks start from the root's weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.callbacks import callback_items
from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import last_name
from horovod_lint.training import keras_fits, training_calls
from horovod_lint.view import View

_SEEDS = ("set_random_seed", "set_seed", "manual_seed")
_MODULES = frozenset({"horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras", "horovod.torch"})
_ANYTHING = ("broadcast", "broadcast_object", "broadcast_", "broadcast_async", "broadcast_async_")
_WEIGHTS = re.compile(r"weight|param|variable|state|model|net(work)?$|optimizer|checkpoint", re.IGNORECASE)
_MAY_BROADCAST = re.compile(r"broadcast|bcast|sync", re.IGNORECASE)


def check(view: View) -> Iterator[Finding]:
    """Find trainings on several ranks that nothing starts from the same weights."""
    trainings = training_calls(view)
    if not view.uses_horovod or not trainings or _may_broadcast(view) or _starts_equal(view):
        return
    if any(item.call is None for fit in keras_fits(view) for item in callback_items(view, fit.callbacks)):
        return
    if any(fit.hides_arguments for fit in keras_fits(view)):
        return
    message = "training starts here, and nothing has broadcast the root's weights"
    yield view.finding(RuleCode.NO_INITIAL_BROADCAST, trainings[0], message)


def _may_broadcast(view: View) -> bool:
    """Whether anything in the script broadcasts, elastic states included, or may do so out of sight."""
    for node in view.script.nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            name = view.modules.horovod_name(node)
            if name is not None and ("roadcast" in name or name.startswith("elastic.")) and name not in _ANYTHING:
                return True
    if any(_is_of_weights(view, call) for call in view.horovod_calls(*_ANYTHING)):
        return True
    return any(_hands_on(view, call) for call in view.script.calls)


def _is_of_weights(view: View, call: ast.Call) -> bool:
    """Whether what is broadcast may be weights, and is not only the epoch that a checkpoint was made in."""
    reach = view.flow.reach(*call.args, *(keyword.value for keyword in call.keywords))
    return bool(reach.unknown) or any(_WEIGHTS.search(last_name(node)) for node in reach.nodes)


def _hands_on(view: View, call: ast.Call) -> bool:
    """Whether a call leads out of the script and may broadcast there: by its name, or since it is given Horovod."""
    if view.modules.paths(call.func) and not view.modules.is_own(call.func):
        return False
    if _MAY_BROADCAST.search(last_name(call)) and not view.script.functions.get(last_name(call)):
        return True
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = [part for each in given for part in ast.walk(each) if isinstance(part, ast.Name)]
    modules = [part for part in parts if any(path in _MODULES for path in view.modules.paths(part))]
    return view.modules.is_own(call.func) and any(not _is_called_on(view, part) for part in modules)


def _is_called_on(view: View, name: ast.Name) -> bool:
    return isinstance(view.script.parents.get(name), ast.Attribute)


def _starts_equal(view: View) -> bool:
    """Whether every rank draws its weights from the same seed."""
    seeds = [call for call in view.method_calls(*_SEEDS) if call.args and not view.modules.is_own(call.func)]
    return any(not view.flow.has("rank", seed.args[0]) for seed in seeds)
