"""Commands that call a function app, and their client of its HTTP API."""
