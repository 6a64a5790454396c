"""Validate one shard: recognise its format, run the validator of that format, return a verdict with statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from crc32c import crc32c

from shard_validation.content import HEAD_BYTES, Chunk, Content, ShardSource, held, name_fault, read_ahead, recognise
from shard_validation.reasons import Fault, Reason, ReasonCode
from shard_validation.requirements import DataRequirements
from shared.record_framing import Compression
from shared.shard_names import DataFormat

READ_ONLY = "read_only"
"""Set in a checkpoint if the content is not a shard, so that only its CRC is taken."""
DIGESTS_ONLY = "digests_only"
"""Set in a checkpoint if only the digests, whose state cannot be stored, remain to be taken."""

Progress = Callable[[int], None]
"""Takes the number of bytes of the shard that were processed since the last call."""
ShouldPause = Callable[[], bool]

MAX_DISTINCT = 1024
"""Distinct values that a histogram keeps; values that appear later are only counted, in `other`."""


def validate_shard(
    source: ShardSource, requirements: DataRequirements | None = None, *, progress: Progress | None = None
) -> ShardVerdict:
    """Return the verdict on a shard; without requirements, on its integrity only.

    Raises SourceError if the content cannot be read or has changed; there is then no verdict.
    """
    outcome = validate_shard_within(source, requirements, progress=progress)
    if isinstance(outcome, Paused):
        raise TypeError("the validation paused, although no pause was requested")
    return outcome


def validate_shard_within(
    source: ShardSource,
    requirements: DataRequirements | None = None,
    *,
    should_pause: ShouldPause | None = None,
    out_of_time: ShouldPause | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ShardVerdict | Paused:
    """Return the verdict, or a checkpoint once ``should_pause``, which is called after every chunk, returns True.

    ``out_of_time`` is called within a compressed stream or a row group, which cannot pause; True rejects the shard.
    Pass the checkpoint back to resume; the source must have the same content (ETag). Raises SourceError as
    `validate_shard` does, and ValueError for a checkpoint of another shard.
    """
    task = Task(source=held(source), requirements=requirements or DataRequirements())
    task.progress = progress or task.progress
    task.should_pause = should_pause or task.should_pause
    task.out_of_time = out_of_time or task.out_of_time
    if checkpoint is not None:
        task.checkpoint = checkpoint
        task.restore(checkpoint["findings"])
    outcome = _validate(task)
    if isinstance(outcome, Paused) or not outcome.accepted or len(outcome.digests) == len(task.requirements.digests):
        return outcome
    # The hash of what was read before a pause is lost. To take it again needs an execution's full time.
    checkpoint = {"findings": task.findings(), "position": source.size_bytes, DIGESTS_ONLY: True}
    return Paused(checkpoint=checkpoint, bytes_done=source.size_bytes)


def _validate(task: Task) -> ShardVerdict | Paused:
    content = recognise(task.source.read(0, min(HEAD_BYTES, task.source.size_bytes)))
    task.data_format, task.compression = content.data_format, content.compression
    if task.checkpoint is None:
        task.begin_digests()
    if task.checkpoint is None and (fault := _content_fault(task, content)):
        task.report(fault, byte_offset=0)
        return _read_only(task, 0)
    checkpoint = task.checkpoint or {}
    if checkpoint.get(DIGESTS_ONLY):
        return _digests_only(task)
    if content.data_format is None or checkpoint.get(READ_ONLY):
        return _read_only(task, checkpoint.get("position", 0))
    return FORMATS[content.data_format](task)


def _digests_only(task: Task) -> ShardVerdict:
    """Take the digests of content that was validated in several slices. It cannot pause."""
    task.begin_digests()
    position = 0
    for chunk in read_ahead(task.source):
        task.take_digests(chunk)
        task.progress(0)
        position += len(chunk)
        if position < task.source.size_bytes and task.out_of_time():
            expected = "a shard whose digest can be taken within one execution (write smaller shards)"
            seen = f"{position} of {task.source.size_bytes} bytes when its time was over"
            task.report(Fault(code=ReasonCode.VALIDATION_TOO_LONG, expected=expected, seen=seen))
            task.hashes = {}
            break
    return task.verdict()


def _content_fault(task: Task, content: Content) -> Fault | None:
    source, requirements = task.source, task.requirements
    if not source.size_bytes:
        return Fault(code=ReasonCode.EMPTY_FILE, expected="at least one record", seen="0 bytes")
    if source.size_bytes > requirements.limits.max_shard_bytes:
        return Fault(
            code=ReasonCode.SHARD_TOO_LARGE,
            expected=f"at most {requirements.limits.max_shard_bytes} bytes (limits.max_shard_bytes)",
            seen=f"{source.size_bytes} bytes",
        )
    if content.data_format is None:
        return Fault(code=ReasonCode.NOT_A_SHARD, expected="a TFRecord or Parquet shard", seen=content.seen)
    if requirements.data_format not in {None, content.data_format}:
        expected = f"format {requirements.data_format}, as the pipeline states"
        return Fault(code=ReasonCode.WRONG_FORMAT, expected=expected, seen=content.seen)
    return name_fault(source.name, content)


def _read_only(task: Task, position: int) -> ShardVerdict | Paused:
    """Only take the CRC of content that was rejected as a whole."""
    position = task.take_content_crc(position)
    if position < task.source.size_bytes:
        checkpoint = {"findings": task.findings(), "position": position, READ_ONLY: True}
        return Paused(checkpoint=checkpoint, bytes_done=position)
    return task.verdict()


@dataclass(frozen=True, kw_only=True)
class ShardVerdict:
    """The verdict on one content of a shard."""

    shard: str
    accepted: bool
    num_records: int
    """Whole records that were read; all of them if the shard is accepted."""
    size_bytes: int
    crc32c: str
    """CRC32C of the content as it is stored: eight lower-case hexadecimal digits."""
    data_format: DataFormat | None
    """By content; None if it is not a shard."""
    compression: Compression = ""
    reasons: tuple[Reason, ...] = ()
    """In the order of the content; empty if and only if the shard is accepted."""
    num_reasons: int = 0
    """Number of all reasons; `reasons` holds the first of them."""
    statistics: ShardStatistics
    digests: Mapping[str, str] = field(default_factory=dict)
    """Algorithm → digest of the content in lower-case hexadecimal digits, for the required algorithms."""

    @property
    def content_format(self) -> str:
        """Format and compression in words, such as ``tfrecord gzip``; empty if the content is not a shard."""
        return f"{self.data_format or ''} {self.compression}".strip()

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, as ``landfall validate --json`` prints them."""
        return {
            "shard": self.shard,
            "verdict": "accepted" if self.accepted else "rejected",
            "num_records": self.num_records,
            "size_bytes": self.size_bytes,
            "crc32c": self.crc32c,
            "data_format": self.data_format,
            "compression": self.compression,
            "reasons": [r.to_json() for r in self.reasons],
            "num_reasons": self.num_reasons,
            "statistics": self.statistics.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Paused:
    """A validation that can be resumed: pass the checkpoint back, with a source of the same content."""

    checkpoint: Mapping[str, Any]
    """A few kilobytes of JSON-ready members. Store it under the identity of the content (URL and ETag)."""
    bytes_done: int


@dataclass(kw_only=True)
class FeatureStatistics:
    """Statistics of one feature over the records that have it."""

    num_present: int = 0
    histogram: dict[str, int] = field(default_factory=dict)
    """Value of a scalar int64 or short text → records. Images: ``width x height x channels`` → records."""
    other: int = 0
    """Records whose value appeared after the histogram was full."""
    minimum: float | None = None
    maximum: float | None = None
    """Range of numeric values; for images and other bytes, of their sizes in bytes."""

    def count(self, value: str, times: int = 1) -> None:
        """Count a value."""
        if value in self.histogram or len(self.histogram) < MAX_DISTINCT:
            self.histogram[value] = self.histogram.get(value, 0) + times
        else:
            self.other += times

    def widen(self, minimum: float | None, maximum: float | None) -> None:
        """Extend the range to include both values."""
        if minimum is not None and (self.minimum is None or minimum < self.minimum):
            self.minimum = minimum
        if maximum is not None and (self.maximum is None or maximum > self.maximum):
            self.maximum = maximum

    def merge(self, other: FeatureStatistics) -> None:
        """Add the statistics of another shard."""
        self.num_present += other.num_present
        self.other += other.other
        for value, times in other.histogram.items():
            self.count(value, times)
        self.widen(other.minimum, other.maximum)


@dataclass(kw_only=True)
class ShardStatistics:
    """Statistics of one shard, or of several merged."""

    num_records: int = 0
    num_bytes: int = 0
    """Bytes of the payloads (Parquet: of the uncompressed pages)."""
    features: dict[str, FeatureStatistics] = field(default_factory=dict)

    def feature(self, name: str) -> FeatureStatistics:
        """Return the statistics of a feature, added on first use."""
        return self.features.setdefault(name, FeatureStatistics())

    def merge(self, other: ShardStatistics) -> None:
        """Add the statistics of another shard."""
        self.num_records += other.num_records
        self.num_bytes += other.num_bytes
        for name, statistics in other.features.items():
            self.feature(name).merge(statistics)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, sorted by name and value."""
        return {
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "features": {
                name: {**vars(f), "histogram": dict(sorted(f.histogram.items()))}
                for name, f in sorted(self.features.items())
            },
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises KeyError or TypeError for anything else."""
        features = {
            name: FeatureStatistics(**{**values, "histogram": dict(values["histogram"])})
            for name, values in members["features"].items()
        }
        return cls(num_records=members["num_records"], num_bytes=members["num_bytes"], features=features)


def _ignore(_: int) -> None:
    """Ignore progress."""


def _never() -> bool:
    return False


@dataclass(kw_only=True)
class Task:
    """One validation in progress, as every format sees it: the shard, its requirements, what was found so far."""

    source: ShardSource
    requirements: DataRequirements
    progress: Progress = _ignore
    should_pause: ShouldPause = _never
    out_of_time: ShouldPause = _never
    """Whether to reject what cannot pause, a compressed stream or a row group, because it takes too long."""
    checkpoint: Mapping[str, Any] | None = None
    """Where to resume; written by the same format for the same content."""
    data_format: DataFormat | None = None
    compression: Compression = ""
    crc: int = 0
    """CRC32C of the content so far."""
    statistics: ShardStatistics = field(default_factory=ShardStatistics)
    reasons: list[Reason] = field(default_factory=list)
    num_reasons: int = 0
    hashes: dict[str, hashlib._Hash] = field(default_factory=dict)
    """Algorithm → hash of the content so far; empty after a pause, because its state cannot be stored."""

    def begin_digests(self) -> None:
        """Begin the digests that are required, at the first byte of the content."""
        self.hashes = {name: hashlib.new(name, usedforsecurity=False) for name in self.requirements.digests}

    def take_digests(self, chunk: Chunk) -> None:
        """Hash the next chunk of the content."""
        for hasher in self.hashes.values():
            hasher.update(chunk)

    def report(self, fault: Fault, record_index: int | None = None, byte_offset: int | None = None) -> None:
        """Count a fault, and keep it as a reason while there are fewer than ``limits.max_reasons``."""
        self.num_reasons += 1
        if len(self.reasons) < self.requirements.limits.max_reasons:
            self.reasons.append(fault.at(self.source.name, record_index=record_index, byte_offset=byte_offset))

    def take_content_crc(self, position: int) -> int:
        """Take the CRC of the content from ``position``; return the end, or where a pause was requested."""
        for chunk in read_ahead(self.source, position):
            self.crc = crc32c(chunk, self.crc)
            self.take_digests(chunk)
            position += len(chunk)
            self.progress(len(chunk))
            if position < self.source.size_bytes and self.should_pause():
                break
        return position

    def verdict(self) -> ShardVerdict:
        """Return the verdict from what was found."""
        return ShardVerdict(
            shard=self.source.name,
            accepted=not self.num_reasons,
            num_records=self.statistics.num_records,
            size_bytes=self.source.size_bytes,
            crc32c=f"{self.crc:08x}",
            data_format=self.data_format,
            compression=self.compression,
            reasons=tuple(self.reasons),
            num_reasons=self.num_reasons,
            statistics=self.statistics,
            digests={name: hasher.hexdigest() for name, hasher in self.hashes.items()},
        )

    def findings(self) -> dict[str, Any]:
        """Return what was found so far, JSON-ready, for a checkpoint."""
        return {
            "shard": self.source.name,
            "size_bytes": self.source.size_bytes,
            "crc": self.crc,
            "statistics": self.statistics.to_json(),
            "reasons": [r.to_json() for r in self.reasons],
            "num_reasons": self.num_reasons,
        }

    def restore(self, findings: Mapping[str, Any]) -> None:
        """Continue from what `findings` returned. Raises ValueError if it is from other content."""
        seen = (findings["shard"], findings["size_bytes"])
        if seen != (self.source.name, self.source.size_bytes):
            raise ValueError(
                f"the checkpoint is from {seen[0]} ({seen[1]} bytes), not from {self.source.name} "
                f"({self.source.size_bytes} bytes); start the validation without it"
            )
        self.crc = findings["crc"]
        self.statistics = ShardStatistics.from_json(findings["statistics"])
        self.reasons = [Reason.from_json(r) for r in findings["reasons"]]
        self.num_reasons = findings["num_reasons"]


def _validate_tfrecord(task: Task) -> ShardVerdict | Paused:
    from shard_validation.tfrecord.validator import validate_tfrecord

    return validate_tfrecord(task)


def _validate_parquet(task: Task) -> ShardVerdict | Paused:
    from shard_validation.parquet.validator import validate_parquet

    return validate_parquet(task)


FormatValidator = Callable[[Task], ShardVerdict | Paused]
FORMATS: Mapping[DataFormat, FormatValidator] = {"tfrecord": _validate_tfrecord, "parquet": _validate_parquet}
"""Each validator imports its code, including pyarrow, on first use.

A new format needs a line here, in `recognise` and in `shared.shard_names`.
"""
