// Private endpoints of everything that holds data, and the names by which they are found. Each costs about 7 USD a month.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Virtual network in which the names are resolved.')
param networkId string

@description('Subnet of the endpoints.')
param subnetId string

@description('Account of the data.')
param dataAccountId string

@description('Account of the function app.')
param hostAccountId string

@description('Account of the workspace.')
param workspaceAccountId string

@description('Key vault.')
param vaultId string

@description('Registry.')
param registryId string

@description('Azure ML workspace.')
param workspaceId string

var zoneNames = [
  'privatelink.blob.${environment().suffixes.storage}'
  'privatelink.queue.${environment().suffixes.storage}'
  'privatelink.table.${environment().suffixes.storage}'
  'privatelink.file.${environment().suffixes.storage}'
  'privatelink.vaultcore.azure.net'
  'privatelink${environment().suffixes.acrLoginServer}'
  'privatelink.api.azureml.ms'
  'privatelink.notebooks.azure.net'
]
var targets = [
  { name: 'data-blob', id: dataAccountId, group: 'blob', zones: [0] }
  { name: 'host-blob', id: hostAccountId, group: 'blob', zones: [0] }
  { name: 'host-queue', id: hostAccountId, group: 'queue', zones: [1] }
  { name: 'host-table', id: hostAccountId, group: 'table', zones: [2] }
  { name: 'ml-blob', id: workspaceAccountId, group: 'blob', zones: [0] }
  { name: 'ml-file', id: workspaceAccountId, group: 'file', zones: [3] }
  { name: 'vault', id: vaultId, group: 'vault', zones: [4] }
  { name: 'registry', id: registryId, group: 'registry', zones: [5] }
  { name: 'workspace', id: workspaceId, group: 'amlworkspace', zones: [6, 7] }
]

resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [for name in zoneNames: {
  name: name
  location: 'global'
  tags: tags
}]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [for (name, index) in zoneNames: {
  parent: zones[index]
  name: 'landfall-${suffix}'
  location: 'global'
  tags: tags
  properties: { registrationEnabled: false, virtualNetwork: { id: networkId } }
}]

resource endpoints 'Microsoft.Network/privateEndpoints@2025-05-01' = [for target in targets: {
  name: 'pe-${target.name}-${suffix}'
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [
      { name: target.name, properties: { privateLinkServiceId: target.id, groupIds: [target.group] } }
    ]
  }
}]

resource records 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-05-01' = [for (target, index) in targets: {
  parent: endpoints[index]
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [for zone in target.zones: {
      name: 'zone-${zone}'
      properties: { privateDnsZoneId: zones[zone].id }
    }]
  }
}]
