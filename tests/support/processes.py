"""Processes that tests start, to send them signals and check their exit status and output."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_azure.processes import Process, Program, clean_environment, module_command

REPOSITORY = Path(__file__).resolve().parents[2]


def child_environment(**settings: str) -> dict[str, str]:
    """Return a child's environment: that of this process without foreign settings, plus `settings`."""
    return clean_environment() | settings


def start_process(arguments: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Process:
    """Start a command in its own session. It dies with the *thread* that starts it, so use the main thread."""
    name = " ".join(Path(word).name for word in arguments[:3])
    return Process(Program(name=name, command=arguments, environment=environment, log=log), guarded=False)


def start_module(module: str, *arguments: str, log: Path, environment: Mapping[str, str]) -> Process:
    """Start ``python -m module arguments`` with the interpreter that runs the tests."""
    return start_process(module_command(module, *arguments), log=log, environment=environment)


def free_port() -> int:
    """Return a port that was free a moment ago; prefer port 0 where a server can report its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def network_of(pid: int | str) -> str | None:
    """Return the network namespace of a process, None once it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


def networks_in_use() -> set[str]:
    """Return the network namespaces of all processes; the kernel removes one without processes."""
    found = (network_of(process.name) for process in Path("/proc").glob("[0-9]*"))
    return {network for network in found if network is not None}
