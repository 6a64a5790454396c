"""`landfall doctor` on the emulator's subscriptions: the same comparison as in Azure finds each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.doctor.emulator import subscription_checks
from function_app.domain.checks import CheckState
from function_app.explain.doctor import TWIN_FIX
from local_azure.azurite import Azurite
from local_azure.twin.parts import event_subscriptions
from tests.support.event_grid import start_event_grid, storage_settings

pytestmark = pytest.mark.azurite


def checked(subscriptions: list[dict[str, Any]], azurite: Azurite, folder: Path) -> list[tuple[CheckState, str, str]]:
    """Return the doctor's checks of an emulator with these subscriptions."""
    config = {
        "queue_connection_env": "AzureWebJobsStorage",
        "subscriptions": subscriptions,
        "topics": ["storage", "azureml", "landfall"],
    }
    running = start_event_grid(folder, config, storage_settings(azurite))
    try:
        return [(check.state, check.says, check.fix) for check in subscription_checks(running.url)]
    finally:
        running.process.stop()


def test_the_subscriptions_of_a_twin_are_right(azurite: Azurite, tmp_path: Path) -> None:
    """They equal those of the deployment's templates, as another test checks."""
    assert [
        (CheckState.OK, "its filters are right, and it writes to shard-uploaded", ""),
        (CheckState.OK, "its filters are right, and it writes to run-changed", ""),
    ] == checked(event_subscriptions(), azurite, tmp_path)


def test_what_differs_is_found(azurite: Azurite, tmp_path: Path) -> None:
    """Each member of one subscription differs, and the other one is missing."""
    [uploads, _] = event_subscriptions()
    broken = uploads | {
        "included_event_types": ["Microsoft.Storage.BlobDeleted"],
        "subject_begins_with": "/blobServices/default/containers/others/",
        "subject_ends_with": ".tfrecord",
        "advanced_filters": [{"operatorType": "StringContains", "key": "data.api", "values": ["Put"]}],
        "message_ttl_s": 604800,
        "dead_letter_container": "",
    }
    *differ, gone = checked([broken], azurite, tmp_path)
    assert {(CheckState.WRONG, TWIN_FIX)} == {(state, fix) for state, _, fix in [*differ, gone]}
    assert [
        "includedEventTypes",
        "subjectBeginsWith",
        "subjectEndsWith",
        "advancedFilters",
        "queueMessageTimeToLiveInSeconds",
        "blobContainerName",
    ] == [says.partition(":")[0] for _, says, _ in differ]
    assert "there is none that writes to the queue run-changed" == gone[1]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "x"])
def test_an_emulator_that_does_not_answer_is_found(url: str) -> None:
    """The check reports it without a stack trace."""
    [(state, says)] = [(check.state, check.says) for check in subscription_checks(url)]
    assert CheckState.WRONG == state
    assert says.startswith("the Event Grid emulator did not list its subscriptions: ")
