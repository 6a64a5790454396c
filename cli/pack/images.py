"""Folders of images, one for each class. The bytes of JPEG and PNG files are kept unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError
from cli.pack.collection import Entry, note, note_of_draw, split_off
from shard_validation.tfrecord.message import Value
from shared.manifest import FeatureSpec
from shared.safe_text import one_line, shown

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_LITTER = frozenset({"Thumbs.db", "desktop.ini"})
"""Files that Windows puts next to images."""


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """A collection of images with one label each."""

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
    """Return the images of ``root/<class>/`` or ``root/<split>/<class>/``. Raises CliError if there are none."""
    folders = _folders(root)
    if folders and {f.name for f in folders} <= set(_SPLIT_FOLDERS):
        refuse_two_validations(root)
        classes = tuple(sorted({c.name for f in folders for c in _folders(f)}))
        class_folders = [c for f in folders for c in _folders(f)]
        splits = {_SPLIT_FOLDERS[f.name]: entries_by_class(root, f, classes) for f in folders}
    else:
        classes = tuple(f.name for f in folders)
        class_folders = folders
        splits = {"train": entries_by_class(root, root, classes)}
    drawn = list[str]()
    if set(splits) == {"train"} and splits["train"]:
        splits = split_off(splits["train"], validation_share, seed=seed)
        drawn = note_of_draw(splits, validation_share, "their names")
    present = {entry.label for entries in splits.values() for entry in entries}
    notes = (
        *drawn,
        *note("Classes without an image", [name for label, name in enumerate(classes) if label not in present]),
        *note(
            "Files left out because their names do not end in .jpg, .jpeg or .png", _not_images(root, class_folders)
        ),
        *note(
            "Images left out because they are in no folder of a class",
            _outside_classes(root, {root, *(c.parent for c in class_folders)}),
        ),
    )
    if not any(splits.values()):
        raise CliError(
            " ".join(
                (
                    f"{root}: no class folder has a JPEG or PNG image, such as cat/1.png or train/cat/1.png.",
                    *notes,
                )
            )
        )
    return ImageFolder(root=root, splits=splits, classes=classes, notes=notes)


def refuse_two_validations(root: Path) -> None:
    """Raise CliError if the folders val and validation both exist."""
    if all((root / name).is_dir() for name in ("val", "validation")):
        raise CliError(f"{root}: the folders val and validation both exist. Remove or merge one of them.")


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises ValueError for anything else: a pipe may have no end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is a folder, a pipe or a device, not a file")
    return path.read_bytes()


def entries_by_class(root: Path, folder: Path, classes: Sequence[str]) -> list[Entry]:
    """Return the images below ``folder/<class>``, keyed by their path below ``root``; a class may be absent."""
    return [
        Entry(path.relative_to(root).as_posix(), label)
        for label, name in enumerate(classes)
        for path in image_files(folder / _writable(name))
    ]


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder, by name; none if there is no such folder."""
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
    """Return a name. Raises CliError for one that is not UTF-8 and so cannot be stored."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CliError(f"{shown(name)}: the name is not UTF-8. Rename the folder or image.") from error
    return name


def _not_images(root: Path, class_folders: Iterable[Path]) -> list[str]:
    """Return the files in the folders of classes that are neither images nor hidden."""
    return [
        path.relative_to(root).as_posix()
        for folder in class_folders
        for path in sorted(folder.iterdir())
        if path.suffix.lower() not in SUFFIXES and not path.name.startswith(".") and path.name not in _LITTER
    ]


def _outside_classes(root: Path, folders: Iterable[Path]) -> list[str]:
    return [path.relative_to(root).as_posix() for folder in sorted(folders) for path in image_files(folder)]
