"""What every check is given: the script, what its names mean, and what it will run on."""

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
    """What a script will run on, as far as that is known."""

    vm_size: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the job: the pipeline's ``environment_variables``."""
    job_flags: tuple[str, ...] = ()
    """What the job passes on the command line; empty where the script is looked at by itself."""

    @classmethod
    def of_job(cls, *, vm_size: str, environment: Mapping[str, str]) -> Machine:
        """Return what the script of a pipeline's job will run on."""
        flags = tuple(f"--{field.name.replace('_', '-')}" for field in fields(JobArguments))
        return cls(vm_size=vm_size, environment=environment, job_flags=flags)


class View:
    """One script under one look."""

    def __init__(self, script: Script, machine: Machine) -> None:
        self.script, self.machine = script, machine
        self.modules = Modules(script)
        self.unreached = unreached_lines(script, self.modules)
        """Lines of functions that nothing in the script leads to: calls in them are none of its."""
        script.calls = [call for call in script.calls if call.lineno not in self.unreached]
        self.flow = Flow(script, self.modules)
        self.guards = Guards(script, self.modules, self.flow)
        self._of_horovod = [(c, name) for c in script.calls if (name := self.modules.horovod_name(c)) is not None]
        self._of_methods: dict[str, list[tuple[int, ast.Call]]] = defaultdict(list)
        """By their names, with their place in the script: every check asks for some."""
        for number, call in enumerate(script.calls):
            if isinstance(call.func, ast.Attribute):
                self._of_methods[last_name(call)].append((number, call))
        self.fitting: list[ast.Call] | None = None
        """Calls of Keras' ``fit``, once they are known."""
        self.uses_horovod = bool(self._of_horovod)
        self.starts_ranks = any(path.startswith(("horovod.spark", "horovod.ray")) for path in self.modules.imported)
        """Whether it starts ranks itself: what stands at its top then runs once."""
        self.is_tensorflow = self.modules.uses("tensorflow") or self.modules.uses("keras")

    def horovod_calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield calls of Horovod's functions, by the last part of their names or by all of it."""
        self.script.spend(len(self._of_horovod))
        yield from (call for call, name in self._of_horovod if {name, name.rpartition(".")[2]} & set(names))

    def library_calls(self, *paths: str) -> Iterator[ast.Call]:
        """Yield calls whose full name ends with one of these: ``callbacks.EarlyStopping``."""
        self.script.spend(len(self.script.calls))
        for call in self.script.calls:
            found = self.modules.paths(call.func)
            if any(path == known or path.endswith(f".{known}") for path in found for known in paths):
                yield call

    def method_calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield calls of methods of these names, whatever they belong to."""
        found = sorted(
            (each for name in set(names) for each in self._of_methods.get(name, [])), key=lambda each: each[0]
        )
        self.script.spend(len(found))
        yield from (call for _, call in found)

    def finding(self, code: RuleCode, node: ast.AST, message: str) -> Finding:
        """Return a finding at a node."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        return Finding(code=code, line=line, column=column, message=message)
