"""The pages in a real browser: readable for everybody, at every width, by keyboard, live, and with many shards."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import Browser, expect

from function_app.domain.records import RunRecord
from function_app.web.app import build_api_page
from shard_validation import Reason, ReasonCode
from shared.progress import Progress, RankPlace
from tests.support.browser import ADDRESS, WIDTHS, served
from tests.support.world import VERSION, World
from tests.unit.function_app.planning.worlds import planning_world
from tests.unit.function_app.web.client import look
from tests.unit.function_app.web.test_compare_page import ended_sweep

pytestmark = pytest.mark.browser

NUM_SHARDS = 10_000


def progress_lines(num_epochs: int) -> str:
    """The log of a training that gets better."""
    lines = ["2 ranks on 2 nodes have met", "the first batch took 3.1 s"]
    for epoch in range(1, num_epochs + 1):
        lines.append(
            Progress(
                epoch=epoch,
                epochs=20,
                step=40 * epoch,
                loss=2.2 / epoch,
                accuracy=1 - 0.7 / epoch,
                val_loss=2.4 / epoch,
                val_accuracy=1 - 0.8 / epoch,
                images_per_s=11_000 + 100 * (epoch % 5),
            ).to_line()
        )
        lines.append(f"epoch {epoch} of 20 took 8.2 s")
    return "\n".join(lines)


def busy_world() -> tuple[World, RunRecord]:
    """A run that trains, one in line, a version with a rejected and a missing shard, a broken pipeline."""
    world = planning_world()
    world.add_pipelines("letters")
    run = world.upload_version()
    world.clock.move(minutes=3)
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(minutes=12)
    world.jobs.logs[run.run_id] = progress_lines(12)
    world.train(version="v2")
    world.finish(world.train(version="2026-11", dataset="letters"))
    world.deliver(world.put("train-00001-of-00008.tfrecord", b"junk", version="v3"))
    world.upload_shards("train-00000-of-00008.tfrecord", version="v3")
    world.break_pipeline("cats")
    return world, run


def test_every_page_is_for_everybody(browser: Browser) -> None:
    """Axe finds nothing and the console is silent, at three widths, light and dark."""
    world, run = busy_world()
    registered = next(run for run in world.ledger.runs() if run.model_version is not None)
    pages = {
        "overview": "/",
        "runs": "/runs",
        "dataset": "/datasets/digits",
        "version": "/datasets/digits/v3",
        "version-whole": "/datasets/digits/v1",
        "plan": "/datasets/digits/v1/plan",
        "shard": "/datasets/digits/v3/shards/train/1",
        "run": f"/runs/{run.run_id}",
        "compare-choice": "/compare",
        "confirm": f"/runs/{run.run_id}/cancel",
        "costs": "/costs",
        "models": "/models",
        "model-version": f"/models/digits-cnn/{registered.model_version}?verify=true",
        "pipelines": "/pipelines",
        "dead-letters": "/dead-letters",
    }
    with served(browser, lambda path: look(world, path)) as watched:
        for name, path in pages.items():
            watched.page.goto(ADDRESS + path)
            watched.look(name)


def test_empty_and_error_pages_are_for_everybody_too(browser: Browser) -> None:
    """A browser reports an error's status on its console, and nothing more."""
    with served(browser, lambda path: look(World(), path)) as watched:
        watched.page.goto(ADDRESS)
        watched.look("empty")
        watched.page.goto(f"{ADDRESS}/nowhere")
        assert [] == [text for text in watched.complaints if "404" not in text]
        watched.complaints.clear()
        watched.look("error")


def test_the_page_of_the_api_is_for_everybody(browser: Browser) -> None:
    """Its list of requests leads to each of them, and a body's name to its members."""
    page = build_api_page()
    described = httpx.Response(200, headers=dict(page.headers), content=bytes(page.body))
    with served(browser, lambda path: described if path == "/api/docs" else look(World(), path)) as watched:
        watched.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        watched.page.goto(f"{ADDRESS}/api/docs")
        watched.check()  # once: axe takes long on a page of this size
        watched.page.get_by_role("link", name="POST /api/runs", exact=True).click()
        expect(watched.page.locator(":target")).to_have_text("POST /api/runs")
        watched.page.get_by_role("link", name="RunRequest").click()
        expect(watched.page.locator(":target")).to_contain_text("dryRun")


def test_runs_are_compared_by_everybody(browser: Browser) -> None:
    """The sweep's name on a run's page leads to a table, curves, and values by keyboard; then runs are chosen."""
    world, sweep, runs = ended_sweep()
    with served(browser, lambda path: look(world, path)) as watched:
        page = watched.page
        page.goto(f"{ADDRESS}/runs/{runs[0].run_id}")
        page.get_by_role("link", name=sweep.sweep_id, exact=True).click()
        expect(page.get_by_role("img", name="loss over epochs 1 to 7")).to_be_visible()
        page.get_by_text("Values of loss").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Values of loss")).to_be_visible()
        watched.look("compare")
        page.get_by_role("link", name="Compare", exact=True).click()
        for run in runs[:2]:
            page.get_by_label(run.run_id).check()
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("img", name="loss over epochs 1 to 6")).to_be_visible()


def test_a_page_follows_its_run_and_keeps_what_a_person_opened(browser: Browser) -> None:
    """The next epoch appears by itself; an open table stays open, and the focus where it was."""
    world, run = busy_world()
    with served(browser, lambda path: look(world, path)) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{ADDRESS}/runs/{run.run_id}")
        expect(page.get_by_text("12 of 20 epochs")).to_be_visible()
        page.get_by_text("Metrics of each epoch").click()
        page.get_by_role("link", name="digits/v1").focus()
        world.jobs.logs[run.run_id] = progress_lines(13)
        page.clock.run_for(60_000)
        expect(page.get_by_text("13 of 20 epochs")).to_be_visible()
        expect(page.get_by_role("region", name="Epochs")).to_be_visible()
        expect(page.get_by_role("link", name="digits/v1")).to_be_focused()
        watched.check()


def test_a_page_shows_the_log_of_the_rank_that_a_person_chose(browser: Browser) -> None:
    """The page follows that log; if there are many ranks, a person names one."""
    world, run = busy_world()
    place = RankPlace(rank=1, world_size=2, node=1, host="node-b", met=("node-a", "node-b"))
    world.jobs.logs[f"{run.run_id}/1"] = f"{place.to_line()}\nthe second rank\n"
    with served(browser, lambda path: look(world, path)) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{ADDRESS}/runs/{run.run_id}")
        page.get_by_role("link", name="Rank 1").click()
        expect(page.get_by_role("heading", name="Log of rank 1")).to_be_visible()
        expect(page.get_by_text("rank 1 of 2 on host node-b (node 1)")).to_be_visible()
        world.jobs.logs[f"{run.run_id}/1"] += "and goes on\n"
        page.clock.run_for(60_000)
        expect(page.get_by_text("and goes on")).to_be_visible()
        watched.look("rank")
        page.get_by_role("link", name="Where each rank ran").click()
        expect(page.get_by_role("listitem").filter(has_text="has met the ranks of node-a, node-b")).to_be_visible()
        watched.look("hosts")
        world.ledger.run_rows[run.run_id] = replace(run, spec={**run.spec, "num_nodes": 40})
        page.goto(f"{ADDRESS}/runs/{run.run_id}")
        page.get_by_label("Rank").fill("1")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_text("and goes on")).to_be_visible()
        watched.look("ranks")


@pytest.mark.parametrize("fault", ["unavailable", "no answer", "half an answer"])
def test_a_page_says_since_when_it_is_old(browser: Browser, fault: str) -> None:
    """Storage may be away, and Azure cuts an answer after 230 s; later the page goes on by itself."""
    world, _ = busy_world()
    down: list[int] = []

    def answer(path: str) -> httpx.Response:
        if down and fault == "unavailable":
            return httpx.Response(503)
        if down and fault == "no answer":
            raise httpx.ReadError("the connection was reset")
        whole = look(world, path)
        if not down:
            return whole
        half = whole.content[: len(whole.content) // 2]
        return httpx.Response(200, headers={"Content-Type": "text/html"}, content=half)

    with served(browser, answer) as watched:
        page = watched.page
        page.clock.install()
        page.goto(ADDRESS)
        down.append(1)
        page.clock.run_for(60_000)
        expect(page.get_by_text("Not updated since")).to_be_visible()
        expect(page.get_by_role("heading", name="Last runs of each pipeline")).to_be_visible()
        down.clear()
        page.clock.run_for(120_000)
        expect(page.get_by_text("Not updated since")).to_have_count(0)
        expect(page.get_by_text("the page updates by itself")).to_be_visible()


def test_a_rejected_shard_is_opened_by_keyboard_and_closed_again(browser: Browser) -> None:
    """Enter on its cell shows the reasons beside the cells; Escape leads back to the cell."""
    world, _ = busy_world()
    with served(browser, lambda path: look(world, path)) as watched:
        page = watched.page
        page.goto(f"{ADDRESS}/datasets/digits/v3")
        cell = page.get_by_role("link", name="train-00001-of-00008.tfrecord, rejected")
        cell.focus()
        page.keyboard.press("Enter")
        panel = page.get_by_role("complementary", name="Shard")
        expect(panel.get_by_text("Correct the file")).to_be_visible()
        watched.look("panel")
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(cell).to_be_focused()


def test_without_javascript_every_link_still_works(browser: Browser) -> None:
    """Scripts only keep pages up to date."""
    world, _ = busy_world()
    with served(browser, lambda path: look(world, path), java_script_enabled=False) as watched:
        watched.page.goto(f"{ADDRESS}/datasets/digits/v3")
        watched.page.get_by_role("link", name="train-00001-of-00008.tfrecord, rejected").click()
        expect(watched.page.get_by_text("Correct the file")).to_be_visible()


def large_world() -> World:
    """A version of 10,000 shards with statistics, one in ten rejected and one in a hundred missing."""
    world = World()
    world.deliver(world.put(f"train-00000-of-{NUM_SHARDS:05d}.tfrecord"))
    world.deliver(world.put(f"train-00001-of-{NUM_SHARDS:05d}.tfrecord", b"junk"))
    good, bad = (world.ledger.shard_rows[VERSION, "train", index] for index in (0, 1))
    for index in range(NUM_SHARDS):
        if index % 100 == 50:
            continue
        name = f"train-{index:05d}-of-{NUM_SHARDS:05d}.tfrecord"
        row = replace(good, index=index, name=name)
        if index % 10 == 1:
            reason = Reason(code=ReasonCode.NOT_A_SHARD, shard=name, message=f"{name}: record 7 is cut short")
            row = replace(bad, index=index, name=name, reasons=(reason,))
        world.ledger.shard_rows[VERSION, "train", index] = row
    return world


def test_ten_thousand_shards_are_few_elements(browser: Browser) -> None:
    """A browser shows them at once, and each rejected one can be opened; docs/decisions.md has the times."""
    world = large_world()
    with served(browser, lambda path: look(world, path)) as watched:
        page = watched.page
        page.goto(f"{ADDRESS}/datasets/digits/v1")
        expect(page.get_by_role("heading", name="History")).to_be_visible()
        expect(page.get_by_role("link", name="train-09991-of-10000.tfrecord, rejected")).to_have_count(1)
        assert page.evaluate("document.querySelectorAll('*').length") < 10_000
        page.get_by_role("link", name="train-00011-of-10000.tfrecord, rejected").click()
        expect(page.get_by_role("complementary", name="Shard").get_by_text("record 7 is cut short")).to_be_visible()
        watched.check()
