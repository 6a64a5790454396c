"""A training on simulated nodes with NUM_GPUS GPUs, which records the TensorFlow configuration that it sets."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tests.ranks.programs.changed import NOTES
from training_job import train


def play() -> None:
    """Replace TensorFlow's functions for GPUs."""
    gpus = [SimpleNamespace(name=f"/physical_device:GPU:{i}") for i in range(int(os.environ["NUM_GPUS"]))]
    asked: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        asked[name] = value
        (NOTES / f"gpu-{os.environ['OMPI_COMM_WORLD_RANK']}.json").write_text(json.dumps(asked))

    tf.config.list_physical_devices = lambda _: gpus
    tf.config.set_visible_devices = lambda devices, kind: note(f"visible {kind}", [d.name for d in devices])
    tf.config.experimental.set_memory_growth = lambda device, enable: note("growth", [device.name, enable])


if __name__ == "__main__":
    play()
    train.end_process(train.main(sys.argv[1:]))
