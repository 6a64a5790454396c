"""A pipeline of synthetic data, for tests of runs without data."""

from __future__ import annotations

from dataclasses import replace

from function_app.config.pipeline_files import parse_pipeline
from function_app.config.pipelines import Pipeline
from tests.support.world import World

SYNTHETIC = "speed"
"""Name of the pipeline and its dataset."""
PIPELINE = f"""
pipeline: {SYNTHETIC}
dataset: {SYNTHETIC}
data:
  format: synthetic
train:
  compute: landfall-gpu
  vm_size: Standard_NC6s_v3
  num_nodes: 2
  processes_per_node: 1
  timeout_s: 3600
  options: {{synthetic_records: 640, image_height: 32, image_width: 32, image_channels: 3}}
  overrides:
    model_name: {{allowed: [ResNet50, VGG16]}}
notify:
  - topic
"""


def synthetic_pipeline() -> Pipeline:
    """Return it as it is read from its file."""
    return parse_pipeline(PIPELINE.encode(), f"{SYNTHETIC}.yaml")


def add_synthetic_pipeline(world: World) -> None:
    """Deploy it beside the others."""
    pipelines = {**world.services.pipelines, SYNTHETIC: synthetic_pipeline()}
    world.services = replace(world.services, pipelines=pipelines)


def synthetic_world() -> World:
    """Return a world in which it is deployed."""
    world = World()
    add_synthetic_pipeline(world)
    return world
