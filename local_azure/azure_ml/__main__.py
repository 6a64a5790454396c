"""`python -m local_azure.azure_ml`: start the emulator and serve until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from local_azure.azure_ml.api.answers import Faults
from local_azure.azure_ml.api.emulator import CallLog, Emulator
from local_azure.azure_ml.api.http_api import AzureMlApi
from local_azure.azure_ml.api.resources import compute_scale
from local_azure.azure_ml.api.security import TokenIssuer, certificate_files, token_issuer
from local_azure.azure_ml.api.tracking import run_variables
from local_azure.azure_ml.cluster import ClusterPool
from local_azure.azure_ml.execution import Executions, Workbench, settle_interrupted
from local_azure.azure_ml.faults import JobFaults
from local_azure.azure_ml.hosts import why_simulated
from local_azure.azure_ml.launch import Images
from local_azure.azure_ml.mounts import build_library
from local_azure.azure_ml.rank import SOCKET_VARIABLE
from local_azure.azure_ml.runs import EventPublisher, Run, RunBook, log_change
from local_azure.azure_ml.service import Clock
from local_azure.azure_ml.settings import Settings, SettingsError, read_settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.workspace import COMPUTES, Store
from local_azure.http_server import PortError, bind, port_of, serving, stop_on_signals, until_stopped
from shared.safe_text import make_logging_safe


def main() -> int:
    """Run to the end; return exit code 2 if the emulator cannot start."""
    make_logging_safe()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = read_settings(sys.argv[1:], os.environ)
        settings.state.mkdir(parents=True, exist_ok=True)
        asyncio.run(_serve(settings))
    except (SettingsError, PortError) as error:
        print(f"cannot start the Azure ML emulator: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(settings: Settings) -> None:
    stop = stop_on_signals()
    async with contextlib.AsyncExitStack() as stack:
        listening = stack.enter_context(bind(settings.port))
        store = stack.enter_context(contextlib.closing(Store(settings.state / "state.sqlite3")))
        url = f"https://localhost:{port_of(listening)}"
        endpoint = settings.events_endpoint
        publisher = EventPublisher(endpoint, settings.topic_key) if endpoint else None
        for_jobs = stack.enter_context(_socket_for_jobs())
        tokens = token_issuer(settings.state)
        bench = _workbench(settings, store, publisher, _tracking(tokens, for_jobs.getsockname()))
        emulator = Emulator(
            bench=bench,
            executions=Executions(bench),
            tokens=tokens,
            calls=CallLog(),
            faults=Faults(),
        )
        if publisher is not None:
            publisher.start()
        settle_interrupted(bench)
        bench.pool.start()
        tls = certificate_files(settings.state).tls_context()
        api = AzureMlApi(emulator, url)
        async with (
            serving(api.application(), listening, grace_s=0.5, tls=tls),
            serving(api.application_of_jobs(), for_jobs, grace_s=0.5),
        ):
            print(f"listening {url}", flush=True)
            await until_stopped(stop)
            await asyncio.to_thread(emulator.executions.stop)
        bench.pool.stop()
        if publisher is not None:
            await asyncio.to_thread(publisher.stop)


@contextlib.contextmanager
def _socket_for_jobs() -> Iterator[socket.socket]:
    """Yield a socket in a separate folder. Nodes can reach this machine's files, but not its loopback."""
    with tempfile.TemporaryDirectory(prefix="aml-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/mlflow")
        yield listening


def _tracking(tokens: TokenIssuer, path: str) -> Callable[[Run], Mapping[str, str]]:
    return lambda run: {**run_variables(run, tokens), SOCKET_VARIABLE: path}


def _workbench(
    settings: Settings,
    store: Store,
    publisher: EventPublisher | None,
    tracking: Callable[[Run], Mapping[str, str]],
) -> Workbench:
    pool, clock = ClusterPool(settings.delays), Clock()
    for resource in store.below(COMPUTES, "/"):
        pool.configure(resource["id"], compute_scale(resource, settings.node_idle_s))
    return Workbench(
        settings=settings,
        store=store,
        runs=RunBook(store, publisher.run_changed if publisher else log_change, clock.now),
        storage=Storage(settings.storage),
        pool=pool,
        images=Images(settings, store),
        faults=JobFaults(settings.fault),
        clock=clock,
        mount_library=build_library(settings.state),
        tracking=tracking,
        simulated_because=why_simulated(),
    )


if __name__ == "__main__":
    sys.exit(main())
