"""Commands that turn what other systems ran into scripts and pipelines."""
