"""Versioned assets: codes, data, environments and models."""

from __future__ import annotations

import hashlib
from typing import Any

from local_azure.azure_ml.api.call import PROVIDER, Answer, Call, check_body, not_found, system_data
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.service import JobFailure, ServiceError
from local_azure.azure_ml.storage import BlobLocation, catalogue, resolve
from local_azure.azure_ml.workspace import Document

_IMMUTABLE = {
    "codes": ("codeUri",),
    "data": ("dataUri", "dataType"),
    "environments": ("image", "build", "condaFile", "osType"),
    "models": ("modelUri", "modelType"),
}


def put_version(emulator: Emulator, call: Call) -> Answer:
    """Register a version, or update its description and tags; its content never changes."""
    kind, body = call.parts["kind"].lower(), call.document()
    check_body(kind, body)
    existing = emulator.store.get(kind, call.path)
    if existing is not None:
        _check_unchanged(kind, call, existing["properties"], body["properties"])
    if kind in _SOURCES:
        _check_source(emulator, call.workspace_id, _SOURCES[kind], body["properties"].get(_SOURCES[kind]))
    resource = _version(kind, call, body["properties"])
    created = emulator.store.put(kind, call.path, resource)
    return Answer(status=201 if created else 200, body=resource)


def get_version(emulator: Emulator, call: Call) -> Answer:
    """Describe a version."""
    resource = emulator.store.get(call.parts["kind"].lower(), call.path)
    if resource is None:
        raise not_found(f"The specified resource was not found: {call.path}.")
    return Answer(body=resource)


def list_versions(emulator: Emulator, call: Call) -> Answer:
    """List versions, newest first on request; `hash` finds code by content under any name."""
    kind = call.parts["kind"].lower()
    digest = call.query.get("hash")
    prefix = f"{call.workspace_id}/{kind}/" if digest else call.path.rstrip("/") + "/"
    found = emulator.store.below(kind, prefix)
    if digest:
        found = [one for one in found if _hash(one) == digest]
    elif not found and kind == "models":
        raise not_found("Model container was not found.")  # The client asks even before the first version exists.
    if call.query.get("$orderBy", "").lower() == "createdtime desc":
        found.reverse()
    limit = call.number("$top", len(found))
    return Answer(body={"value": _of_view(found, call)[:limit]})


def get_container(emulator: Emulator, call: Call) -> Answer:
    """Describe the container of all versions of one name."""
    versions = emulator.store.below(call.parts["kind"].lower(), call.path.rstrip("/") + "/versions/")
    if not versions:
        raise not_found(f"The specified resource was not found: {call.path}.")
    return Answer(body=_container(call.path, call.parts["name"], versions))


def list_containers(emulator: Emulator, call: Call) -> Answer:
    """List the names under which versions exist."""
    by_path: dict[str, list[Document]] = {}
    for version in emulator.store.below(call.parts["kind"].lower(), call.path.rstrip("/") + "/"):
        by_path.setdefault(version["id"].rpartition("/versions/")[0], []).append(version)
    containers = [_container(path, path.rpartition("/")[2], found) for path, found in by_path.items()]
    return Answer(body={"value": containers})


def start_pending_upload(emulator: Emulator, call: Call) -> Answer:
    """Create a container for one asset's files; the client writes them at its root."""
    digest = hashlib.sha256(call.path.lower().encode()).hexdigest()[:32]
    location = BlobLocation(account=emulator.storage.workspace_account, container=f"upload-{digest}", path="")
    sas_url = emulator.storage.upload_url(location)
    group = call.workspace_id.partition("/providers/")[0]
    reference = {
        "blobUri": sas_url.partition("?")[0],
        "storageAccountArmId": f"{group}/providers/Microsoft.Storage/storageAccounts/{location.account}",
        "credential": {"credentialType": "SAS", "sasUri": sas_url},
    }
    return Answer(
        body={
            "blobReferenceForConsumption": reference,
            "pendingUploadId": None,
            "pendingUploadType": "TemporaryBlobReference",
        }
    )


def _version(kind: str, call: Call, properties: Document) -> Document:
    added: dict[str, Any] = {"provisioningState": "Succeeded"}
    if kind == "models":
        added["flavors"] = properties.get("flavors") or {}  # The client fails on an answer without it.
    return {
        "id": call.path,
        "name": call.parts["version"],
        "type": f"{PROVIDER}/workspaces/{kind}/versions",
        "systemData": system_data(),
        "properties": {**properties, **added},
    }


def _container(path: str, name: str, versions: list[Document]) -> Document:
    latest = versions[-1]["name"]
    numbers = [int(version["name"]) for version in versions if version["name"].isdigit()]
    return {
        "id": path,
        "name": name,
        "type": f"{PROVIDER}/workspaces/{path.split('/')[-2]}",
        "systemData": system_data(),
        "properties": {
            "latestVersion": latest,
            "nextVersion": str(max(numbers, default=0) + 1),
            "isArchived": False,
            "tags": {},
            "properties": {},
        },
    }


def _hash(version: Document) -> str | None:
    digest = (version["properties"].get("properties") or {}).get("hash_sha256")
    return None if digest is None else str(digest)


def _of_view(found: list[Document], call: Call) -> list[Document]:
    if call.query.get("listViewType", "All") != "ActiveOnly":
        return found
    return [one for one in found if not one["properties"].get("isArchived")]


def _check_unchanged(kind: str, call: Call, old: Document, new: Document) -> None:
    changed = [name for name in _IMMUTABLE[kind] if old.get(name) != new.get(name)]
    if changed:
        message = (
            f"Version {call.parts['version']} of {call.parts['name']} exists already and its {', '.join(changed)} "
            "cannot be changed. Register another version."
        )
        raise ServiceError(400, "UserError", message, inner=("Immutable", "AssetPropertyImmutable"))


_SOURCES = {"data": "dataUri", "models": "modelUri"}


def _check_source(emulator: Emulator, workspace_id: str, member: str, uri: str | None) -> None:
    """Refuse an asset whose files refer to a datastore, or to the output of a job, that does not exist."""
    if uri is None or not uri.startswith("azureml://"):
        return
    names = catalogue(emulator.store, emulator.runs, workspace_id, emulator.storage.workspace_account)
    try:
        resolve(uri, names)
    except JobFailure as failure:
        raise ServiceError(400, "UserError", f"{member}: {failure.message}") from failure
