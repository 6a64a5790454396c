"""`landfall doctor`: whether a deployment has all that it needs, and what mends what it lacks."""

DEFAULT_WAIT_S = 300
"""Application Insights shows most items within three minutes, and promises nothing."""
MAX_WAIT_S = 3600
