// Everything that Landfall needs in a subscription: one resource group, without shared keys. docs/deploy.md says how to
// deploy it, docs/security.md who may do what.
targetScope = 'subscription'

@minLength(1)
@maxLength(40)
@description('Name of this deployment in azd; the resource group is rg-NAME.')
param environmentName string

@description('Region of everything. It must offer Flex Consumption and the VM sizes; prices differ by region.')
param location string

@description('Object id of the person or program that deploys. It gets the roles that publishing needs: docs/security.md.')
param deployerId string

@allowed(['User', 'ServicePrincipal'])
@description('Type of the principal that deploys.')
param deployerType string = 'User'

@description('Object ids of the people and programs that upload data.')
param dataOwnerIds array = []

@description('VM size of each cluster, NAME=SIZE, separated by commas; the hook before the deployment chooses them in the order of pipelines/clusters.yaml, NCv3 first, which public regions retired on 2025-09-30. A node costs from about 3 USD (one V100 or A100) to about 100 USD (8 H100) an hour while it runs, one of landfall-smoke about 0.20.')
param clusterSizes string

@allowed(['PT2M', 'PT5M', 'PT15M', 'PT30M'])
@description('Time that an idle node waits for the next job before it is removed. An idle node costs its full price.')
param idleTime string = 'PT2M'

@description('Version of the training\'s environment; the hook before the deployment computes it.')
param environmentVersion string

@description('Version of the training\'s code; the hook before the deployment computes it.')
param codeVersion string

@allowed(['3.11', '3.12'])
@description('Python version of the function app. Both cost the same.')
param pythonVersion string = '3.11'

@allowed([2048, 4096])
@description('Memory of an instance of the function app in MB. Instances are billed by memory and seconds.')
param instanceMemoryMB int = 2048

@minValue(40)
@maxValue(1000)
@description('Maximum number of instances of each function. It limits the cost of many simultaneous uploads.')
param maximumInstanceCount int = 40

@minValue(0)
@maxValue(10)
@description('Instances that are always ready for requests, and as many for uploads: each step costs about 50 USD a month. With 0, the first event waits some seconds.')
param alwaysReadyInstances int = 0

@description('Settings that pipelines name as webhook or apprise. The value of setting X_Y is the secret X-Y of the vault.')
param webhooks array = ['LANDFALL_WEBHOOK_PEOPLE']

@allowed(['Premium_LRS', 'Premium_ZRS'])
@description('Copies of the data: in one data center (about 0.15 USD for each GB and month) or in three zones (about 0.19).')
param dataRedundancy string = 'Premium_LRS'

@allowed(['public', 'private'])
@description('private: storage, vault, registry and workspace are reached from a virtual network only. About 150 USD a month for endpoints, gateway and the larger registry. It cannot be changed for existing clusters.')
param network string = 'public'

@description('Encrypt storage, registry and workspace with a key of your own. Azure ML then keeps its metadata in your subscription, for a few hundred USD a month. It cannot be changed later.')
param customerManagedKeys bool = false

@minValue(1)
@maxValue(100)
@description('Gigabytes of logs a day, after which no more are kept until the next day. Each costs about 2.80 USD.')
param dailyCapGb int = 1

@description('Addresses that alerts and the budget write to; without one there is neither. Each alert rule costs about 0.10 to 1.50 USD a month.')
param alertEmails array = []

@minValue(1)
@description('Budget of a month in the currency of the subscription. It sends mail at 50, 80 and 100 %, and stops nothing.')
param monthlyBudget int = 500

@description('First day of the month in which the budget begins, none without addresses; the hook before the deployment sets it.')
param budgetStart string

var suffix = uniqueString(subscription().id, environmentName, location)
var tags = { 'azd-env-name': environmentName }
var isPrivate = network == 'private'

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identities 'modules/identities.bicep' = {
  scope: group
  params: { location: location, suffix: suffix, tags: tags, customerManagedKeys: customerManagedKeys }
}

module keyVault 'modules/key-vault.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    customerManagedKeys: customerManagedKeys
    appPrincipalId: identities.outputs.appPrincipalId
    keysPrincipalId: identities.outputs.keysPrincipalId
    deployerPrincipalId: deployerId
    deployerType: deployerType
  }
}

module storageData 'modules/storage-data.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    keysId: identities.outputs.keysId
    vaultUri: keyVault.outputs.uri
    keyName: keyVault.outputs.keyName
    redundancy: dataRedundancy
    appPrincipalId: identities.outputs.appPrincipalId
    clusterPrincipalId: identities.outputs.clusterPrincipalId
    dataOwnerIds: dataOwnerIds
  }
}

module storageHost 'modules/storage-host.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    keysId: identities.outputs.keysId
    vaultUri: keyVault.outputs.uri
    keyName: keyVault.outputs.keyName
    appPrincipalId: identities.outputs.appPrincipalId
    clusterPrincipalId: identities.outputs.clusterPrincipalId
  }
}

module storageMl 'modules/storage-ml.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    keysId: identities.outputs.keysId
    vaultUri: keyVault.outputs.uri
    keyName: keyVault.outputs.keyName
    appPrincipalId: identities.outputs.appPrincipalId
    clusterPrincipalId: identities.outputs.clusterPrincipalId
    deployerPrincipalId: deployerId
    deployerType: deployerType
  }
}

module registry 'modules/registry.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    keysId: identities.outputs.keysId
    keysClientId: identities.outputs.keysClientId
    keyUri: keyVault.outputs.keyUri
    clusterPrincipalId: identities.outputs.clusterPrincipalId
    deployerPrincipalId: deployerId
    deployerType: deployerType
  }
}

module monitoring 'modules/monitoring.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    dailyCapGb: dailyCapGb
    appPrincipalId: identities.outputs.appPrincipalId
  }
}

module virtualNetwork 'modules/network.bicep' = if (isPrivate) {
  scope: group
  params: { location: location, suffix: suffix, tags: tags }
}

module machineLearning 'modules/machine-learning.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    isPrivate: isPrivate
    keysId: identities.outputs.keysId
    vaultId: keyVault.outputs.id
    keyUriWithVersion: keyVault.outputs.keyUriWithVersion
    storageId: storageMl.outputs.id
    registryId: registry.outputs.id
    insightsId: monitoring.outputs.insightsId
    dataAccountName: storageData.outputs.name
    hostAccountName: storageHost.outputs.name
    appPrincipalId: identities.outputs.appPrincipalId
    deployerPrincipalId: deployerId
    deployerType: deployerType
  }
}

module endpoints 'modules/endpoints.bicep' = if (isPrivate) {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    networkId: virtualNetwork!.outputs.id
    subnetId: virtualNetwork!.outputs.endpointsSubnetId
    dataAccountId: storageData.outputs.id
    hostAccountId: storageHost.outputs.id
    workspaceAccountId: storageMl.outputs.id
    vaultId: keyVault.outputs.id
    registryId: registry.outputs.id
    workspaceId: machineLearning.outputs.id
  }
}

module clusters 'modules/clusters.bicep' = {
  scope: group
  params: {
    location: location
    workspaceName: machineLearning.outputs.name
    clusterSizes: clusterSizes
    idleTime: idleTime
    clusterIdentityId: identities.outputs.clusterId
    subnetId: isPrivate ? virtualNetwork!.outputs.clustersSubnetId : ''
  }
  dependsOn: [endpoints] // nodes without a public address find the workspace through its endpoint
}

module events 'modules/events.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    dataAccountId: storageData.outputs.id
    workspaceId: machineLearning.outputs.id
    hostAccountName: storageHost.outputs.name
    appPrincipalId: identities.outputs.appPrincipalId
  }
}

module functions 'modules/functions.bicep' = {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    pythonVersion: pythonVersion
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyInstances: alwaysReadyInstances
    subnetId: isPrivate ? virtualNetwork!.outputs.functionsSubnetId : ''
    appIdentityId: identities.outputs.appId
    appClientId: identities.outputs.appClientId
    packageUri: storageHost.outputs.packageUri
    hostBlobUri: storageHost.outputs.blobUri
    hostQueueUri: storageHost.outputs.queueUri
    hostTableUri: storageHost.outputs.tableUri
    dataBlobUri: storageData.outputs.blobUri
    workspaceBlobUri: storageMl.outputs.blobUri
    workspaceName: machineLearning.outputs.name
    workspaceId: machineLearning.outputs.id
    environmentVersion: environmentVersion
    codeVersion: codeVersion
    clusterSizes: clusterSizes
    topicEndpoint: events.outputs.endpoint
    vaultUri: keyVault.outputs.uri
    webhooks: webhooks
    insightsConnectionString: monitoring.outputs.connectionString
  }
  dependsOn: [endpoints] // the app reads its package through an endpoint
}

module alerts 'modules/alerts.bicep' = if (!empty(alertEmails)) {
  scope: group
  params: {
    location: location
    suffix: suffix
    tags: tags
    emails: alertEmails
    monthlyBudget: monthlyBudget
    budgetStart: budgetStart
    logsId: monitoring.outputs.logsId
    workspaceId: machineLearning.outputs.id
    hostAccountId: storageHost.outputs.id
    uploadsTopicId: events.outputs.uploadsTopicId
    runsTopicId: events.outputs.runsTopicId
  }
}

output AZURE_RESOURCE_GROUP string = group.name
output LANDFALL_SUBSCRIPTION_ID string = subscription().subscriptionId
output LANDFALL_RESOURCE_GROUP string = group.name
output LANDFALL_WORKSPACE string = machineLearning.outputs.name
output LANDFALL_REGISTRY string = registry.outputs.name
output LANDFALL_REGISTRY_SERVER string = registry.outputs.loginServer
output LANDFALL_DATA_ACCOUNT string = storageData.outputs.name
output LANDFALL_HOST_ACCOUNT string = storageHost.outputs.name
output LANDFALL_CLUSTER_IDENTITY string = identities.outputs.clusterId
output LANDFALL_VAULT string = keyVault.outputs.name
output LANDFALL_FUNCTION_APP string = functions.outputs.name
output LANDFALL_URL string = functions.outputs.url
