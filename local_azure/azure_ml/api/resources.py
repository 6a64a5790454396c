"""The workspace with its data plane, tokens, datastores and computes."""

from __future__ import annotations

import hmac
import re
import uuid
from typing import Any

from local_azure.azure_ml.api.call import PROVIDER, Answer, Call, check_body, not_found, system_data
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.api.security import SYSTEM_IDENTITY
from local_azure.azure_ml.api.sizes import check_size
from local_azure.azure_ml.cluster import Cluster, NodeState, Scale
from local_azure.azure_ml.service import ServiceError, duration_s, iso, utcnow
from local_azure.azure_ml.workspace import BUILT_IN_DATASTORES, COMPUTES, DATASTORES, Document, datastore_document

_DATA_PLANES = ("api", "history", "experimentation", "mlflow", "modelmanagement")

COMPUTE_NAME = re.compile(r"[a-zA-Z](?![a-zA-Z0-9-]*-\d+$)[a-zA-Z0-9\-]{2,23}")  # the service's rule
_DEFAULT_IDLE = "PT120S"


def get_workspace(emulator: Emulator, call: Call) -> Answer:
    """Describe a workspace; any name is accepted."""
    group = call.workspace_id.partition("/providers/")[0]
    account = f"{group}/providers/Microsoft.Storage/storageAccounts/{emulator.storage.workspace_account}"
    properties = {
        "friendlyName": call.parts["workspace"],
        "storageAccount": account,
        "discoveryUrl": f"{call.base_url}/discovery",
        "mlFlowTrackingUri": f"azureml://localhost/mlflow/v1.0{call.workspace_id}",
        "provisioningState": "Succeeded",
        "workspaceId": str(uuid.uuid5(uuid.NAMESPACE_URL, call.workspace_id.lower())),
    }
    return Answer(
        body={
            "id": call.workspace_id,
            "name": call.parts["workspace"],
            "type": f"{PROVIDER}/workspaces",
            "location": emulator.settings.location,
            "kind": "Default",
            "identity": {"type": "SystemAssigned", "principalId": "twin", "tenantId": "twin"},
            "tags": {},
            "systemData": system_data(),
            "properties": properties,
        }
    )


def get_discovery(_emulator: Emulator, call: Call) -> Answer:
    """Return this server as the address of every data plane service."""
    return Answer(body=dict.fromkeys(_DATA_PLANES, call.base_url))


def get_token(emulator: Emulator, call: Call) -> Answer:
    """Issue a token to callers whose header has the secret."""
    presented = call.headers.get("X-IDENTITY-HEADER", "")
    if not hmac.compare_digest(presented.encode(), emulator.settings.identity_header.encode()):
        raise ServiceError(401, "Unauthorized", "X-IDENTITY-HEADER does not match IDENTITY_HEADER.")
    resource = call.query.get("resource", "")
    client_id = call.query.get("client_id") or SYSTEM_IDENTITY
    token = emulator.tokens.issue(client_id, resource)
    return Answer(
        body={
            "access_token": token.access_token,
            "expires_on": str(token.expires_on),
            "resource": resource,
            "token_type": "Bearer",
            "client_id": client_id,
        }
    )


def put_datastore(emulator: Emulator, call: Call) -> Answer:
    """Register a datastore. Its secrets are not stored, because the emulator does not use them."""
    body = call.document()
    check_body("datastores", body)
    properties = dict(body["properties"])
    credentials = {"credentialsType": (properties.get("credentials") or {}).get("credentialsType", "None")}
    properties |= {"credentials": credentials, "isDefault": False}
    resource = _datastore_resource(call.path, call.parts["name"], properties)
    created = emulator.store.put(DATASTORES, call.path, resource)
    return Answer(status=201 if created else 200, body=resource)


def get_datastore(emulator: Emulator, call: Call) -> Answer:
    """Describe a datastore."""
    return Answer(body=_described(emulator, call.workspace_id, call.parts["name"]))


def list_datastores(emulator: Emulator, call: Call) -> Answer:
    """List the built-in datastores, then the registered ones; `isDefault=true` lists only the default."""
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
    return _datastore_resource(f"{workspace_id}/datastores/{name}", name, properties)


def _datastore_resource(path: str, name: str, properties: Document) -> Document:
    return {
        "id": path,
        "name": name,
        "type": f"{PROVIDER}/workspaces/datastores",
        "systemData": system_data(),
        "properties": properties,
    }


def put_compute(emulator: Emulator, call: Call) -> Answer:
    """Create or update a cluster. The client then polls the operation."""
    body = call.document()
    check_body("computes", body)
    _check_name(call.parts["name"])
    own = body["properties"].setdefault("properties", {})
    own["vmPriority"] = own.get("vmPriority") or "Dedicated"
    existing = emulator.store.get(COMPUTES, call.path)
    if existing is None:
        check_size(own.get("vmSize"), emulator.settings.location)
    else:
        _check_unchanged(existing["properties"]["properties"], own)
    scale = compute_scale(body, emulator.settings.node_idle_s)
    resource = _compute_resource(call, body)
    created = emulator.store.put(COMPUTES, call.path, resource)
    emulator.pool.configure(call.path, scale)
    operation = (
        f"{call.base_url}/subscriptions/{call.path.split('/')[2]}/providers/{PROVIDER}/locations/{emulator.settings.location}"
        f"/computeOperationsStatus/{uuid.uuid4().hex}?api-version=2022-01-01-preview&service=new"
    )
    headers = {"Azure-AsyncOperation": operation, "Retry-After": "0"}
    return Answer(status=201 if created else 200, body=_live(emulator, resource), headers=headers)


def get_compute(emulator: Emulator, call: Call) -> Answer:
    """Describe a cluster with its current nodes."""
    resource = emulator.store.get(COMPUTES, call.path)
    if resource is None:
        raise not_found(f"Compute {call.parts['name']} was not found.")
    return Answer(body=_live(emulator, resource))


def list_computes(emulator: Emulator, call: Call) -> Answer:
    """List the clusters of a workspace."""
    resources = emulator.store.below(COMPUTES, call.path.rstrip("/") + "/")
    return Answer(body={"value": [_live(emulator, resource) for resource in resources]})


def get_operation(_emulator: Emulator, call: Call) -> Answer:
    """Answer that the operation is complete, because a simulated cluster exists at once."""
    return Answer(body={"id": call.path, "name": call.parts["operation"], "status": "Succeeded"})


def compute_scale(body: Document, idle_override_s: float | None) -> Scale:
    """Return how a cluster scales. Raises ServiceError 400 if the numbers contradict each other."""
    settings = body["properties"].get("properties", {}).get("scaleSettings", {"maxNodeCount": 1})
    try:
        idle_s = duration_s(settings.get("nodeIdleTimeBeforeScaleDown") or _DEFAULT_IDLE)
    except ValueError as error:
        raise ServiceError(400, "UserError", f"nodeIdleTimeBeforeScaleDown: {error}.") from error
    least, most = settings.get("minNodeCount", 0), settings["maxNodeCount"]
    if not 0 <= least <= most:
        message = f"minNodeCount {least} and maxNodeCount {most} must satisfy 0 <= min <= max."
        raise ServiceError(400, "UserError", message)
    return Scale(min_nodes=least, max_nodes=most, idle_s=idle_s if idle_override_s is None else idle_override_s)


def _check_name(name: str) -> None:
    if not COMPUTE_NAME.fullmatch(name):
        message = f"Compute name {name!r} is invalid: 3 to 24 letters, digits or -, a letter first, no -digits last."
        raise ServiceError(400, "UserError", message, inner=("BadArgument", "InvalidComputeName"))


def _check_unchanged(existing: Document, wanted: Document) -> None:
    """Raise ServiceError if an update would change immutable properties of a cluster."""
    for name in ("vmSize", "vmPriority"):
        if str(existing.get(name)).lower() != str(wanted.get(name)).lower():
            message = f"{name} of a cluster cannot be changed from {existing.get(name)} to {wanted.get(name)}."
            raise ServiceError(400, "UserError", message, inner=("BadArgument",))


def _compute_resource(call: Call, body: Document) -> Document:
    now = iso(utcnow())
    properties = {**body["properties"], "provisioningState": "Succeeded", "createdOn": now, "modifiedOn": now}
    return {
        **body,
        "id": call.path,
        "name": call.parts["name"],
        "type": f"{PROVIDER}/workspaces/computes",
        "systemData": system_data(),
        "properties": {**properties, "isAttachedCompute": False},
    }


def _live(emulator: Emulator, resource: Document) -> Document:
    own = resource["properties"].get("properties") or {}
    state = _node_figures(emulator.pool.snapshot(resource["id"]))
    return {**resource, "properties": {**resource["properties"], "properties": {**own, **state}}}


def _node_figures(cluster: Cluster) -> dict[str, Any]:
    counts = {f"{state}NodeCount": cluster.count(state) for state in NodeState}
    moving = cluster.count(NodeState.PREPARING, NodeState.LEAVING)
    return {
        "allocationState": "Resizing" if moving else "Steady",
        "currentNodeCount": len(cluster.nodes),
        "targetNodeCount": cluster.target,
        "nodeStateCounts": {**counts, "unusableNodeCount": 0, "preemptedNodeCount": 0},
    }
