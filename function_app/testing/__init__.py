"""The ports in memory, for tests; not deployed. They pass the same contract tests as the adapters."""
