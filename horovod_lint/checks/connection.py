"""Whether anything connects the ranks at all, and whether it is Horovod."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.training import training_calls
from horovod_lint.view import View

_STRATEGIES = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "CentralStorageStrategy",
    "OneDeviceStrategy",
)
_OTHERS = ("mpi4py", "torch.distributed", "deepspeed", "accelerate", "byteps")


def check(view: View) -> Iterator[Finding]:
    """Find trainings that nothing connects, and strategies beside Horovod."""
    strategies = list(view.library_calls(*_STRATEGIES))
    if strategies and not _is_configured(view):
        message = f"a strategy of tf.distribute{' beside Horovod' if view.uses_horovod else ''}"
        yield view.finding(RuleCode.TF_DISTRIBUTE, strategies[0], message)
        return
    trainings = training_calls(view)
    if not trainings or view.modules.uses("horovod") or view.modules.own or strategies:
        return
    if any(path.startswith(other) for path in view.modules.imported for other in _OTHERS):
        return
    yield view.finding(RuleCode.HOROVOD_NOT_USED, trainings[0], "this trains, and the script imports no Horovod")


def _is_configured(view: View) -> bool:
    return any(isinstance(node, ast.Constant) and node.value == "TF_CONFIG" for node in view.script.nodes)
