"""Hosts on this machine: each node of a job is a set of Linux namespaces, with its own address and name.

    main make NUM_NODES FOLDER COMMAND...  make the nodes and become COMMAND on the first one
    main enter ADDRESS=PID,... ADDRESS COMMAND...  become COMMAND on another node; mpirun calls this in place of ssh
    main try FOLDER  make two nodes and let the second connect to the first

A node also has its own /dev/shm and a share of this machine's cores. Nodes reach only each other, because their
network has no connection to the outside. The network has no name, so the kernel removes it when the last process on
the nodes ends, and the guard ends all processes. Nothing needs cleaning up after a cancellation or a killed emulator.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from local_azure.guard import die_with_parent

_ROOT = Path(__file__).parents[2]
_FIRST = IPv4Address("10.77.0.4")
"""Address of the first node. It is the same in every job, because the jobs' networks are not connected."""
_PREFIX = 16
_NEW_MOUNTS, _NEW_NAME, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x04000000, 0x10000000, 0x40000000  # linux/sched.h
_NEW_NODE = _NEW_MOUNTS | _NEW_NAME | _NEW_NETWORK
_KINDS = ("uts", "net", "mnt")
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12  # linux/mount.h
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_AGENT = "enter-node"
_TRY_WITHIN_S = 60.0
_CONNECT_WITHIN_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def address(node: int) -> str:
    """Return the IPv4 address of a node."""
    return str(_FIRST + node)


def name(node: int) -> str:
    """Return the host name of a node."""
    return f"node-{node}"


def program(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module's `main`, isolated from the job's folder and variables."""
    imports = f"import sys; sys.path.append({str(_ROOT)!r}); from {module} import main"
    return [sys.executable, "-I", "-c", f"{imports}; sys.exit(main())", *arguments]


def on_hosts(num_nodes: int, folder: Path, command: Sequence[str]) -> list[str]:
    """Return the command that creates nodes and runs a command on the first one. ``folder`` must not have blanks."""
    return program(__name__, "make", str(num_nodes), str(folder), *command)


def agent_variables(folder: Path) -> dict[str, str]:
    """Return the variables with which mpirun enters other nodes: Open MPI 5 reads the first, 4 the second."""
    agent = str(folder / _AGENT)
    return {"PRTE_MCA_plm_ssh_agent": agent, "OMPI_MCA_plm_rsh_agent": agent}


def why_simulated() -> str | None:
    """Return why nodes cannot be hosts on this machine, None if they can. To find out, create and connect two."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    with tempfile.TemporaryDirectory(prefix="aml-") as folder:
        try:
            tried = subprocess.run(
                program(__name__, "try", folder), capture_output=True, text=True, timeout=_TRY_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"making network namespaces took longer than {_TRY_WITHIN_S:g} s"
    said = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
    return said[-1] if tried.returncode else None


# -- in a job's process tree ---------------------------------------------------------------------------------
def main() -> int:
    """Run one of the three programs; return 1 if it fails."""
    what, *arguments = sys.argv[1:]
    programs: dict[str, Callable[..., int]] = {"make": _make, "enter": _enter, "try": _try}
    try:
        return programs[what](*arguments)
    except OSError as error:
        print(f"network namespaces cannot be used: {error}", file=sys.stderr)
        return 1


def _make(num_nodes: str, folder: str, *command: str) -> int:
    _make_nodes(int(num_nodes), Path(folder))
    die_with_parent()  # set again, because a new user namespace may have cleared it
    try:
        os.execvp(command[0], command)  # noqa: S606 - no process stays between the guard and the command
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    return 1


def _enter(holders: str, node: str, *command: str) -> int:
    pid = int(dict(pair.split("=") for pair in holders.split(","))[node])
    die_with_parent()
    _enter_node(pid)
    os.execv("/bin/sh", ["sh", "-c", " ".join(command)])  # noqa: S606 - mpirun passes words of a shell, as to ssh


def _try(folder: str) -> int:
    other = _make_nodes(2, Path(folder))[1]
    with socket.create_server((address(0), 0)) as server:
        server.settimeout(_CONNECT_WITHIN_S)
        if os.fork() == 0:
            _enter_node(other)
            with socket.socket() as connection:
                connection.settimeout(_CONNECT_WITHIN_S)
                connection.connect(server.getsockname())
            os._exit(0)
        with server.accept()[0] as connection:
            return int(connection.getpeername()[0] != address(1))


def _make_nodes(num_nodes: int, folder: Path) -> dict[int, int]:
    """Create the nodes; this process enters the first one. Return the process that keeps each of the others."""
    cores = sorted(os.sched_getaffinity(0))
    known = "".join(f"{address(node)} {name(node)}\n" for node in range(num_nodes))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    _unshare_first()
    _mount("none", "/", "none", _PRIVATE | _RECURSIVE)
    if Path("/etc/hosts").exists():
        _mount(str(folder / "hosts"), "/etc/hosts", "none", _BIND)
    _furnish(0, _cores_of(0, num_nodes, cores))
    # The first node's network device is a bridge, to which the others are connected.
    _ip("link add eth0 type bridge", f"addr add {address(0)}/{_PREFIX} dev eth0", "link set eth0 up")
    holders = {node: _hold(node, _cores_of(node, num_nodes, cores)) for node in range(1, num_nodes)}
    if holders:
        _ip(*(f"link set port{node} master eth0 up" for node in holders))
        _write_agent(folder / _AGENT, holders)
    return holders


def _unshare_first() -> None:
    """Leave this machine's namespaces; if not root, become root of a new user namespace first."""
    try:
        _unshare(_NEW_NODE)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _unshare(_NEW_USER | _NEW_NODE)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _hold(node: int, cores: Collection[int]) -> int:
    """Create another node and a process that keeps it and ends with this one; return its id. Raises OSError."""
    wired, wire = os.pipe()
    first = os.getpid()
    pid = os.fork()
    if pid:
        os.close(wire)
        with os.fdopen(wired, "rb") as answer:
            if not answer.read(1):
                raise OSError(f"{name(node)} could not be made")
        return pid
    try:
        _unshare(_NEW_NODE)
        die_with_parent()
        _furnish(node, cores)
        _ip(
            f"link add eth0 type veth peer name port{node} netns {first}",
            f"addr add {address(node)}/{_PREFIX} dev eth0",
            "link set eth0 up",
        )
        os.write(wire, b"1")
        os.close(wire)
        while True:
            signal.pause()
    except OSError as error:
        print(error, file=sys.stderr)
    finally:
        os._exit(1)


def _furnish(node: int, cores: Collection[int]) -> None:
    """Set up the new node of this process like a host."""
    socket.sethostname(name(node))
    os.sched_setaffinity(0, cores)
    _mount("none", "/dev/shm", "tmpfs", 0)  # noqa: S108 - the node's own; segments of killed ranks go with it
    _ip("link set lo up")


def _enter_node(pid: int) -> None:
    """Move this process to the node that another process keeps, and to the same folder there."""
    folder = Path.cwd()
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    for file in [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in _KINDS]:
        _check(_LIBC.setns(file, 0), "setns")
        os.close(file)
    os.chdir(folder)


def _write_agent(agent: Path, holders: dict[int, int]) -> None:
    known = ",".join(f"{address(node)}={pid}" for node, pid in holders.items())
    agent.write_text(f'#!/bin/sh\nexec {shlex.join(program(__name__, "enter", known))} "$@"\n')
    agent.chmod(0o755)


def _cores_of(node: int, num_nodes: int, cores: Sequence[int]) -> Collection[int]:
    """Return equal shares of the cores. If there are more nodes than cores, nodes share cores."""
    share = len(cores) // num_nodes
    return cores[node * share :][:share] if share else [cores[node % len(cores)]]


def _ip(*commands: str) -> None:
    """Run ip(8). Raises OSError with its message."""
    tool = shutil.which("ip", path=_SYSTEM_PATH)
    if tool is None:
        raise OSError("there is no ip(8): install iproute2")
    done = subprocess.run(
        [tool, "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip: {(done.stderr.strip().splitlines() or ['it failed'])[0]}")


def _unshare(kinds: int) -> None:
    _check(_LIBC.unshare(kinds), "unshare")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _check(
        _LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None), f"mount {target}"
    )


def _check(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
