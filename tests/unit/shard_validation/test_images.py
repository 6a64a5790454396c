"""Image bytes: header and end are always checked, the data of some or of all images."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from shard_validation import ImagePolicy, Limits, encode_example
from shard_validation import ReasonCode as Code
from shard_validation.images import bytes_to_decode, read_image_header
from shard_validation.reasons import FaultError
from shared.manifest import FeatureSpec
from tests.support.shards import framed, image_bytes, only_reason, verdict_on

JPEG = FeatureSpec(name="image", kind="bytes", encoding="jpeg")
PNG = FeatureSpec(name="image", kind="bytes", encoding="png")
ANY = FeatureSpec(name="image", kind="bytes", encoding="image")
HUGE_JPEG = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x11\x00\x02\x11\x01\x03\x11\x01\xff\xd9"


def png_of_size(width: int, height: int) -> bytes:
    """Return a PNG whose header claims a size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"\0\0\0\0IEND\xae\x42\x60\x82"
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + end


def code_of(content: bytes, spec: FeatureSpec, decode: str = "all", limits: Limits | None = None) -> Code | None:
    """Return the code of an image's rejection, None where it is accepted."""
    policy = ImagePolicy(decode=decode)  # type: ignore[arg-type]
    verdict = verdict_on(framed([encode_example({"image": content})]), spec, images=policy, limits=limits or Limits())
    return None if verdict.accepted else only_reason(verdict).code


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_sound_jpegs(mode: str, progressive: bool) -> None:  # noqa: FBT001
    """Grey, colour and CMYK, baseline and progressive JPEGs are accepted, with their size read right."""
    content = image_bytes("JPEG", (40, 30), mode, progressive=progressive)
    assert code_of(content, JPEG) is None
    header = read_image_header(content)
    expected = (40, 30, {"L": 1, "RGB": 3, "CMYK": 4}[mode], progressive)
    assert expected == (header.width, header.height, header.channels, header.progressive)


@pytest.mark.parametrize(
    ("mode", "channels"), [("1", 1), ("L", 1), ("P", 3), ("LA", 2), ("RGB", 3), ("RGBA", 4), ("I;16", 1)]
)
def test_sound_pngs(mode: str, channels: int) -> None:
    """PNGs of every colour type are accepted, with their size read right."""
    content = image_bytes("PNG", (40, 30), mode)
    assert code_of(content, PNG) is None
    header = read_image_header(content)
    assert (40, 30, channels) == (header.width, header.height, header.channels)


@pytest.mark.parametrize("decode", ["header", "all"])
@pytest.mark.parametrize(
    ("spec", "content", "code"),
    [
        pytest.param(JPEG, image_bytes("PNG"), Code.IMAGE_WRONG_ENCODING, id="PNG in a JPEG feature"),
        pytest.param(PNG, image_bytes("JPEG"), Code.IMAGE_WRONG_ENCODING, id="JPEG in a PNG feature"),
        pytest.param(ANY, image_bytes("GIF"), Code.IMAGE_WRONG_ENCODING, id="GIF"),
        pytest.param(ANY, b"<html>not found</html>", Code.IMAGE_WRONG_ENCODING, id="HTML"),
        pytest.param(JPEG, b"\xff\xd8\xff", Code.IMAGE_TRUNCATED, id="three bytes"),
        pytest.param(JPEG, image_bytes("JPEG")[:100], Code.IMAGE_TRUNCATED, id="JPEG cut in its tables"),
        pytest.param(JPEG, image_bytes("JPEG", (200, 200))[:-50], Code.IMAGE_TRUNCATED, id="JPEG cut at its end"),
        pytest.param(PNG, image_bytes("PNG")[:20], Code.IMAGE_TRUNCATED, id="PNG cut in its header"),
        pytest.param(PNG, image_bytes("PNG", (200, 200))[:-20], Code.IMAGE_TRUNCATED, id="PNG cut at its end"),
        pytest.param(PNG, image_bytes("PNG")[:17] + b"!" + image_bytes("PNG")[18:], Code.IMAGE_CORRUPT, id="IHDR"),
        pytest.param(JPEG, HUGE_JPEG, Code.IMAGE_TOO_LARGE, id="JPEG of 65,535 x 65,535"),
        pytest.param(PNG, png_of_size(65_535, 65_535), Code.IMAGE_TOO_LARGE, id="PNG of 65,535 x 65,535"),
        pytest.param(PNG, png_of_size(0, 5), Code.IMAGE_CORRUPT, id="PNG of 0 x 5"),
        pytest.param(JPEG, b"\xff\xd8\xff\xda\x00\x02\xff\xd9", Code.IMAGE_CORRUPT, id="scan without frame"),
        pytest.param(JPEG, b"\xff\xd8\xff\xe0\x00\x01\xff\xd9", Code.IMAGE_CORRUPT, id="segment of 1 byte"),
    ],
)
def test_bad_image(spec: FeatureSpec, content: bytes, code: Code, decode: str) -> None:
    """Faults of the header or the end of an image are found without decoding."""
    assert code == code_of(content, spec, decode)


def test_jpeg_without_its_scan() -> None:
    """A JPEG without a scan is found by decoding only; the policy `header` accepts it."""
    whole = image_bytes("JPEG", (200, 200))
    cut = whole[: whole.index(b"\xff\xda")] + b"\xff\xd9"
    assert (None, Code.IMAGE_CORRUPT) == (code_of(cut, JPEG, "header"), code_of(cut, JPEG, "all"))


def with_scan(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a JPEG whose entropy-coded data are changed."""
    start, end = content.index(b"\xff\xda") + 14, len(content) - 2
    return content[:start] + change(content[start:end]) + content[end:]


@pytest.mark.parametrize(
    ("change", "progressive"),
    [
        pytest.param(lambda data: data[: len(data) // 2], False, id="half of the data"),
        pytest.param(lambda data: data[: len(data) // 2], True, id="half of the data, progressive"),
        pytest.param(lambda data: data[:99] + b"\xff\xd9" + data[99:], False, id="an early end marker"),
        pytest.param(lambda data: data[:99] + b"\xff\xd9" + data[99:], True, id="an early end marker, progressive"),
        pytest.param(lambda data: data[:300] + bytes(400) + data[700:], False, id="a hole"),
    ],
)
def test_jpeg_data_that_pillow_fills_with_grey(change: Callable[[bytes], bytes], progressive: bool) -> None:  # noqa: FBT001
    """Data that end too early before an end marker are found by decoding, and not by the header."""
    broken = with_scan(image_bytes("JPEG", (300, 200), progressive=progressive, quality=95), change)
    assert (None, Code.IMAGE_CORRUPT) == (code_of(broken, JPEG, "header"), code_of(broken, JPEG, "all"))


def test_jpeg_with_superfluous_bytes() -> None:
    """Superfluous bytes before the end marker, which some cameras write, are accepted."""
    padded = with_scan(image_bytes("JPEG", (300, 200)), lambda data: data + bytes(40))
    assert code_of(padded, JPEG) is None


def test_corrupt_png_data() -> None:
    """PNG data that cannot be inflated are found by decoding."""
    whole = image_bytes("PNG", (200, 200))
    position = whole.index(b"IDAT") + 20
    broken = whole[:position] + bytes(30) + whole[position + 30 :]
    assert (None, Code.IMAGE_CORRUPT) == (code_of(broken, PNG, "header"), code_of(broken, PNG, "all"))


def test_sample() -> None:
    """The option `sample` decodes the first record and every n-th after it, and no others."""
    whole = image_bytes("JPEG", (200, 200))
    cut = whole[: whole.index(b"\xff\xda")] + b"\xff\xd9"
    policy = ImagePolicy(decode="sample", sample_every=3)
    verdict = verdict_on(framed([encode_example({"image": cut})] * 8), JPEG, images=policy)
    assert [0, 3, 6] == [r.record_index for r in verdict.reasons]


@pytest.mark.parametrize(
    ("shape", "is_accepted"),
    [((30, 40, 3), True), ((None, None, 3), True), ((30, None), True), ((40, 30, 3), False), ((30, 40, 1), False)],
)
def test_dimensions(shape: tuple[int | None, ...], is_accepted: bool) -> None:  # noqa: FBT001
    """A stated shape is height, width and channels."""
    spec = FeatureSpec(name="image", kind="bytes", encoding="image", shape=shape)
    code = code_of(image_bytes("PNG", (40, 30)), spec)
    assert (None if is_accepted else Code.FEATURE_WRONG_SHAPE) == code


def test_memory_to_decode_is_bounded() -> None:
    """An image that would take too much memory is rejected before it is decoded."""
    content = image_bytes("PNG", (400, 300))
    limits = Limits(max_decoded_image_bytes=100_000)
    assert (Code.IMAGE_TOO_LARGE, None) == (
        code_of(content, PNG, "all", limits),
        code_of(content, PNG, "header", limits),
    )


@pytest.mark.parametrize(
    ("before_scan", "components", "decoded_bytes"),
    [(b"", 3, 2048 * 2048 // 16), (b"", 1, 2048 * 2048 * 6), (bytes(3), 3, 2048 * 2048 * 6)],
)
def test_memory_of_separate_scans(before_scan: bytes, components: int, decoded_bytes: int) -> None:
    """A baseline JPEG whose first scan lacks channels, or cannot be found, counts as a progressive one."""
    whole = image_bytes("JPEG", (2048, 2048))
    start = whole.index(b"\xff\xda\x00\x0c\x03")
    changed = whole[:start] + before_scan + whole[start : start + 4] + bytes([components]) + whole[start + 5 :]
    assert decoded_bytes == bytes_to_decode(changed, read_image_header(changed))


@pytest.mark.parametrize(
    ("size", "code"), [((160, 120), Code.IMAGE_CORRUPT), ((20_000, 20_000), Code.IMAGE_TOO_LARGE)]
)
def test_second_header(size: tuple[int, int], code: Code) -> None:
    """A second header of another size, which decoders would use, is found before its pixels take memory."""
    png, jpeg = image_bytes("PNG"), image_bytes("JPEG")
    frame = jpeg.index(b"\xff\xc0")
    second = jpeg[frame : frame + 5] + struct.pack(">HH", *size) + jpeg[frame + 9 : frame + 19]
    contents = (png[:33] + png_of_size(*size)[8:33] + png[33:], jpeg[: frame + 19] + second + jpeg[frame + 19 :])
    assert [code, code] == [code_of(content, ANY) for content in contents]


def test_marker_walk_ends() -> None:
    """Fill bytes and bare markers before the frame are skipped; reaching the end is a truncation."""
    whole = image_bytes("JPEG")
    filled = whole[:2] + b"\xff" * 50 + whole[2:]
    assert (16, 12) == (read_image_header(filled).width, read_image_header(filled).height)
    with pytest.raises(FaultError, match="a JPEG frame header"):
        read_image_header(b"\xff\xd8\xff\xff\xff\xff")
