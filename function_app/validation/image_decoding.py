"""Decoding image bytes with Pillow: the only way to know that all of an image is there."""

from __future__ import annotations

import io
import struct
import zlib

from function_app.validation.images import ImageHeader
from function_app.validation.reason_codes import ReasonCode
from function_app.validation.reasons import Fault


def decode_image(content: bytes, header: ImageHeader) -> Fault | None:
    """Decode an image whose header was read; return what is wrong with its data.

    The caller has bounded ``header.decoded_bytes``. A JPEG is decoded at an eighth of its size: all of its
    entropy-coded data are read, which is where a fault shows, and a 64th of the pixels are kept.
    """
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
        return Fault(code=code, expected=f"a {header.image_format} that can be decoded", seen=seen)
    return None
