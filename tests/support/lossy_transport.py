"""Faults between the SDK and a real service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.core.exceptions import ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport


class LossyTransport(RequestsTransport):  # type: ignore[misc]  # the SDK hands it out untyped
    """Delivers every request, but loses the answers to those that ``loses`` names: the service has acted by then."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: Callable[[Any], bool] = lambda _: False
        self.lost: list[str] = []
        """Method and url of every request whose answer was lost."""

    def lose_next(self, method: str) -> None:
        """Lose the answer to the next request of a method, once."""
        number_of_lost = len(self.lost)
        self.loses = lambda request: request.method == method and len(self.lost) == number_of_lost

    def send(self, request: Any, **options: Any) -> Any:
        """Send, and lose the answer where that is wanted."""
        response = super().send(request, **options)
        if self.loses(request):
            self.lost.append(f"{request.method} {request.url}")
            response.internal_response.close()
            raise ServiceResponseError("the connection was lost before the answer came")
        return response
