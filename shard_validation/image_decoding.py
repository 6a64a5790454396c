"""Decoding image bytes: the only way to know that all of an image is there.

Pillow says nothing where libjpeg only warns (a JPEG whose data end too early is filled with grey), simplejpeg does.
So it is asked first; of what it cannot read, Pillow decides.
"""

from __future__ import annotations

import io
import struct
import zlib

from shard_validation.images import ImageHeader
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault

_DAMAGED = ("premature end", "bad Huffman code", "bad progression")
"""Pixels are missing or wrong. Where libjpeg warns of something else, as superfluous bytes before a marker, every
pixel is there: cameras write them."""


def decode_image(content: bytes, header: ImageHeader) -> Fault | None:
    """Decode an image whose header was read; return what is wrong with its data.

    The caller has bounded ``header.decoded_bytes``. A JPEG is decoded at an eighth of its size: all of its
    entropy-coded data are read, which is where a fault shows, and a 64th of the pixels are kept.
    """
    if header.image_format == "JPEG":
        warning = _jpeg_warning(content)
        if warning is None:
            return None
        if any(words in warning for words in _DAMAGED):
            return _fault(header, ReasonCode.IMAGE_CORRUPT, warning)
    return _decode_with_pillow(content, header)


def _jpeg_warning(content: bytes) -> str | None:
    """Decode a JPEG at an eighth of its size; return the last that libjpeg has to say, None where that is nothing."""
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
            image.draft(None, (1, 1))
            image.load()
    except (OSError, SyntaxError, ValueError, IndexError, struct.error, zlib.error) as error:
        truncated = "truncated" in str(error) or isinstance(error, (EOFError, IndexError))
        code = ReasonCode.IMAGE_TRUNCATED if truncated else ReasonCode.IMAGE_CORRUPT
        # Pillow names the buffer by its address where it recognises nothing: no two runs would say the same
        seen = "nothing that Pillow recognises" if isinstance(error, UnidentifiedImageError) else str(error)
        return _fault(header, code, seen)
    return None


def _fault(header: ImageHeader, code: ReasonCode, seen: str) -> Fault:
    return Fault(code=code, expected=f"a {header.image_format} that can be decoded", seen=seen)
