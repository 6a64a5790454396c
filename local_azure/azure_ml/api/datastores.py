"""Datastores: names for containers of a storage account."""

from __future__ import annotations

from local_azure.azure_ml.api.call import PROVIDER, Answer, Call, not_found, system_data
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.schema import check_body
from local_azure.azure_ml.store import Document
from local_azure.azure_ml.workspace import BUILT_IN_DATASTORES, DATASTORES, datastore_document


def put_datastore(emulator: Emulator, call: Call) -> Answer:
    """Register a datastore; its secrets are not kept, because nothing here reads them."""
    body = call.document()
    check_body("datastores", body)
    properties = dict(body["properties"])
    credentials = {"credentialsType": (properties.get("credentials") or {}).get("credentialsType", "None")}
    properties |= {"credentials": credentials, "isDefault": False}
    resource = _resource(call.path, call.parts["name"], properties)
    created = emulator.store.put(DATASTORES, call.path, resource)
    return Answer(status=201 if created else 200, body=resource)


def get_datastore(emulator: Emulator, call: Call) -> Answer:
    """Describe a datastore."""
    return Answer(body=_described(emulator, call.workspace_id, call.parts["name"]))


def list_datastores(emulator: Emulator, call: Call) -> Answer:
    """List the built-in datastores, then the registered ones; `isDefault=true` gives the default one only."""
    built_in = [_described(emulator, call.workspace_id, name) for name in BUILT_IN_DATASTORES]
    registered = emulator.store.below(DATASTORES, call.path.rstrip("/") + "/")
    found = [*built_in, *registered]
    if call.query.get("isDefault", "").lower() == "true":
        found = [one for one in found if one["properties"]["isDefault"]]
    return Answer(body={"value": found})


def _described(emulator: Emulator, workspace_id: str, name: str) -> Document:
    account = emulator.storage.workspace_account
    properties = datastore_document(emulator.store, workspace_id, name, account)
    if properties is None:
        raise not_found(f"Could not find datastore with name: {name}.")
    return _resource(f"{workspace_id}/datastores/{name}", name, properties)


def _resource(path: str, name: str, properties: Document) -> Document:
    return {
        "id": path,
        "name": name,
        "type": f"{PROVIDER}/workspaces/datastores",
        "systemData": system_data(),
        "properties": properties,
    }
