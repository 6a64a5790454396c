// A virtual network with three subnets and one outbound address. About 35 USD a month for the gateway, and traffic.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

resource address 'Microsoft.Network/publicIPAddresses@2025-05-01' = {
  name: 'pip-${suffix}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

resource gateway 'Microsoft.Network/natGateways@2025-05-01' = {
  name: 'ng-${suffix}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIpAddresses: [{ id: address.id }] }
}

resource rules 'Microsoft.Network/networkSecurityGroups@2025-05-01' = {
  name: 'nsg-${suffix}'
  location: location
  tags: tags
  properties: {
    securityRules: [
      {
        name: 'DenyFromInternet'
        properties: {
          access: 'Deny'
          direction: 'Inbound'
          priority: 4000
          protocol: '*'
          sourceAddressPrefix: 'Internet'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2025-05-01' = {
  name: 'vnet-${suffix}'
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: ['10.80.0.0/16'] }
    subnets: [
      {
        name: 'functions'
        properties: {
          addressPrefix: '10.80.0.0/24'
          networkSecurityGroup: { id: rules.id }
          natGateway: { id: gateway.id }
          delegations: [{ name: 'functions', properties: { serviceName: 'Microsoft.App/environments' } }]
        }
      }
      {
        name: 'clusters'
        properties: {
          addressPrefix: '10.80.4.0/22'
          networkSecurityGroup: { id: rules.id }
          natGateway: { id: gateway.id }
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.80.1.0/24'
          networkSecurityGroup: { id: rules.id }
        }
      }
    ]
  }
}

output id string = network.id
output functionsSubnetId string = '${network.id}/subnets/functions'
output clustersSubnetId string = '${network.id}/subnets/clusters'
output endpointsSubnetId string = '${network.id}/subnets/endpoints'
