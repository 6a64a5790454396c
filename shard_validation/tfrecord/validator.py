"""Validate a TFRecord shard from front to back: content CRC, inflation if compressed, framing, examples."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from crc32c import crc32c

from shard_validation.content import Chunk, read_ahead
from shard_validation.features import PayloadCheck, compile_payload_check
from shard_validation.reasons import Fault, FaultError, ReasonCode
from shard_validation.requirements import DataRequirements, Limits
from shard_validation.tfrecord.framing import CheckMany, FramingLostError, RecordFraming
from shard_validation.tfrecord.layout import MIN_TOGETHER
from shard_validation.tfrecord.native import FileSource, SoundStretch, native_records, sound_stretches
from shard_validation.validate import Paused, ShardStatistics, ShardVerdict, Task
from shared.crc import combined_crc32c
from shared.record_framing import GZIP_MAGIC, Compression

BLOCK_BYTES = 1 << 20
"""Most bytes inflated at a time."""
_INPUT_BYTES = 64 << 10
"""Bytes passed to zlib at a time: it copies what it does not use, for the next call."""
_FREE_INFLATION_BYTES = 64 << 20
"""Up to this size the inflation ratio is not checked."""
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}


def validate_tfrecord(task: Task) -> ShardVerdict | Paused:
    """Validate a TFRecord shard. Plain shards can pause; compressed ones are rejected when their time is over."""
    walk = _TFRecordWalk(task)
    with closing(walk.steps()) as steps:
        for num_bytes in steps:
            task.progress(num_bytes)
            if walk.is_inflating and task.out_of_time():
                walk.give_up()
            if walk.can_pause and task.should_pause():
                return walk.pause()
    walk.finish()
    return task.verdict()


class _TFRecordWalk:
    """One pass over a shard, resumed from a checkpoint if there is one."""

    def __init__(self, task: Task) -> None:
        self._task = task
        checkpoint = task.checkpoint or {"offset": 0, "position": 0, "num_records": 0, "lost": False}
        self._position: int = checkpoint["position"]
        self._lost: bool = checkpoint["lost"]
        self._framing = _framing(task, checkpoint["offset"], checkpoint["num_records"])
        self._inflater = Inflater(task.compression, task.requirements.limits) if task.compression else None

    @property
    def can_pause(self) -> bool:
        """Whether a checkpoint is possible: the state of an inflater cannot be stored, and the end needs none."""
        return not self.is_inflating and self._position < self._task.source.size_bytes

    @property
    def is_inflating(self) -> bool:
        """Whether content is left to inflate."""
        is_open = self._inflater is not None and not self._lost
        return is_open and self._position < self._task.source.size_bytes

    def steps(self) -> Generator[int]:
        """Check all remaining content, step by step; yield the number of bytes of each step."""
        for stretch in self._sound_stretches():
            self._framing.take_sound(stretch)
            self._task.crc = combined_crc32c(self._task.crc, stretch.content_crc, stretch.num_bytes)
            self._position += stretch.num_bytes
            yield stretch.num_bytes
        for chunk in self._remaining():
            self._take(chunk)
            yield len(chunk)

    def _sound_stretches(self) -> Iterator[SoundStretch]:
        """Return what the accelerator can check: the leading sound records of a plain local file above one chunk."""
        source = self._task.source
        is_plain = self._inflater is None and not self._lost and self._framing.offset == self._position
        is_plain = is_plain and not self._task.hashes  # the accelerator hashes nothing
        if not is_plain or not isinstance(source, FileSource):
            return iter(())
        native = native_records()
        if native is None or source.size_bytes - self._position <= source.chunk_bytes:
            return iter(())
        framing = self._framing
        return sound_stretches(
            source, self._position, native, max_payload=framing.max_payload_bytes, held=framing.checks_payloads
        )

    def _remaining(self) -> Iterator[Chunk]:
        """Yield the chunks from the current position, after feeding the framing the start of an unfinished record.

        A checkpoint may be within a record, whose first bytes are already in the content CRC, but not in the framing.
        """
        begin = self._framing.offset
        if not self._lost and self._inflater is None:
            while begin < self._position:
                length = min(1 << 20, self._position - begin)
                self._framing.feed(self._task.source.read(begin, length))
                begin += length
        self._framing.take_payload_crcs()
        return read_ahead(self._task.source, self._position)

    def _take(self, chunk: Chunk) -> None:
        """Check one chunk; once the framing is lost, only take the CRC of the content."""
        if not self._lost:
            self._check(chunk)
        self._take_crc(chunk)
        self._position += len(chunk)

    def _check(self, chunk: Chunk) -> None:
        try:
            for block in self._inflated(chunk):
                self._framing.feed(block)
        except FramingLostError:
            self._lost = True
        except FaultError as error:
            self._lose(error)

    def finish(self) -> None:
        """Check the end of the content."""
        if not self._lost and self._inflater is not None:
            try:
                self._inflater.finish()
            except FaultError as error:
                self._lose(error)
        if not self._lost:
            self._framing.finish()
        self._count()
        if not self._task.num_reasons and not self._task.statistics.num_records:
            self._task.report(_NO_RECORDS)

    def give_up(self) -> None:
        """Reject a compressed stream that takes too long; only its content CRC, which can pause, is still taken."""
        self._lost = True
        fault = _too_long(self._position, self._task.source.size_bytes)
        self._task.report(fault, self._framing.num_records, self._position)

    def pause(self) -> Paused:
        """Return a checkpoint at the first record that is not finished."""
        self._count()
        checkpoint: dict[str, Any] = {
            "findings": self._task.findings(),
            "offset": self._framing.offset,
            "position": self._position,
            "num_records": self._framing.num_records,
            "lost": self._lost,
        }
        return Paused(checkpoint=checkpoint, bytes_done=self._position)

    def _take_crc(self, chunk: Chunk) -> None:
        """Take the CRC of the content, from those of large payloads that the framing has just taken."""
        crc, begin, view = self._task.crc, self._position, memoryview(chunk)
        payload_crcs = self._framing.take_payload_crcs()
        for payload in payload_crcs if self._inflater is None else ():
            crc = crc32c(view[begin - self._position : payload.offset - self._position], crc)
            crc = combined_crc32c(crc, payload.crc, payload.num_bytes)
            begin = payload.offset + payload.num_bytes
        self._task.crc = crc32c(view[begin - self._position :], crc)
        self._task.take_digests(view)

    def _inflated(self, chunk: Chunk) -> Iterator[Chunk]:
        return iter((chunk,)) if self._inflater is None else self._inflater.inflate(chunk)

    def _lose(self, error: FaultError) -> None:
        self._lost = True
        self._task.report(error.fault, self._framing.num_records, error.byte_offset)

    def _count(self) -> None:
        statistics = self._task.statistics
        statistics.num_records = self._framing.num_records
        statistics.num_bytes += self._framing.num_payload_bytes
        self._framing.num_payload_bytes = 0


class Inflater:
    """Takes the stored content in chunks, yields the inflated content in blocks."""

    def __init__(self, compression: Compression, limits: Limits) -> None:
        """Begin a stream."""
        self._compression = compression
        self._limits = limits
        self._stream = zlib.decompressobj(_WINDOW_BITS[compression])
        self._num_taken = 0
        self._num_inflated = 0

    def inflate(self, chunk: bytes | memoryview) -> Iterator[bytes]:
        """Yield the inflated content of a chunk. Raises FaultError."""
        for start in range(0, len(chunk), _INPUT_BYTES):
            rest = bytes(chunk[start : start + _INPUT_BYTES])
            self._num_taken += len(rest)
            while rest:
                if self._stream.eof:
                    self._begin_member(rest)
                yield from self._blocks(rest)
                rest = self._stream.unused_data

    def finish(self) -> None:
        """Check that the stream has ended where the stored content ends. Raises FaultError."""
        if not self._stream.eof:
            raise FaultError(
                ReasonCode.COMPRESSION_CUT,
                f"the end of the {self._compression} stream",
                f"the end of the file after {self._num_taken} bytes",
                self._num_taken,
            )

    def _blocks(self, piece: bytes) -> Iterator[bytes]:
        while True:
            try:
                block = self._stream.decompress(piece, BLOCK_BYTES)
            except zlib.error as error:
                raise FaultError(
                    ReasonCode.COMPRESSION_CORRUPT, f"a {self._compression} stream", str(error), self._num_taken
                ) from error
            self._num_inflated += len(block)
            self._check_size()
            if block:
                yield block
            piece = self._stream.unconsumed_tail
            if self._stream.eof or (not piece and len(block) < BLOCK_BYTES):
                return

    def _check_size(self) -> None:
        limit = min(
            self._limits.max_inflated_bytes,
            max(_FREE_INFLATION_BYTES, self._num_taken * self._limits.max_inflation),
        )
        if self._num_inflated > limit:
            raise FaultError(
                ReasonCode.COMPRESSION_BOMB,
                f"at most {limit} bytes (limits.max_inflation, limits.max_inflated_bytes)",
                f"{self._num_inflated} bytes from the first {self._num_taken}",
                self._num_taken,
            )

    def _begin_member(self, rest: bytes) -> None:
        """Continue with another GZIP member, as RFC 1952 allows and TensorFlow reads; nothing else may follow."""
        if self._compression != "gzip" or not GZIP_MAGIC.startswith(rest[: len(GZIP_MAGIC)]):
            raise FaultError(
                ReasonCode.TRAILING_BYTES,
                f"the end of the file after the {self._compression} stream",
                f"bytes beginning {rest[:8].hex(' ')}",
                self._num_taken - len(rest),
            )
        self._stream = zlib.decompressobj(_WINDOW_BITS[self._compression])


_NO_RECORDS = Fault(code=ReasonCode.NO_RECORDS, expected="at least one record", seen="none")


def _too_long(position: int, size_bytes: int) -> Fault:
    return Fault(
        code=ReasonCode.VALIDATION_TOO_LONG,
        expected="a compressed shard that can be read within one execution (write smaller or uncompressed shards)",
        seen=f"{position} of {size_bytes} bytes when its time was over",
    )


def _framing(task: Task, offset: int, num_records: int) -> RecordFraming:
    requirements = task.requirements
    check = many = None
    if requirements.features:
        check = compile_payload_check(requirements, task.statistics)
        many = _compile_check_of_many(requirements, task.statistics, check)
    return RecordFraming(requirements.limits, task.report, check, many, offset=offset, num_records=num_records)


def _compile_check_of_many(
    requirements: DataRequirements, statistics: ShardStatistics, check_payload: PayloadCheck
) -> CheckMany:
    """Return a check of many examples; it loads numpy once there are many."""
    many: list[CheckMany] = []

    def check(records: Chunk, sizes: array[int], index: int) -> Iterator[tuple[int, int, Fault]] | None:
        if len(sizes) < MIN_TOGETHER:
            return None
        if not many:
            from shard_validation.tfrecord.many import ManyExamples

            many.append(ManyExamples(requirements, statistics, check_payload).faults)
        return many[0](records, sizes, index)

    return check
