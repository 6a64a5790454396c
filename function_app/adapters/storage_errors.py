"""Translation of the storage SDKs' errors into Landfall's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from function_app.domain.errors import ServiceUnavailableError
from shared.errors import LandfallError

if TYPE_CHECKING:
    from azure.core.exceptions import HttpResponseError

_TRY_LATER = frozenset({408, 429})
_SERVER_ERRORS = range(500, 600)
_BEING_DELETED = ("ContainerBeingDeleted", "QueueBeingDeleted", "TableBeingDeleted")
"""Codes of a 409 that takes half a minute or longer to pass."""
_MAX_DETAIL_CHARS = 500


class StorageRefusedError(LandfallError):
    """Storage refused permanently: a wrong key, a missing role assignment, or an invalid request."""


@contextmanager
def storage_errors(action: str) -> Iterator[None]:
    """Translate SDK errors to ServiceUnavailableError or StorageRefusedError; ``action`` describes the operation."""
    from azure.core.exceptions import DecodeError, HttpResponseError, ServiceRequestError, ServiceResponseError

    try:
        yield
    except (ServiceRequestError, ServiceResponseError, DecodeError) as error:
        raise ServiceUnavailableError(f"{action}: storage did not answer: {_detail(error)}") from error
    except HttpResponseError as error:
        raise _refused_or_unavailable(action, error) from error


def _refused_or_unavailable(action: str, error: HttpResponseError) -> LandfallError:
    status = error.status_code or 0
    is_passing = getattr(error, "error_code", None) in _BEING_DELETED
    if is_passing or status in _TRY_LATER or status in _SERVER_ERRORS:
        return ServiceUnavailableError(f"{action}: storage is unavailable ({status}): {_detail(error)}")
    hint = ""
    if status in (0, 401, 403):  # 0 if no token could be obtained
        hint = "; check the connection's settings and the identity's role assignments on the account"
    return StorageRefusedError(f"{action}: storage refused it ({status}): {_detail(error)}{hint}")


def _detail(error: Exception) -> str:
    """Return the first line of a message, which may contain a whole response body."""
    lines = str(error).splitlines()
    return lines[0][:_MAX_DETAIL_CHARS] if lines else type(error).__name__
