"""Which function app and which storage a command talks to: what the user said, or the local twin that runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from cli.api_client import ApiClient
from cli.errors import CliError

ROOT = Path(__file__).resolve().parent.parent
"""The clone."""
TWINS = ROOT / ".landfall"

P = ParamSpec("P")
R = TypeVar("R")


def with_api(command: Callable[Concatenate[ApiClient, P], R]) -> Callable[..., R]:
    """Give a command --url and --key, and an open `ApiClient` as its first argument."""

    @click.option("--url", envvar="LANDFALL_URL", help="Address of the function app [env: LANDFALL_URL].")
    @click.option("--key", envvar="LANDFALL_FUNCTION_KEY", help="Its key [env: LANDFALL_FUNCTION_KEY].")
    @functools.wraps(command)
    def wrapper(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> R:
        with api_client(url, key) as client:
            client.is_for_people = not kwargs.get("as_json")
            try:
                return command(client, *args, **kwargs)
            except KeyError as error:
                hint = "is it a Landfall function app, and as new as this command?"
                raise CliError(f"{client.url} should have answered with {error}, and did not: {hint}") from error

    return wrapper


def api_client(url: str | None, key: str | None) -> ApiClient:
    """Return a client of what the user named, else of the running twin. Raises CliError where there is neither."""
    if url is not None:
        return ApiClient(url, key)
    twin = running_twin_of_this_clone()
    if twin is None:
        raise CliError(
            "No function app to talk to: give --url (or set LANDFALL_URL), or start a local twin with `landfall up`."
        )
    return ApiClient(twin.functions_url, key or twin.function_key)


@dataclass(frozen=True, kw_only=True)
class TwinAddress:
    """What a command needs to know of a running twin."""

    functions_url: str
    function_key: str
    data_connection: str


def running_twin_of_this_clone(base: Path = TWINS) -> TwinAddress | None:
    """Return the first of this clone's twins that runs, None where none does."""
    from local_azure.processes import keep_loopback_direct
    from local_azure.twin.state import running_twins

    keep_loopback_direct()
    for twin in running_twins(base):
        return TwinAddress(
            functions_url=twin["functions_url"],
            function_key=twin["function_key"],
            data_connection=twin["data_connection"],
        )
    return None
