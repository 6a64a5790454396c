"""The HTTP API: a FastAPI app, imported by the first HTTP request."""
