"""The networks that ship are built at their full size, in their own precision; nothing is trained."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from function_app.config.pipeline_files import load_pipeline
from shared.job_arguments import TrainingOptions
from tests.examples.journeys import DEADLINE_S
from tests.examples.overlays import PIPELINES
from tests.ranks.ranks import PROGRAMS
from tests.support.processes import REPOSITORY, child_environment

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


def options_of(name: str) -> TrainingOptions:
    """Return what a pipeline says of its training."""
    return load_pipeline(PIPELINES / f"{name}.yaml").train.options


def test_every_network_takes_what_its_pipeline_gives_it() -> None:
    """ImageNet's 224 x 224 in colours, X-rays in grey with one logit; logits are float32 also in mixed precision."""
    if not (PROGRAMS / "python").exists():
        pytest.skip(".venv-training is not there: run `make setup`")
    cifar = replace(options_of("cifar10-cnn"), image_height=32, image_width=32, image_channels=3)
    wanted = [options_of("imagenet-resnet50"), options_of("xray-effusion"), cifar]
    built = subprocess.run(
        [str(PROGRAMS / "python"), str(Path(__file__).parent / "programs" / "networks.py")],
        input=json.dumps([asdict(options) for options in wanted]),
        env=child_environment(PYTHONPATH=str(REPOSITORY), TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert [
        ["resnet50", [224, 224, 3], [1000], "float32"],
        ["densenet121", [224, 224, 1], [1], "float32"],
        ["small_cnn", [32, 32, 3], [10], "float32"],
    ] == json.loads(built.stdout.splitlines()[-1])
