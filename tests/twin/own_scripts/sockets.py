"""A script for PyTorch's launcher without PyTorch: its ranks connect to MASTER_ADDR, as `init_process_group` does."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WITHIN_S = 120.0


def total_of(own: dict[str, int]) -> dict[str, int]:
    """Return the sum over all ranks, on every rank: the root adds the values that the others send, and replies."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(place, backlog=SIZE) as server:
            server.settimeout(WITHIN_S)
            others = [server.accept()[0].makefile("rw", encoding="utf-8") for _ in range(SIZE - 1)]
        parts = [own, *(json.loads(other.readline()) for other in others)]
        total = {name: sum(part[name] for part in parts) for name in own}
        for other in others:
            other.write(json.dumps(total) + "\n")
            other.close()
        return total
    with connected(place) as connection, connection.makefile("rw", encoding="utf-8") as root:
        root.write(json.dumps(own) + "\n")
        root.flush()
        return dict(json.loads(root.readline()))


def connected(place: tuple[str, int]) -> socket.socket:
    """Return a connection to the root, retrying because the root may start later."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return socket.create_connection(place, timeout=WITHIN_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> int:
    """Sum the bytes of all shards, each rank its own; every rank writes, and only the root's output counts."""
    if os.environ.get("SOCKETS_DIES") == str(RANK):
        sys.exit(f"rank {RANK} is dead")
    shards = json.loads(Path(os.environ["LANDFALL_MANIFEST"]).read_text(encoding="utf-8"))["shards"]
    data = Path(os.environ["LANDFALL_DATA"])
    own = sum((data / shard["name"]).stat().st_size for shard in shards[RANK::SIZE])
    total = total_of({"bytes": own, "ranks": 1, "nodes": int(os.environ["LOCAL_RANK"] == "0")})
    model = {**total, "node": int(os.environ["NODE_RANK"])}
    (Path(os.environ["LANDFALL_OUTPUT"]) / f"written-by-{RANK}.json").write_text(json.dumps(model))
    complete = total["bytes"] == sum(shard["size_bytes"] for shard in shards)
    metrics = {"val_accuracy": float(complete and RANK == 0), "ranks": total["ranks"]}
    Path(os.environ["LANDFALL_REPORT"]).write_text(json.dumps(metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main())
