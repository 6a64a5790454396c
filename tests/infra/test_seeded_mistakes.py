"""Mistakes in `infra/`, one at a time: each is found, and the message names the place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.infra.bicep_rules import problems
from tests.infra.deployment_rules import violations
from tests.infra.test_bicep import INFRA

MAIN, DATA, HOST, ML = "main", "storage-data", "storage-host", "storage-ml"
APP, EVENTS, CLUSTERS, WORKSPACE = "functions", "events", "clusters", "machine-learning"
MISTAKES = {
    # names
    "unknown member": (DATA, "allowSharedKeyAccess: false", "allowSharedKeysAccess: false", "allowSharedKeysAccess"),
    "unknown nested member": (CLUSTERS, "maxNodeCount: d", "maxNodesCount: d", "maxNodesCount"),
    "missing member": (EVENTS, "endpointType: 'StorageBlob'\n", "", "endpointType is missing"),
    "undeclared name": (APP, "value: packageUri", "value: packageUrl", "packageUrl is not declared"),
    "unused parameter": (HOST, "vaultUri }", "'https://x.vault.azure.net/' }", "param vaultUri is not used"),
    "unknown output": (MAIN, "storageHost.outputs.queueUri", "storageHost.outputs.queuesUri", "no output queuesUri"),
    "unknown function": (EVENTS, "guid(topic.id", "newGuid(topic.id", "newGuid is unknown"),
    "two of one name": (EVENTS, "resource runs '", "resource uploads '", "uploads is declared twice"),
    "name too long": (HOST, "'lfhost${suffix}'", "'landfallhost${suffix}'", "25 characters"),
    "name with a wrong character": (ML, "'lfml${suffix}'", "'lf-ml${suffix}'", "does not match"),
    "cluster's name too long": (
        CLUSTERS,
        "name: split(pair, '=')[0]",
        "name: 'landfall-smoke-test-2-nodes'",
        "does not match",
    ),
    "no description": (
        MAIN,
        "@description('Object ids of the people and programs that upload data.')\n",
        "",
        "dataOwnerIds",
    ),
    "syntax": (APP, "param tags object", "param tags object {", "syntax"),
    # enumerations and types
    "wrong enumeration": (DATA, "'TLS1_2'", "'TLS12'", "'TLS12' is not one of"),
    "enumeration in another case": (WORKSPACE, "Mode: 'Identity'", "Mode: 'identity'", "'identity' is not one of"),
    "union's unknown case": (EVENTS, "'StorageQueue'", "'StorageQueues'", "'StorageQueues' is not one of"),
    "enumeration in one branch": (HOST, "'Microsoft.Keyvault'", "'Microsoft.KeyVaults'", "'Microsoft.KeyVaults'"),
    "text instead of a boolean": (APP, "httpsOnly: true", "httpsOnly: 'true'", "expected boolean"),
    "text instead of a number": (EVENTS, "Attempts: 30", "Attempts: '30'", "expected integer"),
    "default that is not allowed": (MAIN, "= 'PT2M'", "= 'PT1M'", "default of param idleTime"),
    "parameter of another type": (MAIN, "dailyCapGb: dailyCapGb", "dailyCapGb: location", "gets string"),
    "allowed values that differ": (CLUSTERS, "'PT15M', ", "", "allowed values differ"),
    # API versions, modules and scopes
    "API version that does not exist": (EVENTS, "topics@2025-02-15", "topics@2025-02-30", "no schema for"),
    "two API versions of one type": (EVENTS, "Accounts@2025-06-01", "Accounts@2025-08-01", "several API versions"),
    "type that does not exist": (MAIN, "Resources/resourceGroups", "Resources/resourceGroup", "no schema for"),
    "parameter that is not passed": (MAIN, "    redundancy: dataRedundancy\n", "", "needs the parameter redundancy"),
    "parameter that is unknown": (MAIN, "idleTime: idleTime", "idle: idleTime", "no parameter idle"),
    "module that does not exist": (MAIN, "modules/events.bicep", "modules/event.bicep", "does not exist"),
    "module without the group's scope": (
        MAIN,
        "scope: group\n  params: { location",
        "params: { location",
        "resource group",
    ),
    "parent of another type": (HOST, "parent: queueService", "parent: blobs", "needs a parent of type"),
    "role without its scope": (HOST, "  scope: runs\n", "", "role assignments have a scope"),
    "role on the whole account": (HOST, "  scope: runs\n", "  scope: account\n", "host account"),
    "name known too late": (EVENTS, "guid(topic.id, ", "guid(topic.properties.endpoint, ", "known only after"),
    "wrong module's output": (
        MAIN,
        "dataBlobUri: storageData.",
        "dataBlobUri: storageHost.",
        "must come from storageData",
    ),
    "wrong output": (MAIN, "Uri: storageHost.outputs.queueUri", "Uri: storageHost.outputs.tableUri", "gets tableUri"),
    "wrong identity": (
        MAIN,
        "clusterPrincipalId: identities.outputs.clusterPrincipalId",
        "clusterPrincipalId: identities.outputs.appPrincipalId",
        "gets appPrincipalId",
    ),
    # roles
    "role too wide": (
        DATA,
        "roleDefinitions', roles['Storage Blob Data Reader'",
        "roleDefinitions', roles['Storage Blob Data Owner'",
        "no row for",
    ),
    "name of another role": (DATA, "roles['Storage Blob Data Reader']", "roles['AcrPull']", "appReads.name"),
    "role that is not in the file": (ML, "'Storage Blob Data Reader'", "'Storage Blob Data Viewer'", "appReads.name"),
    "role's GUID": (
        "roles.json",
        "7f951dda-4ed3-4680-a7ca-43fe172d538d",
        "8311e382-0749-4cb8-b61a-304f252e45ec",
        "AcrPull",
    ),
    "role for another identity": (
        HOST,
        "principalId: appPrincipalId",
        "principalId: clusterPrincipalId",
        "no row for",
    ),
    "role in another definition": (HOST, "subscriptionResourceId('M", "resourceId('M", "resourceId"),
    "wrong kind of principal": (WORKSPACE, "Type: 'ServicePrincipal'", "Type: deployerType", "principalType"),
    # keys, TLS, public access
    "shared keys": (HOST, "allowSharedKeyAccess: false", "allowSharedKeyAccess: true", "allowSharedKeyAccess"),
    "shared keys by default": (ML, "    allowSharedKeyAccess: false\n", "", "allowSharedKeyAccess"),
    "public blobs": (DATA, "allowBlobPublicAccess: false", "allowBlobPublicAccess: true", "allowBlobPublicAccess"),
    "public container": (DATA, "publicAccess: 'None'", "publicAccess: 'Blob'", "publicAccess"),
    "old TLS": (DATA, "'TLS1_2'", "'TLS1_1'", "minimumTlsVersion"),
    "http": (APP, "httpsOnly: true", "httpsOnly: false", "httpsOnly"),
    "no bypass": (HOST, "bypass: 'AzureServices'", "bypass: 'None'", "bypass"),
    "open firewall": (DATA, "isPrivate ? 'Deny' : 'Allow'", "isPrivate ? 'Allow' : 'Allow'", "defaultAction"),
    "registry's administrator": ("registry", "adminUserEnabled: false", "adminUserEnabled: true", "adminUserEnabled"),
    "topic's key": (EVENTS, "disableLocalAuth: true", "disableLocalAuth: false", "disableLocalAuth"),
    "telemetry's key": ("monitoring", "DisableLocalAuth: true", "DisableLocalAuth: false", "DisableLocalAuth"),
    "vault's access policies": (
        "key-vault",
        "Authorization: true",
        "Authorization: false",
        "enableRbacAuthorization",
    ),
    "key in a setting": (APP, "'managedidentity'", "'DefaultEndpointsProtocol=https;AccountKey=x'", "AccountKey"),
    "SSH": (CLUSTERS, "PublicAccess: 'Disabled'", "PublicAccess: 'Enabled'", "remoteLoginPortPublicAccess"),
    "cluster without its identity": (CLUSTERS, "type: 'UserAssigned'", "type: 'SystemAssigned'", "identity.type"),
    "password to deploy with": (APP, "allow: false", "allow: true", "properties.allow"),
    # Flex Consumption and settings
    "FUNCTIONS_WORKER_RUNTIME": (APP, "  AZURE_CLIENT_ID:", "  FUNCTIONS_WORKER_RUNTIME:", "refuses"),
    "WEBSITE_RUN_FROM_PACKAGE": (APP, "= {\n  Azure", "= {\n  WEBSITE_RUN_FROM_PACKAGE: '1'\n  Azure", "refuses"),
    "WEBSITE_TIME_ZONE": (APP, "= {\n  Azure", "= {\n  WEBSITE_TIME_ZONE: 'UTC'\n  Azure", "refuses"),
    "linuxFxVersion": (
        APP,
        "minTlsVersion: '1.2'",
        "minTlsVersion: '1.2'\n      linuxFxVersion: 'PYTHON|3.11'",
        "refuses",
    ),
    "plan of another kind": (APP, "'FC1'", "'Y1'", "FC1"),
    "plan for Windows": (APP, "reserved: true", "reserved: false", "reserved"),
    "too few instances": (APP, "@minValue(40)", "@minValue(1)", "at least 40"),
    "function that does not exist": (APP, "function:shard_uploaded", "function:shards_uploaded", "shards_uploaded"),
    "misspelled setting": (APP, "LANDFALL_CODE_ID:", "LANDFALL_CODE:", "LANDFALL_CODE"),
    "setting of an identity left out": (APP, "  DataStorage__clientId: appClientId\n", "", "DataStorage__clientId"),
    "setting with another's value": (
        APP,
        "LANDFALL_CODE_ID: '${workspaceId}/codes",
        "LANDFALL_CODE_ID: '${workspaceId}/code",
        "CODE_ID",
    ),
    "telemetry without its identity": (APP, ";Authorization=AAD", "", "telemetry"),
    "pages for everyone": (APP, "SIGN_IN: 'off'", "SIGN_IN: 'none'", "must not be none in Azure"),
    "app's name for azd": (APP, "'azd-service-name'", "'azd-service'", "azd-service-name"),
    # events
    "all uploads' events": (
        EVENTS,
        "['Microsoft.Storage.BlobCreated']",
        "['Microsoft.Storage.BlobCreated', 'Microsoft.Storage.BlobDeleted']",
        "includedEventTypes",
    ),
    "filter on another container": (
        EVENTS,
        "containers/datasets/blobs",
        "containers/data/blobs",
        "subjectBeginsWith",
    ),
    "filter's operator": (EVENTS, "operatorType: 'StringIn'", "operatorType: 'StringContains'", "advancedFilters"),
    "unfinished writes": (EVENTS, "'PutBlockList', ", "'PutBlockList', 'PutBlock', ", "advancedFilters"),
    "events of every run": (EVENTS, "'/runs/landfall-'", "'/runs/'", "advancedFilters"),
    "queue of the other topic": (EVENTS, "queueName: 'run-changed'", "queueName: 'shard-uploaded'", "queueName"),
    "messages that expire": (EVENTS, "never = -1", "never = 604800", "queueMessageTimeToLiveInSeconds"),
    "schema of CloudEvents": (EVENTS, "'EventGridSchema'", "'CloudEventSchemaV1_0'", "eventDeliverySchema"),
    "topic of the default schema": (
        EVENTS,
        "inputSchema: 'CloudEventSchemaV1_0'",
        "inputSchema: 'EventGridSchema'",
        "inputSchema",
    ),
    "no dead letters": (
        EVENTS,
        "    deadLetterWithResourceIdentity: {\n      identity: { type: 'SystemAssigned' }",
        "    deadLetterWithResourceIdentity: {",
        "identity.type",
    ),
    "delivery by a user-assigned identity": (
        EVENTS,
        "type: 'SystemAssigned'",
        "type: 'UserAssigned'",
        "SystemAssigned",
    ),
    "no dependsOn": (EVENTS, "  dependsOn: [uploadsSend, uploadsKeep] //", "  //", "needs dependsOn"),
    "half of dependsOn": (EVENTS, "[runsSend, runsKeep]", "[runsSend]", "needs dependsOn runsKeep"),
    "dependsOn of a module": (
        MAIN,
        "  dependsOn: [endpoints] // the app",
        "  // the app",
        "functions needs dependsOn",
    ),
    "dependsOn of nothing": (EVENTS, "[runsSend, runsKeep]", "[runsSend, runsKeep, runsRole]", "runsRole"),
    # storage, sizes and cost
    "queue left out": (HOST, "  'sweep-requested'\n", "", "queues must be"),
    "no poison queues": (HOST, "'${name}-poison'", "'${name}-dead'", "poison"),
    "container left out": (DATA, "name: 'quarantine'", "name: 'quarantined'", "quarantine"),
    "queues in the data account": (DATA, "kind: 'BlockBlobStorage'", "kind: 'StorageV2'", "BlockBlobStorage"),
    "datastore over another account": (
        WORKSPACE,
        "'landfall_runs', account: hostAccountName",
        "'landfall_runs', account: dataAccountName",
        "datastores",
    ),
    "datastore with a key": (WORKSPACE, "credentialsType: 'None'", "credentialsType: 'AccountKey'", "AccountKey"),
    "more nodes than described": (CLUSTERS, "max_nodes ?? 4", "max_nodes ?? 40", "maxNodeCount"),
    "nodes that stay": (CLUSTERS, "min_nodes ?? 0", "min_nodes ?? 2", "minNodeCount"),
    "other clusters": (CLUSTERS, "pipelines/clusters.yaml')", "pipelines/cluster.yaml')", "clusters.yaml"),
    "no daily limit": ("monitoring", "    workspaceCapping: { dailyQuotaGb: dailyCapGb }\n", "", "dailyCapGb"),
    "no warning at half": ("alerts", "threshold: 50", "threshold: 150", "50, 80 and 100"),
    "no region": ("registry", "  location: location\n", "", "has no location"),
    "no tags": ("monitoring", "  tags: tags\n", "", "has no tags"),
    "functions' subnet not delegated": (
        "network",
        "'Microsoft.App/environments'",
        "'Microsoft.Web/serverFarms'",
        "subnets",
    ),
    "no way out for the clusters": (
        "network",
        "          natGateway: { id: gateway.id }\n        }\n      }\n      {\n        name: 'endpoints'",
        "        }\n      }\n      {\n        name: 'endpoints'",
        "subnets",
    ),
    "open to the internet": ("network", "access: 'Deny'", "access: 'Allow'", "deny what comes from the internet"),
    "account that cannot open its key": (
        DATA,
        "identity: empty(keysId) ? null : { type",
        "identity: empty(vaultUri) ? null : { type",
        "account.identity",
    ),
    "registry's key by a resource id": (
        "registry",
        "identity: keysClientId",
        "identity: keysId",
        "keysClientId is not used",
    ),
    "registry's client id from elsewhere": (MAIN, "outputs.keysClientId", "outputs.appClientId", "gets appClientId"),
    "queues without the key": (
        HOST,
        "queue: { enabled: true, keyType: empty(keysId) ? 'Service' : 'Account' }",
        "queue: { enabled: true, keyType: 'Service' }",
        "keyType",
    ),
    "alert that reaches no one": ("alerts", "    actions: { actionGroups: [people.id] }\n", "", "actionGroups"),
    "alert without its query": ("alerts", "queries/sweeps-failed.kql", "queries/sweep-failed.kql", "and a query in"),
    "workspace with another vault": (
        WORKSPACE,
        "keyVault: vaultId",
        "keyVault: registryId",
        "workspace.properties.keyVault",
    ),
    "network that is always there": (
        MAIN,
        "'modules/network.bicep' = if (isPrivate) {",
        "'modules/network.bicep' = {",
        "virtualNetwork",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    """A copy of the files with one mistake is refused, and some message says what it is about."""
    module, right, wrong, said = MISTAKES[mistake]
    folder = tmp_path / "infra"
    shutil.copytree(INFRA, folder)
    name = module if "." in module else "main.bicep" if module == MAIN else f"modules/{module}.bicep"
    path = folder / name
    before = path.read_text(encoding="utf-8")
    assert right in before, "the files changed: seed this mistake in another way"
    path.write_text(before.replace(right, wrong, 1), encoding="utf-8")
    found = problems(folder) or violations(folder)
    assert [line for line in found if said in line], found


def test_there_are_enough_mistakes() -> None:
    """There are at least 40, each in a copy of the files."""
    assert len(MISTAKES) >= 40
