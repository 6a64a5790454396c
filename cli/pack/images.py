"""Folders of images: one folder for each class, their JPEG and PNG bytes kept as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError
from cli.pack.collection import Entry, split_off
from cli.safe_text import one_line
from shard_validation.examples.message import Value
from shard_validation.reasons import shown
from shared.example_schema import FeatureSpec

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_NOBODY_S = frozenset({"Thumbs.db", "desktop.ini"})
"""What Windows puts beside images."""


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """A collection of images with a label each."""

    root: Path
    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    notes: Sequence[str]
    stamp: str = ""

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """Image bytes and a label."""
        return (
            FeatureSpec(name="image", kind="bytes", encoding="image"),
            FeatureSpec(name="label", kind="int64", minimum=0, maximum=len(self.classes) - 1),
        )

    def where(self, entry: Entry) -> str:
        """See Collection."""
        return one_line(str(self.root / entry.key))

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        return {"image": read_file(self.root / entry.key), "label": entry.label}


def find_images(root: Path, *, validation_share: float, seed: int) -> ImageFolder:
    """Return the images of ``root/<class>/`` or ``root/<split>/<class>/``. Raises CliError where there are none."""
    folders = _folders(root)
    if folders and {f.name for f in folders} <= set(_SPLIT_FOLDERS):
        refuse_two_validations(root)
        classes = tuple(sorted({c.name for f in folders for c in _folders(f)}))
        class_folders = [c for f in folders for c in _folders(f)]
        splits = {_SPLIT_FOLDERS[f.name]: entries_by_class(root, f, classes) for f in folders}
    else:
        classes = tuple(f.name for f in folders)
        class_folders = folders
        entries = entries_by_class(root, root, classes)
        train, validation = split_off(entries, validation_share, seed=f"{seed}")
        splits = {"train": train, **({"validation": validation} if validation_share else {})}
    present = {entry.label for entries in splits.values() for entry in entries}
    notes = (
        *note("Classes without an image", [name for label, name in enumerate(classes) if label not in present]),
        *note("Left out, being neither JPEG nor PNG by name", _others(root, class_folders)),
        *note("Left out, lying in no class's folder", _astray(root, {root, *(c.parent for c in class_folders)})),
    )
    if not any(splits.values()):
        raise CliError(
            " ".join((f"{root}: there should be JPEG or PNG images in a folder for each class, found none.", *notes))
        )
    return ImageFolder(root=root, splits=splits, classes=classes, notes=notes)


def refuse_two_validations(root: Path) -> None:
    """Raise CliError where one of two folders would be lost."""
    if all((root / name).is_dir() for name in ("val", "validation")):
        raise CliError(f"{root}: there should be one folder of the validation, there are two: val and validation.")


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises ValueError for what may have no end, as a pipe."""
    if path.exists() and not path.is_file():
        raise ValueError("should be a file, is a folder, a pipe or a device")
    return path.read_bytes()


def entries_by_class(root: Path, folder: Path, classes: Sequence[str]) -> list[Entry]:
    """Return the images below ``folder/<class>``, keyed by their path below ``root``; a class may be absent."""
    return [
        Entry(path.relative_to(root).as_posix(), label)
        for label, name in enumerate(classes)
        for path in image_files(folder / _writable(name))
    ]


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder, by name; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(
        folder / _writable(p.name)
        for p in folder.iterdir()
        if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
    )


def _folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def _writable(name: str) -> str:
    """Return a name. Raises CliError for one that is no text, and so cannot be written down anywhere."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CliError(f"{shown(name)}: the names of folders and images should be UTF-8; rename it.") from error
    return name


def _others(root: Path, class_folders: Iterable[Path]) -> list[str]:
    """Return what lies beside images, in the folders of classes, and is not taken; hidden files are not meant."""
    return [
        path.relative_to(root).as_posix()
        for folder in class_folders
        for path in sorted(folder.iterdir())
        if path.suffix.lower() not in SUFFIXES and not path.name.startswith(".") and path.name not in _NOBODY_S
    ]


def _astray(root: Path, folders: Iterable[Path]) -> list[str]:
    return [path.relative_to(root).as_posix() for folder in sorted(folders) for path in image_files(folder)]


def note(what: str, names: Sequence[str]) -> list[str]:
    """Return a line that counts and names an example, none where there is nothing to tell."""
    return [f"{what}: {len(names):,}, as {shown(names[0])}."] if names else []
