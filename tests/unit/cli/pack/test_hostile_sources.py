"""`landfall pack` of sources that are not as they should be: nothing is lost unnoticed, and nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.pack.packer import locked
from tests.support.nih_xrays import write_nih
from tests.support.pack_sources import write_cifar, write_imagenet, write_images
from tests.support.processes import REPOSITORY
from tests.support.shards import image_bytes
from tests.support.terminal import landfall

Capture = pytest.CaptureFixture[str]


def test_one_at_a_time(capsys: Capture, tmp_path: Path) -> None:
    """While one command packs into a folder, another is refused, and harms nothing there."""
    source, target = write_images(tmp_path / "source"), tmp_path / "shards"
    (tmp_path / "t.csv").write_text("a\n1\n")
    with locked(target):
        (target / ".landfall-pack.rows").write_text("of the first")
        for kind, path in (("images", source), ("table", tmp_path / "t.csv")):
            status, _, err = landfall(capsys, "pack", kind, path, "--to", target, "--shards", 1)
            assert (
                1,
                f"Error: {target}: another command is packing into this folder. Wait for it, or stop it.\n",
            ) == (
                status,
                err,
            )
        assert "of the first" == (target / ".landfall-pack.rows").read_text()
    status, _, _ = landfall(capsys, "pack", "images", source, "--to", target, "--shards", 1)
    assert 0 == status


@pytest.mark.parametrize("kind", ["images", "imagenet"])
def test_two_folders_of_one_split(capsys: Capture, tmp_path: Path, kind: str) -> None:
    """Folders val and validation side by side are refused: one of them would be lost."""
    write = {"images": lambda f: write_images(f / "train"), "imagenet": write_imagenet}[kind]
    write(tmp_path / "source")
    for name in ("val", "validation"):
        (tmp_path / "source" / name).mkdir(exist_ok=True)
    options = ["--synsets", tmp_path / "source" / "synsets.txt"] if kind == "imagenet" else []
    status, _, err = landfall(capsys, "pack", kind, tmp_path / "source", "--to", tmp_path / "shards", *options)
    assert (1, True) == (status, "the folders val and validation both exist" in err)


def test_target_in_source(capsys: Capture, tmp_path: Path) -> None:
    """Shards do not go among the folders of the classes, where the next packing would take theirs for one."""
    source = write_images(tmp_path / "source")
    for target in (source, source / "shards"):
        status, _, err = landfall(capsys, "pack", "images", source, "--to", target)
        assert (2, True) == (status, f"--to {target} is inside {source}" in err)
    assert ["cat", "dog"] == sorted(p.name for p in source.iterdir())


def test_target_that_leads_to_itself(capsys: Capture, tmp_path: Path) -> None:
    """Its folder cannot be created, and the message says so."""
    (tmp_path / "source").mkdir()
    target = tmp_path / "loop"
    target.symlink_to(target)
    status, _, err = landfall(capsys, "pack", "images", tmp_path / "source", "--to", target)
    assert (1, True) == (status, "unexpected" not in err), err


def test_no_file(capsys: Capture, tmp_path: Path) -> None:
    """A pipe with an image's name is refused instead of waited for; a folder and a loop of links are named, too."""
    source = write_images(tmp_path / "source")
    path = source / "cat" / "x.jpg"
    problem = "it is a folder, a pipe or a device, not a file"
    for make in (os.mkfifo, os.mkdir):
        make(path)
        status, _, err = landfall(capsys, "pack", "images", source, "--to", tmp_path / "shards", "--shards", 1)
        assert (1, True) == (status, f"{path}: cannot be packed: {problem}" in err)
        path.rmdir() if path.is_dir() else path.unlink()
    path.symlink_to(path.name)
    status, _, err = landfall(capsys, "pack", "images", source, "--to", tmp_path / "shards", "--shards", 1)
    assert (1, f"Error: {path}: cannot be packed: Too many levels of symbolic links\n") == (status, err)


def test_names_that_are_no_text(capsys: Capture, tmp_path: Path) -> None:
    """A folder or image whose name is not UTF-8 is named, readably."""
    for i, bad in enumerate((b"cat/\xff.jpg", b"\xfe")):
        source = write_images(tmp_path / f"{i}")
        path = source / os.fsdecode(bad)
        path.write_bytes(image_bytes("JPEG")) if path.suffix else path.mkdir()
        status, _, err = landfall(capsys, "pack", "images", source, "--to", tmp_path / "shards")
        assert (1, True) == (status, err.endswith("the name is not UTF-8. Rename the folder or image.\n"))


def test_files_that_are_left_out_are_reported(capsys: Capture, tmp_path: Path) -> None:
    """Files that are no images by name, images outside of classes and empty classes are counted and named."""
    source = write_images(tmp_path / "source")
    (source / "empty").mkdir()
    (source / "stray.png").write_bytes(image_bytes("PNG"))
    (source / "dog" / "new.webp").write_bytes(b"")
    for hidden in (".DS_Store", "Thumbs.db"):
        (source / "dog" / hidden).write_bytes(b"")
    status, out, _ = landfall(
        capsys, "pack", "images", source, "--no-init", "--to", tmp_path / "shards", "--shards", 1
    )
    drawn, *others = out.splitlines()[1:]
    assert "Drew 1 of 24 examples for the split validation, by their names and --seed" in drawn
    assert [
        "Classes without an image: 1, such as empty.",
        "Files left out because their names do not end in .jpg, .jpeg or .png: 2, such as cat/notes.txt.",
        "Images left out because they are in no folder of a class: 1, such as stray.png.",
    ] == others
    assert 0 == status


def test_incomplete_downloads_are_reported(capsys: Capture, tmp_path: Path) -> None:
    """CIFAR-10's missing batches, ImageNet's synsets without images and folders without a synset are named."""
    cifar = write_cifar(tmp_path / "cifar")
    (cifar / "data_batch_3").unlink()
    _, out, _ = landfall(capsys, "pack", "cifar10", cifar, "--no-init", "--to", tmp_path / "a", "--shards", 1)
    assert ["Missing batches: 1, such as data_batch_3."] == out.splitlines()[1:]
    imagenet = write_imagenet(tmp_path / "imagenet")
    (imagenet / "train" / "n01440764").rename(imagenet / "train" / "n0144076")
    arguments = ["--synsets", imagenet / "synsets.txt", "--validation-labels", imagenet / "labels.txt"]
    _, out, _ = landfall(
        capsys, "pack", "imagenet", imagenet, "--no-init", "--to", tmp_path / "b", "--shards", 1, *arguments
    )
    assert [
        "Synsets without an image in train: 1, such as n01440764.",
        f"Folders left out because {imagenet / 'synsets.txt'} does not list them: 1, such as n0144076.",
    ] == out.splitlines()[1:]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,a\n2,\n", ["--label", "y"], "row 1 (the first is 0) has no label in column y"),
        ("x,x\n1,a\n2,b\n", [], "several columns have the same name: x"),
        ("x\n1\n2\n", ["--label", "y"], "there is no column 'y' for --label. The columns are x."),
        (",".join(f"c{i}" for i in range(1000)) + "\n", ["--label", "y"], "c9 and 990 more."),
    ],
)
def test_tables(capsys: Capture, tmp_path: Path, text: str, options: list[str], message: str) -> None:
    """A table's problem is reported with the row or the columns, in one line."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    status, _, err = landfall(capsys, "pack", "table", path, "--to", tmp_path / "shards", "--shards", 1, *options)
    assert (1, True) == (status, message in err)


def test_nulls_in_lists(capsys: Capture, tmp_path: Path) -> None:
    """A list with a hole in it is named by row and column."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [[1, 2], [1, None]]}), path)
    _, _, err = landfall(capsys, "pack", "table", path, "--to", tmp_path / "shards", "--shards", 1)
    message = "row 1 (the first is 0): cannot be packed: columns whose lists contain nulls: n"
    assert f"Error: {path}, {message}\n" == err


def test_changed_table(capsys: Capture, tmp_path: Path) -> None:
    """An interrupted packing does not go on with another table of as many rows: shards of both would lie together."""
    path, target = tmp_path / "t.csv", tmp_path / "shards"
    rows = [f"{i}" for i in range(40)]
    path.write_text("\n".join(["x", *rows[:-1], "nan", ""]))
    landfall(capsys, "pack", "table", path, "--to", target, "--shards", 10)
    assert 0 < len(list(target.glob("*.tfrecord"))) < 10
    path.write_text("\n".join(["x", *rows, ""]))
    status, _, err = landfall(capsys, "pack", "table", path, "--to", target, "--shards", 10)
    assert (1, True) == (status, "shards of another source or other options" in err)


def test_share_that_is_no_number(capsys: Capture, tmp_path: Path) -> None:
    """--validation-share nan is wrong usage."""
    source = write_images(tmp_path / "source")
    arguments = ["--to", tmp_path / "shards", "--validation-share", "nan"]
    status, _, err = landfall(capsys, "pack", "images", source, *arguments)
    assert (2, True) == (status, "nan is not a number" in err)


def test_no_room_for_a_table(tmp_path: Path) -> None:
    """If a table's values do not fit beside the shards, the message names the folder, not the table."""
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "1\n" * 100_000)
    script = "import sys; from cli.main import main; main(sys.argv[1:])"
    arguments = ["pack", "table", str(path), "--to", str(tmp_path / "shards")]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 20; exec "$@"', "sh", sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert (1, True) == (
        ended.returncode,
        f"{tmp_path / 'shards'}: has no space for a copy of the values of {path}" in ended.stderr,
    )
    assert [] == list((tmp_path / "shards").iterdir())


def test_marks_of_byte_order(capsys: Capture, tmp_path: Path) -> None:
    """A mark that an editor put before a list or a table is no part of the first word."""
    imagenet, nih = write_imagenet(tmp_path / "imagenet"), write_nih(tmp_path / "nih", patients=10)
    for path in (imagenet / "synsets.txt", next(nih.glob("*.csv"))):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    options = ["--synsets", imagenet / "synsets.txt", "--validation-labels", imagenet / "labels.txt"]
    for source, arguments in ((imagenet, ["imagenet", *options]), (nih, ["xrays"])):
        target = tmp_path / f"{source.name}-shards"
        status, out, _ = landfall(
            capsys, "pack", arguments[0], source, "--no-init", "--to", target, "--shards", 1, *arguments[1:]
        )
        assert (0, 1) == (status, len(out.splitlines()))


def test_a_list_that_names_nothing(capsys: Capture, tmp_path: Path) -> None:
    """Images that only the list of the test knows are counted."""
    source = write_nih(tmp_path / "nih", patients=10)
    with (source / "test_list.txt").open("a") as listed:
        listed.write("\nnowhere.png\n")
    _, out, _ = landfall(capsys, "pack", "xrays", source, "--no-init", "--to", tmp_path / "shards", "--shards", 1)
    assert ["Images of test_list.txt that are not in the table: 1, such as nowhere.png."] == out.splitlines()[1:]


def test_cifar_without_names(capsys: Capture, tmp_path: Path) -> None:
    """Batches without the file of the classes' names are not reported as missing: that file is named."""
    source = write_cifar(tmp_path / "source")
    (source / "batches.meta").unlink()
    status, _, err = landfall(capsys, "pack", "cifar10", source, "--to", tmp_path / "shards")
    assert (1, True) == (status, err.startswith(f"Error: {source / 'batches.meta'}: is not a file of CIFAR-10"))


def test_wrong_layout(capsys: Capture, tmp_path: Path) -> None:
    """If no image is found, the message lists what exists: classes may be one folder too deep."""
    write_images(tmp_path / "source" / "photos")
    status, _, err = landfall(capsys, "pack", "images", tmp_path / "source", "--to", tmp_path / "shards")
    assert (1, True) == (status, "train/cat/1.png. Classes without an image: 1, such as photos." in err)
