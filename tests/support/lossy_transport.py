"""An HTTP transport that loses responses between the SDK and a real service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.core.exceptions import ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport


class LossyTransport(RequestsTransport):  # type: ignore[misc]  # the SDK hands it out untyped
    """Sends every request, but drops the responses to those that ``loses`` selects, after the service has acted."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: Callable[[Any], bool] = lambda _: False
        self.lost: list[str] = []
        """Method and URL of every request whose response was lost."""

    def lose_next(self, method: str) -> None:
        """Lose the response to the next request of a method, once."""
        number_of_lost = len(self.lost)
        self.loses = lambda request: request.method == method and len(self.lost) == number_of_lost

    def send(self, request: Any, **options: Any) -> Any:
        """Send the request, and drop the response if it was selected."""
        response = super().send(request, **options)
        if self.loses(request):
            self.lost.append(f"{request.method} {request.url}")
            response.internal_response.close()
            raise ServiceResponseError("the connection was lost before the answer came")
        return response
