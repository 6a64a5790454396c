"""`landfall doctor`: check a deployment, and show the command that fixes each problem."""

DEFAULT_WAIT_S = 300
"""Application Insights shows most items within three minutes, but guarantees no time."""
MAX_WAIT_S = 3600
