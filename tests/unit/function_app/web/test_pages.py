"""The pages: what each shows, that text from outside is harmless, and that errors say what to do."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest

from function_app.config.layouts import Layout
from function_app.domain.errors import LogUnreadableError, ServiceUnavailableError, SettingsError
from function_app.domain.records import RunRecord, ShardRecord, ShardState
from function_app.explain.overview import overview
from function_app.runs.admission import hold_data
from function_app.testing.ledger import MemoryLedger
from function_app.web.app import build_pages_app
from function_app.web.pages import MAX_REJECTED
from function_app.web.rendering import STATIC
from shard_validation import Reason, ReasonCode
from shared.progress import Progress
from tests.support.world import ALL_SHARDS, VERSION, World
from tests.unit.function_app.ingest.test_drift import ODD, drifting_world, upload_shards
from tests.unit.function_app.planning.worlds import planning_world
from tests.unit.function_app.registry.test_challenge import challenge, results
from tests.unit.function_app.web.client import look

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202ered"


def texts(page: str) -> str:
    """What a person reads, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def training(world: World) -> RunRecord:
    """A run that trains, with two epochs in its log."""
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    lines = [
        Progress(epoch=epoch, epochs=3, step=10 * epoch, loss=1 / epoch, accuracy=0.5, val_loss=0.75).to_line()
        for epoch in (1, 2)
    ]
    world.jobs.logs[run.run_id] = "\n".join(["starting", *lines, HOSTILE, ""])
    return world.follow(run)


def test_an_empty_overview_says_how_to_begin() -> None:
    """The first thing that a person sees."""
    page = look(World(), "/")
    assert 200 == page.status_code
    assert "landfall upload FOLDER --to DATASET/VERSION" in page.text
    assert "Nothing needs a person." in page.text


def test_the_overview_says_who_has_to_do_what() -> None:
    """The data's owner: a rejected shard, a refused set, a hold; an engineer: files and letters."""
    world = World()
    world.deliver(world.put(ALL_SHARDS[0], b"junk", version="v3"))
    world.break_pipeline("cats")
    held = world.upload_version()
    hold_data(replace(held, failure_evidence="junk"), world.ledger, world.services.history, world.clock())
    found = overview(world.services).concerns
    assert [
        ("engineer", "/pipelines"),
        ("data owner", "/datasets/digits/v3"),
        ("data owner", "/datasets/digits/v1"),
    ] == [(each.who, each.page) for each in found]
    page = texts(look(world, "/").text)
    assert f"Data owner: digits/v3: 1 shard is rejected; {ALL_SHARDS[0]}" in page


def test_the_overview_counts_what_came_today() -> None:
    """Whole versions and shards of others; not those of yesterday. A day ends at midnight in UTC."""
    world = World()
    world.upload_version()
    world.upload_shards(ALL_SHARDS[0], version="v2")
    page = texts(look(world, "/").text)
    assert (
        "Landed today (UTC): 1 complete version with 3 shards and 33 records, and 1 shard of incomplete ones." in page
    )
    world.clock.move(days=1)
    page = texts(look(world, "/").text)
    assert "Landed today (UTC): 0 complete versions, and 0 shards of incomplete ones." in page


def test_a_large_open_version_is_counted_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview reads so many shards of each and says that there may be more; old versions are not counted."""
    monkeypatch.setattr("function_app.explain.overview.MAX_SHARDS", 2)
    monkeypatch.setattr("function_app.explain.overview.MAX_COUNTED", 1)
    world = World()
    world.upload_shards(*ALL_SHARDS[:2], version="v2")
    world.upload_shards(ALL_SHARDS[0], version="v1")
    newest, older = overview(world.services).open
    assert ((2, False), (0, None)) == ((newest.accepted, newest.is_counted), (older.accepted, older.last_at))
    assert "2 or more" in texts(look(world, "/").text)


def test_the_overview_shows_what_trains_what_is_whole_and_what_is_not() -> None:
    """It links to each of them."""
    world = World()
    run = training(world)
    world.upload_shards(ALL_SHARDS[0], version="v2")
    page = look(world, "/").text
    assert f'href="/runs/{run.run_id}"' in page
    assert 'href="/datasets/digits/v1"' in page
    assert 'href="/datasets/digits/v2"' in page
    assert "running" in texts(page)


def test_the_overview_names_what_needs_a_person() -> None:
    """A failed run, a pipeline out of service and a dead letter, each with a link."""
    world = World()
    run = world.upload_version()
    world.finish(run, "Failed")
    while (attempt := world.stands(world.ledger.runs()[0])).state not in ("failed", "canceled"):
        world.clock.move(hours=1)
        world.serve_requests()
        world.finish(attempt, "Failed")
    world.break_pipeline("letters")
    page = look(world, "/").text
    assert "The last run of digits ended failed" in texts(page)
    assert "1 pipeline file is out of service" in texts(page)


def test_a_version_has_a_cell_for_each_shard_and_the_reasons_of_the_rejected() -> None:
    """One rectangle for neighbours of one state; each rejected shard can be opened."""
    world = World()
    world.deliver(world.put("train-00001-of-00003.tfrecord", b"junk"))
    world.deliver(world.put("train-00000-of-00003.tfrecord"))
    page = look(world, "/datasets/digits/v1").text
    assert ["accepted", "rejected", "missing"] == re.findall(r'fill="url\(#cell-1-(\w+)\)"', page)
    assert 'href="/datasets/digits/v1/shards/train/1" data-panel' in page
    assert "1 accepted 1 rejected 1 not uploaded of 3 shards" in texts(page)
    reason = world.ledger.shard_rows[VERSION, "train", 1].reasons[0].message
    shard = look(world, "/datasets/digits/v1/shards/train/1").text
    assert reason in texts(page)
    assert reason in texts(shard)
    assert "a corrected upload" in texts(shard)


def test_files_of_any_names_have_cells_too() -> None:
    """They are sorted by name; their number is known once the marker exists."""
    world = World()
    layout = Layout(kind="marker")
    world.change_pipeline(data=world.services.pipelines["digits"].data.model_copy(update={"layout": layout}))
    bad, good = "split=train/part-0.tfrecord", "split=train/part-1.tfrecord"
    world.deliver(world.put(good))
    world.deliver(world.put(bad, b"junk"))
    page = look(world, "/datasets/digits/v1").text
    assert ["rejected", "accepted"] == re.findall(r'fill="url\(#cell-1-(\w+)\)"', page)
    assert "1 accepted 1 rejected 0 not uploaded" in texts(page)
    (address,) = re.findall(r'href="(/datasets/digits/v1/shards/train/\d+)" data-panel', page)
    assert "a corrected upload" in texts(look(world, address).text)


def test_a_whole_version_shows_labels_runs_and_history() -> None:
    """What the ledger has of it."""
    world = World()
    run = training(world)
    page = texts(look(world, "/datasets/digits/v1").text)
    assert "Labels: label" in page
    assert run.run_id in page
    assert "version closed" in page


def test_a_run_shows_its_timeline_its_epochs_and_its_log() -> None:
    """Everything that today takes three portals."""
    world = World()
    run = training(world)
    world.clock.move(minutes=5)
    page = look(world, f"/runs/{run.run_id}")
    seen = texts(page.text)
    assert [name for name in ("In line", "Waiting for nodes", "Training") if name not in seen] == []
    assert "2 of 3 epochs, step 20 · loss 0.5" in seen
    assert 3 == page.text.count("<polyline")  # loss, validation loss, accuracy
    assert "5 min, so far" in seen
    assert "0.17 node-hours; no file has a price" in seen
    assert "LANDFALL_PROGRESS" not in page.text


def test_a_run_shows_each_attempt_and_what_was_done_about_it() -> None:
    """State, class of failure and remedy, with a link to the other attempt."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.jobs.become(run.run_id, "Failed", error="node was preempted", error_code="UserError/Preempted")
    failed = world.follow(run)
    assert failed.remedy_reason
    seen = texts(look(world, f"/runs/{run.run_id}").text)
    assert f"1 (this one) failed {failed.failure_class} {failed.remedy_reason}" in seen
    page = look(world, f"/runs/{failed.next_run_id}").text
    assert f'<a href="/runs/{run.run_id}">1</a>' in page
    assert "2 (this one) planned" in texts(page)


def test_the_overview_has_a_strip_of_the_last_runs_of_each_pipeline() -> None:
    """Each run leads to its page, and its state is more than a colour."""
    world = World()
    world.add_pipelines("letters")
    registered = world.finish(world.upload_version())
    world.clock.move(hours=1)
    canceled = world.finish(world.train(version="v2"), "Canceled")
    _, _, strips = look(world, "/").text.partition("Last runs of each pipeline")
    found = re.findall(r'<a class="dot (\w+)" href="/runs/([^"]+)".*?<span>(.*?)</span>', strips)
    expected = [(str(run.state), run.run_id, f"{run.state}: {run.run_id}") for run in (registered, canceled)]
    assert expected == sorted(found, key=lambda one: one[0], reverse=True)
    assert "letters no run yet" in texts(strips)


def test_a_version_shows_how_far_its_data_have_drifted() -> None:
    """Each figure beside its threshold, and what it was compared with."""
    world = drifting_world()
    upload_shards(world, "v2", ODD)
    seen = texts(look(world, "/datasets/digits/v2").text)
    assert "Compared with digits/v1" in seen
    assert "drift labels train 1 " in seen
    assert "exceeds it" in seen
    assert "exceeds it" not in texts(look(world, "/datasets/digits/v1").text)


def test_models_are_shown_with_what_they_were_trained_on() -> None:
    """The newest first, with metrics, data and run; the second could not be compared and is left to a person."""
    world = World()
    assert "No model is registered yet" in look(world, "/models").text
    first = world.finish(world.upload_version())
    world.clock.move(hours=1)
    second = world.finish(world.train(version="v2"))
    failed = world.finish(world.train(version="v3"), "Canceled")
    page = look(world, "/models").text
    newest, current = (
        page.index(f">{second.model_version}<"),
        page.index(f">{first.model_version}</a>, the current one"),
    )
    assert newest < current
    assert f"not compared with version {first.model_version}, the current one" in page
    assert f"/models/digits-cnn/{second.model_version}/promote" in page
    assert "val accuracy 0.97" in texts(page)
    assert 'href="/datasets/digits/v2"' in page
    assert failed.run_id not in page


def test_a_model_version_is_shown_with_its_decision_and_passport() -> None:
    """Current or previous, the interval in words, what may be done, links to run and data, and the passport."""
    world = challenge(results(396), 0.99)
    second, first = world.ledger.runs()
    path = f"/models/digits-cnn/{second.model_version}"
    assert f'href="{path}"' in look(world, "/models").text
    page = look(world, path).text
    seen = texts(page)
    passport = json.loads(look(world, f"{path}/passport").text)
    for words in ("the current version", "val accuracy is at least 0.95", passport["digest"], "2" * 40):
        assert words in seen, words
    assert second.evidence["comparison"]["words"] in seen
    low, high = second.evidence["intervals"]["val_accuracy"][1:]
    assert f"between {low:.4g} and {high:.4g}" in seen
    for link in (
        "/datasets/digits/v1",
        f"/runs/{second.run_id}",
        f"{path}/passport",
        f"{path}?verify=true#verification",
    ):
        assert f'href="{link}"' in page, link
    assert f"{path}/promote" not in page
    before = look(world, f"/models/digits-cnn/{first.model_version}").text
    assert "the version that was current before" in texts(before)
    assert f"/models/digits-cnn/{first.model_version}/promote" in before
    assert "Nothing that was recomputed differs" in texts(look(world, f"{path}?verify=true").text)
    assert 404 == look(world, "/models/digits-cnn/7").status_code


def test_a_passport_that_was_changed_is_not_shown() -> None:
    """The page says so, and shows what the ledger has."""
    world = World()
    run = world.finish(world.upload_version())
    path = f"/models/digits-cnn/{run.model_version}"
    [name] = [name for name in world.run_outputs.documents if "/passport/" in name]
    stored = world.run_outputs.documents[name]
    world.run_outputs.documents[name] = stored.replace(b'"num_records": 11', b'"num_records": 12', 1)
    seen = texts(look(world, path).text)
    assert "It was changed after it was written" in seen
    assert json.loads(stored)["digest"] not in seen
    assert "val accuracy 0.97" in seen
    del world.run_outputs.documents[name]
    assert f"there is no {name}" in texts(look(world, f"{path}?verify=true").text)


def test_the_cost_of_a_run_that_trains_grows_with_the_time() -> None:
    """The prices are those of clusters.yaml, over all attempts."""
    world = World()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.0)
    run = training(world)
    world.clock.move(minutes=30)
    assert "3.00 (1.00 node-hours)" in texts(look(world, f"/runs/{run.run_id}").text)


def test_text_from_outside_is_escaped_masked_and_bounded() -> None:
    """This holds in logs, in reasons and on error pages."""
    world = World()
    run = training(world)
    world.jobs.logs[run.run_id] += "\n".join(["x" * 5000, "https://a.example/?sig=secret123", *["line"] * 5000])
    key = (VERSION, "train", 0)
    reason = Reason(code=ReasonCode.NOT_A_SHARD, shard="train-00000", message=HOSTILE + "y" * 9000)
    world.ledger.shard_rows[key] = replace(world.ledger.shard_rows[key], state=ShardState.REJECTED, reasons=(reason,))
    for path in (f"/runs/{run.run_id}", "/datasets/digits/v1", "/datasets/digits/v1/shards/train/0"):
        page = look(world, path).text
        assert "<script>alert" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert "secret123" not in page
        assert len(page) < 60_000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/api/runs", 404),
        ("/runs/landfall-unknown-a1", 404),
        ("/runs/a%20b", 422),
        ("/datasets/letters/v1", 404),
        ("/datasets/digits/v9", 404),
        ("/datasets/digits/v1/shards/train/7", 404),
        ("/datasets/digits/v1/shards/train/x", 422),
        ("/static/../app.py", 404),
        ("/static/app.py", 404),
        ("/runs/%3Cscript%3E", 422),
    ],
)
def test_an_error_is_a_page_that_says_what_to_do(path: str, status: int) -> None:
    """The error has the frame of every page."""
    page = look(World(), path)
    assert (status, "text/html; charset=utf-8") == (page.status_code, page.headers["Content-Type"])
    assert "Check the address" in page.text
    assert "<script>" not in page.text


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ServiceUnavailableError("storage did not answer <b>"), (503, "Storage did not answer &lt;b&gt;")),
        (SettingsError("LANDFALL_WORKSPACE is not set"), (503, "1 setting is missing or wrong")),
        (ZeroDivisionError("secret detail"), (500, "An unexpected error")),
    ],
)
def test_no_stack_trace_leaves(
    problem: Exception, expected: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it."""
    world = World()

    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(world.ledger, "runs", fail)
    page = look(world, "/")
    assert expected[0] == page.status_code
    assert expected[1] in page.text
    assert "secret detail" not in page.text


@pytest.mark.parametrize("problem", [LogUnreadableError("no role"), ServiceUnavailableError("throttled")])
def test_a_run_is_shown_although_its_log_cannot_be_read(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says why there is no log, and everything that the ledger knows."""
    world = World()
    run = training(world)

    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(world.jobs, "log_part", fail)
    page = look(world, f"/runs/{run.run_id}")
    assert 200 == page.status_code
    assert f"The log cannot be read now: {problem}" in page.text


def test_every_page_forbids_what_it_does_not_need() -> None:
    """No inline script or style, nothing from other sites, no frame around it, no copy in a cache."""
    world = World()
    run = training(world)
    paths = ("/", "/models", "/pipelines", "/dead-letters", "/datasets/digits/v1", f"/runs/{run.run_id}", "/nowhere")
    for path in paths:
        page = look(world, path)
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        assert "no-store" == page.headers["Cache-Control"]
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/static/)|https?://", page.text)


@pytest.mark.parametrize("name", STATIC)
def test_a_static_file_has_an_address_that_changes_with_it(name: str) -> None:
    """Browsers may therefore cache it, and load that of the next release."""
    address = re.findall(rf'"(/static/{name}\?\w+)"', look(World(), "/").text)
    answer = look(World(), address[0])
    assert (200, STATIC[name]) == (answer.status_code, answer.headers["Content-Type"].partition(";")[0])
    assert "immutable" in answer.headers["Cache-Control"]


def test_only_what_may_change_is_asked_for_again() -> None:
    """A run that has ended and a whole version without an active run stay as they are."""
    world = World()
    run = training(world)
    assert "data-refresh-s" in look(world, f"/runs/{run.run_id}").text
    assert "data-refresh-s" in look(world, "/datasets/digits/v1").text
    world.finish(run)
    assert "data-refresh-s" not in look(world, f"/runs/{run.run_id}").text
    assert "data-refresh-s" not in look(world, "/datasets/digits/v1").text


def test_the_page_of_a_large_version_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 shards, a fifth of them rejected: first cells alone, then a page of moderate size with as many links."""
    world = World()
    world.deliver(world.put("train-00000-of-10000.tfrecord"))
    world.deliver(world.put("train-00001-of-10000.tfrecord", b"junk"))
    good, bad = (world.ledger.shard_rows[VERSION, "train", index] for index in (0, 1))
    for index in range(10000):
        row: ShardRecord = bad if index % 5 == 1 else good
        name = f"train-{index:05d}-of-10000.tfrecord"
        world.ledger.shard_rows[VERSION, "train", index] = replace(row, index=index, name=name)
    marks = world.ledger.shard_marks(VERSION)
    with monkeypatch.context() as patched:  # the first page reads no whole row
        patched.delattr(MemoryLedger, "shards")
        patched.setattr(MemoryLedger, "shard_marks", lambda *_: marks)
        brief = look(world, "/datasets/digits/v1").text
    assert "8,000 accepted 2,000 rejected 0 not uploaded of 10,000 shards" in texts(brief)
    assert (1000, True) == (brief.count("data-panel"), 'href="?shards=all"' in brief)
    assert len(brief) < 600_000
    page = look(world, "/datasets/digits/v1?shards=all").text
    assert 1000 == page.count("data-panel")
    assert MAX_REJECTED == page.count('<td class="nowrap"><a href="/datasets')
    assert f"{2000 - MAX_REJECTED} more are not listed" in texts(page)
    assert len(page) < 1_500_000


def test_the_pages_have_no_route_of_the_api() -> None:
    """The host asks for no key before them."""
    limited = vars(build_pages_app(lambda: World().services))["_app"]
    assert "/api" not in repr(vars(limited)["_app"].routes)


def test_runs_are_listed_by_dataset_and_state_and_further_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first; what was chosen stays chosen on the next page."""
    monkeypatch.setattr("function_app.web.pages.MAX_LISTED_RUNS", 2)
    world = World()
    world.add_pipelines("letters")
    digits = [world.finish(world.train(version=f"v{number}")).run_id for number in (1, 2, 3)]
    letters = world.train(version="v1", dataset="letters").run_id
    newest = look(world, "/runs").text
    assert [letters, digits[2]] == re.findall(r'<a href="/runs/([^"?]+)">', newest)
    asked = look(world, "/runs?dataset=digits&state=registered").text
    assert digits[:0:-1] == re.findall(r'<a href="/runs/([^"?]+)">', asked)
    [older] = re.findall(r'<a href="([^"]+)">Older runs', asked)
    last = look(world, html.unescape(older)).text
    assert (digits[:1], False) == (re.findall(r'<a href="/runs/([^"?]+)">', last), "Older runs" in last)
    assert "<option selected>digits</option>" in last
    assert '<option value="registered" selected>' in last
    assert "There is no such run" in look(world, "/runs?state=failed").text
    assert [404, 422] == [look(world, f"/runs?{query}").status_code for query in ("after=nowhere", "state=odd")]


def test_a_dataset_lists_its_versions() -> None:
    """Complete ones with what they hold, incomplete ones too, and how to upload the first."""
    world = World()
    assert "landfall upload FOLDER --to digits/VERSION" in look(world, "/datasets/digits").text
    world.upload_version()
    world.upload_shards(ALL_SHARDS[0], version="v2")
    seen = texts(look(world, "/datasets/digits").text)
    assert re.search(r"digits/v2 incomplete +digits/v1 complete 0 s ago 3 33", seen)
    assert 404 == look(world, "/datasets/nowhere").status_code


def test_what_stands_in_backquotes_is_code_and_nothing_else_becomes_markup() -> None:
    """This holds for text from outside, too."""
    page = look(World(), "/datasets/digits/%3Cb%3Ev").text
    assert "<b>" not in page
    assert "<code>landfall why digits/&lt;b&gt;v/SHARD</code>" in page


def test_the_overview_says_how_long_a_run_takes_and_should_take() -> None:
    """A training that takes six times as long as predicted is seen without opening it."""
    world = planning_world()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(minutes=12)
    assert "running 12 min of about 2 min" in texts(look(world, "/").text)
