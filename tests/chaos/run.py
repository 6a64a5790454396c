"""One chaos run: start a twin, disturb it, and judge what is left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from local_azure.azurite import HOST_ACCOUNT, HOST_ACCOUNT_KEY
from local_azure.twin.addresses import TwinOptions
from tests.chaos.evidence import gather
from tests.chaos.plan import ChaosPlan, write_pipelines
from tests.chaos.promises import judge
from tests.chaos.report import ChaosError, Finding
from tests.chaos.storage_proxy import StorageProxy, storage_proxy, through
from tests.chaos.storm import Storm
from tests.support.twin import TwinUnderTest, options, twin_under_test

QUEUE_LEASE_S = 3.0
SWEEP_SCHEDULE = "*/10 * * * * *"
SWEEP_GRACE_S = 5
CLAIM_LEASE_S = 15
"""Shorter than a call of Azure ML with its retries may take, so that a slow handler sometimes loses its lease."""
HOST_CONNECTION = "".join(
    f"{name}={value};"
    for name, value in {
        "DefaultEndpointsProtocol": "http",
        "AccountName": HOST_ACCOUNT,
        "AccountKey": HOST_ACCOUNT_KEY,
        **{f"{service}Endpoint": f"http://127.0.0.1/{HOST_ACCOUNT}" for service in ("Blob", "Queue", "Table")},
    }.items()
)
"""The account of ledger, queues and documents; the proxy fills in its own ports."""


def run_chaos(plan: ChaosPlan, scratch: Path, say: Callable[[str], None]) -> list[Finding]:
    """Return every promise and what was seen of it. Raises ChaosError if runs do not end after the storm."""
    with stormy_twin(plan, scratch) as (twin, proxy), ledger_of(twin) as ledger:
        storm = Storm(plan=plan, twin=twin, ledger=ledger, proxy=proxy, say=say, tables=scratch / "tables")
        damage = storm.rage()
        say(f"all runs ended and were notified {damage.recovery_s:.0f} s later; now the late events")
        storm.deliver_late_events()
        return judge(plan, damage, gather(plan, twin, ledger))


@contextlib.contextmanager
def stormy_twin(plan: ChaosPlan, scratch: Path) -> Iterator[tuple[TwinUnderTest, StorageProxy]]:
    """Run a twin whose app reaches its storage account through a proxy. Raises ChaosError if it cannot start."""
    chosen = chaos_options(plan, scratch)
    ports = {name: chosen.ports[name] for name in ("blob", "queue", "table")}
    with storage_proxy(ports) as (proxy, proxy_ports):
        settings = {**chosen.more_settings, "AzureWebJobsStorage": through(HOST_CONNECTION, proxy_ports)}
        with _started(replace(chosen, more_settings=settings)) as twin:
            if {name: twin.twin.places.ports[name] for name in ports} != ports:
                raise ChaosError(f"the twin could not use the ports {ports}: another process took one; run again")
            yield twin, proxy


def chaos_options(plan: ChaosPlan, scratch: Path) -> TwinOptions:
    """Return the options of a twin that sweeps every few seconds."""
    return replace(
        options(scratch / "twin", pipelines=write_pipelines(scratch / "pipelines", plan)),
        queue_lease_s=QUEUE_LEASE_S,
        reconcile_schedule=SWEEP_SCHEDULE,
        sweep_grace_s=SWEEP_GRACE_S,
        more_settings={"LANDFALL_CLAIM_LEASE_S": str(CLAIM_LEASE_S)},
    )


@contextlib.contextmanager
def ledger_of(twin: TwinUnderTest) -> Iterator[TableLedger]:
    """Open the twin's ledger without the proxy."""
    connection = ConnectionSettings(name="AzureWebJobsStorage", connection_string=twin.twin.places.host_connection)
    with contextlib.closing(StorageConnection(connection)) as storage:
        yield TableLedger(storage)


@contextlib.contextmanager
def _started(chosen: TwinOptions) -> Iterator[TwinUnderTest]:
    try:
        with twin_under_test(chosen) as twin:
            yield twin
    except pytest.skip.Exception as error:
        raise ChaosError(str(error)) from None
