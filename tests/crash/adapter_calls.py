"""Finds every request with which an adapter changes something outside: as it is sent, and in the source.

One call of a port may be several requests (a container is created, then written to; a message is taken, recorded by a
step, then deleted). Clients of all services meet in the standard library's HTTP connection, so that is where they are
seen; which places of the adapters make them is read from the source and from the SDKs' own classes.
"""

from __future__ import annotations

import ast
import http.client
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from azure.data.tables import TableClient, TableServiceClient
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient
from azure.storage.queue import QueueClient, QueueServiceClient

from function_app import adapters
from tests.crash.port_calls import FLOWS, called, calls_of, site_of

ADAPTERS = Path(adapters.__file__).parent
SDK_CLIENTS = (
    *(BlobClient, BlobServiceClient, ContainerClient),
    *(QueueClient, QueueServiceClient),
    *(TableClient, TableServiceClient),
)
LOOKING = ("get_", "list_", "query_", "download_", "find_", "peek_", "walk_", "exists", "from_", "close")
"""Prefixes of the SDKs' methods that change nothing; all other methods count as effects."""
TAKE = "TAKE"
"""The name of a GET that takes messages from a queue, because it hides them."""
WRITING_VERBS = frozenset({"PUT", "POST", "PATCH", "MERGE", "DELETE", TAKE})


def writing_methods() -> frozenset[str]:
    """Return the methods of the storage SDKs' clients that change something."""
    return frozenset(
        name
        for client in SDK_CLIENTS
        for name, _ in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith(("_", *LOOKING))
    )


def request_sites() -> dict[str, str]:
    """Return every place in the adapters' source that changes storage: site → file and line."""
    writing = writing_methods()
    return {
        f"{path.stem}.{owner}": f"{path.name}:{call.lineno}"
        for path in sorted(ADAPTERS.rglob("*.py"))
        for owner, call in calls_of(ast.parse(path.read_text()))
        if called(call) in writing
    }


@contextmanager
def changes_seen(see: Callable[[str, FrameType], None]) -> Iterator[None]:
    """Report every request that changes something, as soon as the response begins.

    ``see`` is given its verb, and the frame in which the answer is read.
    """
    put, answered = http.client.HTTPConnection.putrequest, http.client.HTTPConnection.getresponse
    verbs: dict[int, str] = {}

    def putrequest(connection: Any, verb: str, url: str, *arguments: Any, **named: Any) -> None:
        takes = verb == "GET" and "/messages?" in url and "peekonly" not in url
        verbs[id(connection)] = TAKE if takes else verb
        put(connection, verb, url, *arguments, **named)

    def getresponse(connection: Any) -> Any:
        answer = answered(connection)
        verb = verbs.pop(id(connection), "")
        if verb in WRITING_VERBS and answer.status < HTTPStatus.BAD_REQUEST:
            see(verb, sys._getframe(1))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "putrequest", putrequest)
        patch.setattr(http.client.HTTPConnection, "getresponse", getresponse)
        yield


@contextmanager
def requests_seen(see: Callable[[str], None]) -> Iterator[None]:
    """Report the name of each effect of a step.

    A name is ``method@step: VERB adapter``: the port's method, who called it, the request, and who made that.
    """

    def named(verb: str, frame: FrameType) -> None:
        name = _name(verb, frame)
        if name is not None:
            see(name)

    with changes_seen(named):
        yield


def site_of_name(name: str) -> str:
    """Return the adapter's place from the name of an effect."""
    return name.rpartition(" ")[2]


def _name(verb: str, frame: FrameType | None) -> str | None:
    """Name an effect by the calls that lead to it; None if no step requested it."""
    inner = outer = ""
    while frame is not None and Path(frame.f_code.co_filename).parent not in FLOWS:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ADAPTERS) and path.name != "connections.py":  # whose transport sends every request
            outer = frame.f_code.co_qualname.partition(".<locals>")[0]
            inner = inner or f"{path.stem}.{outer}"
        frame = frame.f_back
    if frame is None:
        return None
    return f"{outer.rpartition('.')[2]}@{site_of(frame)}: {verb} {inner}"
