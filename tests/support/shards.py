"""Shards for tests: records, images and sources made by hand, so that every byte of a fault is known."""

from __future__ import annotations

import io
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile

from PIL import Image

from shard_validation import DataRequirements, Reason, ReasonCode, ShardVerdict, validate_shard
from shared.example_schema import FeatureSpec
from shared.record_framing import frame_record
from tests.support.example_bytes import example_bytes

NAME = "train-00000-of-00001.tfrecord"
SMALL_STRETCH_BYTES = 100
"""A few records are read in many stretches."""
LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)


@dataclass
class BytesSource:
    """Implements ShardSource over bytes in memory; small chunks make records straddle them."""

    content: bytes
    name: str = NAME
    chunk_bytes: int = 1 << 20

    @property
    def size_bytes(self) -> int:
        """Of the content."""
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        return self.content[offset : offset + length]


@dataclass
class FileBytesSource(BytesSource):
    """Implements FileSource over a file of these bytes: what is sound in it goes through native.py."""

    def __post_init__(self) -> None:
        """Write the file; it is gone with this source."""
        self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed when nobody has the source any more
        weakref.finalize(self, self._file.close)
        self._file.write(self.content)

    def fileno(self) -> int:
        """See FileSource."""
        return self._file.fileno()

    def check_unchanged(self) -> None:
        """See FileSource: nobody else has the file."""


def labelled(label: int = 0, **features: bytes | float | Sequence[float]) -> bytes:
    """Return an example with a label, and further features."""
    return example_bytes({"label": label, **features})


def framed(payloads: Sequence[bytes]) -> bytes:
    """Return a TFRecord shard of these payloads."""
    return b"".join(map(frame_record, payloads))


def judged(
    content: bytes, *features: FeatureSpec, name: str = NAME, chunk_bytes: int = 1 << 20, **requirements: object
) -> ShardVerdict:
    """Validate bytes against features, from memory and from a file. Raises ValueError where the verdicts differ.

    Those on compressed ones may: how far a bomb was inflated depends on the chunks.
    """
    required = DataRequirements(features=features, **requirements)  # type: ignore[arg-type]
    verdict = validate_shard(BytesSource(content, name, chunk_bytes), required)
    of_file = validate_shard(FileBytesSource(content, name, min(chunk_bytes, SMALL_STRETCH_BYTES)), required)
    if of_file != verdict and not verdict.compression:
        raise ValueError(f"a file should be judged as memory is, {verdict}, was {of_file}")
    return verdict


def only_reason(verdict: ShardVerdict) -> Reason:
    """Return the one reason of a rejection. Raises ValueError where there is another number of them."""
    if verdict.accepted or len(verdict.reasons) != 1:
        raise ValueError(f"there should be one reason, were {verdict.reasons}")
    return verdict.reasons[0]


def place(verdict: ShardVerdict) -> tuple[ReasonCode, int | None, int | None]:
    """Return code, record index and byte offset of the one reason of a rejection."""
    reason = only_reason(verdict)
    return reason.code, reason.record_index, reason.byte_offset


def image_bytes(image_format: str, size: tuple[int, int] = (16, 12), mode: str = "RGB", **options: object) -> bytes:
    """Return an encoded image (width, height) of a gradient, which compresses to more than a header."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(buffer, format=image_format, **options)
    return buffer.getvalue()
