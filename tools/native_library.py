"""Build the validator's optional native library in the folder of its source, once for each version of the source.

The library checks records faster than Python. Without it (on another processor), Python checks all records.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from tools.environments import LOGS, ROOT
from tools.logged import run_logged, say

SOURCE = ROOT / "shard_validation" / "tfrecord" / "sound_records.c"
COMPILE = ("gcc", "-std=gnu11", "-O3", "-fPIC", "-shared")
"""Compiler warnings are not enabled here, because they differ between compilers; a test enables them."""


def build(source: Path = SOURCE) -> None:
    """Build the library unless this version is already built. Raises SetupError with the compiler's output."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return
    library = library_of(source)
    if library.exists():
        return
    log = LOGS / f"{source.name}.log"
    log.unlink(missing_ok=True)
    aside = library.with_suffix(".new")
    command = [*COMPILE, "-o", str(aside), str(source)]
    run_logged(f"building {source.name}", command, log=log, cwd=ROOT, env=os.environ)
    for old in source.parent.glob(f"_{source.stem}-*.so"):
        old.unlink()
    aside.replace(library)
    say(f"{source.name} is built")


def library_of(source: Path) -> Path:
    """Return the path at which shard_validation/tfrecord/native.py looks for the library.

    That module computes the same path, but cannot be imported here, before the packages that it needs are installed.
    """
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    return source.with_name(f"_{source.stem}-{sys.platform}-{digest}.so")
