"""Compare the validator with TensorFlow's readers on the same files, and with the SDK on the same blob.

The two take turns, with a warm page cache. Figures are medians of five rounds; a round in which other processes used
the cores is repeated. For each record size, the fastest of several settings of TensorFlow is compared. Small records
are also read in ranges, as blobs are, and without the library in C, because a deployed function app does not have it.
"""

from __future__ import annotations

import io
import random
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.storage.blob import BlobBlock, ContainerClient

from bench.figures import Context, Figure, median
from bench.timed_worker import Worker, undisturbed
from local_azure.azurite import DATA_ACCOUNT, running_azurite
from shard_validation import encode_example
from shared.record_framing import frame_record

SHARDS: tuple[
    tuple[int, int, float, float], ...
] = (  # bytes of a record, bytes of the shard, minimum ratios: framing and CRC, with schema
    (256, 64 << 20, 1.0, 2.0),
    (3_072, 192 << 20, 2.0, 2.0),
    (110_000, 512 << 20, 5.0, 4.0),
)
VARIED_SHARDS: tuple[tuple[int, int, float | None], ...] = ((3_072, 192 << 20, 2.0), (110_000, 512 << 20, None))
"""Median bytes of a record, bytes of the shard, minimum ratio with schema."""
SMALL_BYTES = 4_096
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
        for size, total_bytes, varied_schema in VARIED_SHARDS:
            context.say(f"records of about {size:,} bytes")
            shard = write_varied_shard(context.scratch, size=size, total_bytes=total_bytes)
            figures += _figures(ours, theirs, shard, None, varied_schema)
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
    figures = []
    if shard.size <= SMALL_BYTES:
        by_ranges = undisturbed(
            lambda: ours.ask("schema", by_ranges=True, **arguments), lambda: theirs.ask(path=path, **parser)
        )
        figures = [_ratio(f"{label}: with schema, read as blobs are, against TensorFlow", by_ranges, None)]
    return [
        *figures,
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
    """Return the fastest of several settings; each is tried twice, the first time as a warm-up."""
    tried = {i: min(worker.ask(path=path, **way).wall_s for _ in range(2)) for i, way in enumerate(ways)}
    return ways[min(tried, key=lambda i: tried[i])]


CONTAINER = "datasets"
BLOCK_RECORDS_BYTES = 64 << 20
SMALL, LARGE = "digits/1/train-00000-of-00002.tfrecord", "digits/1/train-00001-of-00002.tfrecord"
SMALL_BLOCKS, LARGE_BLOCKS = 8, 62
"""512 MB to measure the rate, 4 GB to measure memory."""
MIN_RATE = 0.9
MAX_PEAK_MB = 150.0


def blob_figures(context: Context) -> list[Figure]:
    """Upload two shards to a separate Azurite, and read them in turns."""
    with running_azurite(context.scratch) as azurite:
        connection = azurite.connection_string(DATA_ACCOUNT)
        _upload(context, connection)
        context.say("blobs from Azurite")
        with Worker(context, context.python, "validator_ours", {"DataStorage": connection}) as worker:
            helpers = [azurite.process.popen.pid]  # The measured time includes sending the content.
            validated, read = undisturbed(
                lambda: worker.ask("validate_blob", path=SMALL, helpers=helpers),
                lambda: worker.ask("read_blob", path=SMALL, helpers=helpers),
            )
        context.say("4 GB from Azurite")
        with Worker(context, context.python, "validator_ours", {"DataStorage": connection}) as worker:
            worker.ask("validate_blob", path=LARGE)
            peak_bytes = worker.ask("peak").result
    return [
        Figure(
            name="blob: rate against the SDK reading it and doing nothing",
            value=median(read) / median(validated),
            unit="ratio",
            at_least=MIN_RATE,
        ),
        Figure(name="blob of 4 GB: peak memory", value=peak_bytes / 1e6, unit="MB resident", at_most=MAX_PEAK_MB),
    ]


def _upload(context: Context, connection: str) -> None:
    """Upload both shards block by block. A block consists of whole records, so any number of blocks is a shard."""
    block = write_shard(context.scratch, size=110_000, total_bytes=BLOCK_RECORDS_BYTES)
    content = block.path.read_bytes()
    block.path.unlink()
    container = ContainerClient.from_connection_string(connection, CONTAINER)
    container.create_container()
    for path, num_blocks in ((SMALL, SMALL_BLOCKS), (LARGE, LARGE_BLOCKS)):
        blob = container.get_blob_client(path)
        blocks = [BlobBlock(uuid.uuid4().hex) for _ in range(num_blocks)]
        for each in blocks:
            blob.stage_block(each.id, content, length=len(content))
        blob.commit_block_list(blocks)


_SEED = 20261120
_SPREAD = 0.5
"""Standard deviation of the logarithm of a length: two thirds are between 0.6 and 1.65 times the median."""


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One shard of the benchmark."""

    size: int
    """Bytes of the image in each record; for ``varied``, the median."""
    encoding: str
    """``raw``, ``jpeg``, or ``varied``: raw bytes of many lengths."""
    path: Path
    size_bytes: int


def write_shard(folder: Path, *, size: int, total_bytes: int, encoding: str = "raw") -> ShardFile:
    """Write records with an image and a label until the file has ``total_bytes``."""
    chance = random.Random(_SEED)  # noqa: S311 - content that does not compress
    path = folder / f"train-{size % 100_000:05d}-of-99999.tfrecord"
    with path.open("wb") as file:
        while file.tell() < total_bytes:
            file.write(frame_record(_example(chance, size, encoding)))
    return ShardFile(size=size, encoding=encoding, path=path, size_bytes=path.stat().st_size)


def write_varied_shard(folder: Path, *, size: int, total_bytes: int) -> ShardFile:
    """Write records with images of varied length, like photographs: half are below ``size``, a few far above."""
    chance = random.Random(_SEED)  # noqa: S311 - content that does not compress
    path = folder / f"validation-{size % 100_000:05d}-of-99999.tfrecord"
    with path.open("wb") as file:
        while file.tell() < total_bytes:
            length = round(size * chance.lognormvariate(0.0, _SPREAD))
            file.write(frame_record(_example(chance, length, "raw")))
    return ShardFile(size=size, encoding="varied", path=path, size_bytes=path.stat().st_size)


def _example(chance: random.Random, size: int, encoding: str) -> bytes:
    image = chance.randbytes(size) if encoding == "raw" else some_jpeg(chance, size)
    return encode_example({"image": image, "label": chance.randrange(10)})


def some_jpeg(chance: random.Random, size: int) -> bytes:
    """Return a JPEG of about this size: a small one with random bytes before its end marker."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (500, 375)).save(buffer, format="JPEG")
    whole = buffer.getvalue()
    filling = chance.randbytes(max(0, size - len(whole))).replace(b"\xff", b"\xfe")
    return whole[:-2] + filling + whole[-2:]
