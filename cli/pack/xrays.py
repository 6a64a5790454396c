"""NIH's ChestX-ray14 as it is distributed: a table of findings, PNG files in numbered folders, a list for the test.

Source: Wang et al. 2017, ChestX-ray8 (arXiv 1705.02315), and the README of its download,
https://nihcc.app.box.com/v/ChestXray-NIHCC. A patient's images look alike, so all of them go into one split: a model
would otherwise recognise patients of its validation instead of judging them.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Collection as Items
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.errors import CliError
from cli.pack.collection import Entry, note
from cli.pack.images import read_file
from shard_validation.tfrecord.message import Value
from shared.manifest import FeatureSpec
from shared.safe_text import one_line

TABLES = "Data_Entry_2017*.csv"
TEST_LIST = "test_list.txt"
IMAGE, FINDINGS, PATIENT = "Image Index", "Finding Labels", "Patient ID"
"""Columns of the table."""
_SEPARATOR = "|"
_GREY = "L"
_MAX_TABLE_BYTES = 256 << 20
_MAX_PIXELS = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class XRay:
    """One row of the table."""

    name: str
    findings: frozenset[str]
    patient: int


@dataclass(frozen=True, kw_only=True)
class XRays:
    """A collection of images, each with whether it shows the finding, and its patient."""

    root: Path
    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    size: int | None
    patients: Mapping[str, int] = field(repr=False)
    """Key of an entry → number of the patient."""
    notes: Sequence[str]
    stamp: str = ""

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """A grey PNG, a label, and the patient, so that users can check that no two splits share one."""
        return (
            FeatureSpec(name="image", kind="bytes", encoding="png", shape=(self.size, self.size, 1)),
            FeatureSpec(name="label", kind="int64", minimum=0, maximum=1),
            FeatureSpec(name="patient", kind="int64", minimum=0),
        )

    def where(self, entry: Entry) -> str:
        """See Collection."""
        return one_line(str(self.root / entry.key))

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        image = _grey_png(read_file(self.root / entry.key), self.size)
        return {"image": image, "label": entry.label, "patient": self.patients[entry.key]}


def find_xrays(root: Path, *, finding: str, size: int | None, validation_share: float, seed: int) -> XRays:
    """Return the images below ``root``. Raises CliError for another layout than NIH's."""
    rows = _read_table(root)
    known = {name for row in rows for name in row.findings}
    if finding not in known:
        raise CliError(f"{root}: the table has no finding {finding!r}. Pass one of {sorted(known)} to --finding.")
    paths = _paths(root, rows)
    splits = {
        split: [Entry(paths[row.name], int(finding in row.findings)) for row in members]
        for split, members in _splits(root, rows, finding, validation_share, seed).items()
    }
    return XRays(
        root=root,
        splits=splits,
        classes=(f"no {finding}", finding),
        size=size,
        patients={paths[row.name]: row.patient for row in rows},
        notes=note(f"Images of {TEST_LIST} that are not in the table", sorted(_listed(root) - paths.keys())),
    )


def _read_table(root: Path) -> list[XRay]:
    found = sorted(root.glob(TABLES))
    if len(found) != 1:
        raise CliError(f"{root}: expected one table {TABLES}, got {len(found)}.")
    lines = csv.DictReader(io.StringIO(_text(found[0])))
    if missing := {IMAGE, FINDINGS, PATIENT} - set(lines.fieldnames or ()):
        raise CliError(f"{found[0]}: columns {sorted(missing)} are missing.")
    rows = [_row(found[0], number, line) for number, line in enumerate(lines, 2)]
    if len({row.name for row in rows}) != len(rows) or not rows:
        raise CliError(f"{found[0]}: is empty or lists an image twice ({len(rows)} lines).")
    return rows


def _row(path: Path, number: int, line: Mapping[str, str | None]) -> XRay:
    name, findings, patient = (line[column] or "" for column in (IMAGE, FINDINGS, PATIENT))
    if not name or not findings or not patient.isdecimal():
        raise CliError(
            f"{path}: line {number}: expected an image, its findings and the patient's number, "
            f"got {name!r}, {findings!r} and {patient!r}."
        )
    return XRay(name=name, findings=frozenset(findings.split(_SEPARATOR)), patient=int(patient))


def _paths(root: Path, rows: Iterable[XRay]) -> dict[str, str]:
    """Return each image's path below the root: the archives unpack to images_001/images/ and so on."""
    paths = {path.name: path.relative_to(root).as_posix() for path in root.rglob("*.png")}
    if absent := [row.name for row in rows if row.name not in paths]:
        raise CliError(
            f"{root}: {len(absent)} images of the table are missing, such as {absent[0]}. Are all archives unpacked?"
        )
    return paths


def _listed(root: Path) -> set[str]:
    """Return the names of the images of the test split; none if there is no list."""
    return set(_text(root / TEST_LIST).split()) if (root / TEST_LIST).is_file() else set()


def _splits(
    root: Path, rows: Sequence[XRay], finding: str, validation_share: float, seed: int
) -> dict[str, list[XRay]]:
    """Return the rows of each split. Raises CliError if the list of the test split divides a patient."""
    listed = _listed(root)
    test = [row for row in rows if row.name in listed]
    rest = [row for row in rows if row.name not in listed]
    if divided := {row.patient for row in test} & {row.patient for row in rest}:
        raise CliError(
            f"{root / TEST_LIST}: lists some but not all images of {len(divided)} patients, such as {min(divided)}. "
            "List all images of a patient or none."
        )
    chosen = _some_patients(rest, finding, validation_share, seed)
    return {
        "train": [row for row in rest if row.patient not in chosen],
        "validation": [row for row in rest if row.patient in chosen],
        **({"test": test} if test else {}),
    }


def _some_patients(rows: Iterable[XRay], finding: str, share: float, seed: int) -> Items[int]:
    """Return a share of the patients: the same share of those with the finding and of those without it."""
    has: dict[int, bool] = {}
    for row in rows:
        has[row.patient] = has.get(row.patient, False) or finding in row.findings
    chosen: set[int] = set()
    for group in (True, False):
        patients = sorted(patient for patient, shows in has.items() if shows is group)
        random.Random(f"{seed}/{group}").shuffle(patients)  # noqa: S311 - an order, not a secret
        chosen.update(patients[: round(share * len(patients))])
    return chosen


def _grey_png(content: bytes, size: int | None) -> bytes:
    """Return a grey PNG, the same bytes where possible. Some files store grey as colours with transparency."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        if image.width * image.height > _MAX_PIXELS:
            raise ValueError(f"it has {image.width} x {image.height} pixels, more than {_MAX_PIXELS:,}")
        wanted = image.size if size is None else (size, size)
        if image.format == "PNG" and image.mode == _GREY and image.size == wanted:
            return content
        if size is not None and image.width != image.height:
            raise ValueError(f"it cannot be scaled: it is not square but {image.width} x {image.height}")
        buffer = io.BytesIO()
        image.convert(_GREY).resize(wanted, Image.Resampling.LANCZOS).save(buffer, format="PNG")
    return buffer.getvalue()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TABLE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: cannot be read as text: {error}") from error
