"""Parquet shards damaged at random: always a verdict, and nothing accepted that pyarrow cannot read."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

from shard_validation import DataRequirements, Limits, Reason, ShardVerdict, validate_shard
from shared.manifest import FeatureSpec
from tests.fuzz.mutations import damaged, for_every_seed, one_of
from tests.support.shards import BytesSource, image_bytes

NAME = "train-00000-of-00001.parquet"
ROWS = 60
TABLE = pa.table(
    {
        "label": [i % 10 for i in range(ROWS)],
        "image": [image_bytes("PNG", (8, 8 + i % 3)) for i in range(ROWS)],
        "text": [None if i % 5 == 0 else f"text {i % 7}" for i in range(ROWS)],
        "boxes": [[float(i)] * (i % 3) for i in range(ROWS)],
        "flag": [i % 2 == 0 for i in range(ROWS)],
    }
)
FEATURES = (
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
    FeatureSpec(name="image", kind="bytes", encoding="png"),
    FeatureSpec(name="text", kind="bytes", encoding="text", required=False),
    FeatureSpec(name="boxes", kind="float", shape=(None,)),
)
HELD, STREAMED = (DataRequirements(features=FEATURES, limits=Limits(max_page_bytes=n)) for n in (1 << 20, 600))
"""Pages of images are held, or read in pieces."""


def written(**options: object) -> bytes:
    """Return the table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer, row_group_size=25, **options)
    return buffer.getvalue()


FILES = [
    written(write_page_checksum=True),
    written(compression="none", use_dictionary=False),
    written(compression="none", data_page_version="2.0"),
    written(compression="zstd", data_page_version="2.0", use_dictionary=False),
    written(compression="gzip"),
]


def check_reasons(verdict: ShardVerdict) -> None:
    """Assert that a shard has reasons if and only if it is rejected, and that they can be stored."""
    assert verdict.accepted == (not verdict.reasons)
    for reason in verdict.reasons:
        assert reason == Reason.from_json(json.loads(json.dumps(reason.to_json())))
        assert reason.message.isprintable()


@for_every_seed
def test_anywhere(chance: random.Random) -> None:
    """A file damaged anywhere gets a verdict; one that is accepted can be read by pyarrow."""
    content = damaged(one_of(FILES, chance), chance)
    verdict = validate_shard(BytesSource(content, NAME), chance.choice([HELD, STREAMED]))
    check_reasons(verdict)
    if verdict.accepted:
        assert verdict.num_records == pq.read_table(io.BytesIO(content)).num_rows


@for_every_seed
def test_footer(chance: random.Random) -> None:
    """A damaged footer, of the right length, gets a verdict."""
    content = one_of(FILES, chance)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = damaged(content[start:-8], chance)
    broken = content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    check_reasons(validate_shard(BytesSource(broken, NAME), chance.choice([HELD, STREAMED])))


@for_every_seed
def test_pages(chance: random.Random) -> None:
    """Damaged pages below a sound footer get a verdict; what is accepted can be read by pyarrow."""
    content = one_of(FILES[1:], chance)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    data = bytearray(content[:start])
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(4, start)] = chance.randrange(256)
    broken = bytes(data) + content[start:]
    verdict = validate_shard(BytesSource(broken, NAME), chance.choice([HELD, STREAMED]))
    check_reasons(verdict)
    if verdict.accepted:
        assert verdict.num_records == pq.read_table(io.BytesIO(broken)).num_rows
