"""The HTTP API and the web pages: a FastAPI app, imported by the first HTTP request."""
