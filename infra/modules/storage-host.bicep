// The account of the function app: its package, its state, its queues and tables, and what training jobs write.

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

var queueNames = [
  'shard-uploaded'
  'shard-uploaded-bulk'
  'training-requested'
  'run-changed'
  'sweep-requested'
]

var roles = loadJsonContent('../roles.json')

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  // checkov:skip=CKV_AZURE_35:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_206:a choice with a price: the loss of a data center loses the ledger, see docs/scale.md
  // checkov:skip=CKV_AZURE_43:the check cannot evaluate the name; tests/infra does
  name: 'lfhost${suffix}'
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

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: { enabled: true, days: 7 }
    containerDeleteRetentionPolicy: { enabled: true, days: 7 }
  }
}

resource package 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'app-package'
  properties: { publicAccess: 'None' }
}

resource state 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'landfall'
  properties: { publicAccess: 'None' }
}

resource runs 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'runs'
  properties: { publicAccess: 'None' }
}

resource deadLetters 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'landfall-dead-letters'
  properties: { publicAccess: 'None' }
}

// Requests under an Idempotency-Key are remembered for 30 days: docs/operations.md
resource expiry 'Microsoft.Storage/storageAccounts/managementPolicies@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'forget-idempotency-keys'
          enabled: true
          type: 'Lifecycle'
          definition: {
            filters: { blobTypes: ['blockBlob'], prefixMatch: ['landfall/idempotency-keys/'] }
            actions: { baseBlob: { delete: { daysAfterCreationGreaterThan: 30 } } }
          }
        }
      ]
    }
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [for name in queueNames: {
  parent: queueService
  name: name
}]

resource poison 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [for name in queueNames: {
  parent: queueService
  name: '${name}-poison'
}]

resource appOwnsBlobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, appPrincipalId, roles['Storage Blob Data Owner'])
  scope: account
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Owner'])
  }
}

resource appUsesQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, appPrincipalId, roles['Storage Queue Data Contributor'])
  scope: account
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Queue Data Contributor'])
  }
}

resource appUsesTables 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, appPrincipalId, roles['Storage Table Data Contributor'])
  scope: account
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Table Data Contributor'])
  }
}

resource clusterReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(state.id, clusterPrincipalId, roles['Storage Blob Data Reader'])
  scope: state
  properties: {
    principalId: clusterPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Reader'])
  }
}

resource clusterWrites 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(runs.id, clusterPrincipalId, roles['Storage Blob Data Contributor'])
  scope: runs
  properties: {
    principalId: clusterPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

output id string = account.id
output name string = account.name
output blobUri string = account.properties.primaryEndpoints.blob
output queueUri string = account.properties.primaryEndpoints.queue
output tableUri string = account.properties.primaryEndpoints.table
output packageUri string = '${account.properties.primaryEndpoints.blob}${package.name}'
