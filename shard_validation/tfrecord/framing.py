"""TFRecord framing over a stream of chunks: every length is bounded before use, every CRC is checked.

Source of the layout: shared/record_framing.py.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c

from shard_validation.content import Chunk
from shard_validation.features import PayloadCheck
from shard_validation.reasons import Fault, ReasonCode
from shard_validation.requirements import Limits
from shard_validation.tfrecord.native import SoundStretch
from shared.record_framing import (
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    are_masked,
    mask_crc,
    masked_crc32c,
)

ReportFault = Callable[[Fault, int, int], None]
"""Takes a fault, the record's index and its byte offset."""
CheckMany = Callable[[Chunk, "array[int]", int], Iterator[tuple[int, int, Fault]] | None]
"""Takes consecutive records, the sizes of their payloads, and the index of the first.

Returns their faults, with the index and the offset of each record; None if the records must be checked one by one.
"""

_HEADER = struct.Struct("<QI")
_TRAILER_AND_HEADER = struct.Struct("<IQI")
_LENGTH = struct.Struct("<Q")
_MAX_KNOWN_LENGTHS = 4096
_BATCH_RECORDS = 4096
_COPIED_BYTES = 1 << 10
"""Smaller payloads are copied, because a view would cost more."""
_REMEMBERED_BYTES = 32 << 10
"""From this size, reusing a payload's CRC for the CRC of the content is cheaper than taking it again."""


class PayloadCrc(NamedTuple):
    """The CRC32C of a payload that was checked."""

    offset: int
    num_bytes: int
    crc: int


class FramingLostError(ValueError):
    """The position of the next record is unknown, so nothing after this point can be read."""


class RecordFraming:
    """Takes chunks in order, reports faults, and passes each sound payload to a check.

    After FramingLostError, which follows a reported fault, it accepts no more chunks.
    """

    def __init__(
        self,
        limits: Limits,
        report: ReportFault,
        check_payload: PayloadCheck | None = None,
        check_many: CheckMany | None = None,
        *,
        offset: int = 0,
        num_records: int = 0,
    ) -> None:
        """Begin at ``offset``, the first byte of the record with index ``num_records``."""
        self.offset = offset
        """Offset of the first unfinished record."""
        self.num_records = num_records
        self.num_payload_bytes = 0
        self._limits = limits
        self._report = report
        self._check_payload = check_payload
        self._check_many = check_many or _one_by_one
        self.max_payload_bytes = limits.max_record_bytes
        """Longest payload whose length is accepted."""
        if check_payload is not None:
            self.max_payload_bytes = min(limits.max_example_bytes, limits.max_record_bytes)
        self._known_lengths: dict[int, int] = {}
        self._payload_crcs: list[PayloadCrc] = []
        self._last_length = _COPIED_BYTES
        self._straddling: StraddlingRecord | None = None

    def feed(self, chunk: Chunk) -> None:
        """Check all records that end in this chunk. Raises FramingLostError."""
        position = 0
        chunk = bytes(chunk) if self._last_length < _COPIED_BYTES else memoryview(chunk)
        while position < len(chunk):
            if self._straddling is None:
                position = self._scan(chunk, position)
                self._straddling = StraddlingRecord()
            position = self._take_part(self._straddling, chunk, position)

    @property
    def checks_payloads(self) -> bool:
        """Whether the content of records is checked."""
        return self._check_payload is not None

    def take_sound(self, stretch: SoundStretch) -> None:
        """Check the payloads of whole records whose framing and CRCs were found to be sound."""
        if self._check_payload is not None:
            content, ends = stretch.content(), stretch.ends()
            sizes = (end - begin - FRAME_OVERHEAD_BYTES for begin, end in pairwise((0, *ends)))
            if not self._check_together(content, sizes):
                self._check_sound(self._check_payload, content, ends)
        self.num_payload_bytes += stretch.num_payload_bytes
        self.num_records += stretch.num_records
        self.offset += stretch.num_bytes

    def _check_together(self, records: Chunk, sizes: Iterable[int]) -> bool:
        """Check consecutive sound records at once. Returns whether that was possible."""
        faults = self._check_many(records, array("q", sizes), self.num_records)
        for index, begin, fault in faults or ():
            self._report(fault, index, self.offset + begin)
        return faults is not None

    def _check_sound(self, check_payload: PayloadCheck, records: memoryview, ends: list[int]) -> None:
        begin = 0
        for index, end in enumerate(ends, self.num_records):
            for fault in check_payload(records[begin + HEADER_BYTES : end - TRAILER_BYTES], index) or ():
                self._report(fault, index, self.offset + begin)
            begin = end

    def finish(self) -> None:
        """Check that the stream ends with a whole record."""
        record = self._straddling
        if record is not None and record.header:
            is_padding = self.num_records and not any(record.header)
            self._report(_PADDING_FAULT if is_padding else _cut_fault(record), self.num_records, self.offset)

    def take_payload_crcs(self) -> list[PayloadCrc]:
        """Return the CRCs of large payloads, each within one chunk, since the last call."""
        taken, self._payload_crcs = self._payload_crcs, []
        return taken

    def _scan(self, chunk: Chunk, position: int) -> int:
        """Check the records that are in the chunk together with the header that follows them.

        The speed of this loop decides the speed of validation: it unpacks a trailer and the next header in one call,
        computes nothing for a length whose header CRC was checked before, and handles payloads in batches. Returns
        the position of the first record that is incomplete or whose header must be checked separately.
        """
        if position > len(chunk) - HEADER_BYTES:
            return position
        length, length_crc = _HEADER.unpack_from(chunk, position)
        last, known = len(chunk) - _TRAILER_AND_HEADER.size, self._known_lengths
        while True:
            begin = position
            payloads: list[Chunk] = []
            stored_crcs: list[int] = []
            for _ in range(_BATCH_RECORDS):
                start = position + HEADER_BYTES
                stop = start + length
                if stop > last or (known.get(length) != length_crc and not self._is_ordinary(length, length_crc)):
                    break
                payloads.append(chunk[start:stop])
                stored, length, length_crc = _unpack_next(chunk, stop)
                stored_crcs.append(stored)
                position = stop + TRAILER_BYTES
            self._last_length = length
            if not payloads:
                return position
            self._check_batch(payloads, stored_crcs, chunk[begin:position])

    def _is_ordinary(self, length: int, length_crc: int) -> bool:
        """Whether a header has a matching CRC and an acceptable length."""
        if not 0 < length <= self.max_payload_bytes or masked_crc32c(_LENGTH.pack(length)) != length_crc:
            return False
        if len(self._known_lengths) < _MAX_KNOWN_LENGTHS:
            self._known_lengths[length] = length_crc
        return True

    def _check_batch(self, payloads: list[Chunk], stored_crcs: list[int], records: Chunk) -> None:
        """Check the CRCs of consecutive records, and the sound payloads."""
        num_bytes = len(records)
        crcs = list(map(crc32c, payloads))
        if not are_masked(crcs, stored_crcs):
            self._check_each(payloads, crcs, stored_crcs)
        elif self._check_payload is not None and not self._check_together(records, map(len, payloads)):
            self._check_each(payloads, crcs, None)
        if num_bytes >= _REMEMBERED_BYTES * len(payloads):
            self._remember(payloads, crcs)
        self.num_payload_bytes += num_bytes - FRAME_OVERHEAD_BYTES * len(payloads)
        self.num_records += len(payloads)
        self.offset += num_bytes

    def _check_each(self, payloads: list[Chunk], crcs: list[int], stored_crcs: list[int] | None) -> None:
        """Report the faults of each record; without stored CRCs, the CRCs are known to match."""
        offset, check_payload = self.offset, self._check_payload
        for i, payload in enumerate(payloads):
            if stored_crcs is not None and mask_crc(crcs[i]) != stored_crcs[i]:
                fault = _crc_fault(len(payload), mask_crc(crcs[i]), stored_crcs[i])
                self._report(fault, self.num_records + i, offset)
            elif check_payload is not None:
                for fault in check_payload(payload, self.num_records + i) or ():
                    self._report(fault, self.num_records + i, offset)
            offset += FRAME_OVERHEAD_BYTES + len(payload)

    def _remember(self, payloads: list[Chunk], crcs: list[int]) -> None:
        offset = self.offset
        for payload, crc in zip(payloads, crcs, strict=True):
            self._payload_crcs.append(PayloadCrc(offset + HEADER_BYTES, len(payload), crc))
            offset += FRAME_OVERHEAD_BYTES + len(payload)

    def _check_header(self, length: int, length_crc: int) -> None:
        """Report the fault of a header. Raises FramingLostError if its length cannot be used."""
        limits, index, offset = self._limits, self.num_records, self.offset
        if masked_crc32c(_LENGTH.pack(length)) != length_crc:
            is_padding = index and not length and not length_crc
            self._report(_PADDING_FAULT if is_padding else _length_crc_fault(length, length_crc), index, offset)
            raise FramingLostError
        if length > limits.max_record_bytes:
            self._report(_too_long_fault(length, limits.max_record_bytes), index, offset)
            raise FramingLostError
        if length == 0:
            self._report(_EMPTY_FAULT, index, offset)
        elif self._check_payload is not None and length > limits.max_example_bytes:
            self._report(_too_large_fault(length, limits.max_example_bytes), index, offset)

    def _take_part(self, record: StraddlingRecord, chunk: Chunk, position: int) -> int:
        """Take the chunk's part of a record; check it once it is complete. Returns the position after it."""
        if not record.has_header():
            position = record.take_header(chunk, position)
            if not record.has_header():
                return position
            length, length_crc = _HEADER.unpack(record.header)
            self._check_header(length, length_crc)
            is_held = self._check_payload is not None and length <= self._limits.max_example_bytes
            record.expect(length, keep_payload=is_held)
        position = record.take_body(chunk, position)
        if record.is_complete:
            self._end(record)
            self._straddling = None
        return position

    def _end(self, record: StraddlingRecord) -> None:
        if record.payload_crc != record.stored_crc:
            fault = _crc_fault(record.length, record.payload_crc, record.stored_crc)
            self._report(fault, self.num_records, self.offset)
        elif self._check_payload is not None and (payload := record.take_payload()):
            for fault in self._check_payload(payload, self.num_records) or ():
                self._report(fault, self.num_records, self.offset)
        self.num_payload_bytes += record.length
        self.num_records += 1
        self.offset += FRAME_OVERHEAD_BYTES + record.length


class StraddlingRecord:
    """Header, payload and trailer of one record, as far as they have been read."""

    def __init__(self) -> None:
        self.header = b""
        self.length = 0
        self.trailer = b""
        self._pieces: list[bytes] = []
        self._keeps_payload = False
        self._num_payload_bytes = 0
        self._crc = 0

    def has_header(self) -> bool:
        """Whether the header is complete."""
        return len(self.header) == HEADER_BYTES

    @property
    def num_payload_bytes(self) -> int:
        """Payload bytes that have been read."""
        return self._num_payload_bytes

    @property
    def is_complete(self) -> bool:
        """Whether the record is complete."""
        return len(self.trailer) == TRAILER_BYTES

    @property
    def stored_crc(self) -> int:
        """The masked CRC in the trailer."""
        return int.from_bytes(self.trailer, "little")

    @property
    def payload_crc(self) -> int:
        """The masked CRC of the payload bytes that have been read."""
        return mask_crc(self._crc)

    def take_payload(self) -> bytes:
        """Return the payload and release it; empty if it was not kept."""
        payload = b"".join(self._pieces)
        self._pieces = []
        return payload

    def expect(self, length: int, *, keep_payload: bool) -> None:
        """Set the length from the header, which the caller has checked."""
        self.length, self._keeps_payload = length, keep_payload

    def take_header(self, chunk: bytes | memoryview, position: int) -> int:
        """Take the bytes of the header; return the position after them."""
        stop = position + HEADER_BYTES - len(self.header)
        self.header += chunk[position:stop]
        return min(stop, len(chunk))

    def take_body(self, chunk: bytes | memoryview, position: int) -> int:
        """Take the bytes of payload and trailer; return the position after them."""
        if self._num_payload_bytes < self.length:
            stop = min(len(chunk), position + self.length - self._num_payload_bytes)
            self._take_payload(memoryview(chunk)[position:stop])
            position = stop
        if self._num_payload_bytes == self.length:
            stop = min(len(chunk), position + TRAILER_BYTES - len(self.trailer))
            self.trailer += chunk[position:stop]
            position = stop
        return position

    def _take_payload(self, piece: memoryview) -> None:
        self._crc = crc32c(piece, self._crc)
        self._num_payload_bytes += len(piece)
        if self._keeps_payload:
            self._pieces.append(bytes(piece))


def _one_by_one(_records: Chunk, _sizes: array[int], _index: int) -> None:
    """Check no records together."""


_unpack_next = _TRAILER_AND_HEADER.unpack_from
_TEXT = frozenset((*b"\t\n\r", *range(0x20, 0x7F)))
"""Bytes of ASCII text. The length of a real record has zero bytes."""
_EMPTY_FAULT = Fault(code=ReasonCode.RECORD_EMPTY, expected="at least one byte of payload", seen="none")
_PADDING_FAULT = Fault(code=ReasonCode.TRAILING_BYTES, expected="the end of the file, or a record", seen="zero bytes")


def _length_crc_fault(length: int, length_crc: int) -> Fault:
    header = _HEADER.pack(length, length_crc)
    if _TEXT.issuperset(header):
        return Fault(
            code=ReasonCode.LENGTH_CRC, expected="the header of a record", seen=f"the text {header.decode('ascii')!r}"
        )
    crc = masked_crc32c(_LENGTH.pack(length))
    return Fault(
        code=ReasonCode.LENGTH_CRC,
        expected=f"masked CRC {crc:08x} for a length of {length}",
        seen=f"{length_crc:08x}",
    )


def _too_long_fault(length: int, max_bytes: int) -> Fault:
    return Fault(
        code=ReasonCode.RECORD_TOO_LONG,
        expected=f"at most {max_bytes} bytes (limits.max_record_bytes)",
        seen=f"a length of {length}",
    )


def _too_large_fault(length: int, max_bytes: int) -> Fault:
    return Fault(
        code=ReasonCode.EXAMPLE_TOO_LARGE,
        expected=f"at most {max_bytes} bytes (limits.max_example_bytes)",
        seen=f"{length} bytes",
    )


def _crc_fault(length: int, crc: int, stored: int) -> Fault:
    return Fault(
        code=ReasonCode.PAYLOAD_CRC,
        expected=f"masked CRC {crc:08x} for the {length} bytes of payload",
        seen=f"{stored:08x}",
    )


def _cut_fault(record: StraddlingRecord) -> Fault:
    if not record.has_header():
        code, part, expected, seen = ReasonCode.HEADER_CUT, "header", HEADER_BYTES, len(record.header)
    elif record.num_payload_bytes < record.length:
        code, part, expected, seen = ReasonCode.PAYLOAD_CUT, "payload", record.length, record.num_payload_bytes
    else:
        code, part, expected, seen = ReasonCode.TRAILER_CUT, "trailer", TRAILER_BYTES, len(record.trailer)
    return Fault(code=code, expected=f"{expected} bytes of {part}", seen=f"the end of the file after {seen}")
