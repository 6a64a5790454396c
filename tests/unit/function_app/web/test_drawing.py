"""Drawings: cells, curves and bars, for few and for many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.explain.description import describe_version
from function_app.web.drawing import (
    CELL,
    CURVE_HEIGHT,
    CURVE_WIDTH,
    MAX_CELLS,
    MAX_POINTS,
    charts,
    shard_grid,
    shares,
)
from tests.support.world import VERSION, World


def test_neighbours_of_one_state_are_one_rectangle() -> None:
    """10,000 good shards are a hundred rectangles."""
    world = World()
    world.deliver(world.put("train-00000-of-10000.tfrecord"))
    row = world.ledger.shard_rows[VERSION, "train", 0]
    for index in range(9_950):
        world.ledger.shard_rows[VERSION, "train", index] = replace(row, index=index)
    grid = shard_grid(describe_version(VERSION, world.services).splits[0].verdicts)
    assert grid is not None
    assert 101 == len(grid.stretches)
    assert 10_000 * CELL == sum(stretch.width for stretch in grid.stretches)
    assert ("missing", 50 * CELL) == (grid.stretches[-1].state, grid.stretches[-1].x)
    assert (100 * CELL, 100 * CELL, 0) == (grid.width, grid.height, grid.num_left_out)


def test_no_more_cells_are_drawn_than_a_browser_can_show() -> None:
    """A name may claim a million shards."""
    grid = shard_grid((None,) * 999_999)
    assert grid is not None
    assert 999_999 - MAX_CELLS == grid.num_left_out
    assert MAX_CELLS * CELL == sum(stretch.width for stretch in grid.stretches)


def test_a_split_of_unknown_size_has_no_cells() -> None:
    """None of its shards has come yet."""
    world = World()
    world.deliver(world.put("train-00000-of-00002.tfrecord"))
    assert shard_grid(describe_version(VERSION, world.services).splits[1].verdicts) is None


def test_curves_fill_their_chart() -> None:
    """The first epoch is on the left, the largest value on top; measures that no epoch has are left out."""
    loss, accuracy = charts(
        [{"epoch": 1, "loss": 3.0, "accuracy": 0.5}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 2.0}]
    )
    assert ["0.0,0.0 300.0,240.0 600.0,120.0"] == [curve.points for curve in loss.curves]
    assert [(240.0, 1.0), (180.0, 1.5), (120.0, 2.0), (60.0, 2.5), (0.0, 3.0)] == [(t.y, t.value) for t in loss.ticks]
    assert (1, 3) == (loss.first_epoch, loss.last_epoch)
    assert [f"{CURVE_WIDTH / 2},{CURVE_HEIGHT / 2}"] == [curve.points for curve in accuracy.curves]


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    """The last value is what people look for."""
    (chart,) = charts([{"epoch": float(number), "loss": float(number)} for number in range(1, 10_001)])
    assert len(chart.curves[0].points.split()) <= MAX_POINTS + 1
    assert 10_000.0 == chart.curves[0].last


def test_bars_are_shares_of_the_largest() -> None:
    """An empty list and zeros are drawn, too."""
    assert [200.0, 100.0, 0.0] == shares([4, 2, 0], 200)
    assert ([], [0.0]) == (shares([], 200), shares([0], 200))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0384, 1.789), [0.0, 0.5, 1.0, 1.5, 2.0]),
        ((0.9, 0.9), [0.0, 0.5, 1.0, 1.5, 2.0]),
        ((0.0, 0.0), [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ((-1e100, 1e100), [-1e100, -5e99, 0.0, 5e99, 1e100]),
        ((1e16, 1e16 + 2), [0.0, 5e15, 1e16, 1.5e16, 2e16]),
        ((5e-324, 0.0), None),
        ((5e-324, 5e-324), None),
    ],
)
def test_lines_across_a_chart_are_round_numbers(values: tuple[float, float], expected: list[float] | None) -> None:
    """They enclose all values, whatever a training has printed."""
    (chart,) = charts([{"epoch": float(number), "loss": value} for number, value in enumerate(values)])
    ticks = [tick.value for tick in chart.ticks]
    if expected is not None:
        assert expected == pytest.approx(ticks)
    assert ticks[0] <= min(values) <= max(values) <= ticks[-1]
    assert all(0 <= dot.y <= CURVE_HEIGHT for curve in chart.curves for dot in curve.dots)


@pytest.mark.parametrize("values", [(1e308,), (1.7e308, -1.7e308), (0.5, 1.7e308)])
def test_numbers_that_are_too_large_to_draw_stay_in_their_chart(values: tuple[float, ...]) -> None:
    """The loss of a training that diverges may be almost the largest float, and its page is still shown."""
    (chart,) = charts([{"epoch": float(number), "loss": value} for number, value in enumerate(values)])
    (curve,) = chart.curves
    assert values == tuple(dot.value for dot in curve.dots)
    assert all(0 <= dot.y <= CURVE_HEIGHT for dot in curve.dots)


def test_amounts_are_drawn_from_zero() -> None:
    """Otherwise 11,000 to 11,400 images/s would look like a collapse."""
    (chart,) = charts([{"epoch": 1.0, "images_per_s": 11_000.0}, {"epoch": 2.0, "images_per_s": 11_400.0}])
    assert (0.0, 15_000.0) == (chart.ticks[0].value, chart.ticks[-1].value)
