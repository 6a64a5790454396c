"""ImageNet as it is distributed: ``train/<synset>/*.JPEG``, validation in one folder with a file of labels.

The features have the names that ImageNet's TFRecords have had since 2016 (build_imagenet_data.py of
tensorflow/models), so that older shards can be used too. Their labels are 1 to 1000; label 0 is the background.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError
from cli.pack.collection import Entry, note
from cli.pack.images import entries_by_class, image_files, read_file, refuse_two_validations
from shard_validation.tfrecord.message import Value
from shared.manifest import FeatureSpec
from shared.safe_text import one_line

IMAGE, LABEL = "image/encoded", "image/class/label"
SYNSET, FILENAME = "image/class/synset", "image/filename"
BACKGROUND = "background"
"""Name of label 0, which no image has."""
_VALIDATION_FOLDERS = ("validation", "val")
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class ImageNet:
    """The collection: image, label, synset and file name."""

    root: Path
    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    """The background, then the synsets in the order of their labels."""
    notes: Sequence[str]
    stamp: str = ""

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """Image bytes (one JPEG by name is a PNG), label, synset and file name."""
        return (
            FeatureSpec(name=IMAGE, kind="bytes", encoding="image"),
            FeatureSpec(name=LABEL, kind="int64", minimum=1, maximum=len(self.classes) - 1),
            FeatureSpec(name=SYNSET, kind="bytes", encoding="text"),
            FeatureSpec(name=FILENAME, kind="bytes", encoding="text"),
        )

    def where(self, entry: Entry) -> str:
        """See Collection."""
        return one_line(str(self.root / entry.key))

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        path = self.root / entry.key
        values = (read_file(path), entry.label, self.classes[entry.label], path.name)
        return dict(zip((IMAGE, LABEL, SYNSET, FILENAME), values, strict=True))


def find_imagenet(root: Path, synset_file: Path, validation_labels: Path | None) -> ImageNet:
    """Return what is below ``root``. Raises CliError if it is not laid out as ImageNet."""
    classes = (BACKGROUND, *read_synsets(synset_file))
    train = entries_by_class(root, root / "train", classes)
    if not train:
        raise CliError(f"{root / 'train'}: there is no image in a folder named like a synset of {synset_file}.")
    refuse_two_validations(root)
    splits: dict[str, Sequence[Entry]] = {"train": train}
    folder = next((root / name for name in _VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if folder is not None:
        splits["validation"] = _validation(root, folder, classes, validation_labels)
    present = {entry.label for entry in train}
    folders = [f.name for f in sorted((root / "train").iterdir()) if f.is_dir() and not f.name.startswith(".")]
    absent = [synset for label, synset in enumerate(classes) if label and label not in present]
    notes = (
        *note("Synsets without an image in train", absent),
        *note(
            f"Folders left out because {synset_file} does not list them", [f for f in folders if f not in classes[1:]]
        ),
    )
    return ImageNet(root=root, splits=splits, classes=classes, notes=notes)


def read_synsets(path: Path) -> tuple[str, ...]:
    """Return the synsets in the order of their labels: the first word of each line."""
    synsets = tuple(line.split()[0] for line in _lines(path) if line.strip())
    if not synsets or len(set(synsets)) != len(synsets):
        raise CliError(
            f"{path}: is empty or lists a synset twice ({len(synsets)} lines). Each line must begin with one synset."
        )
    return synsets


def _validation(root: Path, folder: Path, classes: Sequence[str], labels: Path | None) -> list[Entry]:
    files = image_files(folder)
    if not files:
        return entries_by_class(root, folder, classes)
    if labels is None:
        raise CliError(
            f"{folder}: all images are in one folder. Pass a file with their synsets to --validation-labels."
        )
    by_name = _labels_by_name(labels, files)
    numbers = {synset: label for label, synset in enumerate(classes) if label}
    entries = []
    for path in files:
        synset = by_name.get(path.stem)
        if synset not in numbers:
            raise CliError(f"{labels}: the synset of {path.name}, {synset!r}, is not in the file of synsets.")
        entries.append(Entry(path.relative_to(root).as_posix(), numbers[synset]))
    return entries


def _labels_by_name(labels: Path, files: Sequence[Path]) -> dict[str, str]:
    """Read Kaggle's ``LOC_val_solution.csv``, or a list of synsets in the order of the sorted files."""
    lines = _lines(labels)
    if lines and lines[0].startswith("ImageId,"):
        return {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(lines)}
    synsets = [line.strip() for line in lines if line.strip()]
    if len(synsets) != len(files):
        raise CliError(f"{labels}: expected {len(files)} lines, one for each image, got {len(synsets)}.")
    return {path.stem: synset for path, synset in zip(files, synsets, strict=True)}


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: cannot be read as text: {error}") from error
