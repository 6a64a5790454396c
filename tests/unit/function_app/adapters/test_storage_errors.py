"""SDK errors in the words of Landfall."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseTimeoutError,
)
from azure.storage.blob import ContainerClient

from function_app.adapters.blob_listing import list_blobs
from function_app.adapters.storage_errors import StorageRefusedError, storage_errors
from function_app.domain.errors import ServiceUnavailableError
from shared.errors import LandfallError


def answered(status: int) -> HttpResponseError:
    error = HttpResponseError("first line\nRequestId: 1")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceRequestError("no route"), ServiceUnavailableError),
        (ServiceResponseTimeoutError("30 s"), ServiceUnavailableError),
        (IncompleteReadError("cut"), ServiceUnavailableError),
        (answered(408), ServiceUnavailableError),
        (answered(429), ServiceUnavailableError),
        (answered(500), ServiceUnavailableError),
        (answered(503), ServiceUnavailableError),
        (answered(400), StorageRefusedError),
        (answered(403), StorageRefusedError),
        (ClientAuthenticationError("no identity"), StorageRefusedError),
    ],
)
def test_every_failure_is_either_for_now_or_for_good(error: Exception, expected: type[LandfallError]) -> None:
    """What may pass is unavailable, the rest is refused; the cause is kept."""
    with pytest.raises(expected) as caught, storage_errors("read row"):
        raise error
    assert error is caught.value.__cause__


def test_a_message_says_what_was_done_and_one_line_of_the_answer() -> None:
    """A response body is not for people."""
    with pytest.raises(ServiceUnavailableError) as caught, storage_errors("read row"):
        raise answered(503)
    assert "read row: storage is unavailable (503): first line" == str(caught.value)


class Answering(ContainerClient):
    """A container whose listings are all answered with one status."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.prefixes = list[str]()

    def list_blobs(self, *_: Any, **options: Any) -> Any:
        """See ContainerClient."""
        self.prefixes.append(options["name_starts_with"])
        raise answered(self.status)


def test_a_listing_is_not_narrowed_down_while_storage_is_away() -> None:
    """No blob's name is to blame for 503, and thousands of requests would not help."""
    container, unlisted = Answering(503), list[str]()
    with pytest.raises(HttpResponseError):
        list(list_blobs(container, "digits/", unlisted.append))
    assert (["digits/"], []) == (container.prefixes, unlisted)


def test_what_is_ours_passes() -> None:
    """Only SDK errors are translated."""
    with pytest.raises(KeyError, match="mine"), storage_errors("read row"):
        raise KeyError("mine")
