"""Texts from outside forge no line of an output, command no terminal and carry no secret, wherever they are shown."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import quote

import httpx
import pytest

from cli.demo.following import run_view
from cli.demo.narration import Observation, sentences
from cli.remote.api_client import ApiClient
from cli.up import describe_outages
from function_app.domain.jobs import JobStatus
from function_app.domain.records import RunRecord, ShardState
from function_app.notify.messages import notify_of_run
from function_app.runs.admission import hold_data
from function_app.sweep.sweep import sweep
from function_app.testing.azure_ml import RUN_ID_TAG
from local_azure.functions_host.host import LineFormatter
from shard_validation import Reason, ReasonCode
from shared.safe_text import make_logging_safe, safe_json
from tests.support.terminal import landfall
from tests.support.world import World
from tests.unit.cli.fake_function_app import FunctionApp
from tests.unit.function_app.web.client import call

Capture = pytest.CaptureFixture[str]
FORGED = "2026-11-20 12:00:00  version_closed  FORGED"
HOSTILE = f"x\n{FORGED}\r{FORGED}\x1b[2J\x1b]0;t\x07\u2028{FORGED}\u202e\x85{FORGED} https://h.example/?sig=SECRET&code=SECRET"
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, those that reverse text, and line ends other than a line feed."""
VERSION, URL = "digits/v1", "https://app.example"
BLOB = f"{VERSION}/train-00001-of-00002.tfrecord"


def assert_harmless(output: str) -> None:
    """The text is shown, but no line is what was forged, nothing commands a terminal, the secret is masked."""
    forged = [line for line in output.split("\n") if line.startswith(FORGED)]
    assert ([], None, False, True) == (forged, COMMANDS.search(output), "SECRET" in output, "FORGED" in output), (
        output
    )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which what comes from outside is hostile, and the command line's function app."""
    world = World()
    world.deliver(world.put(f"train-00000-of-00002.tfrecord{HOSTILE}", b"no shard"))
    world.deliver(world.put("train-00001-of-00002.tfrecord", HOSTILE.encode()))
    run = _failed_run()
    world.ledger.run_rows[run.run_id] = replace(
        run, log_tail=HOSTILE, reason=HOSTILE, metrics={HOSTILE: 0.5}, model_name=HOSTILE, model_version=HOSTILE
    )
    world.services.history.record(run.run_id, "run_failed", HOSTILE, user=HOSTILE)
    world.services.history.record(BLOB, "note", HOSTILE)
    world.give_up(HOSTILE)
    world.undelivered.lying[0] = replace(world.undelivered.lying[0], error=HOSTILE)

    _connect(world, monkeypatch)
    return world


def _connect(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands talk to the API of a world."""

    def answer(request: httpx.Request) -> httpx.Response:
        seen = call(world, request.method, str(request.url.raw_path, "ascii"), content=request.content)
        return httpx.Response(seen.status_code, content=seen.content)

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr("cli.options.ApiClient", partial(ApiClient, transport=transport))


def _failed_run() -> RunRecord:
    other = World()
    return other.finish(other.upload_version(), "Failed")


@pytest.mark.parametrize(
    "arguments",
    [
        ["why", VERSION],
        ["why", "RUN"],
        ["why", BLOB],
        ["run", "RUN"],
        ["dead-letters", "list"],
        ["dead-letters", "show", "LETTER"],
    ],
    ids=" ".join,
)
def test_no_command_shows_a_hostile_text_as_it_is(capsys: Capture, world: World, arguments: list[str]) -> None:
    """Names of blobs, reasons, ends of logs, metrics, models and payloads."""
    sweep(world.services)
    names = {"RUN": next(iter(world.ledger.run_rows)), "LETTER": _letter(world)}
    status, out, err = landfall(capsys, *(names.get(word, word) for word in arguments), "--url", URL)
    assert (0, "") == (status, err)
    assert_harmless(out)


def _letter(world: World) -> str:
    letters = call(world, "GET", "/api/dead-letters").json()["dead_letters"]
    return str(letters[0]["dead_letter_id"])


@pytest.mark.parametrize(
    "command",
    [["status", VERSION], ["runs"], ["run", "r"], ["logs", "r"], ["dead-letters", "list"], ["why", "r"]],
    ids=" ".join,
)
def test_answers_of_another_service_are_harmless(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Error bodies: in the API's shape and in any other."""
    body = {"code": HOSTILE, "detail": HOSTILE, "errors": [{"detail": HOSTILE + HOSTILE}]}
    for app in (FunctionApp(500, body), FunctionApp(500, text=HOSTILE)):
        monkeypatch.setattr("cli.options.ApiClient", lambda *_, app=app: app.client())
        status, out, err = landfall(capsys, *command, "--url", URL)
        assert (1, "") == (status, out)
        assert_harmless(err)


@pytest.mark.parametrize(
    "metrics", [{HOSTILE: 0.5}, {HOSTILE[:60]: 0.5, "val_accuracy": 0.97}], ids=["not registered", "registered"]
)
def test_names_of_metrics_are_harmless(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, metrics: dict[str, float]
) -> None:
    """A training's report may have any names: they reach the log, the history, the commands and notifications."""
    world = World()
    _connect(world, monkeypatch)
    with _logged() as output:
        run = world.upload_version()
        world.end_job(run, "Completed", **metrics)
        world.follow(run)
    shown = [output.getvalue()]
    for command in ("why", "run", "runs"):
        status, out, _ = landfall(capsys, *[command, run.run_id][: 1 if command == "runs" else 2], "--url", URL)
        assert 0 == status
        shown += [out]
    shown += map(str, world.people.received[0].content.values())
    assert_harmless("\n".join(shown))


def test_the_status_of_a_version_is_harmless(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It repeats why data are on hold, which may be the end of a job's log, and features and reasons of shards."""
    world = World()
    _connect(world, monkeypatch)
    run = world.upload_version()
    hold_data(replace(run, failure_evidence=HOSTILE), world.ledger, world.services.history, world.clock())
    row = world.ledger.shard_rows[run.dataset_version, "train", 0]
    reason = Reason(code=ReasonCode.FEATURE_MISSING, shard=HOSTILE, feature=HOSTILE, seen=HOSTILE, message=HOSTILE)
    rejected = replace(row, state=ShardState.REJECTED, reasons=(reason,))
    world.ledger.shard_rows[run.dataset_version, "train", 0] = rejected
    status, out, _ = landfall(capsys, "status", VERSION, "--url", URL)
    assert (0, True, True) == (status, "on hold: " in out, "rejected train-00000-of-00002" in out)
    assert_harmless(out)


def test_tags_of_jobs_are_harmless(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who may submit jobs to the workspace sets them, and the status and address come from outside too."""
    world = World()
    _connect(world, monkeypatch)
    tags = {RUN_ID_TAG: HOSTILE, "landfall.dataset_version": VERSION + HOSTILE, "landfall.fingerprint": HOSTILE}
    name = "landfall-digits-v1-0123456789ab-a1"
    world.jobs.statuses[name] = JobStatus(name=name, status=HOSTILE, tags=tags, studio_url=HOSTILE)
    with _logged() as output:
        sweep(world.services)
    _, history, _ = landfall(capsys, "why", name, "--url", URL)
    (sent,) = world.people.received
    assert_harmless("\n".join([output.getvalue(), history, *map(str, sent.content.values())]))


def test_the_name_of_the_caller_is_neither_kept_nor_shown() -> None:
    """The headers in which the platform passes on who is signed in: a caller may send them too."""
    forged = HOSTILE.replace("\u2028", " ").replace("\u202e", " ").encode("latin-1")
    headers = dict.fromkeys((b"X-MS-CLIENT-PRINCIPAL-NAME", b"X-MS-CLIENT-PRINCIPAL", b"User-Agent"), forged)
    world = World()
    with _logged() as output:
        run = world.upload_version()
        body = {"dataset": "digits", "version": "v1", "force": True}
        answers = [
            call(world, "POST", f"/api/runs/{run.run_id}/cancel", headers=headers),
            call(world, "POST", "/api/runs", json=body, headers=headers),
            call(world, "POST", "/api/runs", json={}, headers=headers),
            call(world, "GET", "/api/nowhere", headers=headers),
        ]
    kept = str([world.ledger.run_rows, world.ledger.history_rows, world.people.received])
    said = "".join(answer.text + str(answer.headers) for answer in answers)
    assert ("FORGED" in kept + said + output.getvalue(), [200, 202, 422, 404]) == (
        False,
        [answer.status_code for answer in answers],
    )


def test_an_error_of_the_api_repeats_nothing_that_commands_a_terminal() -> None:
    """A program may print the message as it is."""
    name = quote(HOSTILE.replace("/", ""), safe="")
    for path in (
        f"why/{name}",
        f"why/{VERSION}/{name}",
        f"datasets/{name}/v",
        f"runs/{name}",
        f"dead-letters/{name}",
    ):
        body = call(World(), "GET", f"/api/{path}").json()
        assert not COMMANDS.search("".join([body["detail"], *(part["detail"] for part in body["errors"])])), path
        assert "\n" not in body["detail"]


def test_what_people_are_sent_is_harmless() -> None:
    """Every text of a notification: reason, metrics' names, model and the end of the log."""
    run = _failed_run()
    shown = World()
    shown.ledger.run_rows[run.run_id] = replace(
        run, log_tail=HOSTILE, reason=HOSTILE, metrics={HOSTILE: 0.5}, notified_at=None
    )
    notify_of_run(shown.ledger.run_rows[run.run_id], shown.services)
    content = shown.people.received[0].content
    log_tail = str(content["log_tail"]).replace("\n", "\n    ")
    assert_harmless("\n".join([log_tail, *(str(value) for name, value in content.items() if name != "log_tail")]))


@contextmanager
def _logged() -> Iterator[io.StringIO]:
    """Log with the format of the twin's Functions host; the worker in Azure formats message and trace alone."""
    output, root, factory = io.StringIO(), logging.getLogger(), logging.getLogRecordFactory()
    handlers = [logging.StreamHandler(output), logging.StreamHandler(output)]
    handlers[0].setFormatter(LineFormatter({}))
    level = root.level
    try:
        make_logging_safe()
        root.setLevel(logging.INFO)
        for handler in handlers:
            root.addHandler(handler)
        yield output
    finally:
        for handler in handlers:
            root.removeHandler(handler)
        root.setLevel(level)
        logging.setLogRecordFactory(factory)


def test_the_log_is_harmless() -> None:
    """Records of the history, of foreign uploads, and stack traces with a hostile message."""
    with _logged() as output:
        world = World()
        world.deliver(world.put(f"train-00000-of-00002.tfrecord{HOSTILE}", b"no shard"))
        world.deliver(world.put(HOSTILE, dataset="foreign"))
        world.services.history.record(f"{VERSION}/{HOSTILE}", "note", HOSTILE)
        try:
            raise LookupError(HOSTILE)  # noqa: TRY301 (what a client raises)
        except LookupError:
            logging.getLogger("function_app").exception("a part failed: %s", HOSTILE, extra={"subject": HOSTILE})
    assert_harmless(output.getvalue())


def test_the_function_app_makes_its_log_safe() -> None:
    """This is done where the worker of Azure loads the app, and so in every process that runs it."""
    import function_app

    assert function_app.app
    assert getattr(logging.getLogRecordFactory(), "is_safe", False)


def test_what_the_twin_says_is_harmless() -> None:
    """The sentences of the demo, and the pipelines that are out of service."""
    run = {"run_id": "r", "state": "failed", "reason": HOSTILE, "model_name": HOSTILE, "model_version": "1"}
    answers = safe_json({"run": run, "rejected": {HOSTILE: HOSTILE}, "problems": [HOSTILE], "dataset": HOSTILE})
    now = Observation(run=run_view(answers["run"]), rejected=answers["rejected"], awaited=(answers["dataset"],))
    outages = describe_outages([{"state": "out_of_service", **answers}])
    assert_harmless("\n".join([*sentences(Observation(), now), *outages]))
