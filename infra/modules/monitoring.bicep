// Logs of the function app: an Application Insights in a Log Analytics workspace, with a daily limit on what they may cost.

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

output logsId string = logs.id
output insightsId string = insights.id
output connectionString string = insights.properties.ConnectionString
