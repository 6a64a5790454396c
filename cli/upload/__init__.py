"""``landfall upload``: refuse files that the app would ignore before sending any; continue an interrupted upload."""
