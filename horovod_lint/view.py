"""The input of every check: a script, the analysis of its names, and the machine that it will run on."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from horovod_lint.findings import Finding
from horovod_lint.flow import Flow
from horovod_lint.names import Modules
from horovod_lint.reachability import Guards, unreached_lines
from horovod_lint.rules import RuleCode
from horovod_lint.script import Script, last_name
from shared.job_arguments import JobArguments


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and the job that a script will run on, as far as known."""

    vm_size: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the job, from the pipeline's ``environment_variables``."""
    job_flags: tuple[str, ...] = ()
    """Flags that the job passes on the command line; empty if the job is not known."""

    @classmethod
    def of_job(cls, *, vm_size: str, environment: Mapping[str, str]) -> Machine:
        """Return the machine of a pipeline's job."""
        flags = tuple(f"--{field.name.replace('_', '-')}" for field in fields(JobArguments))
        return cls(vm_size=vm_size, environment=environment, job_flags=flags)


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
        """Calls of Keras' ``fit``, cached by ``training.keras_fits``."""
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
