"""A stand-in for DeepSpeed's launcher without DeepSpeed and PyTorch: same options, same variables for each rank.

It takes what a job without ssh passes; options that it does not know end it, as they end the real one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path


def read_hosts(path: Path) -> dict[str, int]:
    """Return the number of ranks of each node. Raises ValueError if a node is listed twice."""
    hosts: dict[str, int] = {}
    for line in path.read_text().split("\n"):
        if line.strip():
            name, slots = line.split()
            if name in hosts:
                raise ValueError(f"Hostfile contains multiple entries for {name}")
            hosts[name] = int(slots.removeprefix("slots="))
    return hosts


def main() -> int:
    """Start the ranks of this node and wait for them; the first one that fails ends the others."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--hostfile", type=Path, required=True)
    parser.add_argument("--no_ssh", action="store_true", required=True)
    parser.add_argument("--node_rank", type=int, required=True)
    parser.add_argument("--master_addr", required=True)
    parser.add_argument("--master_port", required=True)
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    slots = list(read_hosts(asked.hostfile).values())
    first, number = sum(slots[: asked.node_rank]), slots[asked.node_rank]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # remove the variables of the process that became the launcher
        del os.environ[name]
    common = {"MASTER_ADDR": asked.master_addr, "MASTER_PORT": asked.master_port, "WORLD_SIZE": str(sum(slots))}
    common |= {"CROSS_RANK": str(asked.node_rank), "CROSS_SIZE": str(len(slots)), "LOCAL_SIZE": str(number)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-u", asked.user_script, f"--local_rank={local}", *asked.user_args],
            env={**os.environ, **common, "RANK": str(first + local), "LOCAL_RANK": str(local)},
        )
        for local in range(number)
    ]
    while any(rank.poll() is None for rank in ranks):
        if failed := [rank.returncode for rank in ranks if rank.returncode]:
            for rank in ranks:
                rank.kill()
            return failed[0]
        time.sleep(0.05)
    return max(rank.returncode for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
