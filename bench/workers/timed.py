"""The loop of a worker process: one request per line, answered with how long it took."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from bench.disturbance import cpu_s, others_share, read


def serve(what: Mapping[str, Callable[..., int]]) -> None:
    """Answer each line ``{"do": name, …arguments}`` with its wall time, the others' share, and what it returned.

    ``helpers`` are ids of processes whose work belongs to the request, so it is not that of others.
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
