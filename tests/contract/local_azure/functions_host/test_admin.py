from __future__ import annotations

from typing import Any

import httpx
import pytest

from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import DevHost
from tests.contract.local_azure.functions_host.conftest import MASTER_KEY

HEADERS = {"x-functions-key": MASTER_KEY}
pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]


def _admin(dev_host: DevHost, method: str, path: str, **arguments: Any) -> httpx.Response:
    return dev_host.request(method, path, headers=HEADERS, **arguments)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/admin/host/status"), ("GET", "/admin/functions"), ("POST", "/admin/functions/take")],
)
def test_only_the_master_key_opens_the_admin_endpoints(dev_host: DevHost, method: str, path: str) -> None:
    """The status is 401 without a key, and with the key of the host or of a function."""
    others = [{}, *({"x-functions-key": key} for key in ("fixture-host-key", "fixture-function-key"))]
    assert [401] * 3 == [dev_host.request(method, path, headers=headers).status_code for headers in others]


def test_the_status_says_that_the_host_runs(dev_host: DevHost) -> None:
    """The state is Running, with the number of functions and the runtime's version."""
    status = _admin(dev_host, "GET", "/admin/host/status").json()

    assert ("Running", 9) == (status["state"], status["functionCount"])
    assert (sum(status["running"].values()), True) == (status["runningInvocations"], "ended" in status)
    assert "azure-functions-runtime 1.3.0" == status["version"]


def test_functions_are_listed_with_their_bindings(dev_host: DevHost) -> None:
    """Every function is listed, settings in its bindings are resolved, and HTTP functions have a URL."""
    listed = {one["name"]: one for one in _admin(dev_host, "GET", "/admin/functions").json()}

    http = {"http_app_func", "item", "special", "broken", "guarded", "masters"}
    assert http | {"enqueue", "take", "tick"} == set(listed)
    assert "inbox" == listed["take"]["bindings"][0]["queueName"]
    assert f"{dev_host.url}/broken" == listed["broken"]["invoke_url_template"]


def test_a_queue_function_can_be_started_by_hand(dev_host: DevHost) -> None:
    """The status is 202, and the function gets the input like a message."""
    answer = _admin(dev_host, "POST", "/admin/functions/take", json={"input": "by hand"})

    assert 202 == answer.status_code
    dev_host.wait_for_bodies("by hand")


def test_a_timer_can_be_started_by_hand(dev_host: DevHost) -> None:
    """The status is 202, and the timer fires once more; its schedule continues."""
    before = len(dev_host.journalled("timer"))
    answer = _admin(dev_host, "POST", "/admin/functions/tick", json={})

    assert 202 == answer.status_code
    wait_until(lambda: len(dev_host.journalled("timer")) > before, what="a tick")


def test_what_cannot_be_started_is_refused_with_a_reason(dev_host: DevHost) -> None:
    """Unknown functions, HTTP functions and bodies that are not objects are refused."""
    answers = [
        _admin(dev_host, "POST", "/admin/functions/absent", json={}),
        _admin(dev_host, "POST", "/admin/functions/broken", json={}),
        _admin(dev_host, "POST", "/admin/functions/take", content=b"[]"),
    ]

    assert [404, 400, 400] == [answer.status_code for answer in answers]
    assert "there is no function called 'absent'" == answers[0].json()["error"]["message"]
