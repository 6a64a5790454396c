"""python -m local_azure.azure_ml: start the emulator and serve until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from local_azure.azure_ml.api.call_log import CallLog
from local_azure.azure_ml.api.computes import compute_scale
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.api.faults import Faults
from local_azure.azure_ml.api.server import Server
from local_azure.azure_ml.certificates import certificate_files
from local_azure.azure_ml.events import EventPublisher, SilentSink
from local_azure.azure_ml.execution import Workbench
from local_azure.azure_ml.executions import Executions, settle_interrupted
from local_azure.azure_ml.images import Images
from local_azure.azure_ml.pool import ClusterPool
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.settings import Settings, SettingsError, read_settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.store import Store
from local_azure.azure_ml.tokens import token_issuer
from local_azure.azure_ml.workspace import COMPUTES


def main() -> int:
    """Run to the end; exit code 2 where the settings are wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"cannot start the Azure ML emulator: {error}", file=sys.stderr)
        return 2
    settings.state.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    publisher = _publisher(settings)
    store = Store(settings.state / "state.sqlite3")
    bench = _workbench(settings, store, publisher)
    emulator = Emulator(
        bench=bench,
        executions=Executions(bench),
        tokens=token_issuer(settings.state),
        calls=CallLog(),
        faults=Faults(),
    )
    if publisher is not None:
        publisher.start()
    settle_interrupted(bench)
    bench.pool.start()
    server = Server(emulator)
    url = await server.start(settings.port, certificate_files(settings.state).tls_context())
    print(f"listening {url}", flush=True)
    await _told_to_stop()
    await asyncio.to_thread(emulator.executions.stop)
    await server.stop()
    bench.pool.stop()
    if publisher is not None:
        await asyncio.to_thread(publisher.stop)
    store.close()


def _publisher(settings: Settings) -> EventPublisher | None:
    return EventPublisher(settings.events_endpoint, settings.topic_key) if settings.events_endpoint else None


def _workbench(settings: Settings, store: Store, publisher: EventPublisher | None) -> Workbench:
    pool = ClusterPool(settings.delays)
    for resource in store.below(COMPUTES, "/"):
        pool.configure(resource["id"], compute_scale(resource, settings.node_idle_s))
    return Workbench(
        settings=settings,
        store=store,
        runs=RunBook(store, (publisher or SilentSink()).run_changed),
        storage=Storage(settings.storage),
        pool=pool,
        images=Images(settings, store),
    )


async def _told_to_stop() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
