from __future__ import annotations

import pytest

from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import DevHost

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]


def test_the_status_says_that_the_host_runs(dev_host: DevHost) -> None:
    """Running, with the number of functions and the runtime's version."""
    status = dev_host.request("GET", "/admin/host/status").json()

    assert ("Running", 8) == (status["state"], status["functionCount"])
    assert "azure-functions-runtime 1.3.0" == status["version"]


def test_functions_are_listed_with_their_bindings(dev_host: DevHost) -> None:
    """Every function is there, settings in its bindings are resolved, and HTTP functions have a URL."""
    listed = {one["name"]: one for one in dev_host.request("GET", "/admin/functions").json()}

    names = {"http_app_func", "item", "special", "broken", "enqueue", "take", "tick", "on_event"}
    assert names == set(listed)
    assert "inbox" == listed["take"]["bindings"][0]["queueName"]
    assert f"{dev_host.url}/broken" == listed["broken"]["invoke_url_template"]


def test_a_queue_function_can_be_started_by_hand(dev_host: DevHost) -> None:
    """202, and the function gets the input as if it had been a message."""
    answer = dev_host.request("POST", "/admin/functions/take", json={"input": "by hand"})

    assert 202 == answer.status_code
    dev_host.wait_for_bodies("by hand")


def test_a_timer_can_be_started_by_hand(dev_host: DevHost) -> None:
    """202, and it ticks once more; its schedule goes on."""
    before = len(dev_host.journalled("timer"))
    answer = dev_host.request("POST", "/admin/functions/tick", json={})

    assert 202 == answer.status_code
    wait_until(lambda: len(dev_host.journalled("timer")) > before, what="a tick")


def test_an_event_grid_function_can_be_started_by_hand(dev_host: DevHost) -> None:
    """The input is the event."""
    event = {"id": "by-hand", "subject": "s", "eventType": "t", "topic": "t", "data": {}, "dataVersion": "1"}
    answer = dev_host.request("POST", "/admin/functions/on_event", json={"input": event})

    assert 202 == answer.status_code
    wait_until(lambda: [one for one in dev_host.journalled("event") if one["id"] == "by-hand"], what="the event")


def test_what_cannot_be_started_is_refused_with_a_reason(dev_host: DevHost) -> None:
    """Unknown functions, HTTP functions and bodies that are no object."""
    answers = [
        dev_host.request("POST", "/admin/functions/absent", json={}),
        dev_host.request("POST", "/admin/functions/broken", json={}),
        dev_host.request("POST", "/admin/functions/take", content=b"[]"),
    ]

    assert [404, 400, 400] == [answer.status_code for answer in answers]
    assert "there is no function called 'absent'" == answers[0].json()["error"]["message"]
