// Two identities do all the work, and a third one opens the encryption key, if there is one. They have no secrets.

@description('Region. Identities cost nothing.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Whether storage, registry and workspace are encrypted with a key of your own.')
param customerManagedKeys bool

resource app 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: 'id-app-${suffix}'
  location: location
  tags: tags
}

resource cluster 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: 'id-cluster-${suffix}'
  location: location
  tags: tags
}

resource keys 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = if (customerManagedKeys) {
  name: 'id-keys-${suffix}'
  location: location
  tags: tags
}

output appId string = app.id
output appClientId string = app.properties.clientId
output appPrincipalId string = app.properties.principalId
output clusterId string = cluster.id
output clusterPrincipalId string = cluster.properties.principalId
output keysId string = customerManagedKeys ? keys!.id : ''
output keysClientId string = customerManagedKeys ? keys!.properties.clientId : ''
output keysPrincipalId string = customerManagedKeys ? keys!.properties.principalId : ''
