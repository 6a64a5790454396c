"""The loop of a worker process: one request per line, answered with its time and the share of other processes.

One rank leaves the second core idle, two ranks do not. Other work on the machine therefore slows only two ranks,
which looks like poor scaling. Samples are discarded by the share of the cores' time that other processes or the
hypervisor used during the sample, never by the measured time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""proc(5), /proc/stat, after the name: user, nice, system, irq, softirq, steal; idle and iowait are left out."""


def serve(what: Mapping[str, Callable[..., int]]) -> None:
    """Answer each line ``{"do": name, …arguments}`` with its wall time, the others' share and the result.

    ``helpers`` are ids of processes that work for the request; their time does not count as the others'.
    """
    cores = sorted(os.sched_getaffinity(0))
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        do, helpers = what[request.pop("do")], request.pop("helpers", ())
        helped_s = -sum(map(cpu_s, helpers))
        before = read(cores)
        result = do(**request)
        after = read(cores)
        helped_s += sum(map(cpu_s, helpers))
        wall_s = after.wall_s - before.wall_s
        others = others_share(
            wall_s=wall_s,
            busy_s=after.busy_s - before.busy_s,
            own_cpu_s=after.own_cpu_s - before.own_cpu_s + helped_s,
            num_cores=len(cores),
        )
        print(json.dumps({"wall_s": wall_s, "others": others, "result": result}), flush=True)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All clocks at one moment, in seconds."""

    wall_s: float
    own_cpu_s: float
    """User and system time of this process."""
    busy_s: float
    """Time for which the watched cores were busy with any process."""


def read(cores: Collection[int]) -> Reading:
    """Read all clocks."""
    return Reading(wall_s=time.perf_counter(), own_cpu_s=time.process_time(), busy_s=busy_s(cores))


def busy_s(cores: Collection[int], stat: Path = Path("/proc/stat")) -> float:
    """Return the seconds since boot for which these cores were busy, with a resolution of 0.01 s per core."""
    wanted = {f"cpu{core}" for core in cores}
    rows = (line.split() for line in stat.read_text(encoding="utf-8").splitlines())
    ticks = sum(int(row[1 + field]) for row in rows if row and row[0] in wanted for field in _BUSY_FIELDS)
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return user plus system time of another process with all its threads (proc(5), /proc/pid/stat)."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def others_share(*, wall_s: float, busy_s: float, own_cpu_s: float, num_cores: int) -> float:
    """Return the share of the cores' time that others used; at least 0, because the clocks are coarse."""
    return max(0.0, (busy_s - own_cpu_s) / (wall_s * num_cores))
