from __future__ import annotations

import base64
from pathlib import Path

import pytest

from local_azure.azurite import Azurite
from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import DevHost, fixture_settings, start_dev_host
from tests.contract.local_azure.functions_host.conftest import Queue, open_queue

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]


def test_a_message_arrives_once_with_its_metadata(dev_host: DevHost, inbox: Queue) -> None:
    """The function gets the decoded body, id, number of tries and insertion time; then the message is deleted."""
    sent = inbox.client.send_message(base64.b64encode("grüße {1}".encode()).decode())

    (entry,) = dev_host.wait_for_bodies("grüße {1}")

    expected = {
        "kind": "queue",
        "body": "grüße {1}",
        "id": sent.id,
        "tries": 1,
        "inserted": sent.inserted_on.isoformat() if sent.inserted_on else None,
    }
    assert expected == entry
    wait_until(lambda: inbox.client.get_queue_properties().approximate_message_count == 0, what="it to be deleted")


def test_a_failing_message_is_poisoned_after_its_tries(dev_host: DevHost, inbox: Queue, poison: Queue) -> None:
    """After maxDequeueCount tries the original body is in the poison queue."""
    inbox.send("fail for ever")
    encoded = base64.b64encode(b"fail for ever").decode()

    dev_host.process.await_line("was moved to queue inbox-poison: failed 3 times")

    assert [1, 2, 3] == [entry["tries"] for entry in dev_host.wait_for_bodies("fail for ever")]
    wait_until(lambda: encoded in poison.contents(), what="the message to be in the poison queue")


def test_a_function_that_exits_does_not_end_the_host(dev_host: DevHost, inbox: Queue) -> None:
    """Its message fails like any other, and the next one is handled at its first delivery."""
    inbox.send("exit now")
    dev_host.process.await_line("failed: SystemExit: on purpose: the function ended the process")
    inbox.send("after the exit")

    assert [1] == [entry["tries"] for entry in dev_host.wait_for_bodies("after the exit")]


def test_a_message_in_another_encoding_is_poisoned_unread(dev_host: DevHost, inbox: Queue, poison: Queue) -> None:
    """A message that is not Base64 is moved unchanged to the poison queue without calling the function."""
    inbox.client.send_message("{not base64}")

    dev_host.process.await_line("was moved to queue inbox-poison: it is not base64")

    wait_until(lambda: "{not base64}" in poison.contents(), what="the message to be in the poison queue")
    assert "{not base64}" not in [entry["body"] for entry in dev_host.journalled("queue")]


def test_a_message_is_held_while_its_function_runs(dev_host: DevHost, inbox: Queue) -> None:
    """A run more than twice as long as the lease causes no second delivery."""
    inbox.send("sleep 7 long")

    wait_until(lambda: dev_host.journalled("slept"), what="the long run to end")
    inbox.send("after the long run")
    dev_host.wait_for_bodies("after the long run")

    assert [1] == [entry["tries"] for entry in dev_host.wait_for_bodies("sleep 7 long")]


def test_a_queue_output_is_written_to_a_queue_made_for_it(dev_host: DevHost, azurite: Azurite) -> None:
    """`Out[str]` becomes a message in Base64."""
    answer = dev_host.request("POST", "/enqueue", content=b"copy me")

    assert 202 == answer.status_code
    assert [base64.b64encode(b"copy me").decode()] == open_queue(azurite, "copies").contents()


def test_a_killed_host_loses_no_message(azurite: Azurite, tmp_path: Path) -> None:
    """What was being handled when the host was killed is delivered again to the next one."""
    settings = fixture_settings(azurite.connection_string(), "killed", tmp_path / "journal")
    first = start_dev_host(tmp_path, settings, "--queue-lease-s", "1")
    open_queue(azurite, "killed").send("sleep 30 cut off")
    first.wait_for_bodies("sleep 30 cut off")
    first.process.kill()
    (tmp_path / "journal").unlink()

    second = start_dev_host(tmp_path, settings, "--queue-lease-s", "5", "--grace-s", "0")
    (entry,) = second.wait_for_bodies("sleep 30 cut off")
    second.process.kill()

    assert 2 == entry["tries"]


def test_messages_are_worked_on_side_by_side_up_to_the_batch(azurite: Azurite, tmp_path: Path) -> None:
    """Four messages of a batch of four run at once: each ends only when all have begun."""
    settings = fixture_settings(azurite.connection_string(), "batch", tmp_path / "journal")
    host = start_dev_host(tmp_path, settings)
    bodies = [f"meet 4 number {index}" for index in range(4)]
    for body in bodies:
        open_queue(azurite, "batch").send(body)

    wait_until(lambda: len(host.journalled("ended")) == 4, what="all to end")
    host.process.stop()

    assert [True] * 4 == [entry["all_began"] for entry in host.journalled("ended")]
