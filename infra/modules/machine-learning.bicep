// The Azure ML workspace and its datastores, which have no credentials: jobs mount them with the cluster's identity.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Whether the workspace is reached from the virtual network only.')
param isPrivate bool

@description('Identity that opens the encryption key; empty for a key of Microsoft. With a key of your own, Azure ML keeps its metadata in resources of your subscription, which cost a few hundred USD a month.')
param keysId string

@description('Vault with the encryption key.')
param vaultId string

@description('Address of the encryption key, with its version.')
param keyUriWithVersion string

@description('Default storage account of the workspace, which must be a standard account.')
param storageId string

@description('Registry of the training image.')
param registryId string

@description('Application Insights.')
param insightsId string

@description('Account with the container of the data.')
param dataAccountName string

@description('Account with the containers of the state and of the outputs.')
param hostAccountName string

@description('Principal of the function app.')
param appPrincipalId string

@description('Principal of the person or program that deploys.')
param deployerPrincipalId string

@allowed(['User', 'ServicePrincipal'])
@description('Type of the principal that deploys.')
param deployerType string

var roles = loadJsonContent('../roles.json')
var containers = [
  { name: 'landfall_datasets', account: dataAccountName, container: 'datasets' }
  { name: 'landfall_state', account: hostAccountName, container: 'landfall' }
  { name: 'landfall_runs', account: hostAccountName, container: 'runs' }
]

resource workspace 'Microsoft.MachineLearningServices/workspaces@2026-05-01' = {
  // checkov:skip=CKV_AZURE_243:modules/endpoints.bicep makes one with LANDFALL_NETWORK=private
  name: 'mlw-${suffix}'
  location: location
  tags: tags
  kind: 'Default'
  sku: { name: 'Basic', tier: 'Basic' }
  identity: empty(keysId) ? { type: 'SystemAssigned' } : { type: 'SystemAssigned,UserAssigned', userAssignedIdentities: { '${keysId}': {} } }
  properties: {
    friendlyName: 'Landfall'
    storageAccount: storageId
    keyVault: vaultId
    applicationInsights: insightsId
    containerRegistry: registryId
    systemDatastoresAuthMode: 'Identity'
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    v1LegacyMode: false
    encryption: empty(keysId) ? null : {
      status: 'Enabled'
      identity: { userAssignedIdentity: keysId }
      keyVaultProperties: { keyVaultArmId: vaultId, keyIdentifier: keyUriWithVersion }
    }
  }
}

resource datastores 'Microsoft.MachineLearningServices/workspaces/datastores@2026-05-01' = [for each in containers: {
  parent: workspace
  name: each.name
  properties: {
    datastoreType: 'AzureBlob'
    accountName: each.account
    containerName: each.container
    endpoint: environment().suffixes.storage
    protocol: 'https'
    credentials: { credentialsType: 'None' }
  }
}]

resource appSubmits 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workspace.id, appPrincipalId, roles['AzureML Data Scientist'])
  scope: workspace
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['AzureML Data Scientist'])
  }
}

resource deployerPublishes 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workspace.id, deployerPrincipalId, roles['AzureML Data Scientist'])
  scope: workspace
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['AzureML Data Scientist'])
  }
}

resource deployerOperates 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workspace.id, deployerPrincipalId, roles['AzureML Compute Operator'])
  scope: workspace
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['AzureML Compute Operator'])
  }
}

output id string = workspace.id
output name string = workspace.name
