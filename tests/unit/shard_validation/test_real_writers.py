"""Shards as TensorFlow itself writes them: all of them are accepted, with the values that went in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from shard_validation import (
    DataRequirements,
    ImagePolicy,
    LocalFileSource,
    ShardVerdict,
    check_name,
    validate_shard,
)
from shared.example_schema import FeatureSpec
from tests.support.processes import REPOSITORY, child_environment

TRAINING_PYTHON = REPOSITORY / ".venv-training" / "bin" / "python"

WRITER = """
import sys
from pathlib import Path
import tensorflow as tf

folder = Path(sys.argv[1])

def example(i):
    image = tf.cast(tf.random.uniform((20 + i, 30, 3), 0, 255, tf.int32), tf.uint8)
    values = {
        "jpeg": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(image).numpy()])),
        "png": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_png(image).numpy()])),
        "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image[:4, :4].numpy().tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 10])),
        "box": tf.train.Feature(float_list=tf.train.FloatList(value=[0.25, 0.5, 0.75, 1.0])),
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=["caf\\u00e9".encode()])),
        "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=[])),
        "negative": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1, -(2**63)])),
    }
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()

def write(name, compression):
    with tf.io.TFRecordWriter(str(folder / name), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for i in range(30):
            writer.write(example(i))

write("train-00000-of-00003.tfrecord", "")
write("train-00001-of-00003.tfrecord.gz", "GZIP")
write("train-00002-of-00003", "ZLIB")
write("mnist-train.tfrecord-00000-of-00001", "")
"""

FEATURES = (
    FeatureSpec(name="jpeg", kind="bytes", encoding="jpeg", shape=(None, 30, 3)),
    FeatureSpec(name="png", kind="bytes", encoding="png", shape=(None, 30, 3)),
    FeatureSpec(name="raw", kind="bytes", encoding="raw", dtype="uint8", shape=(4, 4, 3)),
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
    FeatureSpec(name="box", kind="float", shape=(4,), minimum=0, maximum=1),
    FeatureSpec(name="text", kind="bytes", encoding="text"),
    FeatureSpec(name="boxes", kind="float", shape=(None, 4)),
    FeatureSpec(name="negative", kind="int64", shape=(2,), maximum=-1),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shards that tf.io.TFRecordWriter wrote."""
    if not TRAINING_PYTHON.is_file():
        pytest.skip("needs TensorFlow in .venv-training: run `make setup`")
    folder = tmp_path_factory.mktemp("written")
    environment = child_environment(TF_CPP_MIN_LOG_LEVEL="3")
    command = [str(TRAINING_PYTHON), "-c", WRITER, str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    return folder


def verdict_on(path: Path) -> ShardVerdict:
    """Validate a file with every image decoded."""
    with LocalFileSource(path) as source:
        return validate_shard(source, DataRequirements(features=FEATURES, images=ImagePolicy(decode="all")))


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        ("train-00000-of-00003.tfrecord", ""),
        ("train-00001-of-00003.tfrecord.gz", "gzip"),
        ("train-00002-of-00003", "zlib"),
        ("mnist-train.tfrecord-00000-of-00001", ""),
    ],
)
def test_written_by_tensorflow(folder: Path, name: str, compression: str) -> None:
    """What TensorFlow writes is accepted in every compression, under every naming."""
    verdict = verdict_on(folder / name)
    assert ((), True, 30, compression) == (
        verdict.reasons,
        verdict.accepted,
        verdict.num_records,
        verdict.compression,
    )
    assert {str(i): 3 for i in range(10)} == verdict.statistics.features["label"].histogram
    assert check_name(name) is None


def test_both_descriptions_in_one_process(folder: Path) -> None:
    """TensorFlow's own Example and ours live in one process, and read each other's bytes."""
    script = (
        "import json, sys, types; sys.path.insert(0, sys.argv[1])\n"
        # the package's own __init__ needs azure.functions, which the training's environment has not
        "package = types.ModuleType('function_app'); package.__path__ = [sys.argv[1] + '/function_app']\n"
        "sys.modules['function_app'] = package\n"
        "from shard_validation.examples.message import encode_example, example_class\n"
        "import tensorflow as tf\n"
        "theirs = tf.train.Example.FromString(encode_example({'label': [1, 2], 'x': 0.5, 'text': 'a'}))\n"
        "ours = example_class().FromString(theirs.SerializeToString())\n"
        "values = ours.features.feature\n"
        "print(json.dumps([list(values['label'].int64_list.value), values['x'].float_list.value[0],"
        " values['text'].bytes_list.value[0].decode()]))\n"
    )
    command = [str(TRAINING_PYTHON), "-c", script, str(REPOSITORY)]
    environment = child_environment(TF_CPP_MIN_LOG_LEVEL="3")
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    assert folder.is_dir()
    assert [[1, 2], 0.5, "a"] == json.loads(ended.stdout.splitlines()[-1])
