"""Checks of storage for `landfall doctor`, against Azurite: each thing is broken once, and found."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from function_app.adapters.connections import StorageConnection
from function_app.adapters.probes import storage_probes
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.adapters.tables.client import Change, Table, Tables
from function_app.domain.checks import Probe

pytestmark = pytest.mark.azurite


@pytest.fixture
def probes(host_storage: StorageConnection, data_storage: StorageConnection, unique: str) -> dict[str, Probe]:
    """The checks by their parts; nothing of what they look at exists yet."""
    found = storage_probes(
        host_storage,
        data_storage,
        read=[(data_storage, unique)],
        written=[(host_storage, unique)],
        queues=[unique],
        tables=unique,
    )
    return {probe.subject: probe for probe in found}


def test_a_container_that_is_not_there_is_found(
    probes: dict[str, Probe], data_storage: StorageConnection, host_storage: StorageConnection, unique: str
) -> None:
    """It is not created; once it is there, what was written is deleted again."""
    for storage, account in ((data_storage, "data"), (host_storage, "host")):
        look = probes[f"container {unique} of the {account} account"].look
        with pytest.raises(StorageRefusedError, match=r"^it does not exist in account \w+$"):
            look()
        container = storage.blob_service.create_container(unique)
        assert look().startswith("the app may read")
        assert [] == list(container.list_blobs())


def test_a_queue_that_is_not_there_is_found(
    probes: dict[str, Probe], host_storage: StorageConnection, unique: str
) -> None:
    """A queue that is there says how much waits in it."""
    look = probes[f"queue {unique}"].look
    with pytest.raises(StorageRefusedError, match=r"it does not exist .*, so its events and messages are lost"):
        look()
    host_storage.queue_service.create_queue(unique).send_message("x")
    assert "about 1 messages in it" == look()


def test_tables_are_created_as_by_their_first_use_unless_one_was_lost(
    probes: dict[str, Probe], host_storage: StorageConnection, unique: str
) -> None:
    """A new deployment has none; verdicts without their versions mean that a table was deleted."""
    look = probes["ledger"].look
    assert look().endswith(", ".join(unique + table for table in get_args(Table)))
    assert "7 tables, which the app may read" == look()
    Tables(host_storage, unique).commit("versions", "digits", [Change(key="a", columns={})])
    host_storage.table_service.delete_table(f"{unique}shards")
    with pytest.raises(StorageRefusedError, match=f"table {unique}shards was deleted"):
        look()


def test_a_key_that_storage_refuses_is_found(data_storage: StorageConnection, unique: str) -> None:
    """As a role that is missing is: with storage's answer, and where to look."""
    text = data_storage.settings.connection_string or ""
    key = text.partition("AccountKey=")[2].partition(";")[0]
    wrong = StorageConnection(replace(data_storage.settings, connection_string=text.replace(key, "d3Jvbmc=")))
    probes = storage_probes(wrong, wrong, read=[(wrong, unique)], written=[], queues=[], tables=unique)
    with pytest.raises(StorageRefusedError, match=r"refused it \(403\).*role assignments"):
        next(probes).look()
