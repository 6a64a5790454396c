from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.contract.local_azure.dev_host import DevHost
from tests.contract.local_azure.functions_host.conftest import SYSTEM_KEY

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]

NOTIFICATION = {"aeg-event-type": "Notification"}


def _event(event_id: str, subject: str = "s") -> dict[str, Any]:
    return {
        "id": event_id,
        "topic": "t",
        "subject": subject,
        "eventType": "Test.Happened",
        "eventTime": "2026-11-20T10:00:00.1234567Z",
        "data": {"of": event_id},
        "dataVersion": "1",
        "metadataVersion": "1",
    }


def _post(dev_host: DevHost, function: str = "on_event", key: str = SYSTEM_KEY, **arguments: Any) -> httpx.Response:
    return dev_host.request("POST", f"/runtime/webhooks/eventgrid?functionName={function}&code={key}", **arguments)


def test_the_handshake_is_answered_for_the_function(dev_host: DevHost) -> None:
    """200 with the code, without calling the function."""
    validation = {**_event("handshake"), "data": {"validationCode": "512d38b6"}}
    answer = _post(dev_host, json=[validation], headers={"aeg-event-type": "SubscriptionValidation"})

    assert (200, {"validationResponse": "512d38b6"}) == (answer.status_code, answer.json())
    assert [] == [entry for entry in dev_host.journalled("event") if entry["id"] == "handshake"]


def test_every_event_of_a_request_is_a_call(dev_host: DevHost) -> None:
    """An array of two calls the function twice; the answer is 202."""
    answer = _post(dev_host, json=[_event("one"), _event("two")], headers=NOTIFICATION)

    assert 202 == answer.status_code
    seen = {entry["id"]: entry["data"] for entry in dev_host.journalled("event") if entry["id"] in ("one", "two")}
    assert {"one": {"of": "one"}, "two": {"of": "two"}} == seen


def test_one_failing_event_fails_the_request(dev_host: DevHost) -> None:
    """500, so that Event Grid delivers both again."""
    answer = _post(dev_host, json=[_event("good"), _event("bad", "fail")], headers=NOTIFICATION)

    assert 500 == answer.status_code
    assert answer.json()["error"]["message"].startswith("RuntimeError: cannot take this event")


def test_cloud_events_come_alone_or_in_a_batch(dev_host: DevHost) -> None:
    """Both content types of the CloudEvents schema are taken without Event Grid's own header."""
    cloud = {"specversion": "1.0", "type": "T", "source": "s", "id": "c1", "subject": "cloud", "data": {"a": 1}}
    single = _post(dev_host, json=cloud, headers={"Content-Type": "application/cloudevents+json"})
    batch = _post(
        dev_host, json=[{**cloud, "id": "c2"}], headers={"Content-Type": "application/cloudevents-batch+json"}
    )

    assert [202, 202] == [single.status_code, batch.status_code]
    assert ["c1", "c2"] == [entry["id"] for entry in dev_host.journalled("event") if entry["subject"] == "cloud"]


def test_the_cloud_events_handshake_allows_the_origin(dev_host: DevHost) -> None:
    """OPTIONS is answered with the origin that asked."""
    path = f"/runtime/webhooks/eventgrid?functionName=on_event&code={SYSTEM_KEY}"
    answer = dev_host.request("OPTIONS", path, headers={"WebHook-Request-Origin": "eventgrid.azure.net"})

    assert (200, "eventgrid.azure.net") == (answer.status_code, answer.headers["WebHook-Allowed-Origin"])


def test_refusals_say_why(dev_host: DevHost) -> None:
    """A wrong key, an unknown function, no event and an unknown kind have a status each."""
    answers = [
        _post(dev_host, key="wrong", json=[_event("x")], headers=NOTIFICATION),
        _post(dev_host, function="take", json=[_event("x")], headers=NOTIFICATION),
        _post(dev_host, content=b"no json", headers=NOTIFICATION),
        _post(dev_host, json=[], headers=NOTIFICATION),
        _post(dev_host, json=[_event("x")], headers={"aeg-event-type": "Gossip"}),
    ]

    assert [401, 404, 400, 400, 400] == [answer.status_code for answer in answers]


def test_unsubscribing_is_acknowledged(dev_host: DevHost) -> None:
    """202 without a call."""
    answer = _post(dev_host, json=[], headers={"aeg-event-type": "Unsubscribe"})

    assert 202 == answer.status_code
