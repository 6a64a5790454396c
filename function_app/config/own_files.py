"""The files that a pipeline brings for its training: weights, vocabularies and modules, read-only in the job."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from function_app.config.fields import matching
from function_app.domain.errors import PipelineError
from shared.safe_text import setting_value

NAME = "landfall-files"
"""Name of the data asset of which each pipeline's files are a version."""
MAX_FILES = 200
MAX_TOTAL_BYTES = 500 << 20
"""They are part of the function app's package too, which needs their digest."""
_DIGEST_CHARS = 16
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
_PATH = re.compile(rf"{_PART}(?:/{_PART}){{0,9}}")
_NOT_DEPLOYED = re.compile(
    r"(?:.*/)?(?:[^/]+\.(?:md|c|so|pyc)|LICENSE|Makefile|azure\.yaml|local\.settings\.json[^/]*|package[^/]*\.json|"
    r"pyproject\.toml|requirements-dev[^/]*\.txt|"
    r"(?:__pycache__|bench|cli|docs|infra|local_azure|node_modules|tests|tools|training_job)(?:/.*)?)"
)
"""Files that .funcignore excludes from the package; with them the app's digest would differ from the published one.
"""
FilePath = Annotated[
    str,
    matching(
        _PATH.pattern + "/?",
        "a file or a folder beside the pipeline file, such as weights.h5 or vocab/words.txt: names of letters, "
        "digits, - . and _ that do not begin with a dot",
    ),
]


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """One file."""

    name: str
    """Path in the job, relative to the folder of the files; the same as beside the pipeline file."""
    path: Path
    digest: str


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """A pipeline's files, sorted by name."""

    files: tuple[OwnFile, ...]

    @property
    def version(self) -> str:
        """The version of their asset: a digest of names and contents."""
        content = json.dumps([[one.name, one.digest] for one in self.files])
        return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]

    @property
    def names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(one.name for one in self.files)


def read_files(folder: Path, wanted: Sequence[str]) -> OwnFiles:
    """Return the files that a pipeline names, with their digests. Raises PipelineError with what is wrong with them.

    No more than the limits is read.
    """
    try:
        found = _found(folder, wanted)
        return OwnFiles(
            files=tuple(OwnFile(name=name, path=path, digest=_known_digest(path)) for name, path in found.items())
        )
    except OSError as error:
        raise PipelineError(f"cannot be read beside the pipeline file: {error.strerror}") from error


def _found(folder: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Return name → file, sorted. Raises PipelineError."""
    found: dict[str, Path] = {}
    problems: list[str] = []
    for name in wanted:
        try:
            found |= {path.relative_to(folder).as_posix(): path for path in _files(folder, name.rstrip("/"))}
        except PipelineError as error:
            problems += error.problems
        if len(found) > MAX_FILES:
            raise PipelineError(f"there are more than {MAX_FILES} files; pack them into one archive")
    sizes = sum(path.stat().st_size for path in found.values())
    if sizes > MAX_TOTAL_BYTES:
        problems.append(
            f"they have {sizes:,} bytes together, and {MAX_TOTAL_BYTES:,} are allowed; put larger ones into an image "
            "(train.environment)"
        )
    if problems:
        raise PipelineError(*problems)
    return dict(sorted(found.items()))


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the file of that name, or those in the folder of that name. Raises PipelineError."""
    path = folder / name
    if not path.exists():
        raise PipelineError(f"{name} does not exist beside the pipeline file; put it there, or remove the entry")
    is_folder = path.is_dir() and path.resolve() == folder.resolve() / name
    inside = filter(_counts, path.rglob("*")) if is_folder else iter([path])
    some = sorted(itertools.islice(inside, MAX_FILES + 1))
    if not some:
        raise PipelineError(f"{name} is an empty folder; put files into it, or remove the entry")
    for one in some:
        relative = one.relative_to(folder).as_posix()
        if one.resolve() != folder.resolve() / relative:
            raise PipelineError(
                f"{setting_value(relative)} is or is behind a symbolic link, whose target may change unnoticed; "
                "replace it by a copy"
            )
        if not one.is_file():
            raise PipelineError(f"{setting_value(relative)} is no regular file; remove it")
        if _PATH.fullmatch(relative) is None:
            raise PipelineError(
                f"{setting_value(relative)} has a name that cannot be passed to a job; use letters, digits, - . and "
                "_, with no dot at the beginning"
            )
        if _NOT_DEPLOYED.fullmatch(relative) is not None:
            raise PipelineError(
                f"{setting_value(relative)} has a name that .funcignore keeps out of the function app's package, "
                "which must have the file too; rename it"
            )
        yield one


def _counts(path: Path) -> bool:
    """Whether something in a folder is a file of the user's, or may lead to one."""
    return "__pycache__" not in path.parts and (path.is_symlink() or not path.is_dir())


def _known_digest(path: Path) -> str:
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4 * MAX_FILES)
def _digest(path: Path, _modified_ns: int, _size: int) -> str:
    """Return the digest of a file's content, which is read again only when the file was written."""
    return digest_of(path)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
