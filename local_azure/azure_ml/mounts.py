"""Folders of a job that behave like Azure ML's mounts: each rank loads the library output_mount.c.

The library implements the rules. It cannot be built without a C compiler; outputs are then plain folders, and the log
says so.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("output_mount.c")
_RULES = Path(__file__).with_name("output_mount_rules.h")
LIBRARY_VARIABLE = "LANDFALL_MOUNT_LIBRARY"
_COMPILE = ("-std=gnu11", "-O2", "-fPIC", "-shared")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MountRules:
    """The differences between a mount and a disk."""

    delay_s: float = 2.0
    """Seconds until other nodes see a closed file."""
    cached_s: float = 2.0
    """Seconds for which a process still does not see a file after it found the file missing."""
    errors_permille: int = 10
    """Number of paths in a thousand whose first call fails with an input/output error."""
    seed: int = 0
    """Seed for these errors; the same seed gives the same errors."""
    always_fails: bool = False
    """Whether all calls fail, not only the first one for some paths."""


NOT_CHECKED = (
    "outputs of jobs are plain folders, and nothing checks that a training writes them as a mount allows, since "
    "there is no C compiler: install gcc and start again"
)


def compiler() -> str | None:
    """Return the path of the C compiler, None if there is none."""
    return shutil.which("cc") or shutil.which("gcc")


def build_library(folder: Path) -> Path | None:
    """Build the library unless the folder has this version; return None if there is no C compiler."""
    library = folder / f"output-mount-{hashlib.sha256(SOURCE.read_bytes() + _RULES.read_bytes()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    program = compiler()
    if program is None:
        logger.warning(NOT_CHECKED)
        return None
    folder.mkdir(parents=True, exist_ok=True)
    aside = library.with_suffix(f".{os.getpid()}")
    subprocess.run([program, *_COMPILE, "-o", aside, SOURCE, "-ldl"], check=True)
    aside.replace(library)
    return library


def mount_variables(
    library: Path,
    roots: Iterable[Path | str],
    state: Path,
    rules: MountRules,
    *,
    inputs: Iterable[Path | str] = (),
    ranks_per_node: int = 1,
) -> dict[str, str]:
    """Return the variables that make folders behave like mounts in a rank.

    ``roots``: every path of each mount. ``state``: an empty folder on the same disk, one for each job. All nodes see
    files that already exist. ``inputs``: folders that a rank may only read.
    """
    state.mkdir(parents=True, exist_ok=True)
    return {
        LIBRARY_VARIABLE: str(library),
        "LANDFALL_MOUNT_ROOTS": ":".join(map(str, roots)),
        "LANDFALL_MOUNT_INPUTS": ":".join(map(str, inputs)),
        "LANDFALL_MOUNT_STATE": str(state),
        "LANDFALL_MOUNT_OPENED_AT": str(time.time()),
        "LANDFALL_MOUNT_DELAY_S": str(rules.delay_s),
        "LANDFALL_MOUNT_CACHED_S": str(rules.cached_s),
        "LANDFALL_MOUNT_ERRORS_PERMILLE": str(rules.errors_permille),
        "LANDFALL_MOUNT_SEED": str(rules.seed),
        "LANDFALL_MOUNT_ALWAYS_FAILS": str(int(rules.always_fails)),
        "LANDFALL_MOUNT_RANKS_PER_NODE": str(ranks_per_node),
    }
