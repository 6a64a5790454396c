"""The only modules that import the Azure SDKs, and the in-memory doubles that keep the same contracts."""
