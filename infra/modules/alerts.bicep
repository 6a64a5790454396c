// Alerts: lost events, failed messages, failed sweeps, idle nodes, and the budget.

@description('Region.')
param location string

@description('Suffix of all names, the same at every deployment.')
param suffix string

@description('Tags of every resource.')
param tags object

@description('Mail addresses that receive the alerts.')
param emails array

@minValue(1)
@description('Budget of a month in the currency of the subscription, for this resource group. Nothing stops when it is spent: it sends mail at 50, 80 and 100 %.')
param monthlyBudget int

@description('First day of the month in which the budget begins, such as 2026-11-01. It cannot be changed later.')
param budgetStart string

@description('Log Analytics workspace.')
param logsId string

@description('Azure ML workspace.')
param workspaceId string

@description('Account with the queues.')
param hostAccountId string

@description('System topic of uploads.')
param uploadsTopicId string

@description('System topic of run events.')
param runsTopicId string

var eventAlerts = [
  { name: 'uploads-dropped', topic: uploadsTopicId, metric: 'DroppedEventCount', text: 'Uploads were reported and the events dropped. The sweep finds the shards.' }
  { name: 'uploads-dead-lettered', topic: uploadsTopicId, metric: 'DeadLetteredCount', text: 'Events of uploads could not be delivered. See landfall dead-letters list.' }
  { name: 'runs-dropped', topic: runsTopicId, metric: 'DroppedEventCount', text: 'Events of runs were dropped. The sweep follows the runs.' }
  { name: 'runs-dead-lettered', topic: runsTopicId, metric: 'DeadLetteredCount', text: 'Events of runs could not be delivered. See landfall dead-letters list.' }
]
var logAlerts = [
  {
    name: 'messages-failed'
    text: 'Messages failed five times and were moved to a poison queue. See landfall dead-letters list.'
    query: loadTextContent('../queries/messages-failed.kql')
  }
  {
    name: 'messages-late'
    text: 'Messages waited for more than 15 minutes before they were handled. See landfall status.'
    query: loadTextContent('../queries/messages-late.kql')
  }
  {
    name: 'sweeps-failed'
    text: 'Sweeps failed: what an event missed is not repaired. See landfall reconcile.'
    query: loadTextContent('../queries/sweeps-failed.kql')
  }
  {
    name: 'sweeps-missing'
    text: 'No sweep has run for 15 minutes: the app does not start, or its timer does not fire. See landfall doctor.'
    query: loadTextContent('../queries/sweeps-missing.kql')
  }
  {
    name: 'runs-stuck'
    text: 'A run has made no progress in the app for an hour. See landfall runs.'
    query: loadTextContent('../queries/runs-stuck.kql')
  }
  {
    name: 'notifications-failed'
    text: 'Recipients could not be notified. See landfall run.'
    query: loadTextContent('../queries/notifications-failed.kql')
  }
  {
    name: 'logs-capped'
    text: 'The daily limit of logs was reached: until tomorrow no alert on logs can fire.'
    query: loadTextContent('../queries/logs-capped.kql')
  }
]

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    enabled: true
    groupShortName: 'landfall'
    emailReceivers: [for (address, index) in emails: {
      name: 'person-${index}'
      emailAddress: address
      useCommonAlertSchema: true
    }]
  }
}

resource lostEvents 'Microsoft.Insights/metricAlerts@2018-03-01' = [for each in eventAlerts: {
  name: 'alert-${each.name}-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    description: each.text
    enabled: true
    severity: 2
    scopes: [each.topic]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT5M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'lost'
          metricName: each.metric
          operator: 'GreaterThan'
          threshold: 0
          timeAggregation: 'Total'
        }
      ]
    }
    actions: [{ actionGroupId: people.id }]
  }
}]

resource idleNodes 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-idle-nodes-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Nodes have been idle for 30 minutes, and cost money. See az ml compute list.'
    enabled: true
    severity: 2
    scopes: [workspaceId]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT30M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'idle'
          metricName: 'Idle Nodes'
          operator: 'GreaterThan'
          threshold: 0
          timeAggregation: 'Minimum'
        }
      ]
    }
    actions: [{ actionGroupId: people.id }]
  }
}

resource longQueues 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-queues-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    description: 'More than 10,000 messages have waited for an hour in all queues together. See landfall status.'
    enabled: true
    severity: 3
    scopes: ['${hostAccountId}/queueServices/default']
    evaluationFrequency: 'PT1H'
    windowSize: 'PT1H'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'waiting'
          metricName: 'QueueMessageCount'
          operator: 'GreaterThan'
          threshold: 10000
          timeAggregation: 'Average'
        }
      ]
    }
    actions: [{ actionGroupId: people.id }]
  }
}

resource failures 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for each in logAlerts: {
  name: 'alert-${each.name}-${suffix}'
  location: location
  tags: tags
  properties: {
    displayName: each.name
    description: each.text
    enabled: true
    severity: 2
    scopes: [logsId]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    skipQueryValidation: true // the tables exist only once the app has logged
    criteria: {
      allOf: [{ query: each.query, timeAggregation: 'Count', operator: 'GreaterThan', threshold: 0 }]
    }
    actions: { actionGroups: [people.id] }
  }
}]

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: 'budget-${suffix}'
  properties: {
    category: 'Cost'
    amount: monthlyBudget
    timeGrain: 'Monthly'
    timePeriod: { startDate: budgetStart }
    notifications: {
      half: { enabled: true, operator: 'GreaterThanOrEqualTo', threshold: 50, contactEmails: emails }
      most: { enabled: true, operator: 'GreaterThanOrEqualTo', threshold: 80, contactEmails: emails }
      all: { enabled: true, operator: 'GreaterThanOrEqualTo', threshold: 100, contactEmails: emails }
    }
  }
}
