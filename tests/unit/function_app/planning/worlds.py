"""A world whose deployment has clusters and prices, and runs that take as long as a test says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from function_app.config.price_file import load_prices
from function_app.config.prices import PlanFacts
from function_app.domain.records import RunRecord
from tests.support.world import World, clusters

SHIPPED = Path(__file__).resolve().parents[4] / "pipelines"


def facts() -> PlanFacts:
    """The clusters of the tests with the shipped prices."""
    return PlanFacts(clusters=clusters(), prices=load_prices(SHIPPED))


def planning_world() -> World:
    """A world with clusters and prices."""
    world = World()
    world.services = replace(world.services, plan_facts=facts())
    return world


def train_for(
    world: World, version: str, *, record_s: float, job_s: float = 60.0, start_s: float = 240.0
) -> RunRecord:
    """Train a version; a record takes so long, the job so much more, and its nodes start after so long."""
    run = world.train(version=version)
    world.clock.move(seconds=start_s)
    world.jobs.become(run.run_id, "Running")
    run = world.follow(run)
    images, epochs = 22, 3  # the pipeline's shards, all in whole steps of two records
    trained_s = images * epochs * record_s
    world.clock.move(seconds=job_s + trained_s)
    epoch = {"epoch": 1.0, "duration_s": images * record_s, "images_per_s": 1 / record_s}
    world.write_report(run, {"val_accuracy": 0.97}, epochs=(epoch,) * epochs)
    world.jobs.become(run.run_id, "Completed")
    return world.follow(run)
