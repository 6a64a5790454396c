"""The verdict on one shard: recognise what it is, hand it to its format's validator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shard_validation.content import HEAD_BYTES, Content, name_fault, recognise
from shard_validation.content_crc import take_crc
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.sources import ShardSource
from shard_validation.task import Progress, ShouldPause, Task
from shard_validation.tfrecord.validator import validate_tfrecord
from shard_validation.verdicts import Paused, ShardVerdict
from shared.shard_names import DataFormat

READ_ONLY = "read_only"
"""In a checkpoint: the content is no shard, and only its CRC is taken."""

FormatValidator = Callable[[Task], ShardVerdict | Paused]


def _validate_parquet(task: Task) -> ShardVerdict | Paused:
    """Load the Parquet code, and pyarrow with it, when the first Parquet shard comes."""
    from shard_validation.parquet.validator import validate_parquet

    return validate_parquet(task)


FORMATS: Mapping[DataFormat, FormatValidator] = {"tfrecord": validate_tfrecord, "parquet": _validate_parquet}
"""One function for each format: a new format is a new line here, and in `recognise`."""


def validate_shard(
    source: ShardSource, requirements: DataRequirements | None = None, *, progress: Progress | None = None
) -> ShardVerdict:
    """Return the verdict on a shard; without requirements its integrity only.

    Raises a SourceError where the content could not be read, or is not the same any more: no verdict then.
    """
    outcome = validate_shard_within(source, requirements, progress=progress)
    if isinstance(outcome, Paused):
        raise TypeError("a validation that nobody asked to pause did pause")
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
    """Return the verdict, or a checkpoint once ``should_pause`` says so; it is asked after every chunk.

    ``out_of_time`` is asked within what cannot be paused, a compressed stream or a row group: the shard is then
    rejected. Handing the checkpoint back goes on from there; the source must be of the same content (ETag).
    Raises SourceError as `validate_shard`, and ValueError for a checkpoint of another shard.
    """
    task = Task(source=source, requirements=requirements or DataRequirements())
    task.progress = progress or task.progress
    task.should_pause = should_pause or task.should_pause
    task.out_of_time = out_of_time or task.out_of_time
    if checkpoint is not None:
        task.checkpoint = checkpoint
        task.restore(checkpoint["findings"])
    return _validate(task)


def _validate(task: Task) -> ShardVerdict | Paused:
    content = recognise(task.source.read(0, min(HEAD_BYTES, task.source.size_bytes)))
    task.data_format, task.compression = content.data_format, content.compression
    if task.checkpoint is None and (fault := _content_fault(task, content)):
        task.report(fault, byte_offset=0)
        return _read_only(task, 0)
    checkpoint = task.checkpoint or {}
    if content.data_format is None or checkpoint.get(READ_ONLY):
        return _read_only(task, checkpoint.get("position", 0))
    return FORMATS[content.data_format](task)


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
    """Only take the content's CRC: there is nothing in it to check."""
    position = take_crc(task, position)
    if position < task.source.size_bytes:
        checkpoint = {"findings": task.findings(), "position": position, READ_ONLY: True}
        return Paused(checkpoint=checkpoint, bytes_done=position)
    return task.verdict()
