"""Azure ML emulator, with the REST API that the real `azure-ai-ml` client needs; it also runs the jobs.

Start it with `python -m local_azure.azure_ml --help`. It never leaves this machine: it listens only
on loopback and keeps data in the storage emulator.
"""
