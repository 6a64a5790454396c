"""ImageNet's TFRecords as everybody has had them since 2016 are accepted by the pipeline that ships."""

from __future__ import annotations

import pytest

from function_app.config.pipeline_files import load_pipeline
from shard_validation import validate_shard
from shard_validation.examples.message import example_class
from shared.record_framing import frame_record
from tests.support.processes import REPOSITORY
from tests.support.shards import BytesSource, image_bytes

NAME = "train-00000-of-01024"
"""Without a suffix, as build_imagenet_data.py of tensorflow/models names them."""


def classic_shard(label: int) -> bytes:
    """Return a shard of two records, one with a box and one without, with every key that the script writes."""
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
    """Classes count from 1 to 1,000; the background, label 0, has no image."""
    requirements = load_pipeline(REPOSITORY / "pipelines" / "imagenet-resnet50.yaml").data.requirements()
    verdict = validate_shard(BytesSource(classic_shard(label), NAME), requirements)
    assert reasons == [str(reason.code) for reason in verdict.reasons]
