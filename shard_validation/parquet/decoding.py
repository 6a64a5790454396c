"""Run as a program: decode the columns of Parquet shards and check their values, at the request of `decoder.Decoder`.

    python -m shard_validation.parquet.decoding

Standard input is a socket to the process that validates. The bytes of a shard are read over it, too: this process
opens no file. Its memory and the time for each batch of rows are bounded, and it ends when the socket is closed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, cast

from shard_validation.parquet.arrow_columns import ArrowColumns, rows_of
from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.decoder import HEAD
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.metadata import Leaf
from shard_validation.reasons import Fault, FaultError
from shard_validation.requirements import DataRequirements, Limits
from shard_validation.validate import FeatureStatistics
from shared.manifest import FeatureSpec

MEMORY_BYTES = 128 << 20
"""Memory in addition to what the process takes at its start, and what the limits allow for a page and an image."""
_PER_PAGE_BYTE, _PER_IMAGE_BYTE = 4, 2
"""Copies of a page that pyarrow holds: stored bytes, inflated bytes, a dictionary's copy, and values."""
CPU_S = 300
"""For one batch of rows."""
_SKIPPED_BYTES = 64 << 10


class Connection:
    """The socket to the process that validates."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, answer: Mapping[str, Any]) -> None:
        """Send an answer."""
        content = json.dumps(answer).encode()
        self._socket.sendall(HEAD.pack(len(content)) + content)

    def receive(self) -> bytearray:
        """Return the next message. Raises EOFError if the other side is gone."""
        (length,) = HEAD.unpack(self._take(HEAD.size))
        return self._take(length)

    def _take(self, length: int) -> bytearray:
        try:
            content = bytearray(length)
        except (
            MemoryError
        ):  # the rows are decoded again in smaller batches, and the requested bytes are still to arrive
            self._skip(length)
            raise
        view, num_read = memoryview(content), 0
        while num_read < length:
            count = self._socket.recv_into(view[num_read:])
            if not count:
                raise EOFError
            num_read += count
        return content

    def _skip(self, length: int) -> None:
        while length > 0:
            count = len(self._socket.recv(min(length, _SKIPPED_BYTES)))
            if not count:
                raise EOFError
            length -= count

    def alive(self) -> None:
        """Send a heartbeat, and restart the time limit for the next batch."""
        self.send({"alive": True})
        limit_time()


class RemoteSource:
    """The shard, as the validating process reads it."""

    name = ""

    def __init__(self, connection: Connection, size_bytes: int) -> None:
        self._connection = connection
        self.size_bytes = size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; see `shard_validation.content.ShardSource`."""
        self._connection.send({"read": [offset, length]})
        return cast("bytes", self._connection.receive())  # a bytearray does, and saves a copy


class Session:
    """Answers requests, about one shard after another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._first_bytes = address_space_bytes()
        self._requirements = DataRequirements()
        self._columns: ArrowColumns | None = None
        self._rows: Iterator[list[dict[str, Any]]] = iter(())

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request; a FaultError is an answer."""
        try:
            if "open" in request:
                return self._open(request["open"])
            if "table" in request:
                return self._open_table(**request["table"])
            if "rows" in request:
                return {"rows": next(self._rows, [])}
            return self._check(request["check"])
        except FaultError as error:
            return {"error": fault_members(error.fault), "byte_offset": error.byte_offset}

    def _open(self, shard: Mapping[str, Any]) -> dict[str, Any]:
        self._columns = None
        self._requirements = DataRequirements.from_json(shard["requirements"])
        limit_memory(self._first_bytes, self._requirements.limits)
        file = BlockFile(RemoteSource(self._connection, shard["size_bytes"]))
        self._columns = ArrowColumns(file, shard["footer_offset"], self._requirements, self._connection.alive)
        return {}

    def _open_table(self, size_bytes: int, columns: Sequence[str]) -> dict[str, Any]:
        """Open a file that is not a shard, whose rows are returned unchecked."""
        limit_memory(self._first_bytes, Limits())
        file = BlockFile(RemoteSource(self._connection, size_bytes))
        self._rows = rows_of(file, columns)
        return {}

    def _check(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if self._columns is None:
            raise RuntimeError("no shard is open")
        chunk = chunk_of(asked["chunk"])
        spec = None if asked["feature"] is None else FeatureSpec.from_json(asked["feature"])
        statistics = FeatureStatistics(**asked["statistics"])
        found = ColumnFindings(self._requirements.limits.max_reasons)
        error: dict[str, Any] = {}
        try:
            for fault, row in self._columns.check(chunk, asked["rows_at_a_time"], spec, statistics):
                found.add(fault, row)
        except FaultError as fault_error:
            error = {"error": fault_members(fault_error.fault), "byte_offset": fault_error.byte_offset}
        return {**error, "faults": found.faults, "num_faults": found.num_faults, "statistics": vars(statistics)}


class ColumnFindings:
    """The faults of a column: the first of them, and how many there are."""

    def __init__(self, max_faults: int) -> None:
        self._max_faults = max_faults
        self.faults: list[tuple[dict[str, Any], int]] = []
        self.num_faults = 0

    def add(self, fault: Fault, row: int) -> None:
        """Count a fault, and keep it while there are few."""
        self.num_faults += 1
        if len(self.faults) < self._max_faults:
            self.faults.append((fault_members(fault), row))


def fault_members(fault: Fault) -> dict[str, Any]:
    """Return a fault, JSON-ready."""
    return {"code": str(fault.code), "expected": fault.expected, "seen": fault.seen, "feature": fault.feature}


def chunk_of(members: Mapping[str, Any]) -> ColumnChunk:
    """Return the column chunk that `decoded.DecodedColumns.check` describes."""
    leaf = Leaf(**members["leaf"])
    return ColumnChunk(**{**members, "leaf": leaf, "encodings": frozenset(members["encodings"])})


def address_space_bytes() -> int:
    """Return the size of this process's address space; 0 if the system does not report it."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit_memory(first_bytes: int, limits: Limits) -> None:
    """Bound the memory of this process, which had ``first_bytes`` when it started, and let it write no file."""
    if not first_bytes:
        return
    import resource

    allowed = _PER_PAGE_BYTE * limits.max_page_bytes + _PER_IMAGE_BYTE * limits.max_decoded_image_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (first_bytes + MEMORY_BYTES + allowed, most))
    for limited in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limited, (0, 0))


def limit_time() -> None:
    """Allow `CPU_S` more seconds on a core; then the kernel ends the process."""
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + CPU_S, most))


def end_with(descriptor: int) -> None:
    """End this process when the other side of a socket is closed, even in the middle of its work."""
    poll = select.poll()
    poll.register(descriptor, 0)  # no event is asked for: hang-ups are always reported
    poll.poll()
    os._exit(0)


def main() -> None:
    """Answer requests until the socket is closed."""
    import pyarrow as pa
    import pyarrow.parquet

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    connection = Connection(socket.socket(fileno=os.dup(sys.stdin.fileno())))
    Thread(target=end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    session = Session(connection)
    connection.alive()
    while True:
        request = json.loads(connection.receive())
        limit_time()
        try:
            answer = session.answer(request)
        except (EOFError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - the other side reports it
            answer = {"failed": f"{type(error).__name__}: {error}"[:1000]}
        connection.send(answer)


if __name__ == "__main__":
    main()
