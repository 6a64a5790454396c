// Events: uploads and changes of runs go into queues, and notifications go out through a topic. Nothing here needs a key.

@description('Region. It must be that of the accounts and of the workspace.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Account of the data, whose uploads are reported.')
param dataAccountId string

@description('Azure ML workspace, whose runs are reported.')
param workspaceId string

@description('Account with the queues and with the container of dead letters.')
param hostAccountName string

@description('Principal of the function app.')
param appPrincipalId string

var roles = loadJsonContent('../roles.json')
var never = -1

resource host 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: hostAccountName

  resource blobs 'blobServices' existing = {
    name: 'default'

    resource deadLetters 'containers' existing = {
      name: 'landfall-dead-letters'
    }
  }

  resource queueService 'queueServices' existing = {
    name: 'default'

    resource shardUploaded 'queues' existing = {
      name: 'shard-uploaded'
    }

    resource runChanged 'queues' existing = {
      name: 'run-changed'
    }
  }
}

resource topic 'Microsoft.EventGrid/topics@2025-02-15' = {
  // checkov:skip=CKV_AZURE_193:takes events from the app's identity only; no key, and nothing is read from it
  // checkov:skip=CKV_AZURE_191:delivers nothing itself; who subscribes decides about the identity
  name: 'evgt-landfall-${suffix}'
  location: location
  tags: tags
  properties: {
    inputSchema: 'CloudEventSchemaV1_0' // a topic of the default schema refuses what the app sends
    disableLocalAuth: true
    minimumTlsVersionAllowed: '1.2'
    publicNetworkAccess: 'Enabled'
  }
}

resource uploads 'Microsoft.EventGrid/systemTopics@2025-02-15' = {
  name: 'evgt-uploads-${suffix}'
  location: location
  tags: tags
  identity: { type: 'SystemAssigned' }
  properties: {
    source: dataAccountId
    topicType: 'Microsoft.Storage.StorageAccounts'
  }
}

resource runs 'Microsoft.EventGrid/systemTopics@2025-02-15' = {
  name: 'evgt-runs-${suffix}'
  location: location
  tags: tags
  identity: { type: 'SystemAssigned' }
  properties: {
    source: workspaceId
    topicType: 'Microsoft.MachineLearningServices.Workspaces'
  }
}

resource appSends 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(topic.id, appPrincipalId, roles['EventGrid Data Sender'])
  scope: topic
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['EventGrid Data Sender'])
  }
}

resource uploadsSend 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(host::queueService::shardUploaded.id, uploads.id, roles['Storage Queue Data Message Sender'])
  scope: host::queueService::shardUploaded
  properties: {
    principalId: uploads.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Queue Data Message Sender'])
  }
}

resource uploadsKeep 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(host::blobs::deadLetters.id, uploads.id, roles['Storage Blob Data Contributor'])
  scope: host::blobs::deadLetters
  properties: {
    principalId: uploads.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

resource runsSend 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(host::queueService::runChanged.id, runs.id, roles['Storage Queue Data Message Sender'])
  scope: host::queueService::runChanged
  properties: {
    principalId: runs.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Queue Data Message Sender'])
  }
}

resource runsKeep 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(host::blobs::deadLetters.id, runs.id, roles['Storage Blob Data Contributor'])
  scope: host::blobs::deadLetters
  properties: {
    principalId: runs.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Storage Blob Data Contributor'])
  }
}

resource shardUploaded 'Microsoft.EventGrid/systemTopics/eventSubscriptions@2025-02-15' = {
  parent: uploads
  name: 'shard-uploaded'
  properties: {
    eventDeliverySchema: 'EventGridSchema'
    deliveryWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      destination: {
        endpointType: 'StorageQueue'
        properties: {
          resourceId: host.id
          queueName: 'shard-uploaded'
          queueMessageTimeToLiveInSeconds: never
        }
      }
    }
    deadLetterWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      deadLetterDestination: {
        endpointType: 'StorageBlob'
        properties: {
          resourceId: host.id
          blobContainerName: 'landfall-dead-letters'
        }
      }
    }
    filter: {
      includedEventTypes: ['Microsoft.Storage.BlobCreated']
      subjectBeginsWith: '/blobServices/default/containers/datasets/blobs/'
      advancedFilters: [
        {
          operatorType: 'StringIn'
          key: 'data.api'
          values: ['PutBlob', 'PutBlockList', 'CopyBlob', 'FlushWithClose']
        }
      ]
    }
    retryPolicy: { maxDeliveryAttempts: 30, eventTimeToLiveInMinutes: 1440 }
  }
  dependsOn: [uploadsSend, uploadsKeep] // without its roles a subscription cannot be made
}

resource runChanged 'Microsoft.EventGrid/systemTopics/eventSubscriptions@2025-02-15' = {
  parent: runs
  name: 'run-changed'
  properties: {
    eventDeliverySchema: 'EventGridSchema'
    deliveryWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      destination: {
        endpointType: 'StorageQueue'
        properties: {
          resourceId: host.id
          queueName: 'run-changed'
          queueMessageTimeToLiveInSeconds: never
        }
      }
    }
    deadLetterWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      deadLetterDestination: {
        endpointType: 'StorageBlob'
        properties: {
          resourceId: host.id
          blobContainerName: 'landfall-dead-letters'
        }
      }
    }
    filter: {
      includedEventTypes: ['Microsoft.MachineLearningServices.RunCompleted', 'Microsoft.MachineLearningServices.RunStatusChanged']
      advancedFilters: [
        {
          operatorType: 'StringContains'
          key: 'subject'
          values: ['/runs/landfall-']
        }
      ]
    }
    retryPolicy: { maxDeliveryAttempts: 30, eventTimeToLiveInMinutes: 1440 }
  }
  dependsOn: [runsSend, runsKeep] // without its roles a subscription cannot be made
}

output endpoint string = topic.properties.endpoint
output uploadsTopicId string = uploads.id
output runsTopicId string = runs.id
