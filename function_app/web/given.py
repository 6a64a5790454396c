"""What the routes of every part of the API are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from function_app.services import Services


def _services(request: Request) -> Services:
    build: Callable[[], Services] = request.app.state.services
    return build()


Given = Annotated[Services, Depends(_services)]
"""The services; asked for by the requests that need them, so a misconfigured app answers."""
