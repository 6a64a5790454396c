"""Members that must have one value, by type and by resource: identities only, encryption, network, alerts."""

from __future__ import annotations

from typing import Any

from tools.bicep_files import Expression

BY_TYPE: dict[str, dict[str, Any]] = {
    "Microsoft.ContainerRegistry/registries": {
        "properties.adminUserEnabled": False,
        "properties.anonymousPullEnabled": False,
        "properties.networkRuleBypassOptions": "AzureServices",
        "properties.publicNetworkAccess": "isPrivate ? 'Disabled' : 'Enabled'",
        "sku.name": "isPrivate || !empty(keysId) ? 'Premium' : 'Basic'",
    },
    "Microsoft.KeyVault/vaults": {
        "properties.enableRbacAuthorization": True,
        "properties.enableSoftDelete": True,
        "properties.enablePurgeProtection": "customerManagedKeys ? true : null",
        "properties.publicNetworkAccess": "isPrivate ? 'Disabled' : 'Enabled'",
        "properties.networkAcls.defaultAction": "isPrivate ? 'Deny' : 'Allow'",
    },
    "Microsoft.Insights/components": {
        "properties.DisableLocalAuth": True,
        "properties.WorkspaceResourceId": "logs.id",
    },
    "Microsoft.OperationalInsights/workspaces": {
        "properties.features.disableLocalAuth": True,
        "properties.workspaceCapping.dailyQuotaGb": "dailyCapGb",
    },
    "Microsoft.MachineLearningServices/workspaces": {
        "properties.systemDatastoresAuthMode": "Identity",
        "properties.publicNetworkAccess": "isPrivate ? 'Disabled' : 'Enabled'",
        "properties.v1LegacyMode": False,
    },
    "Microsoft.MachineLearningServices/workspaces/datastores": {
        "properties.credentials.credentialsType": "None",
        "properties.accountName": "each.account",
        "properties.containerName": "each.container",
        "properties.endpoint": "environment().suffixes.storage",
    },
    "Microsoft.EventGrid/topics": {
        "properties.inputSchema": "CloudEventSchemaV1_0",
        "properties.disableLocalAuth": True,
        "properties.minimumTlsVersionAllowed": "1.2",
    },
    "Microsoft.EventGrid/systemTopics": {"identity.type": "SystemAssigned"},
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": {"properties.allow": False},
}
"""Type -> members. At least one resource of each type must be there."""

IDENTITY_OF_KEY = "empty(keysId) ? null : { type: 'UserAssigned', userAssignedIdentities: { '${keysId}': {} } }"
ACCOUNT = {
    "identity": IDENTITY_OF_KEY,
    "properties.encryption.identity": "empty(keysId) ? null : { userAssignedIdentity: keysId }",
    "properties.encryption.keyvaultproperties": "empty(keysId) ? null : { keyname: keyName, keyvaulturi: vaultUri }",
    "properties.encryption.services.blob": {"enabled": True, "keyType": "Account"},
}
KEY_OF_SERVICE = "empty(keysId) ? 'Service' : 'Account'"
ACCOUNT_WITH_QUEUES = ACCOUNT | {
    "properties.encryption.services.queue.keyType": KEY_OF_SERVICE,
    "properties.encryption.services.table.keyType": KEY_OF_SERVICE,
}
WORKSPACE_IDENTITY = (
    "empty(keysId) ? { type: 'SystemAssigned' } : "
    "{ type: 'SystemAssigned,UserAssigned', userAssignedIdentities: { '${keysId}': {} } }"
)
REGISTRY_ENCRYPTION = (
    "empty(keysId) ? null : "
    "{ status: 'enabled', keyVaultProperties: { identity: keysClientId, keyIdentifier: keyUri } }"
)
"""A registry names the identity by its client id, storage and workspace by its resource id."""
BY_PLACE: dict[tuple[str, str], dict[str, Any]] = {
    ("storage-data", "account"): ACCOUNT,
    ("storage-host", "account"): ACCOUNT_WITH_QUEUES,
    ("storage-ml", "account"): ACCOUNT_WITH_QUEUES,
    ("registry", "registry"): {"identity": IDENTITY_OF_KEY, "properties.encryption": REGISTRY_ENCRYPTION},
    ("key-vault", "key"): {"properties.kty": "RSA", "properties.keyOps": ["wrapKey", "unwrapKey"]},
    ("machine-learning", "workspace"): {
        "identity": WORKSPACE_IDENTITY,
        "properties.keyVault": "vaultId",
        "properties.storageAccount": "storageId",
        "properties.containerRegistry": "registryId",
        "properties.applicationInsights": "insightsId",
    },
    ("functions", "app"): {"properties.functionAppConfig.deployment.storage.type": "blobContainer"},
    ("network", "gateway"): {
        "sku.name": "Standard",
        "properties.publicIpAddresses": [{"id": Expression("address.id")}],
    },
    ("network", "address"): {"sku.name": "Standard", "properties.publicIPAllocationMethod": "Static"},
    ("endpoints", "endpoints"): {"properties.subnet.id": "subnetId"},
    ("endpoints", "links"): {"properties.virtualNetwork.id": "networkId", "properties.registrationEnabled": False},
    ("alerts", "failures"): {
        "properties.enabled": True,
        "properties.actions.actionGroups": [Expression("people.id")],
    },
}
"""Bicep file and name of a resource -> members."""
SUBNETS = {
    "functions": {"10.80.0.0/24", "rules.id", "gateway.id", "Microsoft.App/environments"},
    "clusters": {"10.80.4.0/22", "rules.id", "gateway.id"},
    "endpoints": {"10.80.1.0/24", "rules.id"},
}
"""What each subnet has: only the functions' is delegated, and what runs code goes out through the gateway."""
