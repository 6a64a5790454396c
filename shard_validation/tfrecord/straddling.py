"""A record that spans chunks: assembled piece by piece, its CRC taken on the way."""

from __future__ import annotations

from crc32c import crc32c

from shared.record_framing import HEADER_BYTES, TRAILER_BYTES, mask_crc


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
        """Return the payload and release it; empty where it was not kept."""
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
