"""The time for a record: fitted, scaled or published, with intervals that are as wide as the evidence is thin."""

from __future__ import annotations

import math

import pytest

from function_app.config.price_file import load_prices
from function_app.planning.cost_model import CostModel, Place
from function_app.planning.throughput import Observation, Throughput, pace
from shared.job_arguments import TrainingOptions
from tests.unit.function_app.planning.worlds import SHIPPED

A100 = "Standard_NC24ads_A100_v4"
ND = "Standard_ND96asr_v4"


def at(num_nodes: int, size: str = A100, of_node: int = 1) -> Place:
    return Place(vm_size=size, num_nodes=num_nodes, num_ranks=num_nodes * of_node)


def seen(num_nodes: int, record_s: float, size: str = A100) -> Observation:
    return Observation(place=at(num_nodes, size), record_s=record_s)


def model(name: str = "ResNet50", precision: str = "bfloat16") -> CostModel:
    prices = load_prices(SHIPPED)
    assert prices is not None
    options = TrainingOptions(model_name=name, mixed_precision=precision)  # type: ignore[arg-type]
    return CostModel(prices=prices, options=options, pixels=224 * 224)


def known(place: Place, *observations: Observation, name: str = "ResNet50") -> Throughput:
    own = model(name)
    found = pace(place, observations, own.record_s, is_reference=own.is_of_reference)
    assert found is not None
    return found


def width(found: Throughput) -> float:
    return math.log(found.high_s / found.low_s)


def test_without_runs_the_figures_are_the_published_ones() -> None:
    eight = known(at(1, ND, of_node=8))

    assert "published" == eight.source
    assert pytest.approx(1 / 2375) == known(at(1)).record_s
    assert pytest.approx(1 / 17400, rel=0.01) == eight.record_s


def test_float32_takes_the_figure_of_float32() -> None:
    assert pytest.approx(1 / 909) == model(precision="none").record_s(at(1))


def test_a_network_of_more_operations_takes_longer_and_is_less_certain() -> None:
    assert pytest.approx(2 / 2375) == known(at(1), name="ResNet101").record_s
    assert width(known(at(1), name="ResNet101")) > width(known(at(1)))


def test_nodes_without_infiniband_and_vgg_lose_more() -> None:
    far, near = model().record_s(at(8)), model().record_s(at(1))
    vgg_far, vgg_near = model("VGG16").record_s(at(8)), model("VGG16").record_s(at(1))

    assert far
    assert near
    assert vgg_far
    assert vgg_near
    assert 0.85 < near / far / 8 < 0.96
    assert vgg_near / vgg_far / 8 < 0.7


@pytest.mark.parametrize("size", ["Standard_D8s_v5", "Standard_NC4as_T4_v3"])
def test_without_runs_and_figures_nothing_is_said(size: str) -> None:
    assert pace(at(1, size), [], model().record_s, is_reference=True) is None


def test_a_script_or_module_of_ones_own_has_no_figure() -> None:
    assert pace(at(1), [], lambda _: None, is_reference=False) is None
    prices = load_prices(SHIPPED)
    assert prices is not None
    options = TrainingOptions(model_module="scripts/net.py")
    assert CostModel(prices=prices, options=options, pixels=0).record_s(at(1)) is None


def test_one_run_moves_every_size_and_keeps_a_wide_interval() -> None:
    slow = 3 / 2375
    found = known(at(1), seen(1, slow))

    assert ("scaled", 1) == (found.source, found.num_runs)
    assert pytest.approx(slow) == found.record_s
    assert pytest.approx(1.5) == found.high_s / found.record_s
    assert pytest.approx(3.0) == known(at(4), seen(1, slow)).record_s / known(at(4)).record_s


def test_more_runs_that_agree_narrow_the_interval() -> None:
    runs = [seen(2, value) for value in (1.0, 1.02, 0.98, 1.01, 0.99)]

    assert width(known(at(2), *runs)) < width(known(at(2), *runs[:1]))
    assert known(at(2), *runs).low_s < 1.0 < known(at(2), *runs).high_s


def test_runs_that_differ_widen_it() -> None:
    assert width(known(at(2), *(seen(2, value) for value in (1.0, 2.0, 0.5)))) > math.log(4)


def test_runs_of_several_sizes_are_fitted_with_what_does_not_scale() -> None:
    runs = [seen(number, 0.1 + 0.8 / number) for number in (1, 2, 4, 8)]
    found = known(at(3), *runs)

    assert ("fitted", 4) == (found.source, found.num_runs)
    assert pytest.approx(0.1 + 0.8 / 3) == found.record_s
    assert pytest.approx(0.1 + 0.8 / 64) == known(at(64), *runs).record_s


def test_a_fit_is_never_negative() -> None:
    runs = [seen(1, 1.0), seen(2, 0.4), seen(4, 0.15)]

    assert 0 < known(at(64), *runs).low_s < known(at(64), *runs).record_s < 0.15


def test_runs_that_are_a_billion_times_slower_have_no_line_with_the_others() -> None:
    """A script may report any rate; the plan of its next run is still made."""
    found = known(at(3), seen(1, 1e-5), seen(1, 2e-5), seen(2, 1e4))

    assert ("scaled", 3) == (found.source, found.num_runs)
    assert 0 < found.low_s < found.record_s < found.high_s


def test_a_run_on_another_size_teaches_too_but_less() -> None:
    other = known(at(1, ND, of_node=8), seen(1, 3 / 2375))

    assert pytest.approx(3 / 17400, rel=0.01) == other.record_s
    assert width(other) > width(known(at(1), seen(1, 3 / 2375)))


def test_without_figures_a_run_is_scaled_by_less_than_its_processes() -> None:
    found = pace(at(4), [seen(1, 1.0)], lambda _: None, is_reference=False)

    assert found is not None
    assert 0.25 < found.record_s < 0.33
