"""The storage checks of `landfall doctor` on Azurite: each defect is created once, and found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest

from function_app.adapters.azure_ml import WorkspaceClient
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.probes import asset_probes, clock_probe, identity_probes, storage_probes
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.adapters.tables.client import Change, Table, Tables
from function_app.domain.checks import AbsentHereError, Probe
from function_app.ports import utcnow
from shared.errors import LandfallError
from tests.support.azure_ml import AzureMl, adapter_client

pytestmark = pytest.mark.azurite


@pytest.fixture
def workspace_client(azure_ml: AzureMl) -> Iterator[WorkspaceClient]:
    """A separate client with its own token, because other tests let theirs expire."""
    with adapter_client(azure_ml) as client:
        yield client


@pytest.fixture
def probes(host_storage: StorageConnection, data_storage: StorageConnection, unique: str) -> dict[str, Probe]:
    """The checks by part; nothing of what they check exists yet."""
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
    """The check does not create it; if it exists, the check deletes what it wrote."""
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
    """The check of an existing queue reports its number of messages."""
    look = probes[f"queue {unique}"].look
    with pytest.raises(StorageRefusedError, match=r"it does not exist .*, so its events and messages are lost"):
        look()
    host_storage.queue_service.create_queue(unique).send_message("x")
    assert "about 1 messages in it" == look()


HELPS = {"shards": "upload one shard of each closed version", "versions": "upload one shard of each split"}
"""Lost table → what helps; tests of the sweep show that it does."""


def test_tables_are_created_as_by_their_first_use_unless_one_was_lost(
    probes: dict[str, Probe], host_storage: StorageConnection, unique: str
) -> None:
    """A new deployment has none; verdicts without their versions mean that a table was deleted."""
    look = probes["ledger"].look
    assert look().endswith(", ".join(unique + table for table in get_args(Table)))
    assert "7 tables, which the app may read" == look()
    pairs: tuple[tuple[Table, Table], ...] = (("shards", "versions"), ("versions", "shards"))
    for lost, other in pairs:
        Tables(host_storage, unique).commit(other, "digits", [Change(key="a", columns={})])
        host_storage.table_service.delete_table(f"{unique}{lost}")
        with pytest.raises(StorageRefusedError, match=f"table {unique}{lost} was deleted.*{HELPS[lost]}"):
            look()
    assert "" == probes["ledger"].fix


def test_a_key_that_storage_refuses_is_found(data_storage: StorageConnection, unique: str) -> None:
    """As with a missing role, the message has storage's answer and the place to look."""
    text = data_storage.settings.connection_string or ""
    key = text.partition("AccountKey=")[2].partition(";")[0]
    wrong = StorageConnection(replace(data_storage.settings, connection_string=text.replace(key, "d3Jvbmc=")))
    probes = storage_probes(wrong, wrong, read=[(wrong, unique)], written=[], queues=[], tables=unique)
    with pytest.raises(StorageRefusedError, match=r"refused it \(403\).*role assignments"):
        next(probes).look()


@pytest.mark.parametrize(
    ("late", "said"),
    [(90, r"it is \d+ s ahead of that of storage"), (-3600, r"it is 3\d{3} s behind that of storage")],
)
def test_a_clock_that_is_wrong_is_found(host_storage: StorageConnection, unique: str, late: int, said: str) -> None:
    """The time comes from storage; seconds do not matter."""
    host_storage.blob_service.create_container(unique)
    wrong = clock_probe(host_storage, unique, lambda: utcnow() + timedelta(seconds=late), "restart")
    with pytest.raises(LandfallError, match=rf"^{said[:6]}\d+ s {said.split(' s ')[1]}$"):
        wrong.look()
    assert "within 60 s of that of storage" == clock_probe(host_storage, unique, utcnow, "restart").look()


def test_what_jobs_refer_to_is_asked_for(workspace_client: WorkspaceClient) -> None:
    """The ids in the settings are checked: the image of the environment, and the code."""
    image, code = (probe.look() for probe in asset_probes(workspace_client))
    assert image.startswith("registered, image ")
    assert "registered" == code


@contextmanager
def named(client: WorkspaceClient, **ids: str) -> Iterator[None]:
    """Change the assets that the settings name."""
    before = client.workspace
    client.workspace = replace(before, **ids)
    try:
        yield
    finally:
        client.workspace = before


@pytest.mark.parametrize("kind", ["environment_id", "code_id"])
def test_an_asset_that_is_not_registered_is_found(workspace_client: WorkspaceClient, kind: str) -> None:
    """This happens after a deployment whose publication failed."""
    known = getattr(workspace_client.workspace, kind)
    with named(workspace_client, **{kind: known.rpartition("/")[0] + "/none"}):
        probe = {"environment_id": 0, "code_id": 1}[kind]
        looks = list(asset_probes(workspace_client))
    assert looks[probe].subject.endswith(":none")
    with pytest.raises(LandfallError, match=r"the workspace .* does not have it"):
        looks[probe].look()


def test_an_identity_gets_a_token_and_a_key_is_not_passed_as_good(
    workspace_client: WorkspaceClient, host_storage: StorageConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator is the endpoint that issues tokens, as in the twin."""
    del workspace_client  # its variables name the endpoint
    opened = ConnectionSettings(name="DataStorage", client_id="c", managed_identity=True)
    token, host, data = identity_probes((host_storage.settings, opened), "00000000-0000-0000-0000-0000000000fa")
    assert "the app's identity gets tokens (client id 00000000-0000-0000-0000-0000000000fa)" == token.look()
    assert "the identity opens it (client id c)" == data.look()
    with pytest.raises(AbsentHereError, match="a key opens this account"):
        host.look()
    monkeypatch.setenv("IDENTITY_HEADER", "wrong")
    with pytest.raises(LandfallError, match="no token for the app's identity"):
        token.look()
