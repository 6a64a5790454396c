"""The client of the Azure ML workspace, built when first used, and the translation of its errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from function_app.adapters.connections import credential
from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from function_app.domain.jobs import Workspace
from shared.errors import LandfallError

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.core.exceptions import HttpResponseError

OPTIONS: dict[str, Any] = {"retry_total": 3, "connection_timeout": 5, "read_timeout": 30}
"""The SDK's own read time-out is 300 s: longer than an HTTP answer of a function may take."""

MAX_DETAIL_CHARS = 2000
_TRY_LATER = frozenset({408, 409, 429})


class WorkspaceClient:
    """One workspace. Importing ``azure.ai.ml`` costs 0.9 s of CPU and 80 MB, so it waits for the first use."""

    def __init__(self, workspace: Workspace, client_id: str | None) -> None:
        self.workspace = workspace
        self._client_id = client_id
        self._client: MLClient | None = None
        self._lock = threading.Lock()

    def get(self) -> MLClient:
        """Return the SDK's client, built at the first call."""
        with self._lock:
            if self._client is None:
                self._client = self._build()
            return self._client

    def _build(self) -> MLClient:
        from azure.ai.ml import MLClient

        return MLClient(
            credential(self._client_id),
            self.workspace.subscription_id,
            self.workspace.resource_group,
            self.workspace.name,
            show_progress=False,
            **OPTIONS,
        )


@contextmanager
def azure_ml_errors(action: str) -> Iterator[None]:
    """Turn SDK errors into ServiceUnavailableError or SubmissionRefusedError; ``action`` says what was being done."""
    from azure.ai.ml.exceptions import MlException
    from azure.core.exceptions import AzureError, HttpResponseError

    try:
        yield
    except HttpResponseError as error:
        raise _refused_or_unavailable(action, error) from error
    except MlException as error:
        # Raised by the client before anything was sent, for what the service would not take.
        raise SubmissionRefusedError(f"{action}: {detail(error)}") from error
    except AzureError as error:
        raise ServiceUnavailableError(f"{action}: Azure ML did not answer: {detail(error)}") from error


def detail(error: Exception) -> str:
    """Return an error's message on one bounded line."""
    return " ".join(str(error).split())[:MAX_DETAIL_CHARS] or type(error).__name__


def _refused_or_unavailable(action: str, error: HttpResponseError) -> LandfallError:
    status = error.status_code or 0
    if status in _TRY_LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR or not status:
        # no status: no token could be obtained for the identity
        return ServiceUnavailableError(f"{action}: Azure ML is unavailable ({status}): {detail(error)}")
    hint = "; check the identity's role on the workspace" if status in (401, 403) else ""
    return SubmissionRefusedError(f"{action}: Azure ML refused it ({status}): {detail(error)}{hint}")
