"""Nodes as hosts on this machine: what each has of its own, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from local_azure.azure_ml.hosts import address, agent_variables, name, on_hosts, program, why_simulated
from local_azure.processes import PATIENCE_S, wait_until
from tests.support.azure_ml import WITHOUT_NETWORKS
from tests.support.processes import REPOSITORY, networks_in_use
from training_job.liveness.heartbeat import own_addresses

ABOUT_ME = """
import json, os, socket, sys
for file in sys.argv[1:]:
    open(file, "x").close()
print(json.dumps({
    "name": socket.gethostname(),
    "address": socket.gethostbyname(socket.gethostname()),
    "cores": sorted(os.sched_getaffinity(0)),
    "shared memory": os.listdir("/dev/shm"),
    "folder": os.getcwd(),
    "network": os.readlink("/proc/self/ns/net"),
}), flush=True)
"""
KNOCK = """
import socket, sys
port, *addresses = sys.argv[1:]
print([address for address in addresses if not socket.socket().connect_ex((address, int(port)))])
"""
SIMULATED = "from local_azure.azure_ml.hosts import why_simulated; print(why_simulated())"
AS_ORDINARY_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Root has no rights in what follows, and keeps its files."""


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    """Skip where the machine allows no hosts."""
    if because := why_simulated():
        pytest.skip(because)


def about(*new_files: str) -> str:
    """Return the shell's command for a program that says what it has of a host."""
    return shlex.join([sys.executable, "-c", ABOUT_ME, *new_files])


def run_on_two(folder: Path, script: str, within: Sequence[str] = ()) -> list[Any]:
    """Run a shell script on the first of two nodes; return the JSON of each line."""
    ended = subprocess.run(
        [*within, *on_hosts(2, folder, ["sh", "-c", script])],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def agent(folder: Path) -> str:
    """Return the path of the program that mpirun calls in place of ssh."""
    (path,) = set(agent_variables(folder).values())
    return path


def await_end_of(networks: set[str]) -> None:
    """Wait until no process is in any of some network namespaces, which end with their last one."""
    wait_until(lambda: not networks & networks_in_use(), what="the nodes to end")


@pytest.mark.parametrize("within", [(), AS_ORDINARY_USER], ids=["as root", "as an ordinary user"])
def test_each_node_is_a_host(tmp_path: Path, within: Sequence[str]) -> None:
    """Two names, two addresses that both know, two networks, no core in common; files are those of this machine."""
    first, second = run_on_two(
        tmp_path, f"{about('/dev/shm/mine')}; {agent(tmp_path)} {address(1)} {shlex.quote(about())}", within
    )
    cores = os.sched_getaffinity(0)
    assert [(name(0), address(0)), (name(1), address(1))] == [(x["name"], x["address"]) for x in (first, second)]
    assert first["network"] != second["network"]
    assert len(cores) < 2 or not set(first["cores"]) & set(second["cores"])
    assert (["mine"], []) == (first["shared memory"], second["shared memory"])
    assert [str(tmp_path)] * 2 == [first["folder"], second["folder"]]
    await_end_of({first["network"], second["network"]})
    assert [] == [file for file in Path("/dev/shm").iterdir() if file.name == "mine"]


def test_no_node_reaches_this_machine(tmp_path: Path) -> None:
    """What a job sends stays between its nodes."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        command = shlex.join([sys.executable, "-c", KNOCK, str(port), "127.0.0.1", *own_addresses()])
        assert [[]] == run_on_two(tmp_path, command)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nodes_end_with_what_runs_on_the_first(tmp_path: Path, number: signal.Signals) -> None:
    """The way in which it ends does not matter: their networks have no name that could stay behind."""
    script = f"{about()}; {agent(tmp_path)} {address(1)} {shlex.quote(about())}; exec sleep 600"
    process = subprocess.Popen(on_hosts(2, tmp_path, ["sh", "-c", script]), stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        networks = {json.loads(process.stdout.readline())["network"] for _ in range(2)}
        assert (2, True) == (len(networks), networks <= networks_in_use())
        process.send_signal(number)
    await_end_of(networks)


def test_a_machine_without_network_namespaces_says_why(tmp_path: Path) -> None:
    """The reason is a sentence's end; a job that was placed all the same ends with it."""
    said = subprocess.run(
        [*WITHOUT_NETWORKS, sys.executable, "-c", SIMULATED],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    words = "network namespaces cannot be used: [Errno 28] unshare: No space left on device"
    ended = subprocess.run(
        [*WITHOUT_NETWORKS, *on_hosts(2, tmp_path, ["true"])], capture_output=True, text=True, check=False
    )
    assert (f"{words}\n", 1, f"{words}\n") == (said, ended.returncode, ended.stderr)


def test_a_missing_program_is_named_with_its_fix(tmp_path: Path) -> None:
    """ip(8) is looked for in the system's folders, whatever PATH a job has."""
    code = f"import shutil; shutil.which = lambda *a, **k: None; {program('local_azure.azure_ml.hosts')[3]}"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code, "try", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "network namespaces cannot be used: there is no ip(8): install iproute2\n" == ended.stderr


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The launcher's log says which."""
    ended = subprocess.run(on_hosts(1, tmp_path, ["no-such-command"]), capture_output=True, text=True, check=False)
    assert (1, "no-such-command: No such file or directory\n") == (ended.returncode, ended.stderr)
