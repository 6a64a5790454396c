"""`landfall status` without a version, `status --watch` and `watch`: how everything stands, and what happens."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.sweep.sweep import sweep
from tests.support.terminal import landfall
from tests.support.world import ALL_SHARDS, World
from tests.unit.cli.fake_function_app import serving
from tests.unit.function_app.runs.test_attempts import fail
from tests.unit.function_app.web.client import call

Capture = pytest.CaptureFixture[str]


def acting(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Let each pause of a command do one thing instead; the next one is Ctrl-C."""
    left = list(acts)

    def sleep(_: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr("time.sleep", sleep)


def test_how_everything_stands_is_one_command(capsys: Capture) -> None:
    """It shows who must act, what trains, what is incomplete and what has arrived."""
    world = World()
    run = world.upload_version()
    world.deliver(world.put("train-00001-of-00008.tfrecord", b"junk", version="v3"))
    world.break_pipeline("cats")
    with serving(world) as url:
        status, out, _ = landfall(capsys, "status", "--url", url)
    assert 0 == status
    assert [
        "Needs a person:",
        "  engineer: 1 pipeline file is out of service",
        f"  data owner: digits/v3: 1 shard is rejected; {_reason(world)}",
        "Trains or waits:",
        f"  digits/v1: run {run.run_id} submitted",
        "Incomplete:",
        "  digits/v3: 0 of 8 shards accepted, 1 rejected",
        "Landed today: 1 complete version with 3 shards and 33 records, and 1 shard of incomplete ones.",
    ] == out.splitlines()[:8]


def _reason(world: World) -> str:
    body = call(world, "GET", "/api/datasets/digits/v3").json()
    rejected = body["splits"]["train"]["rejected"][0]
    return str(rejected["reasons"][0]["message"])


def test_an_app_without_data_says_how_to_begin(capsys: Capture) -> None:
    """It also says that nothing needs a person."""
    with serving(World()) as url:
        _, out, _ = landfall(capsys, "status", "--url", url)
    assert "Nothing needs a person.\nNo run is active." in out
    assert "landfall upload FOLDER --to DATASET/VERSION" in out


def test_each_thing_that_happens_is_a_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads, a corrected shard, a complete version and a whole run are each shown, until Ctrl-C."""
    world = World()
    name = "train-00000-of-00002.tfrecord"

    def finish() -> None:
        world.finish(world.only_run())

    with serving(world) as url:
        acting(
            monkeypatch,
            lambda: world.deliver(world.put(name, b"junk")),
            lambda: world.upload_shards(*ALL_SHARDS[:2]),
            lambda: None,
            world.upload_version,
            finish,
        )
        status, out, err = landfall(capsys, "watch", "--url", url)
    run = world.only_run().run_id
    happened = [line.partition(" UTC  ")[2] for line in out.splitlines() if " UTC  " in line]
    assert (130, "Watching. Ctrl-C ends it. Stopped.") == (status, " ".join(err.split()))
    shown = "\n".join(happened)
    order = [
        "digits/v1: 0 of 2 shards accepted, 1 rejected",
        f"needs the data owner: digits/v1: 1 shard is rejected; {name}",
        "digits/v1: 2 of 2 shards accepted",
        "resolved: digits/v1: 1 shard is rejected",
        "digits/v1: complete, generation 1: 3 shards, 33 records",
        f"digits/v1: run {run} submitted",
        f"digits/v1: run {run} registered",
    ]
    assert sorted(order, key=shown.find) == order
    assert [] == [text for text in order if text not in shown]
    assert len(happened) == len(set(happened))


def test_events_for_programs_are_lines_of_json(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is printed."""
    world = World()
    with serving(world) as url:
        acting(monkeypatch, world.upload_version)
        _, out, _ = landfall(capsys, "watch", "--json", "--url", url)
    found = [json.loads(line) for line in out.splitlines()]
    assert [{"at", "subject", "text"}] * len(found) == [set(event) for event in found]
    assert {"digits/v1", world.only_run().run_id} == {event["subject"] for event in found}


def test_an_app_that_is_away_for_a_while_is_asked_again(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened meanwhile is shown then; the reason of the pause is on standard error."""
    world = World()
    whole = world.services

    def fail() -> None:
        world.services = None  # type: ignore[assignment]

    def come_back() -> None:
        world.services = whole
        world.upload_version()

    with serving(world) as url:
        acting(monkeypatch, fail, come_back)
        _, out, err = landfall(capsys, "watch", "--url", url)
    assert ("Trying again." in err, "complete, generation 1" in out) == (True, True)


def test_a_version_is_watched_to_its_end(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown when it has changed, and the command ends by itself; a pipe gets no colours or cleared screens."""
    world = World()
    world.upload_shards(ALL_SHARDS[0])

    def finish() -> None:
        world.finish(world.only_run())

    with serving(world) as url:
        acting(monkeypatch, lambda: None, world.upload_version, finish)
        status, out, _ = landfall(capsys, "status", "digits/v1", "--watch", "--url", url)
    assert (0, 1, 2, False) == (status, out.count("digits/v1: open"), out.count("digits/v1: complete"), "\x1b" in out)
    assert "registered" in out.splitlines()[-1]


def test_a_watch_goes_on_until_the_next_attempt_is_on_record(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of an attempt is written first, with its remedy; the handler may die before the next write."""
    world = World()
    first = world.upload_version()

    def die() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(world.ledger, "add_attempt", refuse)
            with pytest.raises(ServiceUnavailableError):
                fail(world, first)

    with serving(world) as url:
        acting(
            monkeypatch,
            die,
            lambda: sweep(world.services),
            world.serve_requests,
            lambda: world.finish(world.ledger.runs()[0]),
        )
        status, out, _ = landfall(capsys, "status", "digits/v1", "--watch", "--url", url)
    assert (0, True) == (status, f"{first.logical_run}-a2: registered" in out)


def refuse(*_: object) -> None:
    """Refuse a write."""
    raise ServiceUnavailableError("storage answered 503")


def test_a_key_that_is_refused_ends_the_watch(capsys: Capture) -> None:
    """Asking again would not help."""
    with serving(World()) as url:
        status, _, err = landfall(capsys, "watch", "--url", f"{url}/nowhere")
    assert (1, True) == (status, "Error:" in err)
