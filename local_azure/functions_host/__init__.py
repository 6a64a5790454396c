"""The dev host: serves a Python function app on this machine.

It drives Microsoft's own `azure-functions-runtime`, which imports the app, checks its bindings and calls its
functions exactly as in Azure, and replaces the parts around it: HTTP with function keys, storage queues and timers.
It tests the worker's side only. It is not the Functions host: functions do not scale, time limits and retry policies
of host.json do not apply.
"""
