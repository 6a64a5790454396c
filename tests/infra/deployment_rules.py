"""What a deployment must not do, whatever the schemas allow: roles, keys, networks, settings, events, order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.deploy.assets import DATASTORES
from function_app.runs.requests import KEYS
from local_azure.twin import addresses
from tests.architecture.trees import ROOT
from tests.infra.app_rules import events, settings
from tests.infra.expected_members import BY_PLACE, BY_TYPE, SUBNETS
from tools.bicep_files import BicepFile, Declaration, Expression, all_resources, expected, member, read_files

PAGE = ROOT / "docs" / "security.md"
RECORDED_ROLES = ROOT / "tests" / "fixtures" / "arm" / "roles.json"
Files = Mapping[str, BicepFile]
WHO = {
    "appPrincipalId": "`id-app`",
    "clusterPrincipalId": "`id-cluster`",
    "keysPrincipalId": "`id-keys`",
    "uploads.identity.principalId": "topic of uploads",
    "runs.identity.principalId": "topic of runs",
    "deployerPrincipalId": "deployer",
    "owner": "data owners",
}
SCOPES = {
    "lfdata": "data account",
    "lfhost": "host account",
    "lfml": "workspace account",
    "lfacr": "registry",
    "kv-": "key vault",
    "mlw-": "workspace",
    "appi-": "Application Insights",
    "evgt-landfall-": "notification topic",
}
SECRETS = re.compile(
    r"\.?list(Keys|AdminKeys|AccountSas|ServiceSas|Credentials|QueryKeys)\(|AccountKey|SharedAccess|"
    r"InstrumentationKey|primaryKey|@secure|password",
    re.IGNORECASE,
)
REFUSED_BY_FLEX = re.compile(
    r"FUNCTIONS_WORKER_RUNTIME|FUNCTIONS_EXTENSION_VERSION|WEBSITE_RUN_FROM_PACKAGE|WEBSITE_CONTENT\w*|"
    r"SCM_DO_BUILD_DURING_DEPLOYMENT|ENABLE_ORYX_BUILD|WEBSITE_TIME_ZONE|\bTZ\b|WEBSITE_VNET_ROUTE_ALL|linuxFxVersion"
)
SOURCES = {
    "dataAccount": "storageData",
    "dataBlob": "storageData",
    "hostAccount": "storageHost",
    "hostBlob": "storageHost",
    "hostQueue": "storageHost",
    "hostTable": "storageHost",
    "packageUri": "storageHost",
    "workspaceAccount": "storageMl",
    "workspaceBlob": "storageMl",
    "storageId": "storageMl",
    "workspaceId": "machineLearning",
    "workspaceName": "machineLearning",
    "registryId": "registry",
    "vaultId": "keyVault",
    "vaultUri": "keyVault",
    "keyName": "keyVault",
    "keyUri": "keyVault",
    "keysId": "identities",
    "keysClient": "identities",
    "topicEndpoint": "events",
    "uploadsTopic": "events",
    "runsTopic": "events",
    "insights": "monitoring",
    "logsId": "monitoring",
    "networkId": "virtualNetwork",
    "clusterIdentity": "identities",
    "appIdentity": "identities",
    "appClient": "identities",
}
"""Beginning of a parameter's name → module that it comes from; the longest beginning counts."""


class Grant(NamedTuple):
    """One role assignment, in the words of docs/security.md."""

    who: str
    role: str
    scope: str


def violations(folder: Path) -> list[str]:
    """Return what is wrong, one line each."""
    files = read_files(folder)
    rules = (
        roles,
        secrets,
        accounts,
        keyless,
        forgotten_keys,
        clusters,
        functions,
        settings,
        events,
        storage,
        wiring,
        order,
        network,
        costs,
    )
    return sorted({line for rule in rules for line in rule(files)} | set(_role_ids(folder)))


def grants(files: Files) -> set[Grant]:
    """Return all role assignments."""
    return {_grant(one) for one in all_resources(files, "Microsoft.Authorization/roleAssignments")}


def documented_grants() -> set[Grant]:
    """Return the rows of the page."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {Grant(*row) for row in rows if row[0] not in ("who", "---")}


def roles(files: Files) -> Iterator[str]:
    """The assignments are those of the page, and each is written the same way."""
    yield from (f"docs/security.md has no row for {' | '.join(one)}" for one in grants(files) - documented_grants())
    yield from (f"no assignment for the row {' | '.join(one)}" for one in documented_grants() - grants(files))
    for one in all_resources(files, "Microsoft.Authorization/roleAssignments"):
        role = _grant(one).role
        definition = f"subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['{role}'])"
        owners = {"owner": None, "deployerPrincipalId": "deployerType"}
        kind = owners.get(member(one, "properties.principalId"), "ServicePrincipal")
        yield from expected(one, {"properties.roleDefinitionId": definition, "properties.principalType": kind})
        principal = re.sub(r"\.identity\.principalId$", ".id", member(one, "properties.principalId") or "")
        name = f"guid({member(one, 'scope')}.id, {principal}, roles['{role}'])"
        yield from expected(one, {"name": name})


def _grant(one: Declaration) -> Grant:
    role = re.search(r"roles\['(.+?)'\]", member(one, "properties.roleDefinitionId") or "")
    who = WHO.get(member(one, "properties.principalId"), "?")
    return Grant(who, role[1] if role else "?", _scope(one.file, member(one, "scope") or ""))


def _scope(file: BicepFile, text: str) -> str:
    found = next(
        (one for one in file.declarations if one.kind == "resource" and one.name == text.rsplit(":", maxsplit=1)[-1]),
        None,
    )
    if found is None:
        return "?"
    name = member(found, "name")
    if found.type.endswith("/containers"):
        return f"container `{name}`"
    if found.type.endswith("/queues"):
        return f"queue `{name}`"
    return next((words for start, words in SCOPES.items() if str(name).startswith(f"'{start}")), "?")


def _role_ids(folder: Path) -> Iterator[str]:
    recorded = json.loads(RECORDED_ROLES.read_text(encoding="utf-8"))["roles"]
    for name, value in json.loads((folder / "roles.json").read_text(encoding="utf-8")).items():
        if recorded.get(name) != value:
            yield f"roles.json: {name} is {recorded.get(name)}, and not {value}"


def secrets(files: Files) -> Iterator[str]:
    """No file asks for a key or holds a secret."""
    for file in files.values():
        for number, line in enumerate(file.source.decode().splitlines(), start=1):
            if found := SECRETS.search(line):
                yield f"{file.name}:{number}: {found[0]}: keys and secrets are not used"


def accounts(files: Files) -> Iterator[str]:
    """Storage accepts identities and TLS 1.2 only, shows nothing in public, and lets Event Grid through."""
    found = all_resources(files, "Microsoft.Storage/storageAccounts")
    for one in found:
        wanted = {
            "properties.allowSharedKeyAccess": False,
            "properties.allowBlobPublicAccess": False,
            "properties.allowCrossTenantReplication": False,
            "properties.minimumTlsVersion": "TLS1_2",
            "properties.supportsHttpsTrafficOnly": True,
            "properties.networkAcls.bypass": "AzureServices",
            "properties.networkAcls.defaultAction": "isPrivate ? 'Deny' : 'Allow'",
            "properties.publicNetworkAccess": "isPrivate ? 'Disabled' : 'Enabled'",
            "properties.encryption.keySource": "empty(keysId) ? 'Microsoft.Storage' : 'Microsoft.Keyvault'",
        }
        yield from expected(one, wanted)
    kinds = {one.file.name: (member(one, "kind"), member(one, "sku.name")) for one in found}
    wanted_kinds = {
        "modules/storage-data.bicep": ("BlockBlobStorage", "redundancy"),
        "modules/storage-host.bicep": ("StorageV2", "Standard_LRS"),
        "modules/storage-ml.bicep": ("StorageV2", "Standard_LRS"),
    }
    if kinds != wanted_kinds:
        yield f"storage accounts must be {wanted_kinds}, and are {kinds}"
    for one in all_resources(files, "Microsoft.Storage/storageAccounts/blobServices/containers"):
        yield from expected(one, {"properties.publicAccess": "None"})
    for one in all_resources(files, "Microsoft.Storage/storageAccounts/blobServices"):
        wanted_days = {"deleteRetentionPolicy": True, "containerDeleteRetentionPolicy": True}
        yield from expected(one, {f"properties.{name}.enabled": value for name, value in wanted_days.items()})


def forgotten_keys(files: Files) -> Iterator[str]:
    """What is kept for idempotency keys alone is deleted after the days that docs/operations.md states."""
    rules = [
        rule
        for one in all_resources(files, "Microsoft.Storage/storageAccounts/managementPolicies")
        for rule in one.body["properties"]["policy"]["rules"]
    ]
    folders = [folder for rule in rules for folder in rule["definition"]["filters"]["prefixMatch"]]
    if folders != [f"{addresses.STATE_CONTAINER}/{KEYS}/"]:
        yield f"blobs deleted by their age must be those of idempotency keys alone, and are in {folders}"
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for rule in rules:
        days = rule["definition"]["actions"]["baseBlob"]["delete"]["daysAfterCreationGreaterThan"]
        if not rule["enabled"] or f"A key is remembered for {days} days" not in page:
            yield f"docs/operations.md does not say that a key is remembered for {days} days"


def keyless(files: Files) -> Iterator[str]:
    """Every service accepts identities only, and each of them is there."""
    for kind, wanted in BY_TYPE.items():
        found = all_resources(files, kind)
        if not found:
            yield f"there is no {kind}"
        for one in found:
            yield from expected(one, wanted)
    for (name, symbol), wanted in BY_PLACE.items():
        yield from expected(files[f"modules/{name}.bicep"].of("resource")[symbol], wanted)
    stores = files["modules/machine-learning.bicep"].of("var")["containers"].body
    account = {"DATA": "dataAccountName", "STATE": "hostAccountName", "RUNS": "hostAccountName"}
    names = {"DATA": addresses.DATA_CONTAINER, "STATE": addresses.STATE_CONTAINER, "RUNS": addresses.RUNS_CONTAINER}
    wanted_stores = {(DATASTORES[key], account[key], names[key]) for key in DATASTORES}
    if {(one["name"], one["account"].text, one["container"]) for one in stores} != wanted_stores:
        yield f"the datastores must be {sorted(wanted_stores)}"


def clusters(files: Files) -> Iterator[str]:
    """Clusters have the identity that mounts, no local login, and the sizes and bounds of clusters.yaml."""
    found = all_resources(files, "Microsoft.MachineLearningServices/workspaces/computes")
    if [member(one, "name") for one in found] != ["split(pair, '=')[0]"]:
        yield "the clusters must be those of clusterSizes"
    each = "described[split(pair, '=')[0]]"
    wanted = {
        "location": "location",
        "properties.properties.osType": "Linux",
        "identity.type": "UserAssigned",
        "identity.userAssignedIdentities": {"${clusterIdentityId}": {}},
        "properties.disableLocalAuth": True,
        "properties.properties.remoteLoginPortPublicAccess": "Disabled",
        "properties.properties.enableNodePublicIp": "empty(subnetId)",
        "properties.properties.subnet": "empty(subnetId) ? null : { id: subnetId }",
        "properties.properties.scaleSettings.nodeIdleTimeBeforeScaleDown": "idleTime",
    }
    own = {
        "vmSize": "split(pair, '=')[1]",
        "vmPriority": f"({each}.?priority ?? 'dedicated') == 'low' ? 'LowPriority' : 'Dedicated'",
        "scaleSettings.minNodeCount": f"{each}.?min_nodes ?? 0",
        "scaleSettings.maxNodeCount": f"{each}.?max_nodes ?? 4",
    }
    for one in found:
        yield from expected(one, wanted | {f"properties.properties.{name}": value for name, value in own.items()})
    described = files["modules/clusters.bicep"].source.decode()
    if "loadYamlContent('../../pipelines/clusters.yaml')" not in described:
        yield "modules/clusters.bicep does not read pipelines/clusters.yaml"


def functions(files: Files) -> Iterator[str]:
    """A Flex Consumption app without what that plan refuses, with the identity for its package."""
    file = files["modules/functions.bicep"]
    for number, line in enumerate(file.source.decode().splitlines(), start=1):
        if (found := REFUSED_BY_FLEX.search(line)) and not line.startswith("//"):
            yield f"{file.name}:{number}: Flex Consumption refuses {found[0]}"
    yield from expected(file.of("resource")["plan"], {"sku.name": "FC1", "properties.reserved": True})
    app, deployment = file.of("resource")["app"], "properties.functionAppConfig.deployment.storage"
    scale = "properties.functionAppConfig.scaleAndConcurrency"
    wanted = {
        "kind": "functionapp,linux",
        "identity.type": "UserAssigned",
        "properties.httpsOnly": True,
        "properties.siteConfig.minTlsVersion": "1.2",
        "properties.siteConfig.appSettings": "concat(fixedSettings, webhookSettings)",
        "properties.serverFarmId": "plan.id",
        "properties.keyVaultReferenceIdentity": "appIdentityId",
        f"{deployment}.value": "packageUri",
        f"{deployment}.authentication.type": "UserAssignedIdentity",
        f"{deployment}.authentication.userAssignedIdentityResourceId": "appIdentityId",
        "properties.functionAppConfig.runtime": {"name": "python", "version": Expression("pythonVersion")},
        f"{scale}.instanceMemoryMB": "instanceMemoryMB",
        f"{scale}.maximumInstanceCount": "maximumInstanceCount",
    }
    yield from expected(app, wanted)
    if file.of("param")["pythonVersion"].decorators.get("allowed") != ["3.11", "3.12"]:
        yield "pythonVersion must be 3.11 or 3.12"
    if (file.of("param")["maximumInstanceCount"].decorators.get("minValue") or 0) < 40:
        yield "maximumInstanceCount must be at least 40"
    triggers = (ROOT / "function_app" / "functions.py").read_text(encoding="utf-8")
    for name in re.findall(r"'function:(\w+)'", file.source.decode()):
        if f"def {name}(" not in triggers:
            yield f"{app.place}: alwaysReady names the function {name}, which does not exist"


def storage(files: Files) -> Iterator[str]:
    """The containers and queues are those that the app and the twin use."""
    queues = files["modules/storage-host.bicep"].of("var")["queueNames"].body
    if sorted(queues) != sorted(addresses.QUEUES):
        yield f"the queues must be {', '.join(addresses.QUEUES)}"
    names = [
        one.body["name"] for one in all_resources(files, "Microsoft.Storage/storageAccounts/queueServices/queues")
    ]
    if names != [Expression("name"), Expression("'${name}-poison'")]:
        yield "each queue needs another one for its poison messages"
    containers = all_resources(files, "Microsoft.Storage/storageAccounts/blobServices/containers")
    found = {(one.file.name, member(one, "name")) for one in containers}
    data, host = "modules/storage-data.bicep", "modules/storage-host.bicep"
    wanted = {(data, addresses.DATA_CONTAINER), (data, addresses.QUARANTINE_CONTAINER), (host, "app-package")}
    own = (addresses.STATE_CONTAINER, addresses.RUNS_CONTAINER, addresses.DEAD_LETTER_CONTAINER)
    wanted |= {(host, name) for name in own}
    yield from (f"the container {name} of {file} is missing or unknown" for file, name in sorted(found ^ wanted))


def wiring(files: Files) -> Iterator[str]:
    """Each module gets its values from the module that has them."""
    modules = files["main.bicep"].of("module")
    for module in modules.values():
        for name, value in module.body.get("params", {}).items():
            start = max((one for one in SOURCES if name.startswith(one)), key=len, default=None)
            text = value.text if isinstance(value, Expression) else ""
            source = re.match(r"(\w+)!?\.outputs\.(\w+)", text)
            if start and not (source and source[1] == SOURCES[start]):
                yield f"{module.place}: {module.name}.{name} must come from {SOURCES[start]}"
            elif source and start and source[2] not in _fitting(name):
                yield f"{module.place}: {module.name}.{name} gets {source[2]}"
            if name == "deployerPrincipalId" and text != "deployerId":
                yield f"{module.place}: {module.name}.{name} must be deployerId"


def order(files: Files) -> Iterator[str]:
    """Modules wait for what they cannot name, and azd finds what it deploys to."""
    modules = files["main.bicep"].of("module")
    for name in ("clusters", "functions"):
        if "endpoints" not in modules[name].depends_on:
            yield f"{modules[name].place}: {name} needs dependsOn endpoints"
    conditions = {"virtualNetwork": "isPrivate", "endpoints": "isPrivate", "alerts": "!empty(alertEmails)"}
    for name, module in modules.items():
        if module.condition != conditions.get(name, ""):
            yield f"{module.place}: {name} is deployed if {module.condition or 'always'}"
    group = files["main.bicep"].of("resource")["group"]
    if files["main.bicep"].of("var")["tags"].body != {"azd-env-name": Expression("environmentName")}:
        yield f"{group.place}: azd finds the resource group by its tag azd-env-name"
    if "union(tags, { 'azd-service-name': 'function' })" != member(
        files["modules/functions.bicep"].of("resource")["app"], "tags"
    ):
        yield "azd finds the function app by its tag azd-service-name"


def _fitting(name: str) -> set[str]:
    """Return the outputs that a parameter of this name may get: the end of the name, or the whole name."""
    parts = re.findall(r"[A-Z]?[a-z]+", name)
    ends = {"".join([parts[at].lower(), *parts[at + 1 :]]) for at in range(len(parts))}
    special = {
        "clusterIdentityId": {"clusterId"},
        "appIdentityId": {"appId"},
        "insightsConnectionString": {"connectionString"},
    }
    return special.get(name, ends if len(parts) > 1 else {name})


def network(files: Files) -> Iterator[str]:
    """Subnets have what they need: the delegation, the way out, the rules; and endpoints their names."""
    file = files["modules/network.bicep"]
    subnets = file.of("resource")["network"].body["properties"]["subnets"]
    found = {one.get("name"): set(_leaves(one.get("properties", {}))) - {"functions"} for one in subnets}
    if found != SUBNETS:
        yield f"{file.name}: the subnets must be {SUBNETS}, and are {found}"
    [rule] = file.of("resource")["rules"].body["properties"]["securityRules"]
    wanted = {
        "access": "Deny",
        "direction": "Inbound",
        "sourceAddressPrefix": "Internet",
        "destinationPortRange": "*",
    }
    if {name: rule["properties"].get(name) for name in wanted} != wanted:
        yield f"{file.name}: the network must deny what comes from the internet"
    records = files["modules/endpoints.bicep"].of("resource")["records"]
    if "privateDnsZoneId: zones[zone].id" not in (member(records, "properties.privateDnsZoneConfigs") or ""):
        yield f"{records.place}: each endpoint needs its zones"


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value.text if isinstance(value, Expression) else str(value)


def _query(loaded: Expression | str | None) -> str:
    """Return the text of a query that a Bicep file loads; nothing where there is no such file."""
    match = re.fullmatch(r"loadTextContent\('\.\./(queries/[\w-]+\.kql)'\)", getattr(loaded, "text", ""))
    file = ROOT / "infra" / match[1] if match else None
    return file.read_text(encoding="utf-8") if file and file.is_file() else ""


def costs(files: Files) -> Iterator[str]:
    """The budget writes at 50, 80 and 100 %, and lost events and idle nodes are reported."""
    file = files["modules/alerts.bicep"]
    found = (member(file.of("resource")["budget"], "properties.notifications") or {}).values()
    if sorted(one["threshold"] for one in found) != [50, 80, 100] or not all(one["enabled"] for one in found):
        yield f"{file.name}: the budget must write at 50, 80 and 100 %"
    watched = {(one["topic"].text, one["metric"]) for one in file.of("var")["eventAlerts"].body}
    metrics = ("DroppedEventCount", "DeadLetteredCount")
    if watched != {(topic, metric) for topic in ("uploadsTopicId", "runsTopicId") for metric in metrics}:
        yield f"{file.name}: dropped and dead-lettered events of both topics must be watched"
    triggers = (ROOT / "function_app" / "functions.py").read_text(encoding="utf-8")
    for alert in file.of("var")["logAlerts"].body:
        query = _query(alert.get("query"))
        if not alert.get("name") or not alert.get("text") or "| where " not in query:
            yield f"{file.name}: each alert on logs has a name, a text and a query in infra/queries"
        for name in re.findall(r'"(\w+)"', query.partition("AppRequests")[2]):
            if f"def {name}(" not in triggers:
                yield f"{file.name}: the function {name} does not exist"
    criteria = file.of("resource")["failures"].body["properties"].get("criteria", {}).get("allOf", [])
    if [(one["timeAggregation"], one["operator"], one["threshold"]) for one in criteria] != [
        ("Count", "GreaterThan", 0)
    ]:
        yield f"{file.name}: one line of a log is enough for an alert"
    for one in all_resources(files, "Microsoft.Insights/metricAlerts"):
        yield from expected(one, {"properties.enabled": True})
        if not one.body["properties"].get("actions"):
            yield f"{one.place}: {one.name} has no action"
