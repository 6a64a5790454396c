"""Shards as TensorFlow, tensorflow-datasets, pandas and ImageNet's script write them: all are accepted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from function_app.config.pipeline_files import load_pipeline
from shard_validation import (
    DataRequirements,
    ImagePolicy,
    LocalFileSource,
    ShardVerdict,
    check_name,
    validate_shard,
)
from shard_validation.file_lists import read_file_list
from shard_validation.tfrecord.message import example_class
from shared.manifest import FeatureSpec
from shared.record_framing import frame_record
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import BytesSource, image_bytes
from tests.support.terminal import landfall

pytestmark = pytest.mark.processes

TRAINING_PYTHON = REPOSITORY / ".venv-training" / "bin" / "python"
TENSORFLOW_FEATURES = (
    FeatureSpec(name="jpeg", kind="bytes", encoding="jpeg", shape=(None, 30, 3)),
    FeatureSpec(name="png", kind="bytes", encoding="png", shape=(None, 30, 3)),
    FeatureSpec(name="raw", kind="bytes", encoding="raw", dtype="uint8", shape=(4, 4, 3)),
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
    FeatureSpec(name="box", kind="float", shape=(4,), minimum=0, maximum=1),
    FeatureSpec(name="text", kind="bytes", encoding="text"),
    FeatureSpec(name="boxes", kind="float", shape=(None, 4)),
    FeatureSpec(name="negative", kind="int64", shape=(2,), maximum=-1),
)
PANDAS_FEATURES = (
    FeatureSpec(name="image", kind="bytes", encoding="image"),
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
    FeatureSpec(name="weight", kind="float", minimum=0, maximum=1),
    FeatureSpec(name="name", kind="bytes", encoding="text"),
    FeatureSpec(name="kind", kind="bytes", encoding="text", allowed=("cat", "dog")),
    FeatureSpec(name="note", kind="bytes", encoding="text", required=False),
    FeatureSpec(name="flag", kind="int64", minimum=0, maximum=1),
    FeatureSpec(name="box", kind="float", shape=(4,)),
)
CLUSTERS = "landfall-gpu: {sizes: [{vm_size: Standard_NC24ads_A100_v4}]}"
PIPELINE = """
pipeline: pictures
dataset: pictures
data:
  format: tfrecord
  splits: [train, test]
  counts: required
  images: {decode: all}
  features:
    image: {kind: bytes, encoding: jpeg, shape: [null, 30, 3]}
    mask: {kind: bytes, encoding: png, shape: [8, 8, 1]}
    label: {kind: int64, minimum: 0, maximum: 9}
    text: {kind: bytes, encoding: text}
    box: {kind: float, shape: [4], minimum: 0, maximum: 1}
    tensor: {kind: float, shape: [2, 3], minimum: 0, maximum: 1}
    count: {kind: int64, maximum: 0}
    tags: {kind: bytes, encoding: text, shape: [null], required: false}
train:
  cluster: landfall-gpu
  num_nodes: 1
  timeout_s: 3600
  options: {validation_split: test, image_height: 30, per_process_batch_size: 1}
"""
CLASSIC_NAME = "train-00000-of-01024"
"""A name without a suffix, as build_imagenet_data.py of tensorflow/models creates it."""


@dataclass(frozen=True)
class Written:
    """The output of a process with TensorFlow, see tests/support/write_with_tensorflow.py."""

    folder: Path
    read_by_both: list[Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Shards of tf.io.TFRecordWriter, and a dataset of tensorflow-datasets."""
    if not TRAINING_PYTHON.is_file():
        pytest.skip("needs TensorFlow in .venv-training: run `make setup`")
    folder = tmp_path_factory.mktemp("written")
    environment = child_environment(TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(REPOSITORY))
    command = [str(TRAINING_PYTHON), "-m", "tests.support.write_with_tensorflow", str(folder)]
    ended = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=600, cwd=REPOSITORY
    )
    return Written(folder, json.loads(ended.stdout.splitlines()[-1]))


@pytest.fixture
def pictures(written: Written) -> Path:
    """The folder of the dataset, with its dataset_info.json."""
    folder = written.folder / "pictures" / "1.0.0"
    if not folder.is_dir():
        pytest.skip("needs tensorflow-datasets in .venv-training: run `make setup`")
    return folder


def file_verdict(path: Path, features: tuple[FeatureSpec, ...]) -> ShardVerdict:
    """Validate a file, decoding every image."""
    with LocalFileSource(path) as source:
        return validate_shard(source, DataRequirements(features=features, images=ImagePolicy(decode="all")))


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        ("train-00000-of-00003.tfrecord", ""),
        ("train-00001-of-00003.tfrecord.gz", "gzip"),
        ("train-00002-of-00003", "zlib"),
        ("mnist-train.tfrecord-00000-of-00001", ""),
    ],
)
def test_written_by_tensorflow(written: Written, name: str, compression: str) -> None:
    """Every compression and every naming scheme of TensorFlow is accepted."""
    verdict = file_verdict(written.folder / "shards" / name, TENSORFLOW_FEATURES)
    assert ((), 30, compression) == (verdict.reasons, verdict.num_records, verdict.compression)
    assert {str(i): 3 for i in range(10)} == verdict.statistics.features["label"].histogram
    assert check_name(name) is None


def test_both_descriptions_in_one_process(written: Written) -> None:
    """TensorFlow's Example and the validator's can be used in one process and read each other's bytes."""
    assert [[1, 2], 0.5, "a"] == written.read_by_both


def test_written_by_tensorflow_datasets(capsys: pytest.CaptureFixture[str], pictures: Path, tmp_path: Path) -> None:
    """Names, records, all types of features, and the counts in dataset_info.json are accepted."""
    (tmp_path / "pictures.yaml").write_text(PIPELINE)
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    arguments = ("--pipeline", tmp_path / "pictures.yaml", "--complete", "--json", "--processes", 1)
    status, out, err = landfall(capsys, "validate", pictures, *arguments)
    *shards, together = map(json.loads, out.splitlines())
    assert (0, "", "accepted", [], 6) == (status, err, together["verdict"], together["reasons"], len(shards))
    assert 67 == sum(shard["num_records"] for shard in shards)


def test_counts_of_tensorflow_datasets_are_held_against_the_shards(
    capsys: pytest.CaptureFixture[str], pictures: Path, tmp_path: Path
) -> None:
    """A wrong count in dataset_info.json is found."""
    for path in pictures.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    info = json.loads((pictures / "dataset_info.json").read_text())
    info["splits"][0]["shardLengths"][0] = str(int(info["splits"][0]["shardLengths"][0]) + 1)
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    status, out, _ = landfall(capsys, "validate", tmp_path, "--complete", "--json", "--processes", 1)
    codes = [reason["code"] for reason in json.loads(out.splitlines()[-1])["reasons"]]
    assert (1, ["set_count_differs"]) == (status, codes)


def test_the_list_of_tensorflow_datasets_names_the_files_that_it_wrote(pictures: Path) -> None:
    """Each file has its number of records, and each split the bytes of its records."""
    stated = read_file_list("dataset_info.json", (pictures / "dataset_info.json").read_bytes())
    shards = {path.name: file_verdict(path, ()).num_records for path in pictures.iterdir() if "-of-" in path.name}
    assert shards == {name: file.num_records for name, file in stated.files.items()}
    written = Counter[str]()
    for name, file in stated.files.items():
        written[str(file.split)] += file_verdict(pictures / name, ()).statistics.num_bytes
    assert (2, dict(written)) == (len(written), stated.sizes)


def frame() -> pd.DataFrame:
    """Return a table with every type of column that pandas has for datasets, and an index."""
    num_rows = 500
    rows = pd.DataFrame(
        {
            "image": [image_bytes("JPEG", (16 + i % 3, 12)) for i in range(num_rows)],
            "label": np.arange(num_rows) % 10,
            "weight": np.linspace(0, 1, num_rows),
            "name": [f"größe {i}" for i in range(num_rows)],
            "kind": pd.Categorical(["cat", "dog"] * (num_rows // 2)),
            "note": [None if i % 2 else "some" for i in range(num_rows)],
            "flag": [True, False] * (num_rows // 2),
            "box": [np.zeros(4)] * num_rows,
            "when": pd.date_range("2026-11-21", periods=num_rows),
            "nullable": pd.array([1, None] * (num_rows // 2), dtype="Int64"),
        }
    )
    return rows[rows["label"] < 9]  # an index with gaps, which pandas writes as a column


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "brotli", "lz4", None])
def test_written_by_pandas(tmp_path: Path, compression: str | None) -> None:
    """Everything that pandas writes is accepted, and its values are read correctly."""
    path = tmp_path / "train-00000-of-00001.parquet"
    frame().to_parquet(path, compression=compression)
    verdict = file_verdict(path, PANDAS_FEATURES)
    assert ((), 450) == (verdict.reasons, verdict.num_records)
    assert {str(i): 50 for i in range(9)} == verdict.statistics.features["label"].histogram
    assert {"cat": 250, "dog": 200} == verdict.statistics.features["kind"].histogram


def classic_shard(label: int) -> bytes:
    """Return a shard of two records, one with a box and one without, with all keys that the script writes."""
    texts = {
        "image/colorspace": b"RGB",
        "image/class/synset": b"n01440764",
        "image/class/text": b"tench, Tinca tinca",
        "image/format": b"JPEG",
        "image/filename": b"n01440764_10026.JPEG",
        "image/encoded": image_bytes("JPEG", (50, 40)),
    }
    numbers = {"image/height": 40, "image/width": 50, "image/channels": 3, "image/class/label": label}
    return b"".join(frame_record(classic_example(texts, numbers, boxes)) for boxes in ([0.1], []))


def classic_example(texts: dict[str, bytes], numbers: dict[str, int], boxes: list[float]) -> bytes:
    """Return an example; an image without boxes has empty lists of them."""
    example = example_class()()
    features = example.features.feature
    for name, text in texts.items():
        features[name].bytes_list.value.append(text)
    for name, number in numbers.items():
        features[name].int64_list.value.append(number)
    for side in ("xmin", "xmax", "ymin", "ymax"):
        features[f"image/object/bbox/{side}"].float_list.SetInParent()
        features[f"image/object/bbox/{side}"].float_list.value.extend(boxes)
    features["image/object/bbox/label"].int64_list.SetInParent()
    features["image/object/bbox/label"].int64_list.value.extend([numbers["image/class/label"]] * len(boxes))
    content: bytes = example.SerializeToString()
    return content


@pytest.mark.parametrize(("label", "reasons"), [(1, []), (1000, []), (0, ["value_out_of_range"] * 2)])
def test_the_classic_keys_and_labels_are_what_the_pipeline_asks_for(label: int, reasons: list[str]) -> None:
    """Classes count from 1 to 1,000; the background, label 0, has no images."""
    requirements = load_pipeline(REPOSITORY / "pipelines" / "imagenet-resnet50.yaml").data.requirements()
    verdict = validate_shard(BytesSource(classic_shard(label), CLASSIC_NAME), requirements)
    assert reasons == [str(reason.code) for reason in verdict.reasons]
