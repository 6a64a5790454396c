// The account of the data: shards are uploaded here and read by validation and training. It has no queue or table.

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

@allowed(['Premium_LRS', 'Premium_ZRS'])
@description('Copies of the data: in one data center (about 0.15 USD for each GB and month) or in three zones (about 0.19).')
param redundancy string

@description('Principal of the function app.')
param appPrincipalId string

@description('Principal of the clusters.')
param clusterPrincipalId string

@description('Object ids of the people and programs that upload data.')
param dataOwnerIds array

var roles = loadJsonContent('../roles.json')

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  // checkov:skip=CKV_AZURE_35:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_206:LANDFALL_DATA_REDUNDANCY is the choice of the data's owner
  // checkov:skip=CKV_AZURE_43:the check cannot evaluate the name; tests/infra does
  name: 'lfdata${suffix}'
  location: location
  tags: tags
  kind: 'BlockBlobStorage'
  sku: { name: redundancy }
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
      }
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: { enabled: true, days: 7 }
    containerDeleteRetentionPolicy: { enabled: true, days: 7 }
  }
}

resource datasets 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'datasets'
  properties: { publicAccess: 'None' }
}

resource quarantine 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'quarantine'
  properties: { publicAccess: 'None' }
}

resource appReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(datasets.id, appPrincipalId, roles['Storage Blob Data Reader'])
  scope: datasets
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Reader'])
  }
}

resource appCopies 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(quarantine.id, appPrincipalId, roles['Storage Blob Data Contributor'])
  scope: quarantine
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

resource clusterReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(datasets.id, clusterPrincipalId, roles['Storage Blob Data Reader'])
  scope: datasets
  properties: {
    principalId: clusterPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Reader'])
  }
}

resource ownersWrite 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for owner in dataOwnerIds: {
  name: guid(datasets.id, owner, roles['Storage Blob Data Contributor'])
  scope: datasets
  properties: {
    principalId: owner
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}]

output id string = account.id
output name string = account.name
output blobUri string = account.properties.primaryEndpoints.blob
