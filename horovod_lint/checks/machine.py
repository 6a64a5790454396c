"""What depends on the machine and the job: GPUs, the network, and command-line arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import constant_of, dotted_text, keyword_of, last_name
from horovod_lint.training import training_calls
from horovod_lint.view import View
from shared.vm_sizes import network_environment, vm_size


def check(view: View) -> Iterator[Finding]:
    """Run the checks of this module."""
    yield from _check_gpus(view)
    yield from _check_network(view)
    yield from _check_arguments(view)


# -- wrong_gpu, gpu_not_pinned
_PINNING = ("set_visible_devices", "set_device")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MAY_PIN = re.compile(r"gpu|device|cuda|init|set_?up|config|dist|horovod|hvd", re.IGNORECASE)


def _check_gpus(view: View) -> Iterator[Finding]:
    """Find processes that use all GPUs of their node, or a GPU that may not exist."""
    if not view.uses_horovod:
        return
    for place, chosen in _gpu_choices(view):
        if _is_by_job_rank(view, chosen):
            yield view.finding(RuleCode.WRONG_GPU, place, f"the GPU is picked by {ast.unparse(chosen)[:60]}")
    trainings = training_calls(view)
    if trainings and _computes_on_gpus(view) and not _may_be_pinned(view) and _has_several_gpus(view):
        place = next(view.horovod_calls("init"), trainings[0])
        message = "the script does not pick a GPU for each process"
        yield view.finding(RuleCode.GPU_NOT_PINNED, place, message)


def _computes_on_gpus(view: View) -> bool:
    """Whether the script computes on GPUs: TensorFlow does so by default, PyTorch only on request."""
    texts = (node.attr for node in view.script.nodes if isinstance(node, ast.Attribute))
    return view.is_tensorflow or any("cuda" in text for text in texts)


def _gpu_choices(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for call in view.method_calls(*_PINNING):
        if call.args:
            yield call, call.args[0]
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            text = dotted_text(node.targets[0]) or ""
            named = isinstance(node.targets[0], ast.Subscript) and constant_of(node.targets[0].slice) == _VISIBLE
            if named or text.endswith("visible_device_list"):
                yield node, node.value


def _is_by_job_rank(view: View, chosen: ast.expr) -> bool:
    nodes = [*ast.walk(chosen)]
    remainder = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in nodes)
    direct = [view.flow.rank_kind(origin) for node in nodes if isinstance(node, ast.Call | ast.Name)
              for origin in view.flow.origins(node)]  # fmt: skip
    return "rank" in direct and not remainder


def _may_be_pinned(view: View) -> bool:
    if _VISIBLE in view.machine.environment:
        return True
    if any("local_rank" in (view.flow.rank_kind(node) or "") for node in view.script.nodes):
        return True
    if any(isinstance(node, ast.Constant) and node.value == _VISIBLE for node in view.script.nodes):
        return True
    own = (last_name(call) for call in view.script.calls if view.modules.is_own(call.func))
    return any(True for _ in view.method_calls(*_PINNING)) or any(_MAY_PIN.search(name) for name in own)


def _has_several_gpus(view: View) -> bool:
    known = vm_size(view.machine.vm_size) if view.machine.vm_size else None
    return known is None or known.num_gpus > 1


# -- infiniband_disabled
_INFINIBAND = "NCCL_IB_DISABLE"
_LEFT_ON = ("", "0")


def _check_network(view: View) -> Iterator[Finding]:
    """Find InfiniBand disabled on a VM size that has it; an unknown size has no finding."""
    size = view.machine.vm_size
    if size is None or _INFINIBAND in network_environment(size):
        return
    stated = view.machine.environment.get(_INFINIBAND, "")
    if stated not in _LEFT_ON:
        message = f"the pipeline's environment_variables set {_INFINIBAND}={stated} on {size}"
        yield Finding(code=RuleCode.INFINIBAND_DISABLED, line=1, message=message)
    for place, value in _infiniband_settings(view):
        if str(constant_of(value)) not in (*_LEFT_ON, "None"):
            message = f"{_INFINIBAND} is set to {constant_of(value)!r} on {size}, which has InfiniBand"
            yield view.finding(RuleCode.INFINIBAND_DISABLED, place, message)


def _infiniband_settings(view: View) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in view.script.nodes:
        if isinstance(node, ast.Assign):
            targets = [
                t for t in node.targets if isinstance(t, ast.Subscript) and constant_of(t.slice) == _INFINIBAND
            ]
            yield from ((node, node.value) for _ in targets)
        elif isinstance(node, ast.Dict):
            yield from (
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key and constant_of(key) == _INFINIBAND
            )
        elif isinstance(node, ast.Call):
            if last_name(node) in ("setdefault", "putenv") and [constant_of(a) for a in node.args[:1]] == [
                _INFINIBAND
            ]:
                yield from ((node, value) for value in node.args[1:2])
            yield from ((node, k.value) for k in node.keywords if k.arg == _INFINIBAND)


# -- arguments_not_taken
_PARSER = "argparse.ArgumentParser"
_MAX_NAMED = 3


def _check_arguments(view: View) -> Iterator[Finding]:
    """Find argparse parsers that reject the job's arguments; without a known job there is no finding."""
    known = _known_options(view)
    if not view.machine.job_flags or known is None:
        return
    # argparse accepts unambiguous prefixes of options
    missing = [flag for flag in view.machine.job_flags if not any(option.startswith(flag) for option in known)]
    for call in view.method_calls("parse_args"):
        if missing and _reads_the_command_line(view, call) and _is_plain_parser(view, call):
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            message = f"the job passes {', '.join(missing[:_MAX_NAMED])}{more}, which this parser does not accept"
            yield view.finding(RuleCode.ARGUMENTS_NOT_TAKEN, call, message)


def _known_options(view: View) -> set[str] | None:
    """Return all options that the script adds, None if a name is not a literal."""
    found: set[str] = set()
    for call in view.method_calls("add_argument"):
        names = [constant_of(argument) for argument in call.args]
        if not all(isinstance(name, str) for name in names):
            return None
        found |= {str(name) for name in names}
    return found


def _reads_the_command_line(view: View, call: ast.Call) -> bool:
    args = call.args[0] if call.args else keyword_of(call, "args")
    return args is None or any("sys.argv" in view.modules.paths(node) for node in ast.walk(args) if _is_name(node))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _is_plain_parser(view: View, call: ast.Call) -> bool:
    """Whether a parser is a plain ``argparse.ArgumentParser`` without ``parents``."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    origins = view.flow.origins(receiver)
    return all(
        isinstance(each, ast.Call)
        and _PARSER in view.modules.paths(each.func)
        and keyword_of(each, "parents") is None
        for each in origins
    )
