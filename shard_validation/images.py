"""Image bytes: read header and dimensions without decoding; decode the data if the pipeline asks for it.

Sources: ITU-T T.81 annex B (JPEG markers); W3C PNG, sections 5.2 and 11.2 (signature, IHDR, IEND).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from shard_validation.content import JPEG_MAGIC, PNG_MAGIC, describe_content
from shard_validation.reasons import Fault, FaultError, ReasonCode
from shard_validation.requirements import DataRequirements
from shared.manifest import FeatureSpec

ImageFormat = Literal["JPEG", "PNG"]
Bytes = bytes | memoryview

_JPEG_END = b"\xff\xd9"
_PNG_END = b"\x00\x00\x00\x00IEND\xae\x42\x60\x82"
_MARKER = struct.Struct(">HH")
_FRAME = struct.Struct(">BHHB")
_IHDR = struct.Struct(">I4sIIBBBBBI")
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""By colour type; a palette decodes to three channels."""
_FRAME_MARKERS = frozenset(range(0xFFC0, 0xFFD0)) - {0xFFC4, 0xFFC8, 0xFFCC}
_SCAN_MARKER = 0xFFDA
_BARE_MARKERS = frozenset({0xFF01, *range(0xFFD0, 0xFFD8)})
_PROGRESSIVE = frozenset({0xFFC2, 0xFFC6, 0xFFCA, 0xFFCE})
_DAMAGED = ("premature end", "bad Huffman code", "bad progression")
"""Warnings of libjpeg that mean missing or wrong pixels.

Others, such as extraneous bytes before a marker, do not: cameras write them.
"""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What the header of an image states."""

    image_format: ImageFormat
    width: int
    height: int
    channels: int
    bits: int
    """Per channel."""
    progressive: bool
    """A progressive JPEG; or an interlaced PNG, which takes no more memory."""


def compile_image_check(
    spec: FeatureSpec, requirements: DataRequirements
) -> Callable[[Bytes, int], ImageHeader | Fault]:
    """Return a check of image bytes; it takes them and the record's index, and returns the header or the fault."""
    limits, images = requirements.limits, requirements.images
    wanted = {"jpeg": "JPEG", "png": "PNG"}.get(spec.encoding or "")
    every = {"header": 0, "all": 1, "sample": images.sample_every}[images.decode]

    def check(content: Bytes, index: int) -> ImageHeader | Fault:
        try:
            header = read_image_header(content)
        except FaultError as error:
            return error.fault
        fault = _check_header(spec, content, header, wanted, limits.max_image_pixels)
        if fault is None and every and index % every == 0:
            fault = _check_data(bytes(content), header, limits.max_decoded_image_bytes)
        return fault or header

    return check


def _check_header(
    spec: FeatureSpec, content: Bytes, header: ImageHeader, wanted: str | None, max_pixels: int
) -> Fault | None:
    if wanted is not None and header.image_format != wanted:
        return Fault(code=ReasonCode.IMAGE_WRONG_ENCODING, expected=f"{wanted} bytes", seen=describe_content(content))
    if header.width * header.height > max_pixels:
        return Fault(
            code=ReasonCode.IMAGE_TOO_LARGE,
            expected=f"at most {max_pixels} pixels (limits.max_image_pixels)",
            seen=f"{header.width} x {header.height}",
        )
    seen = (header.height, header.width, header.channels)
    if spec.shape and not _matches(spec.shape, seen):
        return Fault(
            code=ReasonCode.FEATURE_WRONG_SHAPE,
            expected="height x width x channels " + " x ".join("any" if d is None else str(d) for d in spec.shape),
            seen=" x ".join(map(str, seen)),
        )
    return None


def _matches(shape: tuple[int | None, ...], seen: tuple[int, ...]) -> bool:
    return len(shape) <= len(seen) and all(d is None or d == s for d, s in zip(shape, seen, strict=False))


def _check_data(content: bytes, header: ImageHeader, max_bytes: int) -> Fault | None:
    if (decoded_bytes := bytes_to_decode(content, header)) > max_bytes:
        return Fault(
            code=ReasonCode.IMAGE_TOO_LARGE,
            expected=f"at most {max_bytes} bytes to decode (limits.max_decoded_image_bytes)",
            seen=f"{decoded_bytes} for {header.width} x {header.height}",
        )
    return decode_image(content, header)


def bytes_to_decode(content: bytes, header: ImageHeader) -> int:
    """Return the memory for decoding: a JPEG is decoded at an eighth of its size, see `decode_image`.

    But libjpeg keeps all coefficients if the JPEG is progressive or has several scans (jdinput.c).
    """
    pixels = header.width * header.height
    if header.image_format == "PNG":
        return pixels * 4 * max(1, header.bits // 8)
    is_kept = header.progressive or _has_several_scans(content, header.channels)
    return pixels * header.channels * 2 if is_kept else pixels // 16


def _has_several_scans(content: bytes, channels: int) -> bool:
    """Whether the first scan of a JPEG has only some of the channels, or cannot be found."""
    try:
        scan = next((position for marker, position in _segments(content) if marker == _SCAN_MARKER), None)
    except FaultError:
        return True  # libjpeg skips bytes between segments
    return scan is None or scan + 4 == len(content) or content[scan + 4] < channels


def read_image_header(content: Bytes) -> ImageHeader:
    """Return the header of a JPEG or PNG whose end marker is there too. Raises FaultError."""
    if content[: len(JPEG_MAGIC)] == JPEG_MAGIC:
        return _read_jpeg(content)
    if content[: len(PNG_MAGIC)] == PNG_MAGIC:
        return _read_png(content)
    raise FaultError(ReasonCode.IMAGE_WRONG_ENCODING, "JPEG or PNG bytes", describe_content(content))


def _read_jpeg(content: Bytes) -> ImageHeader:
    for marker, position in _segments(content):
        if marker in _FRAME_MARKERS:
            return _jpeg_frame(content, position, marker)
    raise FaultError(ReasonCode.IMAGE_TRUNCATED, "a JPEG frame header", f"the end after {len(content)} bytes")


def _segments(content: Bytes) -> Iterator[tuple[int, int]]:
    """Yield marker and position of the segments of a JPEG up to the first scan. Raises FaultError."""
    position = 2
    while position + 4 <= len(content):
        marker, length = _MARKER.unpack_from(content, position)
        yield marker, position
        position = _next_marker(marker, length, position)


def _next_marker(marker: int, length: int, position: int) -> int:
    if marker == 0xFFFF:  # noqa: PLR2004 - any number of fill bytes may precede a marker (B.1.1.2)
        return position + 1
    if marker in _BARE_MARKERS:
        return position + 2
    if marker < 0xFF02 or marker in {0xFFD8, 0xFFD9, _SCAN_MARKER} or length < 2:  # noqa: PLR2004 - T.81 table B.1
        raise FaultError(
            ReasonCode.IMAGE_CORRUPT, "a JPEG marker segment", f"{marker:04x} {length:04x} at byte {position}"
        )
    return position + 2 + length


def _jpeg_frame(content: Bytes, position: int, marker: int) -> ImageHeader:
    if position + 10 > len(content):
        raise FaultError(ReasonCode.IMAGE_TRUNCATED, "a JPEG frame header", f"the end after {len(content)} bytes")
    bits, height, width, channels = _FRAME.unpack_from(content, position + 4)
    if not height or not width or channels not in {1, 3, 4}:
        raise FaultError(
            ReasonCode.IMAGE_CORRUPT, "a JPEG with 1, 3 or 4 channels", f"{width} x {height} x {channels}"
        )
    if not _has_end(content, _JPEG_END, position):
        raise FaultError(
            ReasonCode.IMAGE_TRUNCATED, "JPEG data up to the end marker", f"no end marker in {len(content)} bytes"
        )
    return ImageHeader("JPEG", width, height, channels, bits, marker in _PROGRESSIVE)


def _read_png(content: Bytes) -> ImageHeader:
    if len(content) < len(PNG_MAGIC) + _IHDR.size:
        raise FaultError(ReasonCode.IMAGE_TRUNCATED, "a PNG header", f"{len(content)} bytes")
    length, name, width, height, bits, colour, _, _, interlaced, crc = _IHDR.unpack_from(content, 8)
    if length != 13 or name != b"IHDR" or zlib.crc32(content[12:29]) != crc:  # noqa: PLR2004 - size of IHDR
        raise FaultError(ReasonCode.IMAGE_CORRUPT, "a PNG header with a matching CRC", content[8:33].hex())
    if not width or not height or colour not in _PNG_CHANNELS:
        raise FaultError(
            ReasonCode.IMAGE_CORRUPT, "a PNG of colour type 0, 2, 3, 4 or 6", f"{width} x {height}, type {colour}"
        )
    if not _has_end(content, _PNG_END, 0):
        raise FaultError(
            ReasonCode.IMAGE_TRUNCATED, "PNG data up to the end chunk", f"no end chunk in {len(content)} bytes"
        )
    return ImageHeader("PNG", width, height, _PNG_CHANNELS[colour], bits, bool(interlaced))


def _has_end(content: Bytes, end: bytes, position: int) -> bool:
    """Whether the end marker comes last, or anywhere after a position: some writers append bytes."""
    return content[-len(end) :] == end or bytes(content).rfind(end, position) >= 0


def decode_image(content: bytes, header: ImageHeader) -> Fault | None:
    """Decode an image whose header was read; return the fault in its data, or None.

    The caller has bounded `bytes_to_decode`. A JPEG is decoded at an eighth of its size: that reads all of its
    entropy-coded data, where faults show, and keeps a 64th of the pixels. simplejpeg comes first, because it reports
    what libjpeg only warns about (missing data are filled with grey) and Pillow ignores; Pillow decides the rest.
    """
    if header.image_format == "JPEG":
        warning = _jpeg_warning(content)
        if warning is None:
            return None
        if any(words in warning for words in _DAMAGED):
            return _undecodable(header, ReasonCode.IMAGE_CORRUPT, warning)
    return _decode_with_pillow(content, header)


def _jpeg_warning(content: bytes) -> str | None:
    """Decode a JPEG at an eighth of its size; return the last warning or error of libjpeg."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(content, "GRAY", fastdct=True, fastupsample=True, min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return None


def _decode_with_pillow(content: bytes, header: ImageHeader) -> Fault | None:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=(header.image_format,)) as image:
            if image.size != (header.width, header.height):  # Pillow takes the last header
                return _undecodable(header, ReasonCode.IMAGE_CORRUPT, "another header of {} x {}".format(*image.size))
            image.draft(None, (1, 1))
            image.load()
    except Image.DecompressionBombError as error:
        return _undecodable(header, ReasonCode.IMAGE_TOO_LARGE, str(error))
    except (OSError, SyntaxError, ValueError, IndexError, struct.error, zlib.error) as error:
        truncated = "truncated" in str(error) or isinstance(error, IndexError)
        code = ReasonCode.IMAGE_TRUNCATED if truncated else ReasonCode.IMAGE_CORRUPT
        # Pillow's own message contains the address of the buffer, which differs from run to run
        seen = "content that Pillow does not recognise" if isinstance(error, UnidentifiedImageError) else str(error)
        return _undecodable(header, code, seen)
    return None


def _undecodable(header: ImageHeader, code: ReasonCode, seen: str) -> Fault:
    return Fault(code=code, expected=f"a {header.image_format} that can be decoded", seen=seen)
