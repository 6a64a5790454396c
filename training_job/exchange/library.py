"""Where the native library lies that adds up over the ranks of one node. The set-up builds it; nothing needs it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
SOURCES = tuple(_FOLDER / name for name in ("rank_sums.cc", "rank_sums_op.cc"))
_READ = (*SOURCES, _FOLDER / "rank_sums.h")


def library_of(environment: Path, tensorflow_version: str) -> Path:
    """Return its path in a virtual environment: built from these very sources, for this TensorFlow.

    Raises OSError where a source cannot be read.
    """
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _READ)).hexdigest()
    name = f"rank_sums-{sys.platform}-tensorflow-{tensorflow_version}-{digest[:16]}.so"
    return environment / "lib" / "landfall" / name
