"""``landfall validate``."""
