"""The page that shows runs side by side: what it draws, what it links to, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.option_sweeps import MAX_RUNS, OptionSweep
from function_app.domain.records import RunRecord
from function_app.runs.option_sweeps import runs_of
from function_app.web.drawing import MAX_COMPARED_CHARTS, MAX_COMPARED_EPOCHS, compared_charts, stroke
from tests.support.world import World
from tests.unit.function_app.registry.test_challenge import challenge, results
from tests.unit.function_app.runs.test_option_sweeps import finish, swept_world
from tests.unit.function_app.web.client import call, look
from tests.unit.function_app.web.test_pages import HOSTILE, texts


def epochs_of(run: int, number: int = 5) -> list[dict[str, Any]]:
    """Return the epochs of a training report."""
    return [
        {"epoch": epoch, "loss": (run + 1) / epoch, "val_accuracy": 1 - 1 / (epoch + run)}
        for epoch in range(1, number + 1)
    ]


def report(world: World, run: RunRecord, **members: Any) -> None:
    """Replace the report of a run."""
    machines = {"world_size": run.world_size, "num_nodes": run.num_nodes}
    world.write_report(run, members.pop("metrics", {"val_accuracy": 0.97}), **machines, **members)


def ended_sweep() -> tuple[World, OptionSweep, list[RunRecord]]:
    """A sweep whose three runs have ended, with epochs in their reports."""
    world, sweep = swept_world()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.0)
    for accuracy in (0.96, 0.99, 0.5):
        run = runs_of(sweep, world.ledger)[-1]
        world.jobs.become(run.run_id, "Running")
        world.follow(run)
        world.clock.move(minutes=10)
        finish(world, sweep, accuracy)
    runs = runs_of(sweep, world.ledger)
    for number, (run, accuracy) in enumerate(zip(runs, (0.96, 0.99, 0.5), strict=True)):
        report(world, run, metrics={"val_accuracy": accuracy}, epochs=tuple(epochs_of(number, 5 + number)))
    return world, sweep, runs


def address(runs: list[RunRecord]) -> str:
    """Return the path of a comparison."""
    return "/compare?" + "&".join(f"run={run.run_id}" for run in runs)


@pytest.fixture(scope="module")
def ended() -> tuple[World, OptionSweep, list[RunRecord]]:
    """A sweep that no test changes."""
    return ended_sweep()


def test_a_sweep_is_shown_with_its_best_run(ended: tuple[World, OptionSweep, list[RunRecord]]) -> None:
    """Options that differ, metrics, time, node-hours and cost; nothing changes any more."""
    world, sweep, runs = ended
    page = look(world, f"/compare?sweep={sweep.sweep_id}").text
    assert "State ended Runs started 3 of 3 Compared by val accuracy Best " + runs[1].run_id in texts(page)
    model = f"{runs[1].model_name} version {runs[1].model_version}"
    expected = f"2: {runs[1].run_id} 0.03 0.99 registered {model} digits/v1 , generation 1 10 min 0.17 0.50 100"
    assert expected in texts(page)
    assert "data-refresh-s" not in page


def test_curves_of_all_runs_share_an_axis(ended: tuple[World, OptionSweep, list[RunRecord]]) -> None:
    """Each in its colour and dashes, which its row has too, and with a table of the values."""
    world, _, runs = ended
    page = look(world, address(runs)).text
    assert 6 == page.count("<polyline")
    assert ["curve-0 dash-0", "curve-1 dash-1", "curve-2 dash-2"] == re.findall(
        r'polyline class="curve ([^"]+)"', page
    )[:3]
    assert 3 == page.count('path class="curve curve-1 dash-1"')
    assert "loss over epochs 1 to 7: run 1 is 0.2, run 2 is 0.3333, run 3 is 0.4286" in page
    assert "Values of val accuracy Epoch run 1 run 2 run 3 1 0 0.5 0.6667" in texts(page)


def test_a_run_that_trains_is_compared_and_asked_for_again() -> None:
    """The page shows what is known of it; its curve is updated."""
    world, sweep = swept_world()
    finish(world, sweep, 0.96)
    page = look(world, f"/compare?sweep={sweep.sweep_id}").text
    assert "State running Runs started 2 of 3" in texts(page)
    assert "no run has ended with epochs in its report yet" in page
    assert "data-refresh-s" in page


def test_fewer_than_two_runs_come_with_a_choice() -> None:
    """The newest runs; before there is any, with how to begin."""
    assert "landfall upload FOLDER --to DATASET/VERSION" in look(World(), "/compare").text
    world, sweep = swept_world()
    first, second = finish(world, sweep, 0.96)
    assert [second.run_id, first.run_id] == re.findall('name="run" value="([^"]+)">', look(world, "/compare").text)
    page = look(world, address([first])).text
    assert f'value="{first.run_id}" checked' in page
    assert "data-refresh-s" not in page


def test_pages_of_runs_and_versions_lead_to_comparisons(ended: tuple[World, OptionSweep, list[RunRecord]]) -> None:
    """They link to their sweep, to each other, and to the run that registered a model before."""
    world, sweep, runs = ended
    swept = f'href="/compare?sweep={sweep.sweep_id}"'
    assert swept in look(world, "/datasets/digits/v1").text
    assert swept in look(world, f"/runs/{runs[0].run_id}").text
    assert f'href="/compare?run={runs[0].run_id}"' in look(world, f"/runs/{runs[0].run_id}").text
    assert (
        f'href="/compare?run={runs[1].run_id}&amp;run={runs[2].run_id}"'
        in look(world, f"/runs/{runs[2].run_id}").text
    )
    every = "&amp;".join(f"run={run.run_id}" for run in reversed(runs))
    assert f'href="/compare?{every}"' in look(world, "/datasets/digits/v1").text


def test_metrics_have_their_intervals() -> None:
    """The page and the API have them if a run wrote the results of each example."""
    world = challenge(results(396), 0.99)
    runs = world.ledger.runs()
    low, high = runs[0].evidence["intervals"]["val_accuracy"][1:]
    page = look(world, address(runs)).text
    assert "Below a metric stands its 95" in page
    assert f"{low:.4g} to {high:.4g}" in page
    found = call(world, "GET", "/api/compare?" + "&".join(f"run={run.run_id}" for run in runs)).json()
    assert [0.99, low, high] == found["runs"][0]["intervals"]["val_accuracy"]
    assert [] == found["notes"]


def test_what_has_no_interval_is_said_with_its_reason() -> None:
    """An F1 score is no average over examples; a run may have left no results of them."""
    world = challenge(results(396), 0.99)
    new, old = world.ledger.runs()
    report(world, new, metrics={"val_accuracy": 0.99, "val_f1": 0.9})
    world.ledger.run_rows[old.run_id] = replace(old, evidence={})
    notes = call(world, "GET", address([new, old]).replace("/compare", "/api/compare")).json()["notes"]
    average, none = notes
    assert average.startswith("Without an interval: val_f1. Only averages over validation examples")
    assert none.startswith(f"No metric of {old.run_id} has an interval: ")
    page = look(world, address([new, old])).text
    assert [True, True] == [note in page for note in notes]


def test_names_and_values_of_others_are_harmless() -> None:
    """Options of a command, metrics, measures of an epoch and reasons."""
    world, sweep, runs = ended_sweep()
    run = runs[0]
    command = f"{run.spec['command']} '--{HOSTILE}=1' '--lr={HOSTILE}?sig=secret123{'y' * 9000}'"
    world.ledger.run_rows[run.run_id] = replace(run, spec={**run.spec, "command": command}, reason=HOSTILE)
    named = {HOSTILE: 1.0, "x" * 9000: 2.0, **{f"metric{number}": 1.0 for number in range(100)}}
    report(world, run, metrics=named, epochs=tuple({"epoch": 1, **named, "bad": float("nan")} for _ in range(3)))
    page = look(world, f"/compare?sweep={sweep.sweep_id}")
    assert 200 == page.status_code
    for text in ("<script>alert", "\x1b", "\u202e", "secret123", "y" * 300, "nan"):
        assert text not in page.text
    assert "&lt;script&gt;" in page.text
    assert len(page.text) < 100_000
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/static/)|https?://", page.text)


def test_the_largest_comparison_stays_small() -> None:
    """32 runs of 300 epochs with twenty measures."""
    measures = {f"measure{number}": 0.123456 for number in range(20)}
    charts = compared_charts([[{"epoch": float(n), **measures} for n in range(300 + run)] for run in range(MAX_RUNS)])
    assert MAX_COMPARED_CHARTS == len(charts)
    assert len(charts[0].epochs) <= MAX_COMPARED_EPOCHS + MAX_RUNS
    assert (0, 300 + MAX_RUNS - 2) == (charts[0].first_epoch, charts[0].last_epoch)
    assert [300.0 + run - 1 for run in range(MAX_RUNS)] == [max(curve.values) for curve in charts[0].curves]
    assert MAX_RUNS == len({stroke(number) for number in range(MAX_RUNS)})


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("run=landfall-x-a1", 404, "Run landfall-x-a1 does not exist"),
        ("sweep=sweep-x", 404, "Option sweep sweep-x does not exist"),
        ("sweep=../x", 422, "is not valid"),
        ("run=%3Cscript%3E", 422, "is not valid"),
    ],
)
def test_what_cannot_be_compared_is_an_error_that_says_what_to_do(query: str, status: int, text: str) -> None:
    """The error has the frame of every page."""
    page = look(World(), f"/compare?{query}")
    assert (status, True, True) == (page.status_code, text in page.text, "Check the address" in page.text)


def test_too_many_runs_are_refused() -> None:
    """The page says how many there may be."""
    world, _sweep, runs = ended_sweep()
    copies = [
        replace(runs[0], run_id=f"landfall-{number}-a1", logical_run=f"landfall-{number}") for number in range(40)
    ]
    for copy in copies:
        world.ledger.add_run(copy)
    page = look(world, address(copies))
    assert (422, True) == (page.status_code, f"t most {MAX_RUNS} runs can be compared at once" in page.text)
