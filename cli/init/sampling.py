"""What a few records of some shards look like: the kind, shape and content of each feature."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.errors import CliError
from shard_validation.content import ShardSource, recognise
from shard_validation.images import read_image_header
from shard_validation.reasons import Fault, FaultError
from shard_validation.requirements import Limits
from shared.manifest import FeatureKind
from shared.safe_text import shown

MAX_RECORDS = 200
"""Maximum number of records that are read of each shard."""
MAX_READ_BYTES = 32 << 20
"""Maximum number of bytes that are read of each shard."""
CHUNK_BYTES = 1 << 20
MAX_FEATURES = 1000
MAX_DISTINCT = 1000

_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__", re.ASCII)
"""Columns that pandas adds for the numbers of its rows."""

Values = Sequence[Any]
Record = Mapping[str, tuple[FeatureKind, Values]]


@dataclass(kw_only=True)
class Seen:
    """What was seen of one feature."""

    kind: FeatureKind
    num_present: int = 0
    lengths: set[int] = field(default_factory=set)
    """Numbers of values in one record."""
    minimum: float | None = None
    maximum: float | None = None
    contents: set[str] = field(default_factory=set)
    """JPEG, PNG, text or bytes."""
    images: set[tuple[int, int, int]] = field(default_factory=set)
    """Height, width and channels."""
    sizes: set[int] = field(default_factory=set)
    """Lengths of byte values."""

    def add(self, values: Values) -> None:
        """Look at the values of one record."""
        self.num_present += 1
        if len(self.lengths) < MAX_DISTINCT:
            self.lengths.add(len(values))
        if self.kind == "bytes":
            for value in values[:1]:
                self._add_bytes(value)
        elif values:
            self.minimum = min(values) if self.minimum is None else min(self.minimum, *values)
            self.maximum = max(values) if self.maximum is None else max(self.maximum, *values)

    def _add_bytes(self, value: bytes) -> None:
        if len(self.sizes) < MAX_DISTINCT:
            self.sizes.add(len(value))
        try:
            header = read_image_header(value)
        except FaultError:
            self.contents.add("text" if _is_text(value) else "bytes")
        else:
            self.contents.add(header.image_format)
            if len(self.images) < MAX_DISTINCT:
                self.images.add((header.height, header.width, header.channels))

    @property
    def is_image(self) -> bool:
        """Whether every value is a JPEG or PNG."""
        return bool(self.contents) and self.contents <= {"JPEG", "PNG"}


@dataclass(kw_only=True)
class Sample:
    """What was seen of all records."""

    num_records: int = 0
    num_shards: int = 0
    features: dict[str, Seen] = field(default_factory=dict)

    def add(self, shard: str, record: Record) -> None:
        """Look at one record. Raises CliError for a feature of two kinds, or too many features."""
        self.num_records += 1
        for name, (kind, values) in record.items():
            seen = self.features.setdefault(name, Seen(kind=kind))
            if seen.kind != kind:
                raise CliError(
                    f"{shown(shard)}: feature {shown(name)} has kind {kind} here and {seen.kind} before. "
                    "All records must have the same kinds; write the shards again."
                )
            seen.add(values)
        if len(self.features) > MAX_FEATURES:
            raise CliError(f"{shown(shard)}: has more than {MAX_FEATURES} features, the limit for a pipeline.")


def _is_text(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text[:10_000])


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The part of one shard that was read."""

    records: Sequence[Record]
    """The first ones."""
    size_bytes: int
    num_records: int
    """Number of records of the whole shard."""
    is_counted: bool
    """Whether the number is exact; otherwise it is estimated from the first records."""


def read_sample(source: ShardSource, label: str) -> Looked:
    """Read the first records of a shard. Raises CliError if it is damaged or not a shard, and SourceError."""
    content = recognise(source.read(0, min(16, source.size_bytes)))
    if content.data_format is None or not source.size_bytes:
        what = content.seen if source.size_bytes else "no bytes"
        raise CliError(f"{shown(label)}: is not a shard: it has {what}. Pack it: landfall pack --help")
    if content.data_format == "parquet":
        return _parquet(source, label)
    return _tfrecord(source, label, is_compressed=bool(content.compression))


def stated_classes(source: ShardSource) -> dict[str, tuple[str, ...]]:
    """Return feature → names of its classes, if the library `datasets` wrote them into the Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from shard_validation.parquet.blocks import BlockFile

    try:
        schema = pq.ParquetFile(BlockFile(source), pre_buffer=False, buffer_size=64 << 10).schema_arrow
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            name: tuple(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def format_of(source: ShardSource) -> str:
    """Return the format of a shard, by its first bytes."""
    return recognise(source.read(0, min(16, source.size_bytes))).data_format or "tfrecord"


def _tfrecord(source: ShardSource, label: str, *, is_compressed: bool) -> Looked:
    from google.protobuf.message import DecodeError

    from shard_validation.tfrecord.framing import FramingLostError, RecordFraming
    from shard_validation.tfrecord.message import example_class

    payloads: list[bytes] = []
    faults: list[Fault] = []

    def keep(payload: Any, _: int) -> None:
        payloads.append(bytes(payload))

    framing = RecordFraming(Limits(), lambda fault, *_: faults.append(fault), keep)
    inflate = zlib.decompressobj(wbits=47) if is_compressed else None
    num_read = 0
    try:
        while not faults and len(payloads) < MAX_RECORDS and num_read < min(source.size_bytes, MAX_READ_BYTES):
            chunk = source.read(num_read, min(CHUNK_BYTES, source.size_bytes - num_read))
            num_read += len(chunk)
            framing.feed(inflate.decompress(chunk, MAX_READ_BYTES) if inflate else chunk)
            if inflate and inflate.unconsumed_tail:
                break  # the inflated bytes are enough, or the file is a decompression bomb
        if not payloads or faults:
            what = f"expected {faults[0].expected}, got {faults[0].seen}" if faults else "it has no record"
            raise CliError(f"{shown(label)}: cannot be read: {what}. See: landfall validate {shown(label)}")
        records = [_example(example_class().FromString(payload)) for payload in payloads[:MAX_RECORDS]]
    except (FramingLostError, zlib.error, DecodeError) as error:
        what = f"expected {faults[0].expected}, got {faults[0].seen}" if faults else str(error)
        raise CliError(f"{shown(label)}: cannot be read: {what}. See: landfall validate {shown(label)}") from error
    # Of a compressed shard, what is left over is another member, or more than was asked for.
    num_bytes = num_read - len(inflate.unconsumed_tail) - len(inflate.unused_data) if inflate else framing.offset
    return Looked(
        records=records,
        size_bytes=source.size_bytes,
        num_records=len(payloads) * source.size_bytes // max(1, num_bytes),
        is_counted=num_bytes == source.size_bytes,
    )


def _example(example: Any) -> Record:
    kinds: dict[str, FeatureKind] = {"int64_list": "int64", "float_list": "float", "bytes_list": "bytes"}
    found: dict[str, tuple[FeatureKind, Values]] = {}
    for name, feature in example.features.feature.items():
        member = feature.WhichOneof("kind")
        if member is not None and (values := getattr(feature, member).value):
            found[name] = (kinds[member], list(values))
    return found


def _parquet(source: ShardSource, label: str) -> Looked:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from shard_validation.parquet.blocks import BlockFile

    try:
        file = pq.ParquetFile(BlockFile(source), pre_buffer=False, buffer_size=64 << 10)
        batch = next(file.iter_batches(MAX_RECORDS), None)
        rows = batch.to_pylist() if batch is not None else []
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CliError(f"{shown(label)}: cannot be read: {error}. See: landfall validate {shown(label)}") from error
    return Looked(
        records=[
            {
                name: found
                for name, value in row.items()
                if not _INDEX_OF_PANDAS.fullmatch(name) and (found := _column(value)) is not None
            }
            for row in rows
        ],
        size_bytes=source.size_bytes,
        num_records=file.metadata.num_rows,
        is_counted=True,
    )


def _column(value: Any) -> tuple[FeatureKind, Values] | None:
    """Return kind and values of a cell; None for what no feature can hold. Hugging Face's images are structs."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        return "bytes", [value["bytes"]]
    values = value if isinstance(value, list) else [value]
    if not values or any(one is None for one in values):
        return None
    if all(isinstance(one, int) for one in values):
        return "int64", [int(one) for one in values]
    if all(isinstance(one, int | float) for one in values):
        return "float", values
    if all(isinstance(one, bytes | str) for one in values):
        return "bytes", [one.encode() if isinstance(one, str) else one for one in values]
    return None
