"""A request to an HTTP function needs a key of the function's level, as on the Functions host."""

from __future__ import annotations

import pytest

from tests.contract.local_azure.dev_host import DevHost
from tests.contract.local_azure.functions_host.conftest import MASTER_KEY

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]

HOST_KEY, FUNCTION_KEY = "fixture-host-key", "fixture-function-key"


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/guarded", None, 401),
        ("/guarded", "", 401),
        ("/guarded", "wrong", 401),
        ("/guarded", "ü", 401),
        ("/guarded", FUNCTION_KEY, 200),
        ("/guarded", HOST_KEY, 200),
        ("/guarded", MASTER_KEY, 200),
        ("/masters", None, 401),
        ("/masters", HOST_KEY, 401),
        ("/masters", MASTER_KEY, 200),
        ("/items/special/1", None, 200),
        ("/items/special/1", "wrong", 200),
    ],
)
def test_a_key_opens_what_its_kind_opens(dev_host: DevHost, path: str, key: str | None, status: int) -> None:
    """The key may be in the header or the query; anonymous functions need none."""
    header = {} if key is None else {"x-functions-key": key.encode()}
    query = {} if key is None else {"code": key}
    answers = [dev_host.request("GET", path, headers=header), dev_host.request("GET", path, params=query)]
    assert [status, status] == [answer.status_code for answer in answers]


def test_a_refusal_has_no_body_and_calls_nothing(dev_host: DevHost) -> None:
    """As on the Functions host, an unknown path or method is not found, with or without a key."""
    refused = dev_host.request("GET", "/guarded")
    assert (401, b"") == (refused.status_code, refused.content)


def test_a_key_in_the_header_wins_over_one_in_the_query(dev_host: DevHost) -> None:
    """This holds even if the header's key is wrong."""
    answer = dev_host.request("GET", "/guarded", headers={"x-functions-key": "wrong"}, params={"code": HOST_KEY})
    assert 401 == answer.status_code
