"""The end of a job's log, from real storage through a proxy that refuses; the run's history is a stand-in."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from function_app.adapters.azure_ml import log_tail
from function_app.adapters.connections import StorageConnection
from local_azure.azurite import Azurite
from tests.chaos.storage_proxy import StorageFault, storage_proxy, through

pytestmark = pytest.mark.azurite

LOG = "user_logs/std_log_process_0.txt"


def client_of_a_run(address: str) -> Any:
    """Stand in for a client that knows one run, whose log is at an address."""
    details = SimpleNamespace(log_files={LOG: address})
    operations = SimpleNamespace(get_run_details=lambda _: details)
    return SimpleNamespace(jobs=SimpleNamespace(_runs_operations=operations))


def test_a_log_that_is_refused_once_is_read_over_the_same_connection(
    azurite: Azurite, host_storage: StorageConnection, unique: str
) -> None:
    """The SDK drops the refusal unread when it asks again; its connection would stay open until it is collected."""
    host_storage.blob_service.create_container(unique, public_access="blob")
    host_storage.blob_service.get_blob_client(unique, LOG).upload_blob(b"epoch 1\nepoch 2\n")
    refusals, threads = [StorageFault.BUSY], set[threading.Thread]()

    def refuse_the_first_download(_service: str, verb: str, _path: str) -> StorageFault | None:
        threads.add(threading.current_thread())  # the proxy has one for each connection
        return refusals.pop() if refusals and verb == "GET" else None

    with storage_proxy(azurite.ports) as (proxy, ports):
        proxy.draw = refuse_the_first_download
        with BlobServiceClient.from_connection_string(through(azurite.connection_string(), ports)) as service:
            address = service.get_blob_client(unique, LOG).url
        tail = log_tail(client_of_a_run(address), "run", max_bytes=9)
    assert ("\nepoch 2\n", [], 1) == (tail, refusals, len(threads))
