"""Start a script with DeepSpeed's launcher: the first argument is the script, the others are its own.

Azure ML's distribution `pytorch` starts this on every process of every node. The first process of each node becomes
the launcher, which starts all ranks of its node; nothing has to reach another node by ssh.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Become the launcher on one process of each node; the other processes return at once."""
    if os.environ["LOCAL_RANK"] != "0":
        return
    nodes = os.environ["AZ_BATCH_HOST_LIST"].split(",")
    slots = int(os.environ["WORLD_SIZE"]) // len(nodes)
    hosts = Path(tempfile.mkdtemp(), "hostfile")
    hosts.write_text("".join(f"{node} slots={slots}\n" for node in nodes))
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", f"--hostfile={hosts}", "--no_ssh"]
    launcher += [f"--node_rank={os.environ['NODE_RANK']}", f"--master_addr={os.environ['MASTER_ADDR']}"]
    launcher += [f"--master_port={os.environ['MASTER_PORT']}", *sys.argv[1:]]
    os.execv(sys.executable, launcher)  # noqa: S606 (this interpreter)


if __name__ == "__main__":
    main()
