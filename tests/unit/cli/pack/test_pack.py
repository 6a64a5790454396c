"""`landfall pack`: from images, CIFAR-10, ImageNet and tables; what it writes always validates."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.pack.collection import Entry, deal, split_off
from function_app.config.pipeline_files import load_pipeline
from tests.support.pack_sources import cifar_batch, records, write_cifar, write_imagenet, write_images, write_table
from tests.support.processes import REPOSITORY
from tests.support.terminal import landfall

NO_DRAW = ("--validation-share", 0)
SOURCES: dict[str, tuple[Callable[[Path], Path], list[str], dict[str, int]]] = {
    "images": (write_images, ["--validation-share", "0.25"], {"train": 18, "validation": 6}),
    "cifar10": (write_cifar, [], {"train": 100, "test": 20}),
    "imagenet": (
        write_imagenet,
        ["--synsets", "{}/synsets.txt", "--validation-labels", "{}/labels.txt"],
        {"train": 36, "validation": 6},
    ),
    "table": (write_table, ["--label", "kind", "--validation-share", "0.1"], {"train": 36, "validation": 4}),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_output_validates(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    """Whatever is packed, the shards are accepted as a whole set whose counts hold, and sizes differ by one."""
    write, options, counts = SOURCES[kind]
    source, target = write(tmp_path / "source"), tmp_path / "shards"
    arguments = [option.format(source) for option in options]
    status, out, err = landfall(capsys, "pack", kind, source, "--to", target, "--shards", 4, *arguments)
    assert (0, "") == (status, err)
    assert f"Packed {sum(counts.values())} examples" in out
    status, out, _ = landfall(capsys, "validate", target, "--complete", "--processes", 1)
    assert (0, "accepted    all shards together") == (status, out.splitlines()[-2])
    stated = json.loads((target / "dataset.json").read_text())["splits"]
    assert counts == {split: members["num_records"] for split, members in stated.items()}
    sizes = [s["num_records"] for s in stated["train"]["shards"]]
    assert max(sizes) - min(sizes) <= 1
    assert [] == [p.name for p in target.iterdir() if p.name.startswith(".")]


@pytest.fixture
def clusters(pipelines: Path) -> Path:
    """A folder for pipelines, with clusters."""
    pipelines.mkdir()
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", pipelines)
    return pipelines


def test_packing_ends_with_a_pipeline_that_can_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, clusters: Path
) -> None:
    """Named like the source; its splits are those that were drawn, and the next command is the one after `init`."""
    source, target = write_images(tmp_path / "My Photos", num_images=40), tmp_path / "shards"
    status, out, err = landfall(capsys, "pack", "images", source, "--to", target)
    file = clusters / "my-photos.yaml"
    following = f"Next: landfall validate {target} --complete --pipeline {file}"
    assert (0, "", following) == (status, err, out.splitlines()[-1])
    assert (f"Wrote {file}", True) == (out.splitlines()[3], f"usable  {file}" in out)
    pipeline = load_pipeline(file)
    assert ("my-photos", ["train", "validation"]) == (pipeline.dataset, list(pipeline.data.splits))
    status, out, _ = landfall(capsys, "validate", target, "--complete", "--pipeline", file, "--processes", 1)
    assert (0, True) == (status, "accepted    all shards together" in out)


def test_init_after_packing_finds_the_pipeline_up_to_date(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, clusters: Path
) -> None:
    """Both are the same step: the second one changes nothing, and does not fail."""
    source, file = write_images(tmp_path / "photos", num_images=40), clusters / "photos.yaml"
    landfall(capsys, "pack", "images", source, "--to", tmp_path / "shards")
    before = file.read_bytes()
    status, out, _ = landfall(capsys, "init", tmp_path / "shards", "--dataset", "photos")
    assert (0, f"{file} exists and is up to date", before) == (status, out.splitlines()[0], file.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--dataset", "mine"), "mine.yaml: exists already. Remove it, or pass another file to --pipeline."),
        (
            ("--pipeline", "nowhere/x.yaml"),
            "nowhere: there is no such folder. Create it, with a clusters.yaml in it.",
        ),
    ],
)
def test_packing_does_not_fail_where_no_pipeline_can_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, clusters: Path, arguments: tuple[str, str], problem: str
) -> None:
    """The shards are there; a file of the user's stays as it is, and the command for another one is printed."""
    (clusters / "mine.yaml").write_text("mine")
    source, target = write_table(tmp_path / "source"), tmp_path / "shards"
    status, out, _ = landfall(capsys, "pack", "table", source, "--to", target, "--label", "kind", *arguments)
    *_, said, following = out.splitlines()
    assert (0, True, f"Next: landfall init {target}") == (status, said.endswith(problem), following)
    assert "No pipeline file was written: " in said
    assert ("mine", {"mine.yaml", "clusters.yaml"}) == (
        (clusters / "mine.yaml").read_text(),
        {path.name for path in clusters.iterdir()},
    )


def test_as_json_the_pipeline_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, clusters: Path) -> None:
    """The object lists what to check in it; it is null if no pipeline was requested."""
    source = write_images(tmp_path / "photos", num_images=40)
    _, out, _ = landfall(capsys, "pack", "images", source, "--to", tmp_path / "a", "--json")
    _, without, _ = landfall(capsys, "pack", "images", source, "--to", tmp_path / "b", "--json", "--no-init")
    said, unsaid = json.loads(out), json.loads(without)
    assert (str(clusters / "photos.yaml"), 1) == (said["pipeline"], len(said["check"]))
    assert (None, []) == (unsaid["pipeline"], unsaid["check"])


@pytest.mark.parametrize("kind", SOURCES)
def test_deterministic(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    """The same seed gives the same bytes; another seed gives another order."""
    write, options, _ = SOURCES[kind]
    source = write(tmp_path / "source")
    arguments = [option.format(source) for option in options]
    contents = []
    for i, seed in enumerate((1, 1, 2)):
        landfall(capsys, "pack", kind, source, "--to", tmp_path / f"{i}", "--shards", 2, "--seed", seed, *arguments)
        contents.append([p.read_bytes() for p in sorted((tmp_path / f"{i}").iterdir()) if p.suffix == ".tfrecord"])
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


@pytest.mark.parametrize(
    ("kind", "first_words"),
    [("images", {"cat", "dog"}), ("cifar10", {"data_batch_1", "test_batch"}), ("table", {"row"})],
)
def test_the_names_of_what_went_into_a_shard_are_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, first_words: set[str]
) -> None:
    """One for each record, below the source: the folders of this machine are not stored."""
    write, options, counts = SOURCES[kind]
    source, target = write(tmp_path / "source"), tmp_path / "shards"
    landfall(capsys, "pack", kind, source, "--to", target, "--shards", 4, *options)
    stated = json.loads((target / "dataset.json").read_text())["splits"]
    shards = [shard for split in stated.values() for shard in split["shards"]]
    names = [name for shard in shards for name in shard["sources"]]
    assert [s["num_records"] for s in shards] == [len(s["sources"]) for s in shards]
    assert sum(counts.values()) == len(set(names))
    assert {re.split("[/# ]", name)[0] for name in names} <= first_words | {f"data_batch_{i}" for i in range(6)}


def test_names_are_in_the_order_of_the_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The bytes of the named file are the record's."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    landfall(capsys, "pack", "images", source, "--to", target, "--shards", 2)
    for shard in json.loads((target / "dataset.json").read_text())["splits"]["train"]["shards"]:
        packed = [record["image"] for record in records(target / shard["name"])]
        assert packed == [(source / name).read_bytes() for name in shard["sources"]]


def test_names_beyond_the_bound_are_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whole shards, so that what there is stays in order; the shards themselves are as without the bound."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    monkeypatch.setattr("cli.pack.packer.MAX_SOURCES_BYTES", 200)
    assert 0 == landfall(capsys, "pack", "images", source, "--to", target, "--shards", 4)[0]
    shards = json.loads((target / "dataset.json").read_text())["splits"]["train"]["shards"]
    assert (4, 1) == (len(shards), sum("sources" in shard for shard in shards))
    assert 0 == landfall(capsys, "validate", target, "--complete", "--processes", 1)[0]


def test_image_bytes_are_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Images are packed as the files hold them, labelled by the sorted names of their folders."""
    source = write_images(tmp_path / "source")
    landfall(capsys, "pack", "images", source, "--to", tmp_path / "shards", "--shards", 3)
    packed = {(r["label"], r["image"]) for shard in (tmp_path / "shards").glob("*.tfrecord") for r in records(shard)}
    expected = {
        (label, path.read_bytes())
        for label, name in enumerate(("cat", "dog"))
        for path in (source / name).iterdir()
        if path.suffix != ".txt"
    }
    assert expected == packed
    assert ["cat", "dog"] == json.loads((tmp_path / "shards" / "dataset.json").read_text())["classes"]


def test_folders_of_splits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Folders named as splits are splits; a class that one of them lacks keeps its label."""
    write_images(tmp_path / "source" / "train", classes=("a", "b"))
    write_images(tmp_path / "source" / "val", classes=("b",))
    landfall(capsys, "pack", "images", tmp_path / "source", "--to", tmp_path / "shards", "--shards", 1)
    (validation,) = (tmp_path / "shards").glob("validation-*.tfrecord")
    assert {1} == {r["label"] for r in records(validation)}


def test_cifar_pixels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CIFAR-10's planes become pixels of height, width and channels."""
    source = write_cifar(tmp_path / "source")
    landfall(capsys, "pack", "cifar10", source, "--to", tmp_path / "shards", "--shards", 5)
    batch = cifar_batch(5)
    expected = {
        (label, row.reshape(3, 32, 32).transpose(1, 2, 0).tobytes())
        for row, label in zip(batch[b"data"], batch[b"labels"], strict=True)
    }
    (test,) = (tmp_path / "shards").glob("test-*.tfrecord")
    assert expected == {(r["label"], r["image"]) for r in records(test)}


class Harmful:
    """Runs a command where it is unpickled by an unpickler that runs code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Ask for a harmful name."""
        return Path.touch, (self.path,)  # type: ignore[return-value]


def test_harmful_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A batch that asks for anything but its array is refused, and nothing of it is run."""
    source = write_cifar(tmp_path / "source")
    (source / "test_batch").write_bytes(pickle.dumps({b"data": Harmful(tmp_path / "harm")}))
    status, _, err = landfall(capsys, "pack", "cifar10", source, "--to", tmp_path / "shards")
    assert (1, False) == (status, (tmp_path / "harm").exists())
    assert "which a batch does not need" in err


def test_resumes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A run that stopped at a broken image goes on once it is corrected: finished shards are not written again."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    broken = source / "dog" / "7.png"
    content = broken.read_bytes()
    broken.write_bytes(content[:30])
    status, _, err = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 6, *NO_DRAW)
    assert (1, True) == (
        status,
        f"Error: {source}/dog/7.png: would be rejected (image_truncated): image: expected" in err,
    )
    finished = {p.name: p.stat().st_ino for p in target.glob("*.tfrecord")}
    broken.write_bytes(content)
    status, _, _ = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 6, *NO_DRAW)
    assert 0 == status
    assert finished == {name: (target / name).stat().st_ino for name in finished}
    assert 0 < len(finished) < len(list(target.glob("*.tfrecord"))) == 6


def test_damaged_shard_is_written_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Going on, a finished shard whose bytes changed meanwhile is written again."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    last = source / "dog" / "9.png"
    content = last.read_bytes()
    last.write_bytes(b"")
    landfall(capsys, "pack", "images", source, "--to", target, "--shards", 6)
    last.write_bytes(content)
    for shard in target.glob("*.tfrecord"):
        shard.write_bytes(bytes(shard.stat().st_size))
    landfall(capsys, "pack", "images", source, "--to", target, "--shards", 6)
    status, _, _ = landfall(capsys, "validate", target, "--complete", "--processes", 1)
    assert 0 == status


def test_nothing_finished_is_nothing_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """If no shard was finished, other images or options start again: a broken image may simply be removed."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    broken = source / "cat" / "0.JPEG"
    broken.write_bytes(broken.read_bytes()[:100])
    status, _, err = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 1, *NO_DRAW)
    assert (1, True) == (status, "would be rejected (image_truncated): image: expected" in err)
    broken.unlink()
    status, out, _ = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 1, *NO_DRAW)
    assert (0, True) == (status, "Packed 23 examples into 1 shard," in out)


def test_images_in_class_folders_get_a_validation_on_defaults(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """This includes a train folder without other splits, but not one beside another split."""
    classes = write_images(tmp_path / "source")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "train").symlink_to(classes)
    (tmp_path / "both").mkdir()
    for split in ("train", "test"):
        (tmp_path / "both" / split).symlink_to(classes)
    packed = []
    for source in (classes, tmp_path / "alone", tmp_path / "both"):
        target = tmp_path / f"{source.name}-shards"
        status, out, err = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 2)
        splits = json.loads((target / "dataset.json").read_text())["splits"]
        packed.append((status, err, sorted(splits), "examples for the split validation, by their names" in out))
    drawn, stated = (0, "", ["train", "validation"], True), (0, "", ["test", "train"], False)
    assert [drawn, drawn, stated] == packed


def test_other_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder that was begun with other options, or holds anything else, is left alone."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    (source / "dog" / "9.png").write_bytes(b"")
    landfall(capsys, "pack", "images", source, "--to", target, "--shards", 6)
    status, _, err = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 5)
    assert (1, True) == (status, "shards of another source or other options" in err)
    status, _, err = landfall(capsys, "pack", "images", source, "--to", source)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "dataset.json").write_text("mine")
    status, _, err = landfall(capsys, "pack", "images", source, "--to", tmp_path / "full")
    assert (1, True) == (status, "is not empty: it holds dataset.json. Pass another folder" in err)
    assert "mine" == (tmp_path / "full" / "dataset.json").read_text()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("images", "no class folder has a JPEG or PNG image"),
        ("cifar10", "there is no batch"),
        ("table", "cannot be read as CSV"),
    ],
)
def test_nothing_to_pack(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, message: str) -> None:
    """A source of another kind is reported in one paragraph."""
    source = tmp_path / "source"
    source.touch() if kind == "table" else source.mkdir()
    status, _, err = landfall(capsys, "pack", kind, source, "--to", tmp_path / "shards")
    assert (1, True) == (status, message in err)


def test_missing_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A row of a table without a value is named."""
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3,\n")
    status, _, err = landfall(capsys, "pack", "table", path, "--to", tmp_path / "shards", "--shards", 1)
    assert (1, True) == (
        status,
        f"{path}, row 1 (the first is 0): cannot be packed: columns without a value: b" in err,
    )


def test_deal() -> None:
    """Every shard gets its share of every label."""
    entries = [Entry(f"{i:03d}", i % 3) for i in range(90)]
    shards = deal(entries, 10, seed="0")
    assert [[3, 3, 3]] * 10 == [[sum(e.label == label for e in shard) for label in range(3)] for shard in shards]
    assert shards == deal(entries[::-1], 10, seed="0")


def test_an_example_stays_in_its_split_whatever_else_there_is() -> None:
    """It is drawn by its name and the seed; a larger share adds examples to the validation."""
    entries = [Entry(f"{i:04d}", i % 4) for i in range(2000)]
    splits, fewer, larger = (
        split_off(some, share, seed=0) for some, share in ((entries, 0.1), (entries[::-3], 0.1), (entries, 0.2))
    )
    assert sorted(entries) == sorted(splits["train"] + splits["validation"])
    assert 160 < len(splits["validation"]) < 240
    assert set(fewer["validation"]) < set(splits["validation"]) < set(larger["validation"])
    assert set(fewer["train"]) < set(splits["train"])
    assert splits != split_off(entries, 0.1, seed=1)


@pytest.mark.parametrize(
    ("num", "share", "sizes"), [(1, 0.1, (1, 0)), (2, 0.001, (1, 1)), (3, 0.999, (1, 2)), (9, 0, (9, 0))]
)
def test_both_splits_have_an_example_where_there_are_two(num: int, share: float, sizes: tuple[int, int]) -> None:
    """A small folder can be packed on defaults."""
    splits = split_off([Entry(str(i), 0) for i in range(num)], share, seed=0)
    assert sizes == (len(splits["train"]), len(splits.get("validation", ())))
