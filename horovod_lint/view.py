"""One analysed script, the input of every check: the places that train (Keras, tape, PyTorch), and callbacks."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from horovod_lint.findings import Finding
from horovod_lint.flow import Flow, returns_of
from horovod_lint.names import Modules
from horovod_lint.reachability import Guards, unreached_lines
from horovod_lint.rules import RuleCode
from horovod_lint.script import (
    BindingKind,
    FunctionNode,
    Script,
    argument_of,
    constant_of,
    dotted_text,
    keyword_of,
    last_name,
)

_A_PATH = "/mnt/landfall"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and the job that a script will run on, as far as known."""

    vm_size: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the job, from the pipeline's ``environment_variables``."""
    words_of_runs: tuple[tuple[str, ...], ...] = ()
    """The job's command-line arguments, for each run of an option sweep; empty if the job is not known."""
    registers: bool = False
    """Whether a model is to be registered, which needs a training report."""
    distribution: str = "mpi"
    """How the job starts its processes: ``mpi``, ``tensorflow`` or ``pytorch``."""

    @classmethod
    def of_job(
        cls,
        *,
        vm_size: str,
        environment: Mapping[str, str],
        arguments: Sequence[Sequence[str]] = ((),),
        paths: Sequence[str] = (),
        registers: bool = False,
        distribution: str = "mpi",
    ) -> Machine:
        """Return the machine of a pipeline's job.

        The script gets each of ``paths`` as a flag with a folder or a file, and then the ``arguments`` of its run.
        """
        first = [word for name in paths for word in (f"--{name}", _A_PATH)]
        return cls(
            vm_size=vm_size,
            environment=environment,
            words_of_runs=tuple((*first, *words) for words in arguments),
            registers=registers,
            distribution=distribution,
        )

    @property
    def job_flags(self) -> tuple[str, ...]:
        """The flags among the job's words."""
        words = (word for run in self.words_of_runs for word in run)
        return tuple(dict.fromkeys(word.partition("=")[0] for word in words if word[:2] == "--" and word != "--"))


class View:
    """One script, analysed."""

    def __init__(self, script: Script, machine: Machine) -> None:
        self.script, self.machine = script, machine
        self.modules = Modules(script)
        self.unreached = unreached_lines(script, self.modules)
        """Lines of functions that nothing in the script calls; calls inside them are not checked."""
        script.calls = [call for call in script.calls if call.lineno not in self.unreached]
        self.flow = Flow(script, self.modules)
        self.guards = Guards(script, self.modules, self.flow)
        self._of_horovod = [(c, name) for c in script.calls if (name := self.modules.horovod_name(c)) is not None]
        self._of_methods: dict[str, list[tuple[int, ast.Call]]] = defaultdict(list)
        """Method calls by name, with their position among all calls."""
        for number, call in enumerate(script.calls):
            if isinstance(call.func, ast.Attribute):
                self._of_methods[last_name(call)].append((number, call))
        self.fitting: list[ast.Call] | None = None
        """Calls of Keras' ``fit``, cached by `keras_fits`."""
        self.uses_horovod = bool(self._of_horovod)
        self.starts_ranks = any(path.startswith(("horovod.spark", "horovod.ray")) for path in self.modules.imported)
        """Whether the script starts ranks itself, so that its module level runs once."""
        self.is_tensorflow = self.modules.uses("tensorflow") or self.modules.uses("keras")

    def horovod_calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield calls of Horovod functions, by the last part of their names or by the whole name."""
        self.script.spend(len(self._of_horovod))
        yield from (call for call, name in self._of_horovod if {name, name.rpartition(".")[2]} & set(names))

    def library_calls(self, *paths: str) -> Iterator[ast.Call]:
        """Yield calls whose full name ends with one of these paths, such as ``callbacks.EarlyStopping``."""
        self.script.spend(len(self.script.calls))
        for call in self.script.calls:
            found = self.modules.paths(call.func)
            if any(path == known or path.endswith(f".{known}") for path in found for known in paths):
                yield call

    def method_calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield calls of methods with these names, of any object, in the order of the script."""
        found = sorted(
            (each for name in set(names) for each in self._of_methods.get(name, [])), key=lambda each: each[0]
        )
        self.script.spend(len(found))
        yield from (call for _, call in found)

    def finding(self, code: RuleCode, node: ast.AST, message: str) -> Finding:
        """Return a finding at a node."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        return Finding(code=code, line=line, column=column, message=message)


_FIT = ("fit", "fit_generator", "train_on_batch")
_KERAS_KEYWORDS = frozenset(
    {"epochs", "callbacks", "steps_per_epoch", "validation_data", "batch_size", "initial_epoch", "validation_split"}
)
_MAX_DEPTH = 8
_APPLYING = ("apply_gradients", "apply", "assign_sub")


@dataclass(frozen=True)
class Fit:
    """One call of Keras' ``fit``, ``fit_generator`` or ``train_on_batch``."""

    call: ast.Call

    @property
    def receiver(self) -> ast.expr:
        """The model."""
        return self.call.func.value if isinstance(self.call.func, ast.Attribute) else self.call.func

    @property
    def hides_arguments(self) -> bool:
        """Whether the call unpacks a mapping, whose arguments the script does not show."""
        return any(k.arg is None for k in self.call.keywords)

    @property
    def data(self) -> ast.expr | None:
        """The training data."""
        return argument_of(self.call, 0, "x", "generator")

    @property
    def callbacks(self) -> ast.expr | None:
        """The list of callbacks."""
        is_fit = last_name(self.call) == "fit"
        return keyword_of(self.call, "callbacks") or (argument_of(self.call, 5) if is_fit else None)

    @property
    def steps(self) -> ast.expr | None:
        """The number of steps in an epoch."""
        is_generator = last_name(self.call) == "fit_generator"
        return (
            argument_of(self.call, 1, "steps_per_epoch") if is_generator else keyword_of(self.call, "steps_per_epoch")
        )

    @property
    def shuffles(self) -> bool:
        """Whether Keras shuffles the records: those of arrays, which have separate labels, by default."""
        has_labels = last_name(self.call) == "fit" and argument_of(self.call, 1, "y") is not None
        return has_labels and constant_of(argument_of(self.call, 8, "shuffle")) is not False


@dataclass(frozen=True)
class TapeStep:
    """One training step: gradients that a tape computes and an optimizer applies."""

    gradient: ast.Call
    """``tape.gradient(…)``."""
    apply: ast.Call


def keras_fits(view: View) -> list[Fit]:
    """Return the calls of Keras' ``fit``, recognised by keywords or by a ``compile`` of the same model."""
    if view.fitting is None:
        view.fitting = _fitting_calls(view)
    view.script.spend(len(view.fitting))
    return [Fit(call) for call in view.fitting]


def _fitting_calls(view: View) -> list[ast.Call]:
    compiled = {ast.unparse(c.func.value) for c in compiles(view) if isinstance(c.func, ast.Attribute)}
    found = []
    for call in view.method_calls(*_FIT):
        has_keyword = any(k.arg in _KERAS_KEYWORDS for k in call.keywords)
        if has_keyword or ast.unparse(Fit(call).receiver) in compiled:
            found.append(call)
    return found if view.is_tensorflow or "keras" in " ".join(view.modules.horovod_flavours()) else []


def compiles(view: View) -> list[ast.Call]:
    """Return the calls of a Keras model's ``compile``."""
    known = {"optimizer", "loss", "metrics", "run_eagerly", "jit_compile"}
    calls = view.method_calls("compile")
    return [c for c in calls if any(k.arg in known for k in c.keywords) or (c.args and not _is_library(view, c))]


def _is_library(view: View, call: ast.Call) -> bool:
    return bool(view.modules.paths(call.func))


def tape_steps(view: View) -> Iterator[TapeStep]:
    """Yield the gradients of tapes that reach an optimizer, without those that are only inspected."""
    if not view.is_tensorflow:
        return
    for apply in view.method_calls(*_APPLYING):
        if not apply.args:
            continue
        for gradient in view.flow.reach(*apply.args).calls("gradient", "_gradient"):
            if isinstance(gradient.func, ast.Attribute) and _is_tape(view, gradient.func.value):
                yield TapeStep(gradient, apply)


def _is_tape(view: View, receiver: ast.expr) -> bool:
    """Whether an object with a ``gradient`` method is a tape, by its origin or its name."""
    names = {last_name(origin) for origin in view.flow.origins(receiver)}
    return bool(names & {"GradientTape", "DistributedGradientTape"}) or last_name(receiver).endswith("tape")


def torch_steps(view: View) -> list[ast.Call]:
    """Return the calls of ``backward``, if the script trains with PyTorch."""
    if not view.modules.uses("torch"):
        return []
    has_step = any(True for _ in view.method_calls("step"))
    return list(view.method_calls("backward")) if has_step else []


def training_calls(view: View) -> list[ast.Call]:
    """Return one call for each place that trains, by line."""
    calls = [fit.call for fit in keras_fits(view)]
    calls += list({step.apply: None for step in tape_steps(view)})
    calls += torch_steps(view)
    return sorted(calls, key=lambda call: call.lineno)


def loops_over_data(view: View) -> Iterator[ast.expr]:
    """Yield the iterable of the innermost data loop around each hand-written step, also in calling functions."""
    steps: list[ast.AST] = [step.gradient for step in tape_steps(view)]
    steps += torch_steps(view)
    seen: set[ast.AST] = set()
    while steps:
        node = steps.pop()
        if node in seen:
            continue
        seen.add(node)
        view.script.spend()
        loop = _loop_around(view, node)
        if loop is not None:
            yield loop.iter
            continue
        function = view.script.function_of(node)
        if function is not None:
            steps += view.flow.calls_of(function)
            steps += view.script.loads.get(function.name, [])


def _loop_around(view: View, node: ast.AST) -> ast.For | None:
    for ancestor in view.script.ancestors(node):
        if isinstance(ancestor, ast.For) and not is_over_numbers(ancestor.iter):
            return ancestor
        if isinstance(ancestor, FunctionNode):
            return None
    return None


def is_over_numbers(iterated: ast.expr) -> bool:
    """Whether a loop counts instead of iterating over data."""
    return last_name(iterated) in ("range", "trange")


@dataclass(frozen=True)
class CallbackItem:
    """One callback in a list."""

    call: ast.Call | None
    """The call that creates it, None if the script does not show it."""
    is_guarded: bool
    """Whether only some ranks have it in their lists."""

    @property
    def name(self) -> str:
        """Name of its class, without the module."""
        return last_name(self.call) if self.call is not None else ""


def callback_items(view: View, expression: ast.expr | None) -> list[CallbackItem]:
    """Return the callbacks in a list, in order; an item that the script does not show has no call."""
    if expression is None:
        return []
    return list(_list_items(view, expression, is_guarded=False, depth=0))


def _list_items(view: View, node: ast.expr, *, is_guarded: bool, depth: int) -> Iterator[CallbackItem]:
    view.script.spend()
    if depth >= _MAX_DEPTH:
        yield CallbackItem(None, is_guarded)
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _element_items(view, element, is_guarded=is_guarded, depth=depth)
    elif isinstance(node, ast.BinOp | ast.IfExp):
        is_choice = isinstance(node, ast.IfExp) and view.guards.depends_on_rank(node.test)
        sides = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node.left, node.right)
        for side in sides:
            yield from _list_items(view, side, is_guarded=is_guarded or is_choice, depth=depth + 1)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _named_items(view, node, is_guarded=is_guarded, depth=depth)
    elif isinstance(node, ast.Call):
        yield from _call_items(view, node, is_guarded=is_guarded, depth=depth)
    elif not isinstance(node, ast.Constant):
        yield CallbackItem(None, is_guarded)


def _element_items(view: View, element: ast.expr, *, is_guarded: bool, depth: int) -> Iterator[CallbackItem]:
    if isinstance(element, ast.Starred):
        yield from _list_items(view, element.value, is_guarded=is_guarded, depth=depth + 1)
    else:
        yield _item(view, element, is_guarded=is_guarded)


def _item(view: View, element: ast.expr, *, is_guarded: bool) -> CallbackItem:
    origins = [origin for origin in view.flow.origins(element) if constant_of(origin) is None]
    calls = [origin for origin in origins if isinstance(origin, ast.Call)]
    guarded = is_guarded or bool(view.guards.splits_around(element))
    return CallbackItem(calls[0] if len(calls) == 1 and len(origins) == 1 else None, guarded)


def _call_items(view: View, call: ast.Call, *, is_guarded: bool, depth: int) -> Iterator[CallbackItem]:
    # follow the name that a function returns, so that what the function appends to it counts
    sources = [value for function in view.flow.functions_called(call) for value in returns_of(function)]
    if sources:
        for source in sources:
            yield from _list_items(view, source, is_guarded=is_guarded, depth=depth + 1)
    elif last_name(call) in ("CallbackList", "list", "tuple") and call.args:
        yield from _list_items(view, call.args[0], is_guarded=is_guarded, depth=depth + 1)
    elif last_name(call) not in ("list", "tuple"):
        yield CallbackItem(None, is_guarded)


def _named_items(
    view: View, node: ast.Name | ast.Attribute, *, is_guarded: bool, depth: int
) -> Iterator[CallbackItem]:
    script = view.script
    bindings = (
        script.lookup(node) if isinstance(node, ast.Name) else script.attributes.get(dotted_text(node) or "", [])
    )
    items: list[CallbackItem] = []
    for binding in view.flow.latest(bindings, node):
        guarded = is_guarded or bool(view.guards.splits_around(binding.place))
        values = [binding.value] if binding.value is not None else view.flow.passed_arguments(binding)
        if binding.kind is BindingKind.CHANGED and isinstance(binding.place, ast.Call) and binding.value is not None:
            items = _after_change(view, binding.place, binding.value, items, is_guarded=guarded, depth=depth)
            continue
        if not values or binding.kind in (BindingKind.ITERATED, BindingKind.OTHER):
            items.append(CallbackItem(None, guarded))
        for value in values:
            items += _list_items(view, value, is_guarded=guarded, depth=depth + 1)
    yield from items if bindings else [CallbackItem(None, is_guarded)]


def _after_change(
    view: View, call: ast.Call, value: ast.expr, items: list[CallbackItem], *, is_guarded: bool, depth: int
) -> list[CallbackItem]:
    """Return the items after an ``append``, ``extend`` or ``insert``."""
    if last_name(call) == "extend":
        return [*items, *_list_items(view, value, is_guarded=is_guarded, depth=depth + 1)]
    item = _item(view, value, is_guarded=is_guarded)
    if last_name(call) == "insert" and constant_of(call.args[0]) == 0:
        return [item, *items]
    return [*items, item]
