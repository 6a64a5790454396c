"""Every call of a port, seen from outside: recorded, interrupted, or made to fail.

The methods are read from the protocols, and the places that call them from the steps' source: a new effect is found
automatically, and tests that use these lists fail until it is classified and reached.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import function_app
from function_app.services import Services

FLOW_FOLDERS = ("ingest", "registry", "runs", "notify", "sweep", "explain")
FLOWS = tuple(Path(function_app.__file__).parent / name for name in FLOW_FOLDERS)
"""The folders whose code decides and calls the ports."""
NOT_A_PORT = frozenset({"Clock", "TelemetrySink"})
"""A clock is called by itself, and time has no effects; no step depends on the fate of telemetry."""

WRITES: Mapping[str, frozenset[str]] = {
    "Ledger": frozenset(
        {
            "claim_split_size",
            "move_split_size",
            "record_shard",
            "record_first_verdicts",
            "add_generation",
            "claim_auto_run",
            "add_run",
            "save_run",
            "add_notification",
            "save_notification",
            "add_history_entry",
            "add_attempt",
            "change_run_queue",
            "add_dead_letter",
            "save_dead_letter",
            "count",
            "set_mark",
            "change_mark",
        }
    ),
    "ShardStore": frozenset(),
    "RejectedCopies": frozenset({"copy", "note"}),
    "DocumentStore": frozenset({"write_once", "write", "delete"}),
    "RequestQueue": frozenset({"send", "delete"}),
    "JobService": frozenset({"submit", "cancel"}),
    "ModelRegistry": frozenset({"register", "tag"}),
    "Notifier": frozenset({"send"}),
    "DeadLetterSource": frozenset(),
    "MessageQueue": frozenset({"send_text", "take", "delete"}),
}
"""Port → its methods that change the world."""
READS: Mapping[str, frozenset[str]] = {
    "Ledger": frozenset(
        {
            "split_sizes",
            "shard",
            "accepted_in_bucket",
            "shards",
            "shard_marks",
            "versions",
            "latest_generation",
            "run",
            "unfinished_runs",
            "runs",
            "unsent_notifications",
            "notifications",
            "history",
            "history_below",
            "generations",
            "latest_generations",
            "run_queue",
            "dead_letter",
            "dead_letters",
            "mark",
        }
    ),
    "ShardStore": frozenset({"facts", "open", "list"}),
    "RejectedCopies": frozenset(),
    "DocumentStore": frozenset({"read", "has_any", "names"}),
    "RequestQueue": frozenset(),
    "JobService": frozenset(
        {"status", "log_tail", "log_part", "logged_metrics", "ours", "has_compute", "assets", "capacity"}
    ),
    "ModelRegistry": frozenset({"find"}),
    "Notifier": frozenset(),
    # it deletes a message only when the ledger has it: after a death before that, the message still exists
    "DeadLetterSource": frozenset({"undelivered"}),
    "MessageQueue": frozenset(),
}
"""Port → its methods that only read."""


@dataclass(frozen=True, kw_only=True)
class PortCall:
    """One call of a port, about to be made."""

    port: str
    """The protocol's name."""
    method: str
    site: str
    """The function that makes the call: ``module.function``."""
    arguments: tuple[Any, ...]

    @property
    def is_write(self) -> bool:
        """Whether it changes something outside."""
        return self.method in WRITES[self.port]

    @property
    def point(self) -> str:
        """The name of the place, as in the source: ``method@module.function``."""
        return f"{self.method}@{self.site}"


Around = Callable[[PortCall, Callable[[], Any]], Any]
"""Receives a call and the function that makes it; returns the answer to the caller, or raises."""


@functools.cache
def ports_of_services() -> dict[str, type]:
    """Return the fields of Services that hold ports: field → protocol; several of one kind are a mapping."""
    hints = typing.get_type_hints(Services)
    found = {}
    for field in fields(Services):
        kinds = [hints[field.name], *typing.get_args(hints[field.name])]
        protocols = [k for k in kinds if getattr(k, "_is_protocol", False) and k.__name__ not in NOT_A_PORT]
        if protocols:
            found[field.name] = protocols[0]
    return found


def methods_of_ports() -> dict[str, frozenset[str]]:
    """Return every port with its public methods, including inherited ones."""
    return {
        protocol.__name__: frozenset(
            name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")
        )
        for protocol in ports_of_services().values()
    }


def watched(services: Services, around: Around) -> Services:
    """Return the same services, with ``around`` wrapped around every call of a port."""
    changes: dict[str, Any] = {}
    for name, protocol in ports_of_services().items():
        port, value = protocol.__name__, getattr(services, name)
        if isinstance(value, Mapping):
            changes[name] = {key: WatchedPort(port, one, around) for key, one in value.items()}
        elif isinstance(value, Sequence):
            changes[name] = [WatchedPort(port, one, around) for one in value]
        else:
            changes[name] = WatchedPort(port, value, around)
    return replace(services, **changes)


class WatchedPort:
    """Wraps a port, and calls ``around`` for each of its methods."""

    def __init__(self, port: str, target: Any, around: Around) -> None:
        self._port, self._target, self._around = port, target, around

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._target, name)

        def call(*arguments: Any, **named: Any) -> Any:
            site = site_of(sys._getframe(1))
            made = PortCall(port=self._port, method=name, site=site, arguments=(*arguments, *named.values()))
            return self._around(made, lambda: method(*arguments, **named))

        return call


def call_sites() -> dict[str, str]:
    """Return every place in the source that calls a writing method: point → file and line."""
    writing = frozenset().union(*WRITES.values())
    found = {}
    for path in sorted(path for folder in FLOWS for path in folder.glob("*.py")):
        for owner, call in calls_of(ast.parse(path.read_text())):
            method = {"record": "add_history_entry"}.get(called(call), called(call))
            if method in writing and owner != "History.record":
                found[f"{method}@{path.stem}.{owner}"] = f"{path.name}:{call.lineno}"
    return found


def calls_of(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call with the top-level function or the method that contains it."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                inside = (one for one in ast.walk(member) if isinstance(one, ast.Call))
                yield from ((prefix + member.name, call) for call in inside)


def called(call: ast.Call) -> str:
    """Return the name of the called method, empty for anything else."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def site_of(frame: FrameType | None) -> str:
    """Name the calling function: the innermost one of a flow, except the shared function that records an entry."""
    while frame is not None:
        if (site := _site_of_code(frame.f_code)) is not None:
            return site
        frame = frame.f_back
    return "outside.the_steps"


@functools.cache
def _site_of_code(code: CodeType) -> str | None:
    path, owner = Path(code.co_filename), code.co_qualname.partition(".<locals>")[0]
    is_step = path.parent in FLOWS and owner not in ("History.record", "<lambda>", "<genexpr>")
    return f"{path.stem}.{owner}" if is_step else None
