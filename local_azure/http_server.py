"""The HTTP server of the emulators and the dev host, which listens on loopback until a signal stops it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

LOOPBACK = "127.0.0.1"


class PortError(Exception):
    """The server cannot listen on the port; the message has the port, the reason and the fix."""


def bind(port: int) -> socket.socket:
    """Return a socket that holds `port` (0: any free one). Raises PortError if another program has it."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        raise PortError(
            f"port {port} on {LOOPBACK} cannot be used: {error.strerror}. Does another one run already? "
            "Choose another port with --port"
        ) from error
    return listening


def port_of(listening: socket.socket) -> int:
    """Return the port of a bound socket."""
    port: int = listening.getsockname()[1]
    return port


@asynccontextmanager
async def serving(
    application: web.Application,
    listening: socket.socket,
    *,
    grace_s: float,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Answer requests on a bound socket for the duration of the block; then open requests have `grace_s` to end."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=grace_s)
    await runner.setup()
    try:
        await web.SockSite(runner, listening, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until_stopped(stop: asyncio.Event, tasks: Iterable[asyncio.Task[None]] = ()) -> None:
    """Wait for `stop`; if a task fails before that, raise its error.

    Without this, a server whose listener has failed would still answer, but do nothing.
    """
    stopped = asyncio.create_task(stop.wait())
    waiting: set[asyncio.Task[None] | asyncio.Task[bool]] = {stopped, *tasks}
    try:
        while not stopped.done():
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    finally:
        stopped.cancel()


def json_object(body: bytes) -> dict[str, Any]:
    """Return a request's body as a JSON object. Raises ValueError with a message for the answer."""
    try:
        content = json.loads(body)
    except ValueError as error:
        raise ValueError(f"the body must be a JSON object: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004 (a wrong request, not a bug)
    return content


def refusal(status: int, message: str, *, code: str = "") -> web.Response:
    """Return an error in the format that Azure's clients read."""
    error = {"code": code, "message": message} if code else {"message": message}
    return web.json_response({"error": error}, status=status)
