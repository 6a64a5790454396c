"""Image bytes: what their header says, without decoding them.

Sources: ITU-T T.81 annex B (JPEG markers); W3C PNG, sections 5.2 and 11.2 (signature, IHDR, IEND).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Literal

from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault

ImageFormat = Literal["JPEG", "PNG"]

JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_JPEG_END = b"\xff\xd9"
_PNG_END = b"\x00\x00\x00\x00IEND\xae\x42\x60\x82"

Bytes = bytes | memoryview
_DESCRIBED_BYTES = 512

_MARKER = struct.Struct(">HH")
_FRAME = struct.Struct(">BHHB")
_IHDR = struct.Struct(">I4sIIBBBBBI")
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""By colour type; a palette decodes to three channels."""
_FRAME_MARKERS = frozenset(range(0xFFC0, 0xFFD0)) - {0xFFC4, 0xFFC8, 0xFFCC}
_BARE_MARKERS = frozenset({0xFF01, *range(0xFFD0, 0xFFD8)})
_PROGRESSIVE = frozenset({0xFFC2, 0xFFC6, 0xFFCA, 0xFFCE})


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What an image says about itself."""

    image_format: ImageFormat
    width: int
    height: int
    channels: int
    bits: int
    """Of one channel."""
    progressive: bool
    """Decoded as a whole (progressive JPEG); interlaced PNG needs no more than another one."""

    @property
    def decoded_bytes(self) -> int:
        """Memory that decoding takes here: a JPEG is decoded at an eighth of its size, all its data read."""
        pixels = self.width * self.height
        if self.image_format == "PNG":
            return pixels * 4 * max(1, self.bits // 8)
        return pixels * self.channels * 2 if self.progressive else pixels // 16


class ImageFaultError(ValueError):
    """The bytes are no usable image; `fault` says why."""

    def __init__(self, code: ReasonCode, expected: str, seen: str) -> None:
        super().__init__(f"should be {expected}, was {seen}")
        self.fault = Fault(code=code, expected=expected, seen=seen)


def read_image_header(content: Bytes) -> ImageHeader:
    """Return a JPEG's or PNG's header, having looked for the end of the image too. Raises ImageFaultError."""
    if content[: len(JPEG_MAGIC)] == JPEG_MAGIC:
        return _read_jpeg(content)
    if content[: len(PNG_MAGIC)] == PNG_MAGIC:
        return _read_png(content)
    raise ImageFaultError(ReasonCode.IMAGE_WRONG_ENCODING, "JPEG or PNG bytes", describe_content(content))


def _read_jpeg(content: Bytes) -> ImageHeader:
    position, size = 2, len(content)
    while position + 4 <= size:
        marker, length = _MARKER.unpack_from(content, position)
        if marker in _FRAME_MARKERS:
            return _jpeg_frame(content, position, marker)
        position = _next_marker(marker, length, position)
    raise ImageFaultError(ReasonCode.IMAGE_TRUNCATED, "a JPEG frame header", f"the end after {size} bytes")


def _next_marker(marker: int, length: int, position: int) -> int:
    if marker == 0xFFFF:  # noqa: PLR2004 - any number of fill bytes may precede a marker (B.1.1.2)
        return position + 1
    if marker in _BARE_MARKERS:
        return position + 2
    if marker < 0xFF02 or marker in {0xFFD8, 0xFFD9, 0xFFDA} or length < 2:  # noqa: PLR2004 - T.81 table B.1
        raise ImageFaultError(
            ReasonCode.IMAGE_CORRUPT, "a JPEG marker segment", f"{marker:04x} {length:04x} at byte {position}"
        )
    return position + 2 + length


def _jpeg_frame(content: Bytes, position: int, marker: int) -> ImageHeader:
    if position + 10 > len(content):
        raise ImageFaultError(
            ReasonCode.IMAGE_TRUNCATED, "a JPEG frame header", f"the end after {len(content)} bytes"
        )
    bits, height, width, channels = _FRAME.unpack_from(content, position + 4)
    if not height or not width or channels not in {1, 3, 4}:
        raise ImageFaultError(
            ReasonCode.IMAGE_CORRUPT, "a JPEG of 1, 3 or 4 channels", f"{width} x {height} x {channels}"
        )
    if not _has_end(content, _JPEG_END, position):
        raise ImageFaultError(
            ReasonCode.IMAGE_TRUNCATED, "JPEG data up to its end marker", f"no end marker in {len(content)} bytes"
        )
    return ImageHeader("JPEG", width, height, channels, bits, marker in _PROGRESSIVE)


def _read_png(content: Bytes) -> ImageHeader:
    if len(content) < len(PNG_MAGIC) + _IHDR.size:
        raise ImageFaultError(ReasonCode.IMAGE_TRUNCATED, "a PNG header", f"{len(content)} bytes")
    length, name, width, height, bits, colour, _, _, interlaced, crc = _IHDR.unpack_from(content, 8)
    if length != 13 or name != b"IHDR" or zlib.crc32(content[12:29]) != crc:  # noqa: PLR2004 - IHDR's size
        raise ImageFaultError(ReasonCode.IMAGE_CORRUPT, "a PNG header with its CRC", content[8:33].hex())
    if not width or not height or colour not in _PNG_CHANNELS:
        raise ImageFaultError(
            ReasonCode.IMAGE_CORRUPT, "a PNG of colour type 0, 2, 3, 4 or 6", f"{width} x {height}, type {colour}"
        )
    if not _has_end(content, _PNG_END, 0):
        raise ImageFaultError(
            ReasonCode.IMAGE_TRUNCATED, "PNG data up to its end chunk", f"no end chunk in {len(content)} bytes"
        )
    return ImageHeader("PNG", width, height, _PNG_CHANNELS[colour], bits, bool(interlaced))


def _has_end(content: Bytes, end: bytes, position: int) -> bool:
    """Tell whether the end marker comes last, or anywhere behind a position: writers may have appended something."""
    return content[-len(end) :] == end or bytes(content).rfind(end, position) >= 0


_KNOWN_CONTENT = (
    (JPEG_MAGIC, "a JPEG image"),
    (PNG_MAGIC, "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV)"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"%PDF", "a PDF"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x1f\x8b", "GZIP data"),
    (b"(\xb5/\xfd", "Zstandard data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"PAR1", "a Parquet file"),
    (b"PARE", "an encrypted Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"\x7fELF", "a program"),
)
_KNOWN_TEXT = (
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
    (b"<error", "an XML error"),
    (b"version https://git-lfs", "a Git LFS pointer"),
    (b"{", "JSON text"),
)


def known_content(content: bytes) -> str | None:
    """Return in words what bytes are that begin like something well known, or None."""
    for magic, words in _KNOWN_CONTENT:
        if content.startswith(magic):
            return words
    text = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((words for magic, words in _KNOWN_TEXT if text.startswith(magic)), None)


def describe_content(content: Bytes) -> str:
    """Return in words what bytes look like."""
    content = bytes(content[:_DESCRIBED_BYTES])
    return known_content(content) or f"bytes beginning {content[:8].hex(' ') or 'nowhere: there are none'}"
