"""Build the validator's native library beside its source, once for each source: seconds, and nothing needs it.

It checks records faster than Python can; where it is missing (another processor) Python checks all of them.
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
"""Without warnings, of which another compiler has others; the tests have it warn."""


def build(source: Path = SOURCE) -> None:
    """Build unless this very source was built before. Raises SetupError with the compiler's words."""
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
    """Return where shard_validation/tfrecord/native.py looks for it."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    return source.with_name(f"_{source.stem}-{sys.platform}-{digest}.so")
