"""Whether Horovod connects the ranks: initialised, gradients averaged, the same weights at the start."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import argument_of, last_name
from horovod_lint.view import (
    TapeStep,
    View,
    callback_items,
    compiles,
    keras_fits,
    tape_steps,
    torch_steps,
    training_calls,
)


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_connection(view)
    yield from _check_initialisation(view)
    yield from _check_optimizers(view)
    yield from _check_tapes(view)
    yield from _check_broadcast(view)
    yield from _check_frameworks(view)


# -- horovod_not_used, tf_distribute
_STRATEGIES = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "CentralStorageStrategy",
    "OneDeviceStrategy",
)
_OTHER_LIBRARIES = ("mpi4py", "torch.distributed", "deepspeed", "accelerate", "byteps")


def _check_connection(view: View) -> Iterator[Finding]:
    """Find training without Horovod, and ``tf.distribute`` strategies."""
    strategies = list(view.library_calls(*_STRATEGIES))
    if view.uses_horovod and view.machine.distribution != "mpi":
        message = f"uses Horovod, but the pipeline's train.distribution is {view.machine.distribution}"
        yield view.finding(
            RuleCode.HOROVOD_WITHOUT_MPI,
            next(c for c in view.script.calls if view.modules.horovod_name(c) is not None),
            message,
        )
        return
    if strategies and not _is_configured(view):
        message = f"uses a tf.distribute strategy{' in addition to Horovod' if view.uses_horovod else ''}"
        yield view.finding(RuleCode.TF_DISTRIBUTE, strategies[0], message)
        return
    trainings = training_calls(view)
    if not trainings or view.modules.uses("horovod") or view.modules.own or strategies:
        return
    if view.machine.distribution != "mpi":
        return  # something other than Horovod connects the processes then
    if any(path.startswith(other) for path in view.modules.imported for other in _OTHER_LIBRARIES):
        return
    yield view.finding(
        RuleCode.HOROVOD_NOT_USED, trainings[0], "training starts here, but the script does not import Horovod"
    )


def _is_configured(view: View) -> bool:
    """Whether the job or the script sets ``TF_CONFIG``."""
    names_it = (isinstance(node, ast.Constant) and node.value == "TF_CONFIG" for node in view.script.nodes)
    return view.machine.distribution == "tensorflow" or any(names_it)


# -- missing_init, used_before_init
_NEED_IT = frozenset(
    {
        *("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "allreduce", "allgather"),
        *("broadcast", "broadcast_variables", "broadcast_object", "broadcast_parameters", "allgather_object", "join"),
        *("DistributedOptimizer", "DistributedGradientTape", "grouped_allreduce", "barrier", "alltoall"),
    }
)
_MAY_INITIALISE = re.compile(
    r"init|set_?up|horovod|hvd|dist|launch|prepare|bootstrap|environment|config", re.IGNORECASE
)


def _check_initialisation(view: View) -> Iterator[Finding]:
    """Find Horovod calls without ``hvd.init()``, or before it."""
    uses = [call for call in view.script.calls if (view.modules.horovod_name(call) or "") in _NEED_IT]
    if not uses:
        return
    if not _is_initialised(view):
        name = view.modules.horovod_name(uses[0])
        yield view.finding(RuleCode.MISSING_INIT, uses[0], f"{name} is called, but hvd.init() never is")
        return
    initialising = _initialising_functions(view)
    for scope in {view.script.function_of(use) for use in uses}:
        yield from _early_uses(view, [u for u in uses if view.script.function_of(u) is scope], initialising)


def _is_initialised(view: View) -> bool:
    mentioned = any(
        isinstance(node, ast.Name | ast.Attribute) and view.modules.horovod_name(node) == "init"
        for node in view.script.nodes
    )
    own_calls = (call for call in view.script.calls if view.modules.is_own(call.func))
    return mentioned or any(_MAY_INITIALISE.search(ast.unparse(call.func)) for call in own_calls)


def _initialising_functions(view: View) -> set[str]:
    """Return the names of the script's functions that initialise Horovod, directly or through each other."""
    names: set[str] = set()
    while True:
        found = {
            function.name
            for call in view.script.calls
            if _initialises(view, call, names) and (function := view.script.function_of(call)) is not None
        }
        if found <= names:
            return names
        names |= found


def _initialises(view: View, call: ast.Call, names: set[str]) -> bool:
    return view.modules.horovod_name(call) == "init" or (last_name(call) in names and bool(names))


def _early_uses(view: View, uses: list[ast.Call], initialising: set[str]) -> Iterator[Finding]:
    scope = view.script.function_of(uses[0])
    lines = [
        call.lineno
        for call in view.script.calls
        if view.script.function_of(call) is scope and _initialises(view, call, initialising)
    ]
    early = [use for use in uses if lines and use.lineno < min(lines) and not _is_in_lambda(view, use)]
    if early:
        name = view.modules.horovod_name(early[0])
        yield view.finding(
            RuleCode.USED_BEFORE_INIT,
            early[0],
            f"{name} is called before hvd.init(), which is on {view.script.where(min(lines))}",
        )


def _is_in_lambda(view: View, node: ast.AST) -> bool:
    return any(isinstance(ancestor, ast.Lambda) for ancestor in view.script.ancestors(node))


# -- optimizer_not_distributed
_OPTIMIZERS = re.compile(r"^(tensorflow|keras|tf_keras)\..*(optimizers\.|train\.\w+Optimizer$)")
_TORCH_OPTIMIZER = re.compile(r"torch\.optim\.(?!lr_scheduler|swa_utils)")
_DISTRIBUTED_OPTIMIZER = "DistributedOptimizer"
_GRADIENT = re.compile(r"(flat_?)?grads?$|gradients?$", re.IGNORECASE)
_AVERAGING_GRADIENTS = (
    "allreduce",
    "grouped_allreduce",
    "allreduce_",
    "allreduce_async_",
    "grouped_allreduce_async_",
)


def _check_optimizers(view: View) -> Iterator[Finding]:
    """Find plain optimizers that Keras compiles with, or that PyTorch steps."""
    if not view.uses_horovod or any(view.horovod_calls("DistributedGradientTape", "load_model")):
        return
    fitted = {ast.unparse(fit.receiver) for fit in keras_fits(view)}
    compiled = [c for c in compiles(view) if isinstance(c.func, ast.Attribute)] if fitted else []
    for call in [c for c in compiled if ast.unparse(c.func.value) in fitted] or compiled:  # type: ignore[attr-defined]
        if not any(k.arg is None for k in call.keywords) and is_distributed(view, call) is False:
            wrapped = next(view.horovod_calls(_DISTRIBUTED_OPTIMIZER), None)
            unused = (
                f"; the optimizer that {view.script.where(wrapped.lineno)} wraps is not used"
                if wrapped is not None
                else ""
            )
            yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, call, f"compile uses a plain optimizer{unused}")
    yield from _plain_minimize(view)
    steps = torch_steps(view)
    if steps and view.modules.uses("torch") and not _may_average_gradients(view):
        message = "the loop calls backward and step without a Horovod optimizer"
        yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, steps[0], message)
    elif steps:
        yield from _plain_steps(view)


def _plain_steps(view: View) -> Iterator[Finding]:
    """Find steps of an optimizer of PyTorch that is not the one that Horovod wraps."""
    wrapped = next(view.horovod_calls(_DISTRIBUTED_OPTIMIZER), None)
    averages = any(_may_be_gradients(view, call) for call in view.horovod_calls(*_AVERAGING_GRADIENTS))
    if wrapped is None or averages:
        return
    for call in view.method_calls("step"):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if any(_is_plain_of_torch(view, each) for each in (receiver, *call.args[:1])):
            where = view.script.where(wrapped.lineno)
            message = f"step is called on a plain optimizer; the optimizer that {where} wraps is not used"
            yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, call, message)


def _is_plain_of_torch(view: View, node: ast.expr) -> bool:
    """Whether a value can only be an optimizer of PyTorch itself; a learning-rate scheduler is not an optimizer."""
    origins = view.flow.origins(node)
    paths = [view.modules.paths(each.func) if isinstance(each, ast.Call) else frozenset() for each in origins]
    return bool(paths) and all(any(_TORCH_OPTIMIZER.match(path) for path in each) for each in paths)


def _plain_minimize(view: View) -> Iterator[Finding]:
    """Find ``minimize`` calls of plain TensorFlow optimizers, which compute and apply gradients at once."""
    for call in view.method_calls("minimize"):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        origins = view.flow.origins(receiver)
        paths = [view.modules.paths(o.func) if isinstance(o, ast.Call) else frozenset() for o in origins]
        if all(any(_OPTIMIZERS.search(path) for path in each) for each in paths):
            yield view.finding(RuleCode.OPTIMIZER_NOT_DISTRIBUTED, call, "minimize is called on a plain optimizer")


def is_distributed(view: View, compile_call: ast.Call) -> bool | None:
    """Whether a ``compile`` call uses Horovod's optimizer; None if the script does not show it."""
    optimizer = argument_of(compile_call, 0, "optimizer")
    if optimizer is None:
        return False
    verdicts = [_is_horovods(view, origin) for origin in view.flow.origins(optimizer)]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _is_horovods(view: View, origin: ast.expr) -> bool | None:
    if isinstance(origin, ast.Constant):
        return False
    if not isinstance(origin, ast.Call):
        return None
    names = {last_name(origin), view.modules.horovod_name(origin)}
    if _DISTRIBUTED_OPTIMIZER in names or view.flow.reach(origin).calls(_DISTRIBUTED_OPTIMIZER):
        return True
    return False if view.modules.paths(origin.func) and not view.modules.is_own(origin.func) else None


def _may_be_gradients(view: View, call: ast.Call) -> bool:
    """Whether a call may average gradients; most calls average a loss or an accuracy to print it."""
    reach = view.flow.reach(*call.args, *(keyword.value for keyword in call.keywords))
    return bool(reach.unknown) or any(_GRADIENT.match(last_name(node)) for node in reach.nodes)


def _may_average_gradients(view: View) -> bool:
    averages = any(view.horovod_calls(_DISTRIBUTED_OPTIMIZER)) or any(
        _may_be_gradients(view, call) for call in view.horovod_calls(*_AVERAGING_GRADIENTS)
    )
    imported = (
        path for path in view.modules.imported if not path.startswith("torch.utils.data")
    )  # its samplers only
    others = any("distributed" in path or "parallel" in path for path in imported)
    return averages or others or bool(view.modules.own)


# -- tape_not_distributed
_DISTRIBUTED_TAPES = frozenset({"DistributedGradientTape", "PartialDistributedGradientTape"})
_AVERAGING = ("allreduce", "grouped_allreduce", "_allreduce_grads", "reducescatter", "grouped_reducescatter")


def _check_tapes(view: View) -> Iterator[Finding]:
    """Find plain tapes whose gradients are applied without averaging."""
    if not view.uses_horovod:
        return
    for gradient in {step.gradient: step for step in tape_steps(view)}.values():
        if _is_plain_tape(view, gradient) and not _is_averaged(view, gradient):
            message = f"computes gradients with a plain tape; {view.script.where(gradient.apply.lineno)} applies them"
            yield view.finding(RuleCode.TAPE_NOT_DISTRIBUTED, gradient.gradient, message)


def _is_plain_tape(view: View, step: TapeStep) -> bool:
    receiver = step.gradient.func
    origins = view.flow.origins(receiver.value) if isinstance(receiver, ast.Attribute) else []
    names = {last_name(origin) for origin in origins}
    return "GradientTape" in names and not names & _DISTRIBUTED_TAPES


def _is_averaged(view: View, step: TapeStep) -> bool:
    """Whether the gradients are averaged between the tape and the optimizer, or by the optimizer."""
    pairs = step.apply.args[0]
    gradients = pairs.args[0] if isinstance(pairs, ast.Call) and last_name(pairs) == "zip" and pairs.args else pairs
    between = view.flow.reach(gradients, stop=step.gradient)
    own = any(isinstance(node, ast.Call) and view.modules.is_own(node.func) for node in between.nodes)
    optimizer = step.apply.func.value if isinstance(step.apply.func, ast.Attribute) else None
    wrapped = view.flow.reach(optimizer).calls("DistributedOptimizer")
    return bool(between.calls(*_AVERAGING)) or own or bool(wrapped)


# -- no_initial_broadcast
_WEIGHT_SEEDS = ("set_random_seed", "set_seed", "manual_seed")
_HOROVOD_MODULES = frozenset({"horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras", "horovod.torch"})
_BROADCASTS = ("broadcast", "broadcast_object", "broadcast_", "broadcast_async", "broadcast_async_")
_WEIGHTS = re.compile(r"weight|param|variable|state|model|net(work)?$|optimizer|checkpoint", re.IGNORECASE)
_MAY_BROADCAST = re.compile(r"broadcast|bcast|sync", re.IGNORECASE)


def _check_broadcast(view: View) -> Iterator[Finding]:
    """Find training whose ranks start from different weights."""
    trainings = training_calls(view) or _sessions(view)
    if not view.uses_horovod or not trainings or _may_broadcast(view) or _is_seeded_alike(view):
        return
    if any(item.call is None for fit in keras_fits(view) for item in callback_items(view, fit.callbacks)):
        return
    if any(fit.hides_arguments for fit in keras_fits(view)):
        return
    message = "training starts here without a broadcast of the root's weights"
    yield view.finding(RuleCode.NO_INITIAL_BROADCAST, trainings[0], message)


def _sessions(view: View) -> list[ast.Call]:
    """Return the calls that train with a session or an estimator of TensorFlow 1; a hook broadcasts there."""
    found = []
    for call in view.script.calls:
        paths = view.modules.paths(call.func)
        is_training = any(path.endswith(("train.MonitoredTrainingSession", "train_and_evaluate")) for path in paths)
        if last_name(call) == "train" and isinstance(call.func, ast.Attribute):
            origins = (o.func for o in view.flow.origins(call.func.value) if isinstance(o, ast.Call))
            is_training = any(p.endswith("estimator.Estimator") for o in origins for p in view.modules.paths(o))
        found += [call] if is_training else []
    return found


def _may_broadcast(view: View) -> bool:
    """Whether the script broadcasts weights, also by an elastic state, or calls something that may do so."""
    for node in view.script.nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            name = view.modules.horovod_name(node)
            if name is not None and ("roadcast" in name or name.startswith("elastic.")) and name not in _BROADCASTS:
                return True
    if any(_may_be_weights(view, call) for call in view.horovod_calls(*_BROADCASTS)):
        return True
    return any(_may_broadcast_elsewhere(view, call) for call in view.script.calls)


def _may_be_weights(view: View, call: ast.Call) -> bool:
    """Whether a broadcast may contain weights, and not only the epoch to resume from."""
    reach = view.flow.reach(*call.args, *(keyword.value for keyword in call.keywords))
    return bool(reach.unknown) or any(_WEIGHTS.search(last_name(node)) for node in reach.nodes)


def _may_broadcast_elsewhere(view: View, call: ast.Call) -> bool:
    """Whether a call leaves the script and may broadcast there: by its name, or because it receives Horovod."""
    if view.modules.paths(call.func) and not view.modules.is_own(call.func):
        return False
    if _MAY_BROADCAST.search(last_name(call)) and not view.script.functions.get(last_name(call)):
        return True
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = [part for each in arguments for part in ast.walk(each) if isinstance(part, ast.Name)]
    modules = [part for part in parts if any(path in _HOROVOD_MODULES for path in view.modules.paths(part))]
    return view.modules.is_own(call.func) and any(not _is_called_on(view, part) for part in modules)


def _is_called_on(view: View, name: ast.Name) -> bool:
    return isinstance(view.script.parents.get(name), ast.Attribute)


def _is_seeded_alike(view: View) -> bool:
    """Whether every rank initialises its weights from the same seed."""
    seeds = [call for call in view.method_calls(*_WEIGHT_SEEDS) if call.args and not view.modules.is_own(call.func)]
    return any(not view.flow.has("rank", seed.args[0]) for seed in seeds)


# -- framework_partly_checked
_OTHER_FRAMEWORKS = ("torch", "mxnet", "spark", "ray")


def _check_frameworks(view: View) -> Iterator[Finding]:
    """Find Horovod modules that the rules know only partly."""
    for node in view.script.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            text = ast.unparse(node)
            found = [
                name
                for name in _OTHER_FRAMEWORKS
                if f"horovod.{name}" in text or f"from horovod import {name}" in text
            ]
            if found:
                yield view.finding(RuleCode.FRAMEWORK_PARTLY_CHECKED, node, f"uses horovod.{found[0]}")
                return
