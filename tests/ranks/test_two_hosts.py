"""A training across two hosts: network namespaces with addresses of their own, and a wire between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ranks.ranks import train
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

NETWORK = "10.77.0.0/24"
AGENT = '#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n'
"""What mpirun calls in place of ssh: a host's name and a command. A host has a name of its own, too."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Two hosts on this machine."""

    names: tuple[str, str]
    agent: Path

    @property
    def launcher(self) -> list[str]:
        """Options of mpirun: one rank on each, reached by the agent, over the wire alone."""
        # Asked for by node: allowed to oversubscribe, mpirun would put both ranks on the first host.
        where = ["--host", ",".join(f"{name}:1" for name in self.names), "--map-by", "ppr:1:node:oversubscribe"]
        wire = ["--prtemca", "prte_if_include", NETWORK, "--mca", "btl_tcp_if_include", NETWORK]
        return [*where, "--prtemca", "plm_ssh_agent", str(self.agent), *wire]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two namespaces joined by a pair of virtual network devices; gone afterwards, and the wire with them."""
    if shutil.which("ip") is None:
        pytest.skip("there is no ip(8), so there can be no second host")
    first, second = (f"lf{letter}{os.getpid()}" for letter in "ab")
    made = []
    try:
        for name in (first, second):
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "wire0", "netns", first, "type", "veth", "peer", "name", "wire0", "netns", second)
        for number, name in enumerate((first, second), start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "wire0")
            ip("-n", name, "link", "set", "wire0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        agent = tmp_path / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        yield Hosts(names=(first, second), agent=agent)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
    finally:
        for name in made:
            ip("netns", "delete", name)


def test_two_hosts_train_together(hosts: Hosts, digits: ClosedVersion, tmp_path: Path) -> None:
    """One rank on each, two nodes in the report, and what they learned is good."""
    arguments = job_arguments(digits, tmp_path / "out", epochs=4, learning_rate=0.002, stall_timeout_s=60.0)
    named = f'hostname {hosts.names[0]}; exec "$@"'
    within = ("ip", "netns", "exec", hosts.names[0], "unshare", "--uts", "sh", "-c", named, "sh")
    outcome = train(2, arguments, launcher=hosts.launcher, within=within)
    assert 0 == outcome.exit_code, outcome.log
    assert (2, 2) == (outcome.report.world_size, outcome.report.num_nodes)
    assert outcome.report.metrics["val_accuracy"] >= 0.9
