"""``landfall upload``: what would be ignored is refused before the first byte, and a repeated upload goes on."""
