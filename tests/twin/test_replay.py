"""Dead letters of Event Grid and of the host, from the first failure to the replay, with the commands.

This separate twin retries for seconds where Azure retries for hours, and its sweep ignores anything younger than an
hour, so that only the replay can have caused what is asserted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from local_azure.processes import wait_until
from local_azure.twin.addresses import DEAD_LETTER_CONTAINER
from tests.support.terminal import landfall
from tests.support.twin import TwinUnderTest, options, twin_under_test
from tests.twin.shards import whole_version

pytestmark = [pytest.mark.twin, pytest.mark.slow]

QUEUE = "shard-uploaded"
TRIES = 5
"""``maxDequeueCount`` of host.json."""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A running twin with few retries."""
    impatient = replace(
        options(tmp_path_factory.mktemp("twin")),
        event_retry_schedule_s=(0.0, 0.2),
        more_settings={"AzureFunctionsJobHost__extensions__queues__visibilityTimeout": "00:00:01"},
        sweep_grace_s=3600,
    )
    with twin_under_test(impatient) as running:
        yield running


class Operator:
    """A person who uses the command line."""

    def __init__(self, twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
        places = twin.twin.places
        self._address = ("--url", places.functions_url, "--key", places.secrets.function_key)
        self._capsys = capsys

    def says(self, *command: str) -> str:
        """Run a command that must succeed; return its output."""
        status, said, complaint = landfall(self._capsys, *command, *self._address)
        assert (0, []) == (status, [line for line in complaint.splitlines() if not line.startswith("The sweep is ")])
        return said

    def finds_letter_about(self, subject: str) -> dict[str, Any]:
        """Reconcile until there is a letter about a subject; return it as listed."""

        def found() -> dict[str, Any] | None:
            self.says("reconcile")
            letters = json.loads(self.says("dead-letters", "list", "--json"))["dead_letters"]
            return next((letter for letter in letters if letter["subject"] == subject), None)

        return wait_until(found, what=f"a dead letter about {subject}", poll_s=0.5)


@pytest.fixture
def operator(twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]) -> Operator:
    """The operator of the twin."""
    return Operator(twin, capsys)


def dead_letter_blobs(twin: TwinUnderTest) -> list[str]:
    """Return the names of dead letters in the container."""
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as host:
        return [blob.name for blob in host.get_container_client(DEAD_LETTER_CONTAINER).list_blobs()]


def actions(twin: TwinUnderTest, subject: str) -> list[str]:
    """Return the actions in a history."""
    return [line["action"] for line in twin.api.get(f"/api/why/{subject}")["lines"]]


def test_an_undeliverable_event_is_replayed_from_its_blob(twin: TwinUnderTest, operator: Operator) -> None:
    """The queue does not exist when the shard is uploaded; afterwards two replays lead to one verdict."""
    name, content = next(iter(whole_version().items()))
    path = f"steady/undeliverable/{name}"
    twin.queues.delete_queue(QUEUE)
    twin.upload("steady/undeliverable", {name: content})
    (blob,) = wait_until(lambda: dead_letter_blobs(twin), what="a dead letter of Event Grid")
    twin.queues.create_queue(QUEUE)
    letter = operator.finds_letter_about(path)
    shown = operator.says("dead-letters", "show", letter["dead_letter_id"])
    assert ("SHARDS/", [], 2) == (blob[:7], dead_letter_blobs(twin), letter["tries"])
    assert "Event Grid gave up (MaxDeliveryAttemptsExceeded), last outcome: NotFound" in shown
    assert f"/blobServices/default/containers/datasets/blobs/{path}" in shown
    for outcome in ("shard_accepted", "event_suppressed"):
        assert "sent to shard-uploaded again" in operator.says("dead-letters", "replay", letter["dead_letter_id"])
        wait_until(lambda: outcome in actions(twin, path), what=outcome)  # noqa: B023 (called here)
    seen = [action for action in actions(twin, path) if action != "notification_sent"]
    once = ["dead_letter", "dead_letter_replayed", "event_suppressed", "shard_accepted"]
    assert sorted([*once, "dead_letter_replayed"]) == sorted(seen)


def test_a_message_that_fails_five_times_is_replayed_once_its_cause_is_gone(
    twin: TwinUnderTest, operator: Operator
) -> None:
    """Azure ML fails for longer than the host retries: poison queue, letter with the error, replay, one model."""
    away = {"match": {"method": "PUT", "path": "/jobs/"}, "times": 1000, "do": {"status": 503}}
    twin.client.fail_calls(away)
    twin.upload("steady/poisoned-five-times", whole_version())
    (run,) = wait_until(lambda: twin.runs("steady/poisoned-five-times"), what="the run to be planned")
    poison = twin.queues.get_queue_client("training-requested-poison")
    letter = operator.finds_letter_about("steady/poisoned-five-times")
    assert ("training-requested", TRIES, "waiting", []) == (
        letter["source"],
        letter["tries"],
        letter["state"],
        list(poison.peek_messages()),
    )
    assert f"submit job {run['run_id']}: Azure ML is unavailable (503)" in letter["error"]
    twin.client.end_call_faults()
    operator.says("dead-letters", "replay", letter["dead_letter_id"])
    assert "registered" == twin.await_settled("steady/poisoned-five-times")["state"]
    operator.says("dead-letters", "replay", letter["dead_letter_id"])
    twin.await_quiet()
    assert (1, 1) == (len(twin.runs("steady/poisoned-five-times")), len(twin.models(run["run_id"])))
    assert "replayed 2 times" in operator.says("dead-letters", "show", letter["dead_letter_id"])
