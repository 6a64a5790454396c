"""``landfall pack``."""
