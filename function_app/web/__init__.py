"""The HTTP API: a FastAPI app, imported at the first HTTP request only."""
