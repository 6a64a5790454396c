"""The code asset: a built snapshot of `shared`, `training_job` and users' own scripts, and nothing else.

`training_job` uploaded alone could not import `shared`; the whole clone would make a new asset of every change to
the documentation. The asset's version is the digest of what is in it, so the same code is never uploaded twice.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from cli.errors import CliError

PACKAGES = ("shared", "training_job")
SUFFIX = ".py"
LEFT_OUT = ("environment", "__pycache__")
"""Folders within: the environment is an asset of its own."""
SCRIPTS = "scripts"
"""Folder of users' own training scripts, beside the pipeline files."""
MAX_FILE_BYTES = 10 << 20
DIGEST_CHARS = 16


def collect(root: Path, pipelines: Path) -> dict[str, Path]:
    """Return the files of a snapshot: path within it → file. Raises CliError where something does not belong."""
    files: dict[str, Path] = {}
    for folder, target in [*((root / package, package) for package in PACKAGES), (pipelines / SCRIPTS, SCRIPTS)]:
        for path in sorted(folder.rglob("*")):
            inside, wanted = path.relative_to(folder), target == SCRIPTS or path.suffix == SUFFIX
            if path.is_file() and wanted and not set(inside.parts) & set(LEFT_OUT):
                files[f"{target}/{inside.as_posix()}"] = _checked(path)
    return files


def digest(files: Mapping[str, Path]) -> str:
    """Return the version of a snapshot: SHA-256 over sorted paths and contents, shortened."""
    sha = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()[:DIGEST_CHARS]


def build(files: Mapping[str, Path], folder: Path) -> None:
    """Copy the files into an empty folder, as the asset will have them."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _checked(path: Path) -> Path:
    if path.is_symlink():
        raise CliError(f"{path} is a symbolic link: what it points to is not sure to be the same at the next run.")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CliError(f"{path} should be code of at most {MAX_FILE_BYTES} bytes, has {size}; data belong elsewhere.")
    return path
