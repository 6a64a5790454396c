"""One run of chaos: a twin, a storm, and what the evidence says afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.chaos.evidence import gather
from bench.chaos.pipelines import write_pipelines
from bench.chaos.plan import ChaosPlan
from bench.chaos.promises import figures
from bench.chaos.storage_proxy import StorageProxy, storage_proxy, through
from bench.chaos.storm import Storm
from bench.figures import BenchmarkError, Context, Figure
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from local_azure.twin.options import TwinOptions
from local_azure.twin.places import HOST_ACCOUNT, HOST_ACCOUNT_KEY
from tests.support.twin import TwinUnderTest, options, twin_under_test

QUEUE_LEASE_S = 3.0
SWEEP_EVERY = "*/10 * * * * *"
SWEEP_GRACE_S = 5
HOST_CONNECTION = "".join(
    f"{name}={value};"
    for name, value in {
        "DefaultEndpointsProtocol": "http",
        "AccountName": HOST_ACCOUNT,
        "AccountKey": HOST_ACCOUNT_KEY,
        **{f"{service}Endpoint": f"http://127.0.0.1/{HOST_ACCOUNT}" for service in ("Blob", "Queue", "Table")},
    }.items()
)
"""The account of ledger, queues and documents; its ports are the proxy's."""
CLAIM_LEASE_S = 15
"""Shorter than a call of Azure ML with its repetitions may take: a slow handler is overtaken now and then."""


def raise_chaos(plan: ChaosPlan, context: Context) -> list[Figure]:
    """Return what was promised and what came of it. Raises BenchmarkError where the storm does not end."""
    with stormy_twin(plan, context.scratch) as (twin, proxy), ledger_of(twin) as ledger:
        storm = Storm(plan=plan, twin=twin, ledger=ledger, proxy=proxy, context=context)
        damage = storm.rage()
        context.say(f"everything was told {damage.recovery_s:.0f} s later; now the late events")
        storm.deliver_late_events()
        return figures(plan, damage, gather(plan, twin, ledger))


@contextlib.contextmanager
def stormy_twin(plan: ChaosPlan, scratch: Path) -> Iterator[tuple[TwinUnderTest, StorageProxy]]:
    """Run a twin whose app reaches its account through a proxy. Raises BenchmarkError where one cannot start."""
    chosen = chaos_options(plan, scratch)
    ports = {name: chosen.ports[name] for name in ("blob", "queue", "table")}
    with storage_proxy(ports) as (proxy, proxy_ports):
        settings = {**chosen.more_settings, "AzureWebJobsStorage": through(HOST_CONNECTION, proxy_ports)}
        with started(replace(chosen, more_settings=settings)) as twin:
            if {name: twin.twin.places.ports[name] for name in ports} != ports:
                raise BenchmarkError(f"the twin should use the ports {ports}; another process took one: run again")
            yield twin, proxy


@contextlib.contextmanager
def chaos_twin(plan: ChaosPlan, scratch: Path) -> Iterator[TwinUnderTest]:
    """Run a twin that looks after what was missed every few seconds. Raises BenchmarkError where one cannot start."""
    with started(chaos_options(plan, scratch)) as twin:
        yield twin


def chaos_options(plan: ChaosPlan, scratch: Path) -> TwinOptions:
    """Return what both have in common."""
    return replace(
        options(scratch / "twin", pipelines=write_pipelines(scratch / "pipelines", plan)),
        queue_lease_s=QUEUE_LEASE_S,
        reconcile_schedule=SWEEP_EVERY,
        sweep_grace_s=SWEEP_GRACE_S,
        more_settings={"LANDFALL_CLAIM_LEASE_S": str(CLAIM_LEASE_S)},
    )


@contextlib.contextmanager
def started(chosen: TwinOptions) -> Iterator[TwinUnderTest]:
    """Run a twin. Raises BenchmarkError where one cannot start."""
    try:
        with twin_under_test(chosen) as twin:
            yield twin
    except pytest.skip.Exception as error:
        raise BenchmarkError(str(error)) from None


@contextlib.contextmanager
def ledger_of(twin: TwinUnderTest) -> Iterator[TableLedger]:
    """Open the ledger from outside."""
    connection = ConnectionSettings(name="AzureWebJobsStorage", connection_string=twin.twin.places.host_connection)
    with contextlib.closing(StorageConnection(connection)) as storage:
        yield TableLedger(storage)
