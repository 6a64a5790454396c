"""The workspace itself, and where its data plane is."""

from __future__ import annotations

import uuid

from local_azure.azure_ml.api.call import PROVIDER, Answer, Call, system_data
from local_azure.azure_ml.api.emulator import Emulator

LOCATION = "westeurope"
_DATA_PLANES = ("api", "history", "experimentation", "mlflow", "modelmanagement")


def get_workspace(emulator: Emulator, call: Call) -> Answer:
    """Describe any workspace: each name is a workspace here."""
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
            "location": LOCATION,
            "kind": "Default",
            "identity": {"type": "SystemAssigned", "principalId": "twin", "tenantId": "twin"},
            "tags": {},
            "systemData": system_data(),
            "properties": properties,
        }
    )


def get_discovery(_emulator: Emulator, call: Call) -> Answer:
    """Point every data plane service at this server."""
    return Answer(body=dict.fromkeys(_DATA_PLANES, call.base_url))
