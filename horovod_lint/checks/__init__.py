"""The rules' code: one module per subject, each with a ``check`` function that yields findings."""
