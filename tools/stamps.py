"""Stamp files: what an environment was made from, so that an unchanged one costs nothing to check."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

STAMP_NAME = ".landfall-stamp"


def digest(folder: Path, files: Iterable[Path], facts: Iterable[str] = ()) -> str:
    """Hex SHA-256 over the files' contents, this Python's version, the folder's place and further facts.

    The place counts because a virtual environment's scripts name it: a moved clone needs new ones.
    """
    sha = hashlib.sha256()
    for fact in (sys.version, str(folder), *facts):
        sha.update(fact.encode() + b"\0")
    for path in files:
        sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def is_current(folder: Path, wanted: str) -> bool:
    """Whether `folder` carries the wanted stamp."""
    stamp = folder / STAMP_NAME
    return stamp.is_file() and stamp.read_text().strip() == wanted


def clear(folder: Path) -> None:
    """Take the stamp away before work starts, so that interrupted work is never taken for done."""
    (folder / STAMP_NAME).unlink(missing_ok=True)


def write(folder: Path, wanted: str) -> None:
    """Stamp `folder`, whole or not at all."""
    aside = folder / f"{STAMP_NAME}.new"
    aside.write_text(wanted + "\n")
    aside.replace(folder / STAMP_NAME)
