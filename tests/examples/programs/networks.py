"""Build the networks of pipelines at full size: reads options as JSON, prints each one's name, inputs and outputs."""

from __future__ import annotations

import json
import sys
from typing import Any

import keras

from shared.job_arguments import TrainingOptions
from training_job.models import build_model


def network(members: dict[str, Any]) -> tuple[str, list[int], list[int], str]:
    """Return the name, the shapes of one image and of its logits, and what the logits are computed in."""
    options = TrainingOptions(**members)
    if options.mixed_precision != "none":
        keras.mixed_precision.set_global_policy(f"mixed_{options.mixed_precision}")
    model = build_model(options, (options.image_height, options.image_width, options.image_channels))
    keras.mixed_precision.set_global_policy("float32")
    return model.name, list(model.input_shape[1:]), list(model.output_shape[1:]), model.output.dtype


if __name__ == "__main__":
    print(json.dumps([network(members) for members in json.load(sys.stdin)]))  # noqa: T201 (read by the test)
