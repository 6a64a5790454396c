// The vault of the workspace, of the webhooks' addresses, and of the encryption key, if there is one.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Whether the vault is reached from the virtual network only.')
param isPrivate bool

@description('Whether an encryption key is created. The vault can then not be purged for seven days after its deletion.')
param customerManagedKeys bool

@description('Principal of the function app, which reads the addresses of webhooks.')
param appPrincipalId string

@description('Principal of the identity that opens the encryption key; empty without one.')
param keysPrincipalId string

@description('Principal of the person or program that deploys, which writes the addresses of webhooks.')
param deployerPrincipalId string

@allowed(['User', 'ServicePrincipal'])
@description('Type of the principal that deploys.')
param deployerType string

var roles = loadJsonContent('../roles.json')

resource vault 'Microsoft.KeyVault/vaults@2025-05-01' = {
  // checkov:skip=CKV_AZURE_109:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_189:closed with LANDFALL_NETWORK=private, which this check cannot evaluate
  // checkov:skip=CKV_AZURE_110:with a key of your own; otherwise the vault could not be removed, and holds only addresses
  // checkov:skip=CKV_AZURE_42:soft delete is on; for purge protection see CKV_AZURE_110
  name: 'kv-${suffix}'
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 7
    enablePurgeProtection: customerManagedKeys ? true : null // it can never be taken back
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: { bypass: 'AzureServices', defaultAction: isPrivate ? 'Deny' : 'Allow' }
  }
}

resource key 'Microsoft.KeyVault/vaults/keys@2025-05-01' = if (customerManagedKeys) {
  // checkov:skip=CKV_AZURE_112:a software key; HSM needs a Premium vault, and gains little where Azure unwraps
  // checkov:skip=CKV_AZURE_40:data would become unreadable on that day
  parent: vault
  name: 'landfall'
  properties: {
    kty: 'RSA'
    keySize: 3072
    keyOps: ['wrapKey', 'unwrapKey']
  }
}

resource appReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, appPrincipalId, roles['Key Vault Secrets User'])
  scope: vault
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Key Vault Secrets User'])
  }
}

resource keysOpen 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (customerManagedKeys) {
  name: guid(vault.id, keysPrincipalId, roles['Key Vault Crypto Service Encryption User'])
  scope: vault
  properties: {
    principalId: keysPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Key Vault Crypto Service Encryption User'])
  }
}

resource deployerWrites 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, deployerPrincipalId, roles['Key Vault Secrets Officer'])
  scope: vault
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Key Vault Secrets Officer'])
  }
}

output id string = vault.id
output name string = vault.name
output uri string = vault.properties.vaultUri
output keyName string = customerManagedKeys ? key.name : ''
output keyUri string = customerManagedKeys ? key!.properties.keyUri : ''
output keyUriWithVersion string = customerManagedKeys ? key!.properties.keyUriWithVersion : ''
