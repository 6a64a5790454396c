"""The validator against TensorFlow's readers on the same files, and against the SDK on the same blob.

Readers take turns, page cache warm, medians of five rounds. Of TensorFlow's ways to read, each size has its fastest
compared: all are tried first. A round in which others used the cores is measured again. Records of one length suit
what the validator remembers of a layout, so there are records of many lengths too, and nothing is promised of those.
"""

from __future__ import annotations

from typing import Any

from bench.figures import Context, Figure, median
from bench.validator_blobs import blob_figures
from bench.validator_files import ShardFile, write_shard, write_varied_shard
from bench.validator_rounds import undisturbed
from bench.validator_worker import Worker

SHARDS = (  # bytes of a record, of the shard, and what is promised: framing and CRC, with the schema
    (256, 64 << 20, 1.0, None),
    (3_072, 192 << 20, 2.0, 1.0),
    (110_000, 512 << 20, 5.0, 4.0),
)
VARIED_SHARDS = ((3_072, 192 << 20), (110_000, 512 << 20))
"""The median bytes of a record, and of the shard."""
READERS: tuple[dict[str, Any], ...] = (
    {"do": "iterator"},
    *({"do": "dataset", "batch": b, "buffer_bytes": n} for b in (32, 256, 1024) for n in (256 << 10, 8 << 20)),
)
PARSERS: tuple[dict[str, Any], ...] = tuple({"do": "parse", "batch": batch} for batch in (32, 128, 512, 2048))


def run(context: Context) -> list[Figure]:
    """Measure files, then blobs."""
    figures: list[Figure] = []
    with (
        Worker(context, context.python, "validator_ours") as ours,
        Worker(context, context.training_python, "validator_tensorflow") as theirs,
    ):
        for size, total_bytes, framing, schema in SHARDS:
            context.say(f"records of {size:,} bytes")
            shard = write_shard(context.scratch, size=size, total_bytes=total_bytes)
            figures += _figures(ours, theirs, shard, framing, schema)
            shard.path.unlink()
        for size, total_bytes in VARIED_SHARDS:
            context.say(f"records of about {size:,} bytes")
            shard = write_varied_shard(context.scratch, size=size, total_bytes=total_bytes)
            figures += _figures(ours, theirs, shard, None, None)
            shard.path.unlink()
        context.say("JPEG records of 110,000 bytes")
        shard = write_shard(context.scratch, size=110_000, total_bytes=256 << 20, encoding="jpeg")
        figures += _figures(ours, theirs, shard, None, None)
        shard.path.unlink()
    return figures + blob_figures(context)


def _figures(
    ours: Worker, theirs: Worker, shard: ShardFile, framing: float | None, schema: float | None
) -> list[Figure]:
    path, label = str(shard.path), f"{shard.size:,} B" + ("" if shard.encoding == "raw" else f" {shard.encoding}")
    reader = _fastest(theirs, path, READERS)
    parser = _fastest(theirs, path, PARSERS)
    arguments = {"path": path, "size": shard.size, "encoding": shard.encoding}
    read = undisturbed(lambda: ours.ask("framing", path=path), lambda: theirs.ask(path=path, **reader))
    parsed = undisturbed(lambda: ours.ask("schema", **arguments), lambda: theirs.ask(path=path, **parser))
    return [
        _ratio(f"{label}: framing and CRC against TensorFlow's {_named(reader)}", read, framing),
        _ratio(f"{label}: with schema against TensorFlow's {_named(parser)}", parsed, schema),
        Figure(name=f"{label}: framing and CRC", value=shard.size_bytes / median(read[0]) / 1e9, unit="GB/s"),
        Figure(name=f"{label}: with schema", value=shard.size_bytes / median(parsed[0]) / 1e9, unit="GB/s"),
    ]


def _ratio(name: str, times: tuple[list[float], list[float]], at_least: float | None) -> Figure:
    return Figure(name=name, value=median(times[1]) / median(times[0]), unit="ratio", at_least=at_least)


def _named(settings: dict[str, Any]) -> str:
    return " ".join([settings["do"], *(f"{k}={v}" for k, v in settings.items() if k != "do")])


def _fastest(worker: Worker, path: str, ways: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the fastest of several ways, each tried twice: the first time warms it up."""
    tried = {i: min(worker.ask(path=path, **way).wall_s for _ in range(2)) for i, way in enumerate(ways)}
    return ways[min(tried, key=lambda i: tried[i])]
