"""What events have missed: found by comparing the ledger with storage and Azure ML."""
