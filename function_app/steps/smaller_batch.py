"""Half the batch on each process, in the command as it was sent: a deployment since then changes nothing else."""

from __future__ import annotations

import re

_BATCH = re.compile(r"(?<=--per-process-batch-size )(\d+)")
_ACCUMULATION = re.compile(r"(?<=--gradient-accumulation )(\d+)")


def per_process_batch_size(command: str) -> int | None:
    """Return the batch size that a command asks for, None where it does not."""
    found = _BATCH.search(command)
    return int(found[1]) if found else None


def with_smaller_batch(command: str) -> str:
    """Return a command with half the batch and twice the batches for each step.

    Of an even batch the global one stays as it was, so the checkpoint goes on as if nothing had happened.
    """
    halved = _BATCH.sub(lambda found: str(max(1, int(found[1]) // 2)), command, count=1)
    return _ACCUMULATION.sub(lambda found: str(int(found[1]) * 2), halved, count=1)
