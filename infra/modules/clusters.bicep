// The clusters that the pipelines name, as pipelines/clusters.yaml describes them: one of them has small nodes without a
// GPU for the smoke test. An idle cluster has min_nodes, which is none unless clusters.yaml says so.

@description('Region.')
param location string

@description('Azure ML workspace.')
param workspaceName string

@description('VM size of each cluster, NAME=SIZE, separated by commas. The hook before the deployment takes the first size of pipelines/clusters.yaml that region and quota have: NCv3 first (retired 2025-09-30 in public regions), then A100 and H100. A cluster keeps its size for good.')
param clusterSizes string

@allowed(['PT2M', 'PT5M', 'PT15M', 'PT30M'])
@description('Time that an idle node waits for the next job before it is removed. An idle node costs its full price.')
param idleTime string

@description('Identity with which jobs mount the datastores and write their outputs.')
param clusterIdentityId string

@description('Subnet of the nodes, which then have no public address; empty for Azure ML\'s own network.')
param subnetId string

var described = loadYamlContent('../../pipelines/clusters.yaml')
var pairs = empty(clusterSizes) ? [] : split(clusterSizes, ',')

resource workspace 'Microsoft.MachineLearningServices/workspaces@2026-05-01' existing = {
  name: workspaceName
}

resource clusters 'Microsoft.MachineLearningServices/workspaces/computes@2026-05-01' = [for pair in pairs: {
  parent: workspace
  name: split(pair, '=')[0]
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${clusterIdentityId}': {} } }
  properties: {
    computeType: 'AmlCompute'
    disableLocalAuth: true
    properties: {
      vmSize: split(pair, '=')[1]
      vmPriority: (described[split(pair, '=')[0]].?priority ?? 'dedicated') == 'low' ? 'LowPriority' : 'Dedicated'
      osType: 'Linux'
      scaleSettings: {
        minNodeCount: described[split(pair, '=')[0]].?min_nodes ?? 0
        maxNodeCount: described[split(pair, '=')[0]].?max_nodes ?? 4
        nodeIdleTimeBeforeScaleDown: idleTime
      }
      remoteLoginPortPublicAccess: 'Disabled'
      enableNodePublicIp: empty(subnetId)
      subnet: empty(subnetId) ? null : { id: subnetId }
    }
  }
}]
