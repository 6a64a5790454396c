"""Azure ML emulator: implements enough of the REST API for the real `azure-ai-ml` client, and runs its jobs.

Start it with `python -m local_azure.azure_ml --help`. It never leaves this machine: it listens on the
loopback only and keeps data in the storage emulator.
"""
