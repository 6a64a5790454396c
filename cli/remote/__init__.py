"""Commands that ask a function app, and the client of its HTTP API that they share."""
