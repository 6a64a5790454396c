"""The layouts of a storm: each closes with what the plan expects, by what ends it alone."""

from __future__ import annotations

from typing import get_args

import pytest

from function_app.config.layouts import Layout
from function_app.config.pipeline_files import parse_pipeline
from function_app.sweep.sweep import sweep
from tests.chaos.layouts import LAYOUTS, StormLayout, layout_of
from tests.chaos.plan import PIPELINE, RECORDS_PER_SHARD, ChaosPlan, fingerprint_of
from tests.support.world import VERSION, World

PLAN = ChaosPlan(versions=len(LAYOUTS), shards=4)


def world_of(layout: StormLayout) -> World:
    """A world whose pipeline is one of a storm."""
    world, unused = World(), {"reads": "folder", "cluster": "chaos"}
    text = PIPELINE.format(
        dataset="digits", layout=layout.section, on_change="train", num_nodes=1, timeout_s=60, **unused
    )
    world.change_pipeline(data=parse_pipeline(text.encode(), "digits.yaml").data)
    return world


@pytest.mark.parametrize("dataset", PLAN.datasets)
def test_each_layout_closes_with_the_content_that_the_plan_expects(dataset: str) -> None:
    """Not before its end is written, or before nothing changed for a while."""
    layout, files = layout_of(dataset), PLAN.last_contents()[dataset]
    world = world_of(layout)
    for name, content in files.items():
        world.clock.move(seconds=2)
        world.deliver(world.put(name, content))
    before = len(world.ledger.generations(VERSION))
    if layout.seal is not None:
        world.deliver(world.put(*layout.seal(files, RECORDS_PER_SHARD)))
    for _ in range(2):
        sweep(world.services)
        world.clock.move(seconds=61)
    sweep(world.services)
    latest = world.ledger.latest_generation(VERSION)
    assert latest is not None
    assert (layout.section == "names", fingerprint_of(files)) == (before == 1, latest.fingerprint)


def test_every_layout_but_delta_is_in_a_storm() -> None:
    """The smallest storm has all of them."""
    kinds = get_args(Layout.model_fields["kind"].annotation)
    assert set(kinds) - {"delta"} == {world_of(one).services.pipelines["digits"].data.layout.kind for one in LAYOUTS}
