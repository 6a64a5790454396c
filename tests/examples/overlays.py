"""The example pipelines as the tests run them: each differs from its file in the fields named here, and in no other.

They say how large a training is and on what it runs. What it is, its data, recipe and gate, is the file's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import REPOSITORY

PIPELINES = REPOSITORY / "pipelines"
TWO_NODES = {"train.num_nodes": 2}
ON_A_CPU = {"train.options.mixed_precision": "none", "train.options_by_gpu.A100.mixed_precision": "none"}
"""Float16 is for tensor cores; a CPU computes it many times slower than float32."""
SMALL_IMAGES = {"train.options.image_height": 32, "train.options.image_width": 32}

CLUSTERS = """
landfall-gpu: {sizes: [{vm_size: Standard_NC24ads_A100_v4}]}
landfall-gpu-rdma: {sizes: [{vm_size: Standard_NC24ads_A100_v4}]}
two-gpus: {sizes: [{vm_size: Standard_NC48ads_A100_v4}]}
"""
"""Two ranks for each job: this machine is all nodes."""

OVERLAYS: Mapping[str, Mapping[str, Any]] = {
    "imagenet-resnet50": {
        **TWO_NODES,
        **ON_A_CPU,
        **SMALL_IMAGES,
        "train.options.epochs": 2,
        "train.options.warm_up_epochs": 1,
        "train.options.per_process_batch_size": 4,
    },
    "synthetic-benchmark": {**TWO_NODES, "train.options_by_gpu.A100.mixed_precision": "float16"},
    "cifar10-cnn": {"train.options.epochs": 2, "train.options.per_process_batch_size": 16},
    "xray-effusion": {
        "train.cluster": "two-gpus",
        **ON_A_CPU,
        # The smallest for InceptionV3, which a caller may choose.
        "train.options.image_height": 75,
        "train.options.image_width": 75,
        "train.options.model_name": "small_cnn",
        "train.options.per_process_batch_size": 8,
    },
}


def write_overlaid(folder: Path) -> Path:
    """Write the pipelines of the tests into a folder; return it."""
    folder.mkdir()
    (folder / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
    for name in OVERLAYS:
        (folder / f"{name}.yaml").write_text(overlaid(name), encoding="utf-8")
    return folder


def overlaid(name: str) -> str:
    """Return a pipeline's YAML with its overlay. Raises KeyError where the file has no such field to change."""
    document = yaml.safe_load((PIPELINES / f"{name}.yaml").read_text(encoding="utf-8"))
    for path, value in OVERLAYS[name].items():
        *sections, field = path.split(".")
        section = document
        for part in sections:
            section = section[part]
        if field not in section:
            raise KeyError(f"{name}.yaml should say {path}, does not")
        section[field] = value
    return yaml.safe_dump(document, sort_keys=False)


def leaves(members: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of nested mappings and lists with its path."""
    if isinstance(members, Mapping):
        for name, value in members.items():
            yield from leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(members, (list, tuple)):
        for number, value in enumerate(members):
            yield from leaves(value, f"{path}.{number}")
    else:
        yield path, members
