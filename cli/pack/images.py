"""Folders of images: one folder for each class, their JPEG and PNG bytes kept as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError
from cli.pack.collection import Entry, split_off
from function_app.validation.example_message import Value
from shared.example_schema import FeatureSpec

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """A collection of images with a label each."""

    root: Path
    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """Image bytes and a label."""
        return (
            FeatureSpec(name="image", kind="bytes", encoding="image"),
            FeatureSpec(name="label", kind="int64", minimum=0, maximum=len(self.classes) - 1),
        )

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        return {"image": (self.root / entry.key).read_bytes(), "label": entry.label}


def find_images(root: Path, *, validation_share: float, seed: int) -> ImageFolder:
    """Return the images of ``root/<class>/`` or ``root/<split>/<class>/``. Raises CliError where there are none."""
    folders = _folders(root)
    if folders and {f.name for f in folders} <= set(_SPLIT_FOLDERS):
        classes = tuple(sorted({c.name for f in folders for c in _folders(f)}))
        splits = {_SPLIT_FOLDERS[f.name]: entries_by_class(root, f, classes) for f in folders}
    else:
        classes = tuple(f.name for f in folders)
        entries = entries_by_class(root, root, classes)
        train, validation = split_off(entries, validation_share, seed=f"{seed}")
        splits = {"train": train, **({"validation": validation} if validation_share else {})}
    if not any(splits.values()):
        raise CliError(f"{root}: there should be JPEG or PNG images in a folder for each class, found none.")
    return ImageFolder(root=root, splits=splits, classes=classes)


def entries_by_class(root: Path, folder: Path, classes: Sequence[str]) -> list[Entry]:
    """Return the images below ``folder/<class>``, keyed by their path below ``root``; a class may be absent."""
    return [
        Entry(path.relative_to(root).as_posix(), label)
        for label, name in enumerate(classes)
        for path in image_files(folder / name)
    ]


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder, by name; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def _folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
