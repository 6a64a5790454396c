"""TFRecord framing over a stream of chunks: every length bounded before use, both CRCs of every record.

Source of the layout: shared/record_framing.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from crc32c import crc32c

from function_app.validation.example_check import PayloadCheck
from function_app.validation.limits import Limits
from function_app.validation.reason_codes import ReasonCode
from function_app.validation.reasons import Fault
from function_app.validation.tfrecord.straddling import StraddlingRecord
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES, TRAILER_BYTES, masked_crc32c

ReportFault = Callable[[Fault, int, int], None]
"""Takes a fault, the record's index and its byte offset."""

_HEADER = struct.Struct("<QI")
_TRAILER_AND_HEADER = struct.Struct("<IQI")
_TRAILER = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_MASK_DELTA = 0xA282EAD8
_UINT32 = 0xFFFFFFFF
_MAX_KNOWN_LENGTHS = 4096


class FramingLostError(ValueError):
    """Nothing behind this point can be read: where the next record begins is unknown."""


class RecordFraming:
    """Takes chunks in order; reports faults; hands each sound payload to a check.

    After FramingLostError, which follows a reported fault, it must not be fed again.
    """

    def __init__(
        self,
        limits: Limits,
        report: ReportFault,
        check_payload: PayloadCheck | None = None,
        *,
        offset: int = 0,
        num_records: int = 0,
    ) -> None:
        """Begin at a record's first byte, ``offset``, which is the ``num_records``-th record's."""
        self.offset = offset
        """Of the first record that is not done."""
        self.num_records = num_records
        self.num_payload_bytes = 0
        self._limits = limits
        self._report = report
        self._check_payload = check_payload
        self._known_lengths: dict[int, int] = {}
        self._straddling: StraddlingRecord | None = None

    def feed(self, chunk: bytes) -> None:
        """Check all records that end in this chunk. Raises FramingLostError."""
        position = 0
        while position < len(chunk):
            if self._straddling is None:
                position = self._scan(chunk, position)
                self._straddling = StraddlingRecord()
            position = self._go_on(self._straddling, chunk, position)

    def finish(self) -> None:
        """State that the stream is over: nothing may be left of a record."""
        record = self._straddling
        if record is not None and record.header:
            is_padding = self.num_records and not any(record.header)
            self._report(_PADDING_FAULT if is_padding else _cut_fault(record), self.num_records, self.offset)

    def _scan(self, chunk: bytes, position: int) -> int:
        """Check the records that lie in the chunk together with the next one's header.

        This is the loop that decides how fast validation is: one call to unpack for a trailer and the header
        behind it, no arithmetic for a length that was checked before, no copy where only CRCs are checked.
        Returns where the first record begins that it could not check.
        """
        base, index = self.offset - position, self.num_records
        last = len(chunk) - _TRAILER_AND_HEADER.size
        view, known, check_payload = memoryview(chunk), self._known_lengths, self._check_payload
        try:
            if position > len(chunk) - HEADER_BYTES:
                return position
            length, length_crc = _HEADER.unpack_from(chunk, position)
            while True:
                start = position + HEADER_BYTES
                stop = start + length
                if stop > last:
                    return position
                if known.get(length) != length_crc:
                    self._check_header(length, length_crc, index, base + position)
                payload = view[start:stop]
                crc = crc32c(payload)
                stored, length, length_crc = _unpack_next(chunk, stop)
                if (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _UINT32 != stored:
                    self._report(_payload_crc_fault(payload, stored), index, base + position)
                elif check_payload is not None:
                    self._check(payload, index, base + position)
                position = stop + TRAILER_BYTES
                index += 1
        finally:
            num_new = index - self.num_records
            self.num_payload_bytes += base + position - self.offset - num_new * FRAME_OVERHEAD_BYTES
            self.num_records, self.offset = index, base + position

    def _check(self, payload: bytes | memoryview, index: int, offset: int) -> None:
        """Hand a sound payload to the check, unless it is too long to be held, or empty."""
        if self._check_payload is None or not 0 < len(payload) <= self._limits.max_example_bytes:
            return
        for fault in self._check_payload(payload if isinstance(payload, bytes) else bytes(payload), index) or ():
            self._report(fault, index, offset)

    def _check_header(self, length: int, length_crc: int, index: int, offset: int) -> None:
        """Check a header that was not seen before. Raises FramingLostError where it is not to be trusted."""
        limits = self._limits
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
        elif len(self._known_lengths) < _MAX_KNOWN_LENGTHS:
            self._known_lengths[length] = length_crc

    def _go_on(self, record: StraddlingRecord, chunk: bytes, position: int) -> int:
        """Take what the chunk has of a record; check it once it is whole. Returns where the rest begins."""
        if not record.has_header():
            position = record.take_header(chunk, position)
            if not record.has_header():
                return position
            length, length_crc = _HEADER.unpack(record.header)
            self._check_header(length, length_crc, self.num_records, self.offset)
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
        else:
            self._check(record.take_payload(), self.num_records, self.offset)
        self.num_payload_bytes += record.length
        self.num_records += 1
        self.offset += FRAME_OVERHEAD_BYTES + record.length


_unpack_next = _TRAILER_AND_HEADER.unpack_from
_EMPTY_FAULT = Fault(code=ReasonCode.RECORD_EMPTY, expected="at least one byte of payload", seen="none")
_PADDING_FAULT = Fault(code=ReasonCode.TRAILING_BYTES, expected="the end of the file, or a record", seen="zero bytes")


def _length_crc_fault(length: int, length_crc: int) -> Fault:
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


def _payload_crc_fault(payload: memoryview, stored: int) -> Fault:
    return _crc_fault(len(payload), masked_crc32c(payload), stored)


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
