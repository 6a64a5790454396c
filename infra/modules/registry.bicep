// The registry of the training's image. It exists before the workspace and its clusters.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Whether the registry is reached from the virtual network only. That needs Premium, about 50 USD a month; Basic is about 5.')
param isPrivate bool

@description('Identity that opens the encryption key, which needs Premium; empty for a key of Microsoft.')
param keysId string

@description('Client id of that identity, by which a registry names it.')
param keysClientId string

@description('Address of the encryption key, without its version.')
param keyUri string

@description('Principal of the clusters.')
param clusterPrincipalId string

@description('Principal of the person or program that deploys.')
param deployerPrincipalId string

@allowed(['User', 'ServicePrincipal'])
@description('Type of the principal that deploys.')
param deployerType string

var roles = loadJsonContent('../roles.json')

resource registry 'Microsoft.ContainerRegistry/registries@2025-11-01' = {
  // checkov:skip=CKV_AZURE_139:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_166:quarantine needs Premium and a scanner that releases images
  // checkov:skip=CKV_AZURE_163:scanning is a plan of Microsoft Defender, a choice for the whole subscription
  name: 'lfacr${suffix}'
  location: location
  tags: tags
  sku: { name: isPrivate || !empty(keysId) ? 'Premium' : 'Basic' }
  identity: empty(keysId) ? null : { type: 'UserAssigned', userAssignedIdentities: { '${keysId}': {} } }
  properties: {
    adminUserEnabled: false
    anonymousPullEnabled: false
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkRuleBypassOptions: 'AzureServices'
    encryption: empty(keysId) ? null : { status: 'enabled', keyVaultProperties: { identity: keysClientId, keyIdentifier: keyUri } }
  }
}

resource clusterPulls 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, clusterPrincipalId, roles['AcrPull'])
  scope: registry
  properties: {
    principalId: clusterPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['AcrPull'])
  }
}

resource deployerPushes 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, deployerPrincipalId, roles['AcrPush'])
  scope: registry
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['AcrPush'])
  }
}

output id string = registry.id
output name string = registry.name
output loginServer string = registry.properties.loginServer
