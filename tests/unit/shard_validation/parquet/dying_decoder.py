"""Run as a program: a decoder that a page kills, as a fault in pyarrow would."""

from __future__ import annotations

import os
import signal
from typing import Any

from shard_validation.parquet import decoding
from shard_validation.parquet.arrow_columns import ArrowColumns

DEADLY_COLUMN = "deadly"
_check = ArrowColumns.check


def check(columns: ArrowColumns, chunk: Any, *arguments: Any) -> Any:
    """Decode a column chunk, or die."""
    if chunk.path == DEADLY_COLUMN and chunk.row_group == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return _check(columns, chunk, *arguments)


if __name__ == "__main__":
    ArrowColumns.check = check  # type: ignore[method-assign, assignment]
    decoding.main()
