"""The process that decodes columns: started here, used over a socket, and ended if it hangs or misbehaves.

pyarrow is C++ code that reads untrusted uploads. It therefore runs in a process of its own, without this process's
environment and with limited memory and time (`shard_validation.parquet.decoding`). It requests byte ranges of the
shard from this process, after the sizes of the footer and of every page have been checked. Its answers are untrusted
JSON, which is checked and limited in size.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shard_validation.content import SourceUnavailableError

HEAD = struct.Struct("<Q")
"""Precedes every message: its length."""
PROGRAM = "shard_validation.parquet.decoding"
MAX_ANSWER_BYTES = 64 << 20
SILENCE_S = 300.0
"""Longest time without a heartbeat; the decoder sends one after every batch of rows."""
POLL_S = 1.0
KEPT_SETTINGS = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
SETTINGS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the other allocators keep memory that was used once
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Answer = dict[str, Any]
Read = Callable[[int, int], bytes]
"""Returns a number of bytes at an offset."""
Watch = Callable[[], None]
"""Called every second and after every heartbeat; raises an exception to stop waiting."""


class DecoderLostError(Exception):
    """The decoder died, hung or broke the protocol; the message says which. Its request has no answer."""


class Decoder:
    """One decoding process, which answers one request at a time."""

    def __init__(self) -> None:
        """Start it. Raises SourceUnavailableError if that fails: nothing is then known about the shard."""
        ours, theirs = socket.socketpair()
        kept = {name: os.environ[name] for name in KEPT_SETTINGS if name in os.environ}
        paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and a module of this package
                [sys.executable, "-P", "-m", PROGRAM],
                env={**kept, **SETTINGS, "PYTHONPATH": paths},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the terminal's signals are for this process
            )
        self._socket = ours
        self._is_busy = False
        self.silence_s = SILENCE_S
        try:
            self._receive(lambda: None)
        except DecoderLostError as error:
            self.end()
            raise SourceUnavailableError(f"the process that decodes Parquet did not start: {error}") from error

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request: it has answered every one, and has not ended."""
        return not self._is_busy and self._process.poll() is None

    def ask(self, request: Mapping[str, Any], read: Read, watch: Watch) -> Answer:
        """Return the answer to a request; serve what the decoder reads meanwhile. Raises DecoderLostError."""
        self._is_busy = True
        self._send(json.dumps(request).encode())
        while True:
            answer = self._receive(watch)
            if "read" in answer:
                self._send(read(*_two_numbers(answer["read"])))
            elif "failed" in answer:
                raise RuntimeError(f"decoding a Parquet shard failed: {answer['failed']}")
            elif "alive" in answer:
                watch()
            else:
                self._is_busy = False
                return answer

    def end(self) -> None:
        """End the process, at once."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Leave the process to the parent of this forked process."""
        self._socket.close()
        self._process.returncode = 0

    def _send(self, content: bytes) -> None:
        self._socket.settimeout(self.silence_s)
        try:
            self._socket.sendall(HEAD.pack(len(content)))
            self._socket.sendall(content)
        except OSError as error:
            raise self._lost() from error

    def _receive(self, watch: Watch) -> Answer:
        length = int(HEAD.unpack(self._take(HEAD.size, watch))[0])
        if length > MAX_ANSWER_BYTES:
            raise DecoderLostError(f"an answer of {length} bytes")
        try:
            answer = json.loads(self._take(length, watch))
        except ValueError as error:
            raise DecoderLostError("an answer that is not JSON") from error
        if not isinstance(answer, dict):
            raise DecoderLostError("an answer that is not an object")
        return answer

    def _take(self, length: int, watch: Watch) -> bytearray:
        content = bytearray()
        latest = time.monotonic() + self.silence_s
        self._socket.settimeout(POLL_S)
        while len(content) < length:
            try:
                piece = self._socket.recv(min(length - len(content), 1 << 20))
            except TimeoutError:
                watch()
                if time.monotonic() > latest:
                    raise DecoderLostError(f"no heartbeat for {self.silence_s:g} seconds") from None
                continue
            except OSError as error:
                raise self._lost() from error
            if not piece:
                raise self._lost()
            content += piece
        return content

    def _lost(self) -> DecoderLostError:
        """Describe how the process, which closed the socket, ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(timeout=self.silence_s)
            return DecoderLostError(f"it ended with {f'signal {-status}' if status < 0 else f'status {status}'}")
        return DecoderLostError("it closed its connection")


def _two_numbers(value: Any) -> tuple[int, int]:
    match value:
        case [int(offset), int(length)] if offset >= 0 and length >= 0:
            return offset, length
    raise DecoderLostError(f"a request to read {str(value)[:100]}")


_idle: list[Decoder] = []
"""Decoders without work, which the next shards use. More than one only where threads validate at the same time."""


def take_decoder() -> Decoder:
    """Return an idle decoder, or a new one. Raises SourceUnavailableError."""
    while _idle:
        decoder = _idle.pop()
        if decoder.is_idle:
            return decoder
        decoder.end()
    return Decoder()


def give_back(decoder: Decoder) -> None:
    """Keep a decoder for the next shard; end it if an exception interrupted a request."""
    if decoder.is_idle:
        _idle.append(decoder)
    else:
        decoder.end()


def idle_decoders() -> list[int]:
    """Return the process ids of the idle decoders, for measurements."""
    return [decoder.pid for decoder in _idle]


@atexit.register
def end_idle_decoders() -> None:
    """End the idle decoders; they would also end by themselves when their socket closes."""
    while _idle:
        _idle.pop().end()


def _leave_to_parent() -> None:
    """Forget the decoders in a forked child: the parent continues to use them."""
    while _idle:
        _idle.pop().forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
