"""The emulator put together: follow storage, serve, deliver, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack

from aiohttp import web

from local_azure.background_tasks import until_stopped
from local_azure.event_grid.blob_events import BlobEventMaker
from local_azure.event_grid.broker import Broker, make_broker
from local_azure.event_grid.config import STORAGE_TOPIC, Config, StorageConfig
from local_azure.event_grid.errors import EventGridError
from local_azure.event_grid.log_tail import LogTail
from local_azure.event_grid.receivers import Receivers
from local_azure.event_grid.storage_source import StorageSource, load_state
from local_azure.event_grid.web_server import WebServer
from local_azure.storage_connections import storage_connection

log = logging.getLogger("event_grid")

TOPIC_KEY_SETTING = "LANDFALL_TWIN_TOPIC_KEY"


async def serve(config: Config, port: int, settings: Mapping[str, str]) -> None:
    """Run until SIGTERM or SIGINT. Raises EventGridError where it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listening = _bind(port)
    following: list[asyncio.Task[None]] = []
    async with AsyncExitStack() as resources:
        broker = await resources.enter_async_context(await make_broker(config, settings, resources))
        if config.storage:
            source = await _storage_source(config, config.storage, broker, settings, resources)
            following.append(asyncio.create_task(source.run()))
            resources.push_async_callback(_finish, source, following[0])
        receivers = Receivers(folder=config.folder / "event_grid", on_close=resources.callback)
        server = WebServer(broker=broker, receivers=receivers, topic_key=settings.get(TOPIC_KEY_SETTING, ""))
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        resources.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listening).start()
        log.info(f"listening http://127.0.0.1:{listening.getsockname()[1]}")
        await until_stopped(stop, [*broker.tasks, *following])


async def _storage_source(
    config: Config, storage: StorageConfig, broker: Broker, settings: Mapping[str, str], resources: AsyncExitStack
) -> StorageSource:
    blobs = await resources.enter_async_context(storage_connection(storage.connection_env, settings).blob_service())
    state_file = config.folder / "event_grid_state.json"
    state = load_state(state_file)
    return StorageSource(
        account=storage.account,
        tail=LogTail(storage.access_log, state.position),
        blobs=blobs,
        maker=BlobEventMaker(resource_id=storage.resource_id, endpoint=blobs.url.rstrip("/")),
        publish=broker.topics[STORAGE_TOPIC].publish,
        state_file=state_file,
        sequence=state.sequence,
    )


async def _finish(source: StorageSource, following: asyncio.Task[None]) -> None:
    source.stopping.set()
    await following


def _bind(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise EventGridError(f"port {port} on 127.0.0.1 cannot be used: {error.strerror}; choose another") from error
    return listening


def run(config: Config, port: int, settings: Mapping[str, str]) -> None:
    """Run ``serve`` to its end, logging lines to standard output."""
    line = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=line, datefmt="%H:%M:%S")
    logging.getLogger("azure").setLevel(logging.WARNING)  # it logs every request at INFO
    asyncio.run(serve(config, port, settings))
