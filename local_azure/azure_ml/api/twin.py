"""Endpoints that only the emulator has, for tests, the demo and `landfall up`; the product never calls them."""

from __future__ import annotations

from pathlib import Path

from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.workspace import COMPUTES

_LOG_BYTES = 1 << 20  # one answer; ask again from X-Next-Offset


def get_calls(emulator: Emulator, _call: Call) -> Answer:
    """List every call to ARM and run history, in order."""
    return Answer(body={"calls": emulator.calls.all()})


def get_cluster(emulator: Emulator, _call: Call) -> Answer:
    """List the nodes of every compute."""
    computes = []
    for resource in emulator.store.below(COMPUTES, "/"):
        cluster = emulator.pool.snapshot(resource["id"])
        nodes = [{"id": node.node_id, "state": str(node.state), "run": node.run} for node in cluster.nodes]
        scale = cluster.scale
        computes.append(
            {
                "name": resource["name"],
                "min_nodes": scale.min_nodes,
                "max_nodes": scale.max_nodes,
                "idle_s": scale.idle_s,
                "nodes": nodes,
                "waiting": [{"run": run, "nodes": count} for run, count in cluster.waiting.items()],
            }
        )
    return Answer(body={"computes": computes})


def get_log(emulator: Emulator, call: Call) -> Answer:
    """Return the root's output from byte `offset` on; the next offset is in X-Next-Offset."""
    logs = emulator.bench.run_root(call.parts["name"]) / "logs" / "user_logs"
    offset = call.number("offset", 0)
    if not any(run.name == call.parts["name"] for run in emulator.runs.below("/")):
        raise not_found(f"Run {call.parts['name']} was not found.")
    block = _block(logs, offset)
    headers = {"X-Next-Offset": str(offset + len(block))}
    return Answer(text=block.decode(errors="replace"), headers=headers)


def post_fault(emulator: Emulator, call: Call) -> Answer:
    """Script the next answers."""
    emulator.faults.add(call.document())
    return Answer(status=201, body={"pending": emulator.faults.pending()})


def get_faults(emulator: Emulator, _call: Call) -> Answer:
    """Return how many calls will still be disturbed."""
    return Answer(body={"pending": emulator.faults.pending()})


def delete_faults(emulator: Emulator, _call: Call) -> Answer:
    """Forget all scripts."""
    emulator.faults.clear()
    return Answer(body={"pending": 0})


def _block(logs: Path, offset: int) -> bytes:
    """Return up to _LOG_BYTES of the root's log, cut at a line's end so that no character is split."""
    root = next(iter(sorted(logs.glob("*.txt"))), None)
    if root is None:
        return b""
    with root.open("rb") as file:
        file.seek(offset)
        block = file.read(_LOG_BYTES)
    end = block.rfind(b"\n") + 1
    return block[:end] if end else block
