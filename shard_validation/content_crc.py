"""The CRC of the whole content where nothing else is looked at meanwhile."""

from __future__ import annotations

from crc32c import crc32c

from shard_validation.read_ahead import read_ahead
from shard_validation.task import Task


def take_crc(task: Task, position: int) -> int:
    """Take the content's CRC from ``position`` on; return where a pause was asked for, or the end."""
    for chunk in read_ahead(task.source, position):
        task.crc = crc32c(chunk, task.crc)
        position += len(chunk)
        task.progress(len(chunk))
        if position < task.source.size_bytes and task.should_pause():
            break
    return position
