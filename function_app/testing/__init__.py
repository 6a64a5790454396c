"""The ports in memory, for tests: they keep the same contract tests as the adapters. Not deployed."""
