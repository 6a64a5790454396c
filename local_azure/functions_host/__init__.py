"""The dev host: serves a Python function app on this machine.

It drives Microsoft's own `azure-functions-runtime`, which imports the app, checks its bindings and calls its
functions exactly as in Azure, and stands in for what surrounds that: HTTP, storage queues, timers and the Event
Grid webhook. It proves the worker's side only. It is not the Functions host: keys and authorisation levels are
not enforced, functions do not scale, time limits and retry policies of host.json do not apply.
"""
