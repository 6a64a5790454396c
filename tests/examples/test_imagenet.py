"""`imagenet-resnet50`, from ImageNet's folders and synset file to the end of the run."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.journeys import Journey, counts, ended, landfall, upload_shards
from tests.support.pack_sources import records
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

SYNSETS = ("n01440764", "n01443537")
TRAIN_IMAGES, VALIDATION_IMAGES = 64, 8
"""Training images of each synset, validation images of both. With fewer, batch norm's averages overflow the loss."""


def jpeg(generator: np.random.Generator, label: int) -> bytes:
    """Return an image of a size of its own, darker or brighter by its label."""
    height, width = generator.integers(36, 60, 2)
    pixels = generator.integers(0, 100, (height, width, 3)) + 120 * label
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, format="JPEG")
    return buffer.getvalue()


def write_imagenet(folder: Path) -> Path:
    """Write train/<synset>/*.JPEG, val/*.JPEG, the synsets and the labels of the validation."""
    generator, labels = np.random.default_rng(0), []
    for label, synset in enumerate(SYNSETS):
        (folder / "train" / synset).mkdir(parents=True)
        for number in range(TRAIN_IMAGES):
            (folder / "train" / synset / f"{synset}_{number}.JPEG").write_bytes(jpeg(generator, label))
    (folder / "val").mkdir()
    for number in range(VALIDATION_IMAGES):
        (folder / "val" / f"ILSVRC2012_val_{number + 1:08d}.JPEG").write_bytes(jpeg(generator, number % 2))
        labels.append(SYNSETS[number % 2])
    (folder / "LOC_synset_mapping.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish\n")
    (folder / "imagenet_2012_validation_synset_labels.txt").write_text("\n".join(labels) + "\n")
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's layout, packed."""
    folder = tmp_path_factory.mktemp("imagenet")
    source = write_imagenet(folder / "imagenet")
    lists = ["--synsets", source / "LOC_synset_mapping.txt"]
    lists += ["--validation-labels", source / "imagenet_2012_validation_synset_labels.txt"]
    landfall("pack", "imagenet", source, "--to", folder / "shards", "--no-init", "--shards", 4, *lists)
    return folder / "shards"


@pytest.fixture(scope="module")
def journey(twin: TwinUnderTest, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """A run on 128 images, evaluated on eight."""
    upload_shards(twin, shards, "imagenet-resnet50", "imagenet/ilsvrc2012")
    return ended(twin, "imagenet/ilsvrc2012", tmp_path_factory.mktemp("imagenet-outputs"))


def test_the_shards_are_those_that_everybody_has(shards: Path) -> None:
    """Keys and labels as build_imagenet_data.py has written them since 2016: classes count from 1."""
    assert {"train": 128, "validation": 8} == counts(shards)
    found = [record for shard in shards.glob("*.tfrecord") for record in records(shard)]
    keys = {"image/encoded", "image/class/label", "image/class/synset", "image/filename"}
    assert [keys] * 136 == [set(record) for record in found]
    assert {(1, b"n01440764"), (2, b"n01443537")} == {
        (record["image/class/label"], record["image/class/synset"]) for record in found
    }


def test_two_ranks_train_resnet_50_with_a_thousand_classes(journey: Journey) -> None:
    """The recipe is the file's own: only the size is the tests'."""
    report, options = journey.report, journey.report.details["options"]
    assert (2, "resnet50", 16, 8) == (
        report.world_size,
        report.details["model"]["name"],
        report.rank_plan["training"]["steps"],
        report.rank_plan["validation"]["num_records"],
    )
    recipe = {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.0001, "reference_batch_size": 256}
    recipe |= {"num_classes": 1000, "label_offset": 1, "augmentation": "resized_crop_flip", "schedule": "step"}
    assert recipe == {name: options[name] for name in recipe}


def test_a_model_of_two_epochs_is_not_registered(journey: Journey) -> None:
    """Both lines of the gate are looked at; what does not hold is said with its figures."""
    metrics, gate = journey.report.metrics, {"val_accuracy": 0.74, "val_top5_accuracy": 0.915}
    problems = [
        f"{name}: expected at least {bound}, got {metrics[name]:.6g}"
        for name, bound in gate.items()
        if metrics[name] < bound
    ]
    assert ("; ".join(problems) or None) == journey.run["reason"]
    assert ("not_registered" if problems else "registered") == journey.run["state"]
