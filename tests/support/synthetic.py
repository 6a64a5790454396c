"""A pipeline of synthetic data, for tests of runs without a dataset."""

from __future__ import annotations

from dataclasses import replace

from function_app.config.pipelines import Pipeline
from tests.support.world import World, read_pipeline

SYNTHETIC = "speed"
"""The name of the pipeline and of its dataset."""
PIPELINE = f"""
pipeline: {SYNTHETIC}
dataset: {SYNTHETIC}
data:
  format: synthetic
train:
  cluster: landfall-gpu
  num_nodes: 2
  timeout_s: 3600
  options: {{synthetic_records: 640, image_height: 32, image_width: 32, image_channels: 3}}
  overrides:
    model_name: {{allowed: [ResNet50, VGG16]}}
notify:
  - topic
"""


def synthetic_pipeline() -> Pipeline:
    """Return the pipeline, as read from its file."""
    return read_pipeline(PIPELINE, f"{SYNTHETIC}.yaml")


def add_synthetic_pipeline(world: World) -> None:
    """Deploy the pipeline in addition to the others."""
    pipelines = {**world.services.pipelines, SYNTHETIC: synthetic_pipeline()}
    world.services = replace(world.services, pipelines=pipelines)


def synthetic_world() -> World:
    """Return a world in which the pipeline is deployed."""
    world = World()
    add_synthetic_pipeline(world)
    return world
