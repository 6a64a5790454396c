"""The dev host: serves a Python function app on this machine.

It drives Microsoft's own `azure-functions-runtime`, which imports the app, checks its bindings and calls its
functions exactly as in Azure, and replaces the parts around it: HTTP with function keys, storage queues and timers.
It tests only the worker's side. Unlike the Functions host, it does not scale functions, and does not apply time
limits or retry policies of host.json.
"""
