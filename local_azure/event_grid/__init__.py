"""An emulator of Event Grid for one machine.

It turns writes to a storage account in Azurite into blob events, takes custom events from the real publisher
client, and delivers both to storage queues and webhooks: at least once, with Event Grid's handshakes, retries
and dead letters, and with faults on request (lost, doubled, late and reordered deliveries).

Not emulated: management of topics and subscriptions, advanced filters, batching of deliveries, expiry, and
authorisation beyond the topic's key. A batch delete appears in Azurite's log as one request and raises nothing.
"""
