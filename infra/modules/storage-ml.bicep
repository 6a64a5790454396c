// The default account of the workspace: code snapshots and logs. Azure ML needs a standard account, so it is not that of the data.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Whether the account is reached from the virtual network and by trusted services of Azure only.')
param isPrivate bool

@description('Identity that opens the encryption key; empty for a key of Microsoft.')
param keysId string

@description('Address of the vault with the encryption key.')
param vaultUri string

@description('Name of the encryption key; empty for a key of Microsoft.')
param keyName string

@description('Principal of the function app.')
param appPrincipalId string

@description('Principal of the clusters.')
param clusterPrincipalId string

@description('Principal of the person or program that deploys.')
param deployerPrincipalId string

@allowed(['User', 'ServicePrincipal'])
@description('Type of the principal that deploys.')
param deployerType string

var roles = loadJsonContent('../roles.json')

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  // checkov:skip=CKV_AZURE_35:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_206:code and logs: published again, and of a run only
  // checkov:skip=CKV_AZURE_43:the check cannot evaluate the name; tests/infra does
  name: 'lfml${suffix}'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: 'Standard_LRS' }
  identity: empty(keysId) ? null : { type: 'UserAssigned', userAssignedIdentities: { '${keysId}': {} } }
  properties: {
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: { bypass: 'AzureServices', defaultAction: isPrivate ? 'Deny' : 'Allow' }
    encryption: {
      keySource: empty(keysId) ? 'Microsoft.Storage' : 'Microsoft.Keyvault'
      identity: empty(keysId) ? null : { userAssignedIdentity: keysId }
      keyvaultproperties: empty(keysId) ? null : { keyname: keyName, keyvaulturi: vaultUri }
      services: {
        blob: { enabled: true, keyType: 'Account' }
        file: { enabled: true, keyType: 'Account' }
        queue: { enabled: true, keyType: empty(keysId) ? 'Service' : 'Account' } // cannot be changed later
        table: { enabled: true, keyType: empty(keysId) ? 'Service' : 'Account' }
      }
    }
  }
}

resource appReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, appPrincipalId, roles['Storage Blob Data Reader'])
  scope: account
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Reader'])
  }
}

resource clusterWrites 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, clusterPrincipalId, roles['Storage Blob Data Contributor'])
  scope: account
  properties: {
    principalId: clusterPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

resource deployerWrites 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, deployerPrincipalId, roles['Storage Blob Data Contributor'])
  scope: account
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

output id string = account.id
output blobUri string = account.properties.primaryEndpoints.blob
