"""`landfall pack xrays`: NIH's table and folders become shards, and no patient is in two of the splits."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.support.nih_xrays import SIDE, write_nih
from tests.support.pack_sources import records
from tests.support.terminal import landfall


def packed(capsys: pytest.CaptureFixture[str], source: Path, target: Path, *options: object) -> str:
    """Pack and return the output; it must succeed."""
    status, out, err = landfall(capsys, "pack", "xrays", source, "--to", target, "--shards", 2, *options)
    assert (0, "") == (status, err)
    return out


def of_splits(target: Path) -> dict[str, list[dict[str, object]]]:
    """Return the examples of each split."""
    found: dict[str, list[dict[str, object]]] = {}
    for shard in sorted(target.glob("*.tfrecord")):
        found.setdefault(shard.name.partition("-")[0], []).extend(records(shard))
    return found


def test_the_splits_share_no_patient(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The test is NIH's own; of the other patients the share goes to the validation, with all their images."""
    packed(capsys, write_nih(tmp_path / "nih", patients=40), tmp_path / "shards", "--validation-share", 0.25)
    patients = {split: {r["patient"] for r in found} for split, found in of_splits(tmp_path / "shards").items()}
    assert {"train": 24, "validation": 8, "test": 8} == {split: len(found) for split, found in patients.items()}
    assert 40 == len(set.union(*patients.values()))


def test_label_1_is_the_finding_alone_or_among_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`Cardiomegaly|Effusion` shows an effusion; `No Finding` and `Cardiomegaly` do not."""
    source = write_nih(tmp_path / "nih", patients=12)
    packed(capsys, source, tmp_path / "shards")
    lines = next(source.glob("*.csv")).read_text().splitlines()[1:]
    expected = sum("Effusion" in line.split(",")[1].split("|") for line in lines)
    labels = [r["label"] for found in of_splits(tmp_path / "shards").values() for r in found]
    assert (expected, len(lines)) == (sum(map(int, map(str, labels))), len(labels))
    assert ["no Effusion", "Effusion"] == json.loads((tmp_path / "shards" / "dataset.json").read_text())["classes"]


def test_images_are_kept_and_those_with_colours_become_grey(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A few of NIH's files have four channels, of grey alone; all shards are grey PNG."""
    source = write_nih(tmp_path / "nih", patients=10, coloured=1)
    packed(capsys, source, tmp_path / "shards")
    images = [r["image"] for found in of_splits(tmp_path / "shards").values() for r in found]
    assert {"L"} == {Image.open(io.BytesIO(image)).mode for image in images if isinstance(image, bytes)}
    originals = {path.read_bytes() for path in source.rglob("*.png")}
    assert (len(originals) - 1, 1) == (len(originals & set(images)), len(set(images) - originals))


def test_images_are_scaled_where_a_size_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The size is in dataset.json."""
    packed(capsys, write_nih(tmp_path / "nih", patients=10), tmp_path / "shards", "--size", 16)
    images = [r["image"] for found in of_splits(tmp_path / "shards").values() for r in found]
    assert {(16, 16)} == {Image.open(io.BytesIO(image)).size for image in images if isinstance(image, bytes)}
    stated = json.loads((tmp_path / "shards" / "dataset.json").read_text())["features"][0]
    assert [16, 16, 1] == stated["shape"] != [SIDE, SIDE, 1]


@pytest.mark.parametrize(
    ("damage", "options", "problem"),
    [
        ("table", [], "expected one table Data_Entry_2017*.csv, got 0"),
        ("image", [], "1 images of the table are missing, such as 00000001_000.png. Are all archives"),
        ("patient", [], "line 2: expected an image, its findings and the patient's number"),
        ("twice", [], "lists an image twice"),
        ("column", [], "columns ['Patient ID'] are missing"),
        ("test", [], "lists some but not all images of 1 patients, such as 1"),
        (
            "",
            ["--finding", "Efusion"],
            "the table has no finding 'Efusion'. Pass one of ['Cardiomegaly', 'Effusion', 'No Finding']",
        ),
    ],
)
def test_what_is_not_as_nih_distributes_it_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, damage: str, options: list[str], problem: str
) -> None:
    """One paragraph, and nothing is written."""
    source = write_nih(tmp_path / "nih", patients=10)
    table = next(source.glob("*.csv"))
    lines = table.read_text().splitlines()
    if damage == "table":
        table.unlink()
    if damage == "image":
        next(source.rglob("00000001_000.png")).unlink()
    if damage == "patient":
        table.write_text("\n".join([lines[0], lines[1].replace(",1,", ",one,", 1), *lines[2:]]))
    if damage == "twice":
        table.write_text("\n".join([*lines, lines[1]]))
    if damage == "column":
        table.write_text("\n".join([lines[0].replace("Patient ID", "Patient"), *lines[1:]]))
    if damage == "test":
        (source / "test_list.txt").write_text("00000001_000.png\n")
    status, _, err = landfall(capsys, "pack", "xrays", source, "--to", tmp_path / "shards", *options)
    assert (1, True, False) == (status, problem in err, (tmp_path / "shards").exists()), err
