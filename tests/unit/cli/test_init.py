"""`landfall init`: a pipeline from what a few shards hold, whose comments say where each value came from."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from cli.main import landfall
from function_app.config.pipeline_files import load_pipeline
from shard_validation import MAX_COUNTS_BYTES
from tests.support.pack_sources import write_images
from tests.support.processes import REPOSITORY
from tests.support.shards import framed, image_bytes, labelled

NAMES = ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "validation-00000-of-00001.tfrecord")


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run a command; return its exit status and what it prints."""
    ended = CliRunner().invoke(landfall, [str(argument) for argument in arguments], prog_name="landfall")
    return ended.exit_code, ended.output


def written(tmp_path: Path, *arguments: str | Path, status: int = 0) -> tuple[str, Any]:
    """Run the command into a folder with clusters; return the file's text, and its pipeline where it can be used."""
    folder = tmp_path / "pipelines"
    folder.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", folder)
    file = folder / "made.yaml"
    ended, output = run("init", *arguments, "--to", file)
    assert status == ended, output
    usable = "usable " in output
    return file.read_text(), load_pipeline(file) if usable else output


def shards(tmp_path: Path, *records: bytes, names: tuple[str, ...] = NAMES) -> Path:
    """Write the same records into shards of these names; return their folder."""
    folder = tmp_path / "Shards of Mine"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(framed(records))
    return folder


def with_image(label: int, size: tuple[int, int] = (8, 8), image_format: str = "PNG") -> bytes:
    """A record with a label and an image."""
    return labelled(label, image=image_bytes(image_format, size))


def test_images_in_class_folders_become_a_pipeline_on_defaults_alone(tmp_path: Path) -> None:
    """Pack, init, validate, one by one: without its last step, pack prints it as the next command."""
    write_images(tmp_path / "photos", num_images=40)
    status, output = run("pack", "images", tmp_path / "photos", "--to", tmp_path / "shards", "--no-init")
    assert (0, True) == (status, f"Next: landfall init {tmp_path / 'shards'}" in output.splitlines()[0])
    text, pipeline = written(tmp_path, tmp_path / "shards", "--dataset", "photos")
    assert ("photos", 2, "train", "validation") == (
        pipeline.dataset,
        pipeline.options.num_classes,
        pipeline.options.train_split,
        pipeline.options.validation_split,
    )
    assert "from dataset.json: cat, dog" in text
    assert "evaluated on the training data" not in text
    status, output = run(
        "validate", tmp_path / "shards", "--complete", "--pipeline", tmp_path / "pipelines" / "made.yaml"
    )
    assert (0, True) == (status, "accepted    all shards together" in output), output


def test_of_a_huge_counts_file_no_more_is_read_than_validate_reads(tmp_path: Path) -> None:
    """The records are counted instead: 64 MiB are twice the limit, and a mistyped file may have many GiB."""
    folder = shards(tmp_path, *(labelled(label) for label in range(10)))
    with (folder / "dataset.json").open("wb") as file:
        file.truncate(2 * MAX_COUNTS_BYTES)
    tracemalloc.start()
    text, _ = written(tmp_path, folder)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "counted" in text
    assert peak_bytes < 2 * MAX_COUNTS_BYTES


def test_what_the_records_show_is_written_with_where_it_came_from(tmp_path: Path) -> None:
    """Kinds, shapes, encodings, ranges, splits, and a batch size for the number of records."""
    records = [labelled(label, image=image_bytes("PNG", (8, 8)), weight=label / 4, name=b"a") for label in range(10)]
    text, pipeline = written(tmp_path, shards(tmp_path, *records * 10))
    features = {spec.name: spec for spec in pipeline.data.feature_specs()}
    assert ("bytes", "png", "float", "text") == (
        features["image"].kind,
        features["image"].encoding,
        features["weight"].kind,
        features["name"].encoding,
    )
    assert (0, 9, None) == (features["label"].minimum, features["label"].maximum, features["weight"].maximum)
    assert "# seen 0 to 2.25" in text
    assert "CHECK: is this the whole range? Seen 0 to 9" in text
    assert "splits: [train, validation]  # shards: train 2, validation 1" in text
    assert (10, "shards-of-mine", 2, 8) == (
        pipeline.options.num_classes,
        pipeline.dataset,
        pipeline.train.num_nodes,
        pipeline.options.per_process_batch_size,
    )


def test_images_of_many_sizes_are_resized(tmp_path: Path) -> None:
    """The shape leaves open what differs, and the options state the model's input."""
    records = [with_image(n % 2, (100 + n, 90), ("PNG", "JPEG")[n % 2]) for n in range(10)]
    _, pipeline = written(tmp_path, shards(tmp_path, *records))
    image = pipeline.data.feature_specs()[0]
    assert ("image", "image", 224, 224, "ResNet50") == (
        image.name,
        image.encoding,
        pipeline.options.image_height,
        pipeline.options.image_width,
        pipeline.options.model_name,
    )


def test_labels_that_begin_with_one_are_offset(tmp_path: Path) -> None:
    """ImageNet's labels do."""
    _, pipeline = written(tmp_path, shards(tmp_path, *(with_image(n) for n in (1, 2, 3))))
    assert (1, 3) == (pipeline.options.label_offset, pipeline.options.num_classes)


def test_parquet_and_compressed_shards_are_read_too(tmp_path: Path) -> None:
    """Hugging Face's structs of images count as their bytes."""
    folder = tmp_path / "hf"
    folder.mkdir()
    rows = [{"image": {"bytes": image_bytes("PNG", (8, 8)), "path": "x"}, "label": n % 3} for n in range(30)]
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"):
        pq.write_table(pa.Table.from_pylist(rows), folder / name)
    text, pipeline = written(tmp_path, folder)
    assert ("parquet", "test", 3) == (
        pipeline.data.format,
        pipeline.options.validation_split,
        pipeline.options.num_classes,
    )
    assert "image: {kind: bytes, encoding: png" in text
    (folder / "train-00000-of-00001.parquet").unlink()
    (folder / "test-00000-of-00001.parquet").unlink()
    for name in ("train-00000-of-00001.tfrecord.gz", "validation-00000-of-00001.tfrecord.gz"):
        (folder / name).write_bytes(gzip.compress(framed([with_image(n % 2) for n in range(9)])))
    (tmp_path / "pipelines" / "made.yaml").unlink()
    assert "tfrecord" == written(tmp_path, folder)[1].data.format


def test_numbers_of_records_are_counted_or_estimated_by_what_was_looked_at(tmp_path: Path) -> None:
    """Only the first records of large shards are read; the footer of Parquet has the number."""
    folder = shards(tmp_path, *(with_image(n % 2) for n in range(9)), names=NAMES[:2])
    assert "train has 18 records (counted)" in written(tmp_path, folder)[0]
    large = [labelled(n % 2, image=image_bytes("PNG", (8, 8)), noise=b"\xff" * 20_000) for n in range(3000)]
    (folder / NAMES[0]).write_bytes(framed(large))
    (tmp_path / "pipelines" / "made.yaml").unlink()
    [line] = [line for line in written(tmp_path, folder)[0].splitlines() if "(estimated)" in line]
    assert 3009 == pytest.approx(int(line.split("train has ")[1].split()[0].replace(",", "")), abs=1), line
    for name in NAMES[:2]:
        (folder / name).unlink()
    rows = pa.table({"image": [image_bytes("PNG", (8, 8))] * 999, "label": [n % 2 for n in range(999)]})
    pq.write_table(rows, folder / "train-00000-of-00001.parquet")
    (tmp_path / "pipelines" / "made.yaml").unlink()
    assert "train has 999 records (counted)" in written(tmp_path, folder)[0]


def test_row_numbers_of_pandas_are_no_feature(tmp_path: Path) -> None:
    """It writes them as a column wherever they are not 0, 1, 2 and so on; no data scientist means them as a label."""
    folder = shards(tmp_path, labelled(1), names=())
    frame = pd.DataFrame({"image": [image_bytes("PNG", (8, 8))] * 20, "label": [n % 2 for n in range(20)]})
    frame.sample(frac=1, random_state=1).to_parquet(folder / "train-00000-of-00001.parquet")
    assert "__index_level_0__" in pq.read_schema(folder / "train-00000-of-00001.parquet").names
    _, pipeline = written(tmp_path, folder)
    assert ({"image", "label"}, "label") == (set(pipeline.data.features), pipeline.data.requirements().label)


def test_a_table_that_spark_wrote_is_proposed_and_validated_as_it_is(tmp_path: Path) -> None:
    """Its folders are the splits; its checksums and its marker are no shards."""
    table = REPOSITORY / "tests" / "fixtures" / "spark" / "scans"
    text, pipeline = written(tmp_path, table)
    ended, output = run(
        "validate", table, "--complete", "--processes", "1", "--pipeline", tmp_path / "pipelines" / "made.yaml"
    )
    assert ("marker", ("train", "validation")) == (pipeline.data.layout.kind, pipeline.data.splits)
    assert ("# _SUCCESS is there" in text, 0, 4) == (True, ended, output.count("accepted    /"))
    assert (4, 6) == (len([*table.rglob("*.parquet")]), len([*table.rglob("[._]*")]))


def test_a_delta_table_is_proposed_as_what_its_newest_version_is(tmp_path: Path) -> None:
    """Files that were replaced do not count; the same files are validated as a set."""
    folder = tmp_path / "table"
    rows = [
        {"image": image_bytes("PNG", (8, 8)), "label": n % 3, "split": "train" if n > 9 else "test"}
        for n in range(30)
    ]
    old = [{"image": b"", "label": 7, "split": "dev"}]
    for content in (old, rows):
        write_deltalake(folder, pa.Table.from_pylist(content), mode="overwrite", partition_by=["split"])
    text, pipeline = written(tmp_path, folder)
    assert ("delta", ("train", "test"), 3) == (
        pipeline.data.layout.kind,
        pipeline.data.splits,
        pipeline.options.num_classes,
    )
    assert "kind: delta  # the log of a Delta table is there" in text
    shutil.rmtree(folder / "split=dev")
    options = ("--complete", "--processes", 1, "--pipeline", tmp_path / "pipelines" / "made.yaml")
    assert 0 == run("validate", folder, *map(str, options))[0]
    next((folder / "split=test").glob("*.parquet")).unlink()
    assert "is missing; _delta_log names it in version 1" in run("validate", folder, *map(str, options))[1]
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    assert "the first commit of the table, is missing" in run("validate", folder, *map(str, options))[1]


HUB_README = """---
dataset_info:
  splits:
  - {name: train, num_bytes: 1, num_examples: 80}
  - {name: test, num_bytes: 1, num_examples: 80}
---
"""
PART = "part-00000-5d3fa7c1-c000.snappy.parquet"
LAYOUTS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, int], str]] = {
    "spark": (
        (f"split=train/{PART}", f"split=train/1{PART}", f"split=validation/{PART}", "_SUCCESS", "._SUCCESS.crc"),
        {"kind": "marker"},
        {"train": 2, "validation": 1},
        "# _SUCCESS is there",
    ),
    "listed": (
        ("train-a.parquet", "train-b.parquet", "test.parquet", "files.csv", "README.md"),
        {"kind": "manifest", "manifest": "files.csv", "patterns": {"test": "test[!a-z]*", "train": "train[!a-z]*"}},
        {"train": 2, "test": 1},
        "kind: manifest  # files.csv is there",
    ),
    "stated": (
        ("a.parquet", "b.parquet", "c.parquet", "splits.csv"),
        {"kind": "manifest", "manifest": "splits.csv"},
        {"train": 2, "test": 1},
        "kind: manifest  # splits.csv is there",
    ),
    "hub": (
        ("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet", "README.md"),
        {"kind": "manifest", "manifest": "README.md"},
        {"train": 1, "test": 1},
        "kind: manifest  # README.md is there",
    ),
    "flat": (
        ("train-a.parquet", "train-b.parquet", "test.parquet", "train.crc"),
        {"kind": "marker", "patterns": {"test": "test[!a-z]*", "train": "train[!a-z]*"}},
        {"train": 2, "test": 1},
        "CHECK: the program that writes the data must write _SUCCESS last, as `landfall upload` does",
    ),
    "folders_of_both": (
        ("x/train_1.parquet", "y/train_2.parquet", "y/val.parquet"),
        {"kind": "marker", "patterns": {"train": "*/train[!a-z]*", "val": "*/val[!a-z]*"}},
        {"train": 2, "val": 1},
        "by the first word of each name",
    ),
    "hive": (
        tuple(f"patient={number}/{PART}" for number in range(40)),
        {"kind": "marker", "shares": {"train": 0.9, "validation": 0.1}},
        {"train": 35, "validation": 5},
        "# draw_by: patient  # CHECK: must all files of one patient be in the same split?",
    ),
    "one_file": (("export.parquet",), {"kind": "marker"}, {"train": 1}, "CHECK: evaluated on the training data"),
}


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (
            {"info": {"features": {"label": {"names": ["dark", "b\nright", "x"]}}}},
            "maximum: 2}",
        ),
        ({"info": {"features": {"label": {"names": ["one"]}}}}, "CHECK: is this the whole range? Seen 0 to 1"),
        ({"info": {"features": [1]}}, "CHECK: is this the whole range? Seen 0 to 1"),
        ([], "CHECK: is this the whole range? Seen 0 to 1"),
    ],
)
def test_names_of_classes_that_the_library_datasets_wrote_are_the_range(
    tmp_path: Path, stated: Any, words: str
) -> None:
    """The names are used only as far as the labels that were read fit."""
    table = pa.table({"label": [0, 1], "image": [{"bytes": image_bytes("PNG", (8, 8)), "path": None}] * 2})
    folder = shards(tmp_path, labelled(1), names=())
    metadata = {"huggingface": json.dumps(stated)}
    pq.write_table(table.replace_schema_metadata(metadata), folder / "train-00000-of-00001.parquet")
    text, _ = written(tmp_path, folder)
    [label] = [line for line in text.splitlines() if line.startswith("    label: ")]
    assert words in label
    assert ("maximum: 2" in words) == label.endswith("# from the files: dark, b\\nright, x")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_any_names_get_a_layout(tmp_path: Path, layout: str) -> None:
    """The app reads the same splits from it, and `validate` accepts what `init` looked at."""
    names, section, num_shards, words = LAYOUTS[layout]
    folder = tmp_path / "data"
    for place, name in enumerate(names):
        rows = {"label": [(place >> bit) & 1 for bit in range(80)], "image": [image_bytes("PNG", (8, 8))] * 80}
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        if name.endswith(".parquet"):
            pq.write_table(pa.table(rows), folder / name)
        if name.endswith(".csv"):
            (folder / name).write_text("\n".join(["name", *(n for n in names if n.endswith(".parquet"))]))
        if name == "splits.csv":
            (folder / name).write_text("name,split\na.parquet,train\nb.parquet,train\nc.parquet,test\n")
        if name == "README.md" and layout == "hub":
            (folder / name).write_text(HUB_README)
    text, pipeline = written(tmp_path, folder)
    assert (section, words in text) == (pipeline.data.layout.to_json(), True), text
    paths = [name for name in names if name.endswith(".parquet")]
    splits = [pipeline.data.layout.shard(path, pipeline.data.splits).split for path in paths]
    assert layout == "stated" or num_shards == Counter(splits)
    assert list(num_shards) == list(pipeline.data.splits)
    status, output = run("validate", folder, "--complete", "--pipeline", tmp_path / "pipelines" / "made.yaml")
    assert (0, True) == (status, "accepted    all shards together" in output), output


def test_a_file_of_no_split_is_named(tmp_path: Path) -> None:
    """It is beside files whose folders show their split."""
    folder = shards(tmp_path, labelled(1), names=())
    for name in ("train/a.tfrecord", "val/a.tfrecord", "b.tfrecord"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(framed([labelled(1)]))
    status, output = run("init", folder, "--to", tmp_path / "x.yaml")
    assert (1, True) == (status, "b.tfrecord has no split: put it into a folder named after a split" in output), (
        output
    )


def test_what_the_data_do_not_tell_is_marked(tmp_path: Path) -> None:
    """Nothing is asked without a terminal; the check at the end says what cannot be used yet."""
    records = [labelled(0, other=1, raw=b"\x00\xff\xfe" + bytes([n])) for n in range(4)]
    text, output = written(tmp_path, shards(tmp_path, *records))
    assert "raw: {kind: bytes, encoding: raw, dtype: uint8, shape: [4]}  # CHECK: every value has 4 bytes" in text
    assert "model_module: scripts/model.py  # CHECK: no feature holds images" in text
    assert "WRONG " in output
    assert "  check train.options.image_feature: name the feature to train on\n" in output
    assert "  check data.features.raw: every value has 4 bytes; state the dtype and shape\n" in output


def test_hostile_names_of_features_and_classes_stay_names(tmp_path: Path) -> None:
    """They are escaped in YAML and in comments."""
    names = {"a: b\n#": 1, "no": 2, "\x1b[31m": 3}
    text, pipeline = written(
        tmp_path, shards(tmp_path, *(labelled(n, image=image_bytes("PNG", (8, 8)), **names) for n in (0, 1)))
    )
    assert "\x1b" not in text
    assert {"a: b\n#", "no", "\x1b[31m", "image", "label"} == {spec.name for spec in pipeline.data.feature_specs()}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("train-00000-of-00001.tfrecord", b"", "is not a shard: it has no bytes"),
        ("train-00000-of-00001.tfrecord", b"<html><body>no</body></html>", "is not a shard: it has"),
        ("train-00000-of-00001.tfrecord", bytes(1 << 20), "cannot be read: expected "),
        ("train-00000-of-00001.tfrecord", framed([b"\xff\xff\xff"]), "cannot be read"),
        ("train-00000-of-00001.tfrecord", framed([labelled(1)])[:-9], "cannot be read: it has no record"),
        ("train-00000-of-00001.parquet", b"PAR1" + b"x" * 100, "cannot be read"),
        ("notes.txt", b"x", "its name is not that of a shard, and no other file has such a name"),
        ("_SUCCESS", b"", "data: there is no file that can be a shard."),
    ],
)
def test_what_cannot_be_looked_at_is_named_with_the_fix(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    """No file is written."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_bytes(content)
    status, output = run("init", folder, "--to", tmp_path / "x.yaml")
    assert (True, True, False) == (status != 0, problem in output, (tmp_path / "x.yaml").exists()), output


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("https://[bad/datasets/photos/v1/", "cannot be read: Invalid IPv6 URL"),
        ("https://[bad/datasets/photos/v1/a.tfrecord", "is not a URL: Invalid IPv6 URL"),
        ("loop", "cannot be opened"),
        ("x" * 300, "cannot be opened: File name too long"),
    ],
)
def test_an_argument_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    """A mistyped address, a link that leads to itself, and a name that no file can have."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    status, output = run("init", name, "--to", tmp_path / "x.yaml")
    assert (True, True, False) == (status != 0, problem in output, "unexpected" in output), output


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """A person may have worked on it."""
    folder = shards(tmp_path, *(with_image(n) for n in range(2)))
    (tmp_path / "x.yaml").write_text("mine")
    status, output = run("init", folder, "--to", tmp_path / "x.yaml")
    assert (1, "mine", True) == (status, (tmp_path / "x.yaml").read_text(), "exists already. Remove it" in output)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--cluster", "landfall-gpuu"), "did you mean landfall-gpu?"),
        (("--dataset", "My Data"), "a dataset is 1 to 63 lower-case letters"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, arguments: tuple[str, str], problem: str) -> None:
    """A typo in a name."""
    folder = shards(tmp_path, *(with_image(n) for n in range(2)))
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", tmp_path)
    status, output = run("init", folder, "--to", tmp_path / "x.yaml", *arguments)
    assert (True, True) == (status != 0, problem in output), output
