"""ARM's limits: bursts for each caller and kind of request, and what comes back each second."""

from __future__ import annotations

import pytest

from local_azure.azure_ml.api.throttling import Throttling
from local_azure.azure_ml.service import ServiceError

READS, WRITES = "x-ms-ratelimit-remaining-subscription-reads", "x-ms-ratelimit-remaining-subscription-writes"


def test_a_burst_ends_and_comes_back() -> None:
    """As recorded, the first answers leave 249 reads and 199 writes, and ten writes return each second."""
    now_s = [0.0]
    throttling = Throttling(lambda: now_s[0])
    assert ({READS: "249"}, {WRITES: "199"}) == (throttling.take("app", "GET"), throttling.take("app", "PUT"))
    for _ in range(199):
        last = throttling.take("app", "PUT")
    with pytest.raises(ServiceError) as refused:
        throttling.take("app", "POST")
    assert ({WRITES: "0"}, 429, {"Retry-After": "1"}) == (last, refused.value.status, refused.value.headers)
    now_s[0] += 1
    assert {WRITES: "9"} == throttling.take("app", "PUT")


def test_another_caller_and_another_kind_are_not_affected() -> None:
    """A caller that sends too much throttles only itself."""
    throttling = Throttling(lambda: 0.0)
    for _ in range(250):
        throttling.take("app", "GET")
    assert ({WRITES: "199"}, {READS: "249"}) == (throttling.take("app", "PUT"), throttling.take("other", "GET"))
