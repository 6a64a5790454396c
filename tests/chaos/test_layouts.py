"""The layouts of a storm: each closes with what the plan expects, by what ends it alone."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from function_app.config.layouts import Layout
from function_app.config.pipeline_files import parse_pipeline
from function_app.sweep.sweep import sweep
from tests.chaos.layouts import LAYOUTS, StormLayout, layout_of
from tests.chaos.plan import PIPELINE, RECORDS_PER_SHARD, ChaosPlan, fingerprint_of
from tests.chaos.tables import TableWriter
from tests.support.world import VERSION, World

PLAN = ChaosPlan(versions=len(LAYOUTS), shards=4)


def world_of(layout: StormLayout) -> World:
    """A world whose pipeline is one of a storm."""
    world, unused = World(), {"reads": "folder", "cluster": "chaos"}
    unused["format"] = "parquet" if layout.is_table else "tfrecord"
    text = PIPELINE.format(
        dataset="digits", layout=layout.section, on_change="train", num_nodes=1, timeout_s=60, **unused
    )
    world.change_pipeline(data=parse_pipeline(text.encode(), "digits.yaml").data)
    return world


@pytest.mark.parametrize("dataset", PLAN.datasets)
def test_each_layout_closes_with_the_content_that_the_plan_expects(dataset: str, tmp_path: Path) -> None:
    """It does not close before its end is written, or before nothing has changed for a while."""
    layout, files = layout_of(dataset), PLAN.last_contents()[dataset]
    world = world_of(layout)
    for name, content in files.items():
        world.clock.move(seconds=2)
        world.deliver(world.put(name, content))
    before = len(world.ledger.generations(VERSION))
    if layout.sealer is not None:
        written = layout.sealer(tmp_path)(files, RECORDS_PER_SHARD)
        assert written is not None
        world.deliver(world.put(*written))
    for _ in range(2):
        sweep(world.services)
        world.clock.move(seconds=61)
    sweep(world.services)
    latest = world.ledger.latest_generation(VERSION)
    assert latest is not None
    assert (layout.section == "names", fingerprint_of(files)) == (before == 1, latest.fingerprint)


def test_a_table_is_closed_with_what_each_of_its_commits_leaves(tmp_path: Path) -> None:
    """A file is replaced, removed, and restored; nothing is committed twice."""
    dataset = next(name for name in PLAN.datasets if layout_of(name).is_table)
    layout, names = layout_of(dataset), PLAN.shard_names(dataset)
    world, write = world_of(layout), TableWriter(tmp_path)
    first = {name: PLAN.content(name, 0, dataset) for name in names}
    replaced = {**first, names[0]: PLAN.content(names[0], 1, dataset)}
    states = [first, replaced, {name: replaced[name] for name in names[1:]}, first]
    for state in states:
        written = write(layout.stored(state), RECORDS_PER_SHARD)
        assert (False, None) == (written is None, write(layout.stored(state), RECORDS_PER_SHARD))
        for name, content in [*layout.stored(state).items(), *([written] if written else [])]:
            world.deliver(world.put(name, content))
    closings = list(reversed(world.ledger.generations(VERSION)))
    assert [fingerprint_of(layout.stored(state)) for state in states] == [one.fingerprint for one in closings]
    assert [0, 1, 2, 3] == [one.table_version for one in closings]


def test_every_layout_is_in_a_storm() -> None:
    """The smallest storm has all of them."""
    kinds = get_args(Layout.model_fields["kind"].annotation)
    assert set(kinds) == {world_of(one).services.pipelines["digits"].data.layout.kind for one in LAYOUTS}
