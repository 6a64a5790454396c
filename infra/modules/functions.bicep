// The function app on a Flex Consumption plan, with all its settings: settings made by other programs are lost at the next
// deployment. Flex Consumption refuses the settings of other plans, such as FUNCTIONS_WORKER_RUNTIME.

@description('Region. It must offer Flex Consumption.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@allowed(['3.11', '3.12'])
@description('Python version of the function app. Both cost the same; 3.11 has glibc 2.31, 3.12 has 2.36.')
param pythonVersion string

@allowed([2048, 4096])
@description('Memory of an instance in MB; 2048 has one core, 4096 two. An instance is billed while it works, by memory and time.')
param instanceMemoryMB int

@minValue(40)
@maxValue(1000)
@description('Maximum number of instances of each function. It limits the cost of many simultaneous uploads.')
param maximumInstanceCount int

@minValue(0)
@maxValue(10)
@description('Instances that are always ready for requests, and as many for uploads: each step costs about 50 USD a month for 2048 MB. With 0, the first event waits some seconds.')
param alwaysReadyInstances int

@description('Subnet through which the app reaches private endpoints; empty for none.')
param subnetId string

@description('User-assigned identity of the app.')
param appIdentityId string

@description('Client id of that identity.')
param appClientId string

@description('Address of the container with the deployed package.')
param packageUri string

@description('Address of the host account\'s blobs.')
param hostBlobUri string

@description('Address of the host account\'s queues.')
param hostQueueUri string

@description('Address of the host account\'s tables.')
param hostTableUri string

@description('Address of the data account\'s blobs.')
param dataBlobUri string

@description('Address of the blobs of the workspace\'s own account, where logs are read.')
param workspaceBlobUri string

@description('Azure ML workspace.')
param workspaceName string

@description('Id of that workspace.')
param workspaceId string

@description('Version of the training\'s environment, which is published after this deployment.')
param environmentVersion string

@description('Version of the training\'s code, which is published after this deployment.')
param codeVersion string

@description('VM size of each cluster, NAME=SIZE, separated by commas.')
param clusterSizes string

@description('Topic for notifications.')
param topicEndpoint string

@description('Address of the vault that holds the addresses of webhooks.')
param vaultUri string

@description('Settings that pipelines name as webhook. The value of setting X_Y is the secret X-Y of the vault.')
param webhooks array

@description('Connection string for telemetry. It contains no secret, because local authentication is off.')
param insightsConnectionString string

var settings = {
  AzureWebJobsStorage__blobServiceUri: hostBlobUri
  AzureWebJobsStorage__queueServiceUri: hostQueueUri
  AzureWebJobsStorage__tableServiceUri: hostTableUri
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: appClientId
  DataStorage__blobServiceUri: dataBlobUri
  DataStorage__credential: 'managedidentity'
  DataStorage__clientId: appClientId
  AzureWebJobsDisableHomepage: 'true'
  AZURE_CLIENT_ID: appClientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${appClientId};Authorization=AAD'
  PYTHON_THREADPOOL_THREAD_COUNT: '8'
  LANDFALL_STORAGE_SUFFIX: environment().suffixes.storage
  LANDFALL_DATA_CONTAINER: 'datasets'
  LANDFALL_STATE_CONTAINER: 'landfall'
  LANDFALL_RUNS_CONTAINER: 'runs'
  LANDFALL_SUBSCRIPTION_ID: subscription().subscriptionId
  LANDFALL_RESOURCE_GROUP: resourceGroup().name
  LANDFALL_WORKSPACE: workspaceName
  LANDFALL_ENVIRONMENT_ID: '${workspaceId}/environments/landfall-training/versions/${environmentVersion}'
  LANDFALL_CODE_ID: '${workspaceId}/codes/landfall-training/versions/${codeVersion}'
  LANDFALL_CLUSTER_SIZES: clusterSizes
  LANDFALL_DATA_DATASTORE: 'landfall_datasets'
  LANDFALL_STATE_DATASTORE: 'landfall_state'
  LANDFALL_RUNS_DATASTORE: 'landfall_runs'
  LANDFALL_WORKSPACE_BLOB_URI: workspaceBlobUri
  LANDFALL_NOTIFICATION_TOPIC_ENDPOINT: topicEndpoint
  LANDFALL_PAGES_SIGN_IN: 'off' // easy-auth, once App Service authentication stands before the app
  LANDFALL_RECONCILE_SCHEDULE: '0 */5 * * * *'
}
var fixedSettings = [for each in items(settings): { name: each.key, value: each.value }]
var webhookSettings = [for name in webhooks: {
  name: name
  value: '@Microsoft.KeyVault(SecretUri=${vaultUri}secrets/${replace(name, '_', '-')})'
}]

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  // checkov:skip=CKV_AZURE_225:a choice with a price: three zones need instances that always wait
  name: 'plan-${suffix}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: { name: 'FC1', tier: 'FlexConsumption' }
  properties: { reserved: true }
}

resource app 'Microsoft.Web/sites@2024-11-01' = {
  // checkov:skip=CKV_AZURE_222:the API is meant to be called, with the function key; Azure's events come over queues
  // checkov:skip=CKV_AZURE_17:callers have a key, not a certificate
  // checkov:skip=CKV_AZURE_78:Flex Consumption has no FTP, and publishing without an identity is off below
  // checkov:skip=CKV_AZURE_212:Flex Consumption scales to zero on purpose; LANDFALL_ALWAYS_READY
  // checkov:skip=CKV_AZURE_213:Flex Consumption has no health check and replaces instances itself
  name: 'func-${suffix}'
  location: location
  tags: union(tags, { 'azd-service-name': 'function' })
  kind: 'functionapp,linux'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${appIdentityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: appIdentityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      http20Enabled: true
      minTlsVersion: '1.2'
      appSettings: concat(fixedSettings, webhookSettings)
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packageUri
          authentication: { type: 'UserAssignedIdentity', userAssignedIdentityResourceId: appIdentityId }
        }
      }
      runtime: { name: 'python', version: pythonVersion }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReadyInstances == 0 ? [] : [
          { name: 'http', instanceCount: alwaysReadyInstances }
          { name: 'function:shard_uploaded', instanceCount: alwaysReadyInstances }
        ]
      }
    }
  }

  resource ftp 'basicPublishingCredentialsPolicies' = {
    name: 'ftp'
    properties: { allow: false }
  }

  resource scm 'basicPublishingCredentialsPolicies' = {
    name: 'scm'
    properties: { allow: false }
  }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
