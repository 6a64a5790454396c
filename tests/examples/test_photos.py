"""A folder of images to a registered model, on defaults alone: pack, init, check, validate, upload."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.examples.journeys import ended, landfall
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

CLASSES = {"cat": 40, "dog": 200}
"""Class → how bright its images are."""


def write_photos(folder: Path) -> Path:
    """Write a folder of images for each class."""
    for name, brightness in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for number in range(120):
            image = Image.new("RGB", (24, 24), (brightness + number % 30,) * 3)
            image.save(folder / name / f"{number}.png")
    return folder


def test_a_folder_of_images_becomes_a_registered_model(twin: TwinUnderTest, tmp_path: Path) -> None:
    """No file is edited: each command follows from what the one before prints."""
    pipeline = twin.twin.options.pipelines / "photos.yaml"
    shards = tmp_path / "shards"
    landfall("pack", "images", write_photos(tmp_path / "photos"), "--to", shards)
    landfall("init", shards, "--dataset", "photos", "--to", pipeline)
    landfall("check", pipeline)
    landfall("validate", shards, "--set", "--pipeline", pipeline, "--jobs", 1)
    landfall("upload", shards, "--to", "photos/v1", DataStorage=twin.twin.places.data_connection)
    journey = ended(twin, "photos/v1", tmp_path / "outputs")
    assert ("registered", "photos") == (journey.run["state"], journey.run["model_name"])
