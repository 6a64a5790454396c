"""`python -m local_azure.event_grid --port P --config FILE.json`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from local_azure.event_grid.broker import Broker, make_broker
from local_azure.event_grid.config import STORAGE_TOPIC, Config, ConfigurationError, StorageConfig, load_config
from local_azure.event_grid.http_api import EventGridApi, Webhooks
from local_azure.event_grid.storage_source import BlobEventMaker, LogTail, StorageSource, load_state
from local_azure.http_server import PortError, bind, port_of, serving, stop_on_signals, until_stopped
from local_azure.storage_connections import StorageConnectionError, storage_connection
from shared.safe_text import make_logging_safe

log = logging.getLogger("event_grid")

TOPIC_KEY_SETTING = "LANDFALL_TWIN_TOPIC_KEY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local_azure.event_grid", description=__doc__)
    parser.add_argument("--port", type=int, default=7072, help="loopback port, 0 for any (default 7072)")
    parser.add_argument("--config", type=Path, required=True, help="JSON file; state is kept in its folder")
    options = parser.parse_args(arguments)
    line = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
    make_logging_safe()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=line, datefmt="%H:%M:%S")
    logging.getLogger("azure").setLevel(logging.WARNING)  # It logs every request at INFO.
    try:
        asyncio.run(serve(load_config(options.config.resolve()), options.port, os.environ))
    except (ConfigurationError, PortError, StorageConnectionError) as error:
        print(f"event grid: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


async def serve(config: Config, port: int, settings: Mapping[str, str]) -> None:
    """Follow storage, accept events and deliver them until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    following: list[asyncio.Task[None]] = []
    async with AsyncExitStack() as resources:
        listening = resources.enter_context(bind(port))
        broker = await resources.enter_async_context(await make_broker(config, settings, resources))
        if config.storage:
            source = await _storage_source(config, config.storage, broker, settings, resources)
            following.append(asyncio.create_task(source.run()))
            resources.push_async_callback(_finish, source, following[0])
        webhooks = Webhooks(folder=config.folder / "event_grid", on_close=resources.callback)
        api = EventGridApi(broker=broker, webhooks=webhooks, topic_key=settings.get(TOPIC_KEY_SETTING, ""))
        await resources.enter_async_context(serving(api.application(), listening, grace_s=1.0))
        log.info(f"listening http://127.0.0.1:{port_of(listening)}")
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


if __name__ == "__main__":
    sys.exit(main())
