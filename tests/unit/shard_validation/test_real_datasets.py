"""Data sets as tensorflow-datasets and pandas write them: accepted shard by shard and as a set."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shard_validation import DataRequirements, ImagePolicy, LocalFileSource, ShardVerdict, validate_shard
from shared.example_schema import FeatureSpec
from tests.support.cli import landfall
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import image_bytes

TRAINING_PYTHON = REPOSITORY / ".venv-training" / "bin" / "python"
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
  compute: landfall-gpu
  vm_size: Standard_NC6s_v3
  num_nodes: 1
  processes_per_node: 1
  timeout_s: 3600
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set that tensorflow-datasets wrote, with its dataset_info.json."""
    if not list(TRAINING_PYTHON.parent.parent.glob("lib/python3*/site-packages/tensorflow_datasets")):
        pytest.skip("needs tensorflow-datasets in .venv-training: run `make setup`")
    folder = tmp_path_factory.mktemp("tfds")
    environment = child_environment(TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(REPOSITORY))
    command = [str(TRAINING_PYTHON), "-m", "tests.support.write_with_tfds", str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300, cwd=REPOSITORY)
    return folder / "pictures" / "1.0.0"


def test_written_by_tensorflow_datasets(capsys: pytest.CaptureFixture[str], pictures: Path, tmp_path: Path) -> None:
    """Names, records, features of every kind, and the counts in dataset_info.json: all of it holds."""
    (tmp_path / "pictures.yaml").write_text(PIPELINE)
    arguments = ("--pipeline", tmp_path / "pictures.yaml", "--set", "--json", "--jobs", 1)
    status, out, err = landfall(capsys, "validate", pictures, *arguments)
    *shards, together = map(json.loads, out.splitlines())
    assert (0, "", "accepted", [], 6) == (status, err, together["verdict"], together["reasons"], len(shards))
    assert 67 == sum(shard["num_records"] for shard in shards)


def test_counts_of_tensorflow_datasets_are_held_against_the_shards(
    capsys: pytest.CaptureFixture[str], pictures: Path, tmp_path: Path
) -> None:
    """A count of dataset_info.json that is one off is found: it was read, and not skipped."""
    for path in pictures.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    info = json.loads((pictures / "dataset_info.json").read_text())
    info["splits"][0]["shardLengths"][0] = str(int(info["splits"][0]["shardLengths"][0]) + 1)
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    status, out, _ = landfall(capsys, "validate", tmp_path, "--set", "--json", "--jobs", 1)
    codes = [reason["code"] for reason in json.loads(out.splitlines()[-1])["reasons"]]
    assert (1, ["set_count_differs"]) == (status, codes)


FEATURES = (
    FeatureSpec(name="image", kind="bytes", encoding="image"),
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
    FeatureSpec(name="weight", kind="float", minimum=0, maximum=1),
    FeatureSpec(name="name", kind="bytes", encoding="text"),
    FeatureSpec(name="kind", kind="bytes", encoding="text", allowed=("cat", "dog")),
    FeatureSpec(name="note", kind="bytes", encoding="text", required=False),
    FeatureSpec(name="flag", kind="int64", minimum=0, maximum=1),
    FeatureSpec(name="box", kind="float", shape=(4,)),
)


def frame() -> pd.DataFrame:
    """A table of every kind of column that pandas has for data sets; its index is written, too."""
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
    """Whatever pandas writes is accepted, and its values are read right."""
    path = tmp_path / "train-00000-of-00001.parquet"
    frame().to_parquet(path, compression=compression)
    verdict = verdict_on(path)
    assert ((), 450) == (verdict.reasons, verdict.num_records)
    assert {str(i): 50 for i in range(9)} == verdict.statistics.features["label"].histogram
    assert {"cat": 250, "dog": 200} == verdict.statistics.features["kind"].histogram


def verdict_on(path: Path) -> ShardVerdict:
    """Validate a file with every image decoded."""
    with LocalFileSource(path) as source:
        return validate_shard(source, DataRequirements(features=FEATURES, images=ImagePolicy(decode="all")))
