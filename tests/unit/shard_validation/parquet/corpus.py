"""Parquet shards with every kind of wrong value, and damaged ones, with the verdicts that are recorded for them.

    python -m tests.unit.shard_validation.parquet.corpus

writes the verdicts again; look at the difference before it is committed. They were first recorded when values were
decoded and checked row by row in this project's own code.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shard_validation import DataRequirements, ImagePolicy, Limits, ReasonCode, ShardVerdict, validate_shard
from shared.manifest import FeatureSpec
from tests.support.shards import BytesSource, image_bytes

RECORDED = Path(__file__).with_name("verdicts.json")
NAME = "train-00000-of-00001.parquet"
ROWS = 700
"""More than one batch of some columns, and more than the checks look at one by one."""
DECODING = {str(ReasonCode.PARQUET_PAGE_CORRUPT), str(ReasonCode.PARQUET_ROWS_DIFFER)}
"""Codes of pages that cannot be decoded: where that shows, and in which words, is the decoder's matter."""

Case = tuple[str, bytes, DataRequirements]
Column = tuple[list[Any], list[Any], pa.DataType | None, FeatureSpec]
"""Sound values, unsound values, their type, and the feature."""


def columns() -> dict[str, Column]:
    """Return columns of every kind of feature."""
    floats, images = [i / 7 for i in range(50)], [image_bytes("PNG", (8, 8 + i % 5)) for i in range(10)]
    infinite: list[Any] = [float("nan"), float("inf"), -float("inf"), None]
    ranged: dict[str, Any] = {"minimum": -1, "maximum": 100}
    texts = [f"text {i % 40}" for i in range(100)]
    raw = [bytes([i, 0, 0, 64]) * 2 for i in range(100)]
    return {
        "float32": (floats, [*infinite, 101.0], pa.float32(), FeatureSpec(name="c", kind="float", **ranged)),
        "float64": (floats, [*infinite, -1.5], None, FeatureSpec(name="c", kind="float", **ranged)),
        "optional": ([*floats, None], infinite[:3], None, FeatureSpec(name="c", kind="float", required=False)),
        "int8": (
            list(range(10)),
            [10, -1, None],
            pa.int8(),
            FeatureSpec(name="c", kind="int64", minimum=0, maximum=9),
        ),
        "uint64": ([2**63, 1], [3, None], pa.uint64(), FeatureSpec(name="c", kind="int64", allowed=(1, 2**63))),
        "bool": ([True, False], [None], None, FeatureSpec(name="c", kind="int64")),
        "many": (list(range(5000)), [-1], None, FeatureSpec(name="c", kind="int64", minimum=0)),
        "allowed": ([1, 2, 3], [4, None], None, FeatureSpec(name="c", kind="int64", allowed=(1, 2, 3))),
        "boxes": (
            [[1.0, 2.0], [], [3.0] * 4],
            [[1.0], None, [1.0, float("nan")], [1.0, None], [1.0, 101.0]],
            pa.list_(pa.float32()),
            FeatureSpec(name="c", kind="float", shape=(None, 2), **ranged),
        ),
        "points": ([[1, 2]], [[1], [], None], pa.list_(pa.int64()), FeatureSpec(name="c", kind="int64", shape=(2,))),
        "fixed": (
            [[1, 2]],
            [None, [1, -1]],
            pa.list_(pa.int64(), 2),
            FeatureSpec(name="c", kind="int64", shape=(2,), minimum=0),
        ),
        "text": (
            texts,
            [b"\xff", b"long" * 40 + b"\xc3", None],
            pa.binary(),
            FeatureSpec(name="c", kind="bytes", encoding="text"),
        ),
        "texts": (
            [f"text {i}" for i in range(3000)],
            [None],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="text"),
        ),
        "optional text": (
            [*texts, None],
            [b"\x80"],
            pa.binary(),
            FeatureSpec(name="c", kind="bytes", encoding="text", required=False),
        ),
        "classes": (
            ["cat", "dog"],
            ["cow", "", None],
            None,
            FeatureSpec(name="c", kind="bytes", allowed=("cat", "dog")),
        ),
        "tags": (
            [["a", "b"], ["a"], []],
            [["c"], None, ["a", None]],
            pa.list_(pa.string()),
            FeatureSpec(name="c", kind="bytes", encoding="text", shape=(None,), allowed=("a", "b")),
        ),
        "bytes": ([b"", b"abc", b"a" * 100], [None], None, FeatureSpec(name="c", kind="bytes")),
        "fixed bytes": (
            [b"abcd"],
            [b"ab\xffd", None],
            pa.binary(4),
            FeatureSpec(name="c", kind="bytes", encoding="text"),
        ),
        "image": (
            images,
            [b"", images[0][:-3], image_bytes("JPEG"), None, b"GIF89a"],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="png", shape=(None, 8, 3)),
        ),
        "any image": (
            [*images, image_bytes("JPEG")],
            [b"text", image_bytes("JPEG")[:30]],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="image"),
        ),
        "tensor": (
            raw,
            [b"", b"abc", raw[0] * 2, bytes([0, 0, 192, 127]) * 2, None],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="raw", dtype="float32", shape=(2,), **ranged),
        ),
        "bytes of a tensor": (
            [bytes(range(12))] * 3,
            [bytes(11), bytes([200] * 12)],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="raw", dtype="uint8", shape=(3, 4), maximum=100),
        ),
        "any tensor": (
            [bytes(8), b"", bytes(80)],
            [bytes(7), None],
            None,
            FeatureSpec(name="c", kind="bytes", encoding="raw", dtype="int64"),
        ),
    }


OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False, "data_page_size": 300, "write_batch_size": 32},
    {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 300, "write_page_checksum": True},
    {"compression": "lz4", "row_group_size": 450, "data_page_size": 1000, "write_batch_size": 100},
]


def written(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def wrong_values() -> Iterator[Case]:
    """Yield each column without an unsound value, with a few, with one at the end, and with nothing else."""
    for name, (sound, unsound, kind, spec) in columns().items():
        chance = random.Random(name)  # noqa: S311 - test data
        for index, options in enumerate(OPTIONS):
            for how, share in (("sound", 0.0), ("few", 0.01), ("many", 0.3), ("last", 0.0), ("all", 1.0)):
                values = [chance.choice(unsound if chance.random() < share else sound) for _ in range(ROWS)]
                values[-1:] = [chance.choice(unsound)] if how == "last" else values[-1:]
                table = pa.table({"other": list(range(ROWS)), "c": pa.array(values, kind)})
                limits = Limits(max_reasons=20)
                requirements = DataRequirements(
                    features=(spec,), limits=limits, images=ImagePolicy(decode="sample", sample_every=10)
                )
                yield f"{name}, {how}, options {index}", written(table, **options), requirements


def damaged_files() -> Iterator[Case]:
    """Yield files that are damaged as in the fuzz tests."""
    from tests.fuzz.mutations import damaged, one_of
    from tests.fuzz.test_fuzz_parquet import FILES, HELD

    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311 - test data
        content = one_of(FILES, chance)
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        footer = damaged(content[start:-8], chance)
        yield f"anywhere {seed}", damaged(content, chance), HELD
        yield f"footer {seed}", content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1", HELD
        data = bytearray(content)
        data[chance.randrange(4, start)] = chance.randrange(256)
        yield f"page {seed}", bytes(data), HELD


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from wrong_values()
    yield from damaged_files()


def summary(content: bytes, verdict: ShardVerdict) -> dict[str, Any]:
    """Return what is recorded of a verdict: everything, or less where a page is at fault.

    Rows before such a page may be counted or not.
    """
    reasons = [r.to_json() for r in verdict.reasons]
    members: dict[str, Any] = {"content": _digest(content), "accepted": verdict.accepted}
    if any(reason["code"] in DECODING for reason in reasons):
        return {**members, "undecodable": sorted({r["feature"] for r in reasons if r["code"] in DECODING})}
    members["verdict"] = _digest([verdict.num_records, verdict.num_reasons, reasons])
    if not any(reason["code"].startswith("parquet_") for reason in reasons):
        members["statistics"] = _digest(verdict.statistics.to_json())
    return {**members, "first": reasons[0]["message"]} if reasons else members


def _digest(content: Any) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else json.dumps(content).encode()).hexdigest()[:12]


def judged(case: Case) -> dict[str, Any]:
    """Validate a case; return the summary."""
    _, content, requirements = case
    return summary(content, validate_shard(BytesSource(content, NAME), requirements))


def main() -> None:
    """Record the verdicts."""
    lines = (f"{json.dumps(case[0])}: {json.dumps(judged(case))}" for case in cases())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
