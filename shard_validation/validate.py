"""Validate one shard: recognise what it is, then run the validator of its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shard_validation.content import HEAD_BYTES, Content, name_fault, recognise
from shard_validation.reasons import Fault, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.sources import ShardSource
from shard_validation.verdicts import Paused, Progress, ShardVerdict, ShouldPause, Task
from shared.shard_names import DataFormat

READ_ONLY = "read_only"
"""Set in a checkpoint where the content is not a shard, and only its CRC is taken."""

FormatValidator = Callable[[Task], ShardVerdict | Paused]


def _validate_tfrecord(task: Task) -> ShardVerdict | Paused:
    from shard_validation.tfrecord.validator import validate_tfrecord

    return validate_tfrecord(task)


def _validate_parquet(task: Task) -> ShardVerdict | Paused:
    from shard_validation.parquet.validator import validate_parquet

    return validate_parquet(task)


FORMATS: Mapping[DataFormat, FormatValidator] = {"tfrecord": _validate_tfrecord, "parquet": _validate_parquet}
"""Each imports its code, and pyarrow with it, when it is first needed. A new format is a line here, in `recognise`
and in `shared.shard_names`."""


def validate_shard(
    source: ShardSource, requirements: DataRequirements | None = None, *, progress: Progress | None = None
) -> ShardVerdict:
    """Return the verdict on a shard; without requirements, on its integrity only.

    Raises SourceError, and gives no verdict, where the content cannot be read or has changed.
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

    ``out_of_time`` is called within what cannot pause, a compressed stream or a row group; True rejects the shard.
    Pass the checkpoint back to resume; the source must have the same content (ETag).
    Raises SourceError as `validate_shard` does, and ValueError for a checkpoint of another shard.
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
    """Only take the CRC of content that was rejected as a whole."""
    position = task.take_content_crc(position)
    if position < task.source.size_bytes:
        checkpoint = {"findings": task.findings(), "position": position, READ_ONLY: True}
        return Paused(checkpoint=checkpoint, bytes_done=position)
    return task.verdict()
