// Telemetry of the function app: Application Insights in a Log Analytics workspace, with a daily limit on what it may cost,
// and a workbook that shows it.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@minValue(1)
@maxValue(100)
@description('Gigabytes of logs a day, after which no more are kept until the next day. Each costs about 2.80 USD.')
param dailyCapGb int

@description('Principal of the function app.')
param appPrincipalId string

var roles = loadJsonContent('../roles.json')
var charts = [
  { title: 'Decisions', view: 'timechart', query: loadTextContent('../queries/events.kql') }
  { title: 'Events that changed nothing', view: 'timechart', query: loadTextContent('../queries/duplicates.kql') }
  { title: 'Messages', view: 'timechart', query: loadTextContent('../queries/messages.kql') }
  { title: 'Wait in the queues, in seconds', view: 'timechart', query: loadTextContent('../queries/queue-age.kql') }
  { title: 'Last shard to submission, in seconds', view: 'table', query: loadTextContent('../queries/submission-delay.kql') }
  { title: 'States of runs', view: 'timechart', query: loadTextContent('../queries/run-states.kql') }
  { title: 'Runs that have not ended', view: 'table', query: loadTextContent('../queries/open-runs.kql') }
  { title: 'Images per second', view: 'table', query: loadTextContent('../queries/throughput.kql') }
  { title: 'Cost of runs', view: 'timechart', query: loadTextContent('../queries/cost.kql') }
  { title: 'Warnings and errors of the log', view: 'table', query: loadTextContent('../queries/warnings.kql') }
  { title: 'Steps that failed', view: 'table', query: loadTextContent('../queries/failed-steps.kql') }
]
var items = [for each in charts: {
  type: 3
  name: each.title
  content: {
    version: 'KqlItem/1.0'
    title: each.title
    query: each.query
    visualization: each.view
    size: 0
    timeContext: { durationMs: 86400000 }
    queryType: 0
    resourceType: 'microsoft.operationalinsights/workspaces'
  }
}]

resource logs 'Microsoft.OperationalInsights/workspaces@2025-02-01' = {
  name: 'log-${suffix}'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
    features: { disableLocalAuth: true }
    workspaceCapping: { dailyQuotaGb: dailyCapGb }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-${suffix}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: logs.id
    IngestionMode: 'LogAnalytics'
    DisableLocalAuth: true
  }
}

resource appPublishes 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, appPrincipalId, roles['Monitoring Metrics Publisher'])
  scope: insights
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles['Monitoring Metrics Publisher'])
  }
}

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(logs.id, 'landfall')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Landfall'
    category: 'workbook'
    sourceId: logs.id
    serializedData: string({ version: 'Notebook/1.0', items: items })
  }
}

output logsId string = logs.id
output insightsId string = insights.id
output connectionString string = insights.properties.ConnectionString
