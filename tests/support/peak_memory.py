"""A program that validates one difficult shard and prints the peak of its own resident memory.

    python -m tests.support.peak_memory CASE

The peak is VmHWM of /proc/self/status: getrusage's also counts the process that this one was forked from.
"""

from __future__ import annotations

import io
import json
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shard_validation import DataRequirements, ImagePolicy, ShardSource, encode_example, validate_shard
from shard_validation.parquet.decoder import idle_decoders
from shard_validation.tfrecord.native import ROOM_BYTES
from shared.manifest import FeatureSpec
from shared.record_framing import frame_record

LABELS = FeatureSpec(name="label", kind="int64", shape=(None,))
LABEL = FeatureSpec(name="label", kind="int64")
IMAGE = FeatureSpec(name="image", kind="bytes")
SCORES = tuple(FeatureSpec(name=f"score{i:02}", kind="float", maximum=1.0) for i in range(60))
NUMBERS = FeatureSpec(name="numbers", kind="float", shape=(900,), maximum=1.0)
PNG = FeatureSpec(name="image", kind="bytes", encoding="image")


@dataclass(frozen=True)
class Repeated:
    """A ShardSource that repeats one block: a shard of any size that is never held in memory."""

    block: bytes
    times: int
    name: str = "train-00000-of-00001.tfrecord"

    @property
    def size_bytes(self) -> int:
        """The size of all blocks."""
        return len(self.block) * self.times

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        start = offset % len(self.block)
        pieces = [self.block[start : start + length]]
        length -= len(pieces[0])
        while length > 0:
            pieces.append(self.block[:length])
            length -= len(pieces[-1])
        return b"".join(pieces)


def large_shard() -> ShardSource:
    """Half a GiB of images."""
    block = b"".join(frame_record(encode_example({"label": i, "image": bytes(110_000)})) for i in range(20))
    return Repeated(block, (1 << 29) // len(block))


def large_examples() -> ShardSource:
    """Examples just below `max_example_bytes`."""
    return Repeated(frame_record(encode_example({"label": 1, "image": bytes(16_000_000)})), 8)


def long_records() -> ShardSource:
    """Records of 30 MB, which are too long to hold in memory: their CRC is computed in chunks."""
    return Repeated(frame_record(bytes(30 << 20)), 10)


def swelling_examples() -> ShardSource:
    """Examples with the largest accepted number of tiny values."""
    return Repeated(frame_record(encode_example({"label": [1] * 1_900_000})), 2)


def gzip_bomb() -> ShardSource:
    """300 MiB of valid records, compressed to a few hundred kilobytes."""
    stream, record = (
        zlib.compressobj(9, wbits=31),
        frame_record(encode_example({"label": 1, "image": bytes(1 << 20)})),
    )
    content = b"".join([*(stream.compress(record) for _ in range(300)), stream.flush()])
    return Repeated(content, 1)


def large_image() -> ShardSource:
    """A PNG of the largest size that the validator decodes."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(buffer, format="PNG")
    return Repeated(frame_record(encode_example({"label": 1, "image": buffer.getvalue()})), 3)


def progressive_jpeg() -> ShardSource:
    """A progressive JPEG, which is decoded as a whole, of the largest accepted size."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (3300, 3300)).save(buffer, format="JPEG", progressive=True)
    return Repeated(frame_record(encode_example({"label": 1, "image": buffer.getvalue()})), 3)


def many_faults() -> ShardSource:
    """Small examples, thousands of which are checked at once, with an error in every feature."""
    return Repeated(frame_record(encode_example({spec.name: 7.5 for spec in SCORES})), 9500)


def many_faulty_numbers() -> ShardSource:
    """Examples of many numbers, checked at once, all of which are out of range."""
    return Repeated(frame_record(encode_example({"numbers": [7.5] * 900})), 5000)


def file_of_large_examples() -> ShardSource:
    """A file that is read ahead in several stretches, with the longest records that fit into a stretch."""
    frame = frame_record(encode_example({"label": 1, "image": bytes(ROOM_BYTES - 100)}))
    return written(frame, 12)


def file_of_swelling_examples() -> ShardSource:
    """A file of examples with the largest accepted number of tiny values."""
    return written(frame_record(encode_example({"label": [1] * 1_900_000})), 12)


def written(frame: bytes, times: int) -> ShardSource:
    """Return the file that the command line names; if it does not exist, write it and exit."""
    from shard_validation import LocalFileSource

    path = Path(sys.argv[2])
    if not path.exists():
        path.write_bytes(frame * times)
        raise SystemExit(0)
    return LocalFileSource(path)


def parquet_of_images() -> ShardSource:
    """Row groups of 140 images of 110 kB, which pyarrow writes into pages of 15 MB."""
    return parquet_file(num_rows=420, row_group_size=140)


def parquet_of_large_pages() -> ShardSource:
    """What pyarrow and pandas write by default: a dictionary of 112 MB, then pages of the same size."""
    return parquet_file(num_rows=2100)


def parquet_file(num_rows: int, **options: int) -> ShardSource:
    """Return the Parquet file that the command line names; if it does not exist, write it and exit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(sys.argv[2])
    if not path.exists():
        chance = random.Random(0)  # noqa: S311 - bytes that do not compress
        rows = {"label": list(range(num_rows)), "image": [chance.randbytes(110_000) for _ in range(num_rows)]}
        pq.write_table(pa.table(rows), path, **options)
        raise SystemExit(0)
    from shard_validation import LocalFileSource

    return LocalFileSource(path)


CASES: dict[str, tuple[Callable[[], ShardSource], DataRequirements]] = {
    "large_shard": (large_shard, DataRequirements(features=(LABEL, IMAGE))),
    "large_examples": (large_examples, DataRequirements(features=(LABEL, IMAGE))),
    "long_records": (long_records, DataRequirements()),
    "swelling_examples": (swelling_examples, DataRequirements(features=(LABELS,))),
    "gzip_bomb": (gzip_bomb, DataRequirements(features=(LABEL, IMAGE))),
    "large_image": (large_image, DataRequirements(features=(PNG,), images=ImagePolicy(decode="all"))),
    "progressive_jpeg": (progressive_jpeg, DataRequirements(features=(PNG,), images=ImagePolicy(decode="all"))),
    "many_faults": (many_faults, DataRequirements(features=SCORES)),
    "many_faulty_numbers": (many_faulty_numbers, DataRequirements(features=(NUMBERS,))),
    "file_of_large_examples": (file_of_large_examples, DataRequirements(features=(LABEL, IMAGE))),
    "file_of_swelling_examples": (file_of_swelling_examples, DataRequirements(features=(LABELS,))),
    "parquet_of_images": (parquet_of_images, DataRequirements(features=(LABEL, IMAGE))),
    "parquet_of_large_pages": (parquet_of_large_pages, DataRequirements(features=(LABEL, IMAGE))),
}


def peak_bytes(process: str | int = "self") -> int:
    """Return the peak resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"/proc/{process}/status has no line VmHWM")


def main() -> None:
    """Validate one case; print the peak."""
    make, requirements = CASES[sys.argv[1]]
    source = make()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak, which includes the writing of the shard (proc(5))
    verdict = validate_shard(source, requirements)
    decoders = sum(peak_bytes(decoder) for decoder in idle_decoders())
    seen = {"peak_bytes": peak_bytes(), "decoder_bytes": decoders, "accepted": verdict.accepted}
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
